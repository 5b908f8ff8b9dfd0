"""One example of every intervention, on a small task and model: what laws and agreements are checked on."""

import torch
from transformer_lens import HookedTransformer

import bayesticket as bt

TASKS: dict[str, bt.AbstractTask] = {
    "addition": bt.ModularAddition(p=7),
    "addition, constant": bt.ModularAddition(p=7, distractors="constant", n_distractors=4),
    "addition, drawn positions": bt.ModularAddition(p=7, positions="random", n_distractors=2),
    "addition, no distractors": bt.ModularAddition(p=7, n_distractors=0),
    "multiplication": bt.ModularMultiplication(p=7),
    "three operands": bt.KOperandAddition(k=3, p=4),
    "parity": bt.SparseParity(n=8, k=3),
    "permutations": bt.PermutationComposition(n=3),
    "several queries": bt.Task(
        tokens=torch.randint(0, 6, (60, 4), generator=torch.Generator().manual_seed(0)),
        targets=torch.randint(0, 5, (60,), generator=torch.Generator().manual_seed(1)),
        informative=torch.tensor([True, False, True, False]),
    ),
}

ADDITION = TASKS["addition"]
FORWARDS = ("fast", "full")


def model_of(task: bt.AbstractTask, **options) -> HookedTransformer:
    """A small model as after training: its biases are not zero, its attention is not flat."""
    model = bt.build_model(task, d_model=12, d_mlp=16, **{"n_heads": 2, "seed": 3, "dtype": torch.float64} | options)
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(index)))
    return model


def interventions(task: bt.AbstractTask, model: HookedTransformer) -> dict[str, bt.Intervention | None]:
    """Interventions by name, each fitting the task and the model."""
    generator = torch.Generator().manual_seed(3)
    mask = torch.rand(model.blocks[0].mlp.W_in.shape, generator=generator) > 0.5
    last_head = model.cfg.n_heads - 1
    return {
        "none": None,
        "frozen": bt.FrozenAttention("oracle"),
        "frozen uniform head": bt.FrozenAttention("uniform", head=last_head),
        "frozen permuted": bt.FrozenAttention(bt.Permuted("oracle")),
        "mixed": bt.MixedAttention("adversarial", weight=0.3),
        "linear": bt.LinearAttention(),
        "linear head": bt.LinearAttention(head=last_head),
        "no residual": bt.NoResidual(),
        "no residual around attention": bt.NoResidual("attention"),
        "kl": bt.KLPrior(strength=0.7),
        "kl shifted, head": bt.KLPrior("shifted", strength=0.7, head=last_head),
        "kl teacher": bt.KLPrior(bt.build_model(task, d_model=8, d_mlp=8, seed=9), strength=0.5),
        "entropy": bt.EntropyPrior(strength=0.3),
        "sparsity": bt.SparsityPrior(strength=0.3),
        "sparsity of scores": bt.SparsityPrior(strength=0.3, on="scores"),
        "qk": bt.QKPenalty(strength=0.1),
        "norm": bt.NormMatch(radius=2.0),
        "norm of all": bt.NormMatch(radius=5.0, scope="all"),
        "ticket": bt.TicketMask({"blocks.0.mlp.W_in": mask}),
        "self-distillation": bt.SelfDistillation(strength=0.4, keep=0.9, sharpness=2.0),
        "noise": bt.GradientNoise(bt.KLPrior(strength=1.0), fraction=0.5),
        "grokfast": bt.Grokfast(alpha=0.9, gain=2.0),
        "grokfast window": bt.Grokfast(gain=0.5, window=2),
        "orthograd": bt.OrthoGrad(),
        "annealed kl": bt.KLPrior(strength=bt.Anneal(1.0, 0.0, last=30)),
        "late kl": bt.KLPrior(strength=bt.Window(1.0, start=10, stop=40)),
        "several": bt.KLPrior(strength=0.2) + bt.MixedAttention(weight=0.5) + bt.NormMatch(3.0) + bt.EntropyPrior(0.1),
    }


NAMES = list(interventions(TASKS["addition"], bt.build_model(TASKS["addition"], d_model=8, d_mlp=8)))
