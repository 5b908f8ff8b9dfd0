"""Measures against independent computations."""

import pytest
import scipy.special
import scipy.stats
import torch
import torch.nn.functional as F
from catalog import TASKS, model_of

import bayesticket as bt


def patterns(model, batch):
    _, cache = model.run_with_cache(batch.tokens)
    return cache["blocks.0.attn.hook_pattern"][:, :, -1]


@pytest.mark.parametrize("name", TASKS)
def test_structure_against_scipy(name):
    task = TASKS[name]
    model, batch = model_of(task), task.split().test
    seen = bt.measure(
        model,
        batch,
        bt.KLToOracle(),
        bt.AttentionEntropy(),
        bt.InformativeMass("mean"),
        bt.InformativeMass("least"),
        bt.KLToOracle(head=1),
    )
    alpha = patterns(model, batch).numpy()
    marked = batch.informative[:, None].double().numpy()
    oracle = marked / marked.sum(-1, keepdims=True)
    divergence = scipy.special.rel_entr(oracle, alpha).sum(-1)
    assert seen["kl_to_oracle"] == pytest.approx(divergence.mean(), rel=1e-9)
    assert seen["kl_to_oracle[head=1]"] == pytest.approx(divergence[:, 1].mean(), rel=1e-9)
    assert seen["attention_entropy"] == pytest.approx(scipy.stats.entropy(alpha, axis=-1).mean(), rel=1e-9)
    masses = [
        [alpha[n, h, i] for i in range(batch.n_positions) if batch.informative[n, i]]
        for n in range(len(batch))
        for h in range(2)
    ]
    assert seen["informative_mass_mean"] == pytest.approx(sum(map(sum, masses)) / len(masses), rel=1e-9)
    assert seen["informative_mass_least"] == pytest.approx(min(map(min, masses)), rel=1e-9)


def test_performance_against_a_loop_over_examples():
    task = TASKS["addition"]
    model, batch = model_of(task), task.split().test
    logits = model(batch.tokens)[:, -1]
    right = [int(row.argmax()) == int(target) for row, target in zip(logits, batch.targets, strict=True)]
    losses = [
        scipy.special.logsumexp(row.detach()) - row[t].item() for row, t in zip(logits, batch.targets, strict=True)
    ]
    seen = bt.measure(model, batch, bt.Loss(), bt.Accuracy())
    assert seen["accuracy"] == pytest.approx(sum(right) / len(right))
    assert seen["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-9)


def test_the_mlp_norm():
    model = model_of(TASKS["addition"])
    flat = torch.cat([p.flatten() for p in model.blocks[0].mlp.parameters()])
    assert bt.measure(model, TASKS["addition"].split().test, bt.MLPNorm())["mlp_norm"] == pytest.approx(
        flat.norm().item()
    )


@pytest.mark.parametrize("attention", ["softmax", "linear"])
@pytest.mark.parametrize("normalization_type", [None, "LN"])
@pytest.mark.parametrize("forward", ["fast", "full"])
@pytest.mark.parametrize("name", ["addition", "addition, drawn positions", "several queries", "parity"])
def test_the_attention_gradient_equals_autograds_on_an_explicit_interaction_matrix(
    name, forward, normalization_type, attention
):
    task = TASKS[name]
    model, batch = model_of(task, attention=attention, normalization_type=normalization_type), task.split().train
    seen = bt.measure(model, batch, bt.AttentionGradient(), forward=forward)["attention_gradient"]

    # The same attention, with scores made from one augmented matrix M a head that autograd can see.
    block = model.blocks[0]
    head = block.attn
    query = torch.cat([head.W_Q, head.b_Q[:, None]], 1).detach()
    key = torch.cat([head.W_K, head.b_K[:, None]], 1).detach()
    matrix = (query @ key.mT).requires_grad_()
    x = block.ln1(model.W_E[batch.tokens] + model.W_pos[: batch.n_positions])
    x = torch.cat([x, torch.ones_like(x[..., :1])], -1).detach()
    scores = torch.einsum("nd,hde,nte->nht", x[:, -1], matrix, x) / head.attn_scale

    def put_scores(whole, hook):
        whole = whole.clone()
        whole[:, :, -1] = scores
        return whole

    point = model.hook_dict["blocks.0.attn.hook_attn_scores"]
    point.add_hook(put_scores, prepend=True)
    loss = F.cross_entropy(model(batch.tokens)[:, -1], batch.targets)
    (expected,) = torch.autograd.grad(loss, matrix)
    assert seen == pytest.approx(expected.norm().item(), rel=1e-9)


def test_the_attention_gradient_is_the_tasks_alone_and_vanishes_when_attention_is_frozen():
    task = TASKS["addition"]
    model, batch = model_of(task), task.split().train
    plain = bt.measure(model, batch, bt.AttentionGradient())
    assert plain["attention_gradient"] > 0
    assert bt.measure(model, batch, bt.AttentionGradient(), intervention=bt.KLPrior(strength=100.0)) == plain
    frozen = bt.measure(model, batch, bt.AttentionGradient(), intervention=bt.FrozenAttention())
    assert frozen["attention_gradient"] == 0


def test_measures_see_what_edits_have_made():
    task = TASKS["addition"]
    model, batch = model_of(task), task.split().train
    seen = bt.measure(model, batch, bt.KLToOracle(), intervention=bt.FrozenAttention("oracle"))
    assert seen["kl_to_oracle"] == pytest.approx(0, abs=1e-12)
    for name, point in model.hook_dict.items():
        assert not point.fwd_hooks, name


def test_layers_and_heads_of_a_deeper_model():
    from bayesticket.model.build import hooked_transformer

    config = {"n_layers": 2, "d_model": 8, "d_head": 4, "n_heads": 2, "n_ctx": 5, "d_vocab": 9, "act_fn": "relu"}
    model = hooked_transformer(config | {"normalization_type": "LN"}, seed=0, device="cpu")
    batch = TASKS["addition"].split().test
    seen = bt.measure(model, batch, bt.KLToOracle(layer=1, head=1), bt.AttentionGradient(layer=1))
    _, cache = model.run_with_cache(batch.tokens)
    alpha = cache["blocks.1.attn.hook_pattern"][:, 1, -1]
    expected = scipy.special.rel_entr(batch.oracle.numpy(), alpha.numpy()).sum(-1).mean()
    assert seen["kl_to_oracle[layer=1,head=1]"] == pytest.approx(expected, rel=1e-5)
    assert seen["attention_gradient[layer=1]"] > 0


def test_a_measure_of_ones_own_needs_nothing_but_a_class():

    @bt.spec
    class MeanPattern(bt.AttentionMeasure):
        def value(self, seen):
            return self.patterns(seen).mean((0, 1))

    task = TASKS["addition"]
    run = bt.train(task, measures=[MeanPattern()], epochs=10, model=bt.Architecture(d_model=8, d_mlp=8))
    columns = [f"mean_pattern[{place}]" for place in range(5)]
    assert run.curves[columns].sum(axis=1).to_numpy() == pytest.approx(1.0, abs=1e-5)
    value = bt.measure(run.model, task.split().train, MeanPattern())["mean_pattern"]
    assert value.tolist() == pytest.approx(run.curves[columns].iloc[-1].tolist(), rel=1e-4)
