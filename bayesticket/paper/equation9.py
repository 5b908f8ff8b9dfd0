"""What the minimal model has beyond Eq. 9, taken away part by part: biases, W_O, and the unembedding after W_out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import plotly.graph_objects as go
import torch
from torch import Tensor, nn

from bayesticket.analysis import Estimate, Times, ratio_of_medians
from bayesticket.interventions import KLPrior
from bayesticket.model import Architecture, HookedTransformer, build, equip, hooked_transformer, is_bias
from bayesticket.paper.arms import LAYOUTS, STRENGTH, arm, baseline, with_prior
from bayesticket.paper.comparing import EACH_COMPARISON
from bayesticket.paper.figure import FEWEST, Claim, PaperFigure, Scale, Verdict
from bayesticket.paper.readings import Grokking, by_every_reading, together
from bayesticket.paper.times import DOTS, EARLIER, compared, earlier, plot_times, shares, times_of
from bayesticket.runs import TrainConfig
from bayesticket.sweeps import Configs, Runs
from bayesticket.tasks import AbstractTask

AS_BUILT = "as built"
NONE, ORACLE = "no prior", "oracle"
NEAR = 2.0
"""Two variants are as fast when the ratio of their medians is surely below this, and above its inverse."""


def without_biases(task: AbstractTask, seed: int) -> HookedTransformer:
    """The model with all biases held at 0."""
    return build(Architecture(biases=False), task, seed=seed)


def without_output(task: AbstractTask, seed: int) -> HookedTransformer:
    """The model with W_O held at the identity and its bias at 0, so that the MLP gets the pooled value itself."""
    model = build(Architecture(), task, seed=seed)
    _hold(model.blocks[0].attn.W_O, torch.eye(model.cfg.d_head))
    _hold(model.blocks[0].attn.b_O, 0.0)
    return model


def without_unembedding(task: AbstractTask, seed: int) -> HookedTransformer:
    """The model whose MLP gives the logits: W_out is d_mlp × classes, and W_U is held at the identity.

    Its stream is as wide as there are classes. Embeddings, values and what the MLP reads stay in the first d_model
    dimensions: all else is 0, and has gradient 0, since nothing leads there.
    """
    small = build(Architecture(), task, seed=seed)
    width = max(small.cfg.d_model, task.d_vocab_out)
    wide = Architecture(d_model=width)
    model = hooked_transformer(wide.settings(task) | {"d_head": small.cfg.d_head}, seed=seed)
    with torch.no_grad():
        for (name, parameter), given in zip(model.named_parameters(), small.parameters(), strict=True):
            if "W_out" not in name:
                parameter.zero_()[tuple(map(slice, given.shape))] = given
    _hold(model.unembed.W_U, torch.eye(width, task.d_vocab_out))
    _hold(model.unembed.b_U, 0.0)
    equip(model, wide)
    return model


def without_all(task: AbstractTask, seed: int) -> HookedTransformer:
    """The model of Eq. 9 alone: without biases, W_O and unembedding."""
    model = without_unembedding(task, seed)
    _hold(model.blocks[0].attn.W_O, torch.eye(model.cfg.d_head, model.cfg.d_model))
    for name, parameter in model.named_parameters():
        if is_bias(name):
            _hold(parameter, 0.0)
    return model


def _hold(parameter: Tensor | nn.Module, value: Tensor | float) -> None:
    """Gives a parameter a value, and trains it no more."""
    assert isinstance(parameter, Tensor)
    with torch.no_grad():
        parameter.copy_(torch.as_tensor(value).expand_as(parameter))
    parameter.requires_grad_(False)


VARIANTS: Mapping[str, Callable[[AbstractTask, int], HookedTransformer]] = {
    "without biases": without_biases,
    "without W_O": without_output,
    "without unembedding": without_unembedding,
    "without all of these": without_all,
}


def name_of(variant: str, prior: str, layout: str) -> str:
    """The name of an arm."""
    return f"{variant}, {prior}, {layout}"


def arms(scale: Scale) -> Mapping[str, TrainConfig]:
    """The model as it is in the other figures, in both layouts, with and without the oracle."""
    return {
        name_of(AS_BUILT, prior, layout): config(scale, distractors)
        for layout, distractors in LAYOUTS.items()
        for prior, config in ((NONE, baseline), (ORACLE, with_prior))
    }


def then(scale: Scale, runs: Runs) -> Configs:
    """The variants, whose first weights are those of the same seed as far as they are there."""
    made: dict[tuple[str, int], TrainConfig] = {}
    for layout, distractors in LAYOUTS.items():
        for prior, intervention in ((NONE, None), (ORACLE, KLPrior(strength=STRENGTH))):
            plain = arm(scale, intervention, distractors=distractors)
            for variant, model_of in VARIANTS.items():
                for seed in runs.seeds:
                    model = model_of(plain.task, seed)
                    made[name_of(variant, prior, layout), seed] = replace(plain, model=model, seed=seed)
    return made


def draw(runs: Runs) -> Mapping[str, go.Figure]:
    """When every run groks, the variants of a layout and prior one below the other."""
    times, variants = times_of(runs), (AS_BUILT, *VARIANTS)
    names = [name_of(each, prior, layout) for layout in LAYOUTS for prior in (NONE, ORACLE) for each in variants]
    return {DOTS: plot_times({name: times[name] for name in names})}


def judge_at(runs: Runs, reading: Grokking) -> list[Claim]:
    """Whether the prior acts alike in every variant, and whether each is as fast."""
    times = times_of(runs, reading)
    return [claim(times, layout) for layout in LAYOUTS for claim in (_acts_alike, _as_fast)]


def _acts_alike(times: Mapping[str, Times], layout: str) -> Claim:
    pairs = {each: (name_of(each, ORACLE, layout), name_of(each, NONE, layout)) for each in (AS_BUILT, *VARIANTS)}
    verdicts: dict[str, Verdict] = {each: earlier(times[a], times[b]) for each, (a, b) in pairs.items()}
    names = [name for pair in pairs.values() for name in pair]
    return Claim(
        f"With the oracle runs grok earlier, whatever the model has beyond Eq. 9 ({layout}).",
        (
            EACH_COMPARISON,
            EARLIER,
        ),
        "\n".join([shares(times, names), *(compared(times, *pair) for pair in pairs.values())]),
        together(list(verdicts.values())),
        "a control",
        arms=tuple(names),
        readings=verdicts,
    )


NEARNESS = (
    f"As fast: the 95% interval of the ratio of median grokking times lies between {1 / NEAR:g} and {NEAR:g}, with "
    f"{FEWEST} seeds or more. An interval outside of that is not reproduced. All else is undecided."
)
"""The rule of `near`, in words."""


def near(first: Times, second: Times) -> tuple[Verdict, Estimate]:
    """Whether one arm is as fast as another, and the ratio of their medians; see `NEARNESS`."""
    ratio = ratio_of_medians(first, second)
    low, high = ratio.low or 0.0, float("inf") if ratio.high is None else ratio.high
    if min(len(first), len(second)) < FEWEST:
        return "undecided", ratio
    if low >= 1 / NEAR and high <= NEAR:
        return "reproduced", ratio
    return ("not reproduced" if high < 1 / NEAR or low > NEAR else "undecided"), ratio


def _as_fast(times: Mapping[str, Times], layout: str) -> Claim:
    def found(prior: str) -> Sequence[tuple[str, tuple[Verdict, Estimate]]]:
        built = times[name_of(AS_BUILT, prior, layout)]
        return [(each, near(times[name_of(each, prior, layout)], built)) for each in VARIANTS]

    with_oracle = found(ORACLE)
    return Claim(
        f"With the oracle each variant groks as fast as the model as built ({layout}).",
        (
            NEARNESS,
            EACH_COMPARISON,
        ),
        "\n".join(f"{each[0].upper()}{each[1:]}: the ratio of medians is {ratio}." for each, (_, ratio) in with_oracle),
        together([verdict for _, (verdict, _) in with_oracle]),
        "a control",
        arms=tuple(name_of(each, ORACLE, layout) for each in (AS_BUILT, *VARIANTS)),
        readings={
            **{each: verdict for each, (verdict, _) in with_oracle},
            "without a prior": together([verdict for _, (verdict, _) in found(NONE)]),
        },
    )


FIGURE = PaperFigure(
    "equation9",
    "Equation 9: what the model has beyond it",
    "Eq. 9 pools values and hands the result to an MLP classifier. The minimal model has biases, an output matrix W_O "
    "between attention and MLP, and an unembedding after W_out, which bounds the rank of the classifier's last matrix "
    "by d_model. Each is taken away alone, and all together: biases held at 0, W_O at the identity, and W_U at the "
    f"identity on a stream as wide as there are classes. Both layouts, without a prior and with one of strength "
    f"{STRENGTH:g} toward the oracle.",
    arms,
    draw,
    by_every_reading(judge_at),
    then,
)
