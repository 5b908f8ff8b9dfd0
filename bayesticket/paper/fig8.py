"""Figure 8: operands at positions drawn for each sequence, and longer sequences than those of training."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

import plotly.graph_objects as go
import torch
from jaxtyping import Float
from torch import Tensor

from bayesticket.figures import PALETTE, TEMPLATE
from bayesticket.interventions import Intervention, KLPrior
from bayesticket.measures import KLToOracle
from bayesticket.model import Architecture
from bayesticket.paper.arms import STRENGTH, arm
from bayesticket.paper.comparing import EACH_COMPARISON, Arms, arm_of, arms_of
from bayesticket.paper.figure import FEWEST, SHARES, Claim, PaperFigure, Scale, Verdict, curves_of, verdict_of
from bayesticket.paper.readings import CHANCE, THRESHOLD, UNSEEN, Grokking, by_every_reading, together
from bayesticket.paper.times import DOTS, SIGNIFICANT, plot_accuracy, plot_times, times_of
from bayesticket.paper.words import across, sentences, so_many
from bayesticket.runs import TrainConfig
from bayesticket.sweeps import Runs
from bayesticket.tasks import ModularAddition

NONE, ORACLE, FIXED = "no prior", "oracle of each sequence", "oracle of fixed positions"
LEARNED, DRAWN, WITHOUT = "learned positions", "drawn positions", "no positions"
POSITIONS = {
    LEARNED: Architecture(n_ctx=24),
    DRAWN: Architecture(n_ctx=24, positions="drawn"),
    WITHOUT: Architecture(n_ctx=24, positions="none"),
}
"""What tells where a token stands, in a model with room for 24."""
TRAINED, LENGTHS = 6, (8, 12, 16, 24)
SUBSTANTIAL = 0.1
"""Accuracy is substantially better if it is by this much."""


def task_of(scale: Scale, length: int) -> ModularAddition:
    """Addition in sequences of a length, the operands anywhere before `=`, in their order."""
    return ModularAddition(p=scale.p, positions="random", n_distractors=length - 4)


def fixed_oracle(length: int) -> Float[Tensor, "T"]:
    """The oracle of sequences whose operands stand at positions 0 and 2: a wrong target for most of these."""
    return torch.tensor([0.5, 0.0, 0.5, *[0.0] * (length - 3)])


def label(length: int) -> str:
    """What an evaluation is called."""
    return f"T={length}"


def arms(scale: Scale) -> Mapping[str, TrainConfig]:
    """No prior and the oracle with each kind of positions; the oracle of fixed positions with learned ones."""
    priors: Mapping[str, Intervention | None] = {NONE: None, ORACLE: KLPrior(strength=STRENGTH)}
    named = [(kind, prior, made) for kind in POSITIONS for prior, made in priors.items()]
    named.insert(2, (LEARNED, FIXED, KLPrior(fixed_oracle(TRAINED), strength=STRENGTH)))
    return {arm_of(kind, prior): _arm(scale, POSITIONS[kind], made) for kind, prior, made in named}


def _arm(scale: Scale, model: Architecture, prior: Intervention | None) -> TrainConfig:
    return arm(
        scale, prior, task=task_of(scale, TRAINED), model=model, patience=1000, measures=(KLToOracle(),),
        evaluate={label(length): task_of(scale, length) for length in LENGTHS},
    )  # fmt: skip


def accuracies(runs: Runs, arm: str, reading: Grokking, length: int, *, grokked: bool = False) -> list[float]:
    """The accuracy of each run of an arm, or of each that grokked, at a length when its training ended."""
    column = reading.curve if length == TRAINED else f"{label(length)}/{reading.curve}"
    tables = [each for each in curves_of(runs, arm).values() if not grokked or reading.epoch(each) is not None]
    return [float(curves[column].iloc[-1]) for curves in tables]


def draw(runs: Runs) -> Mapping[str, go.Figure]:
    """Grokking times, accuracy through training, and accuracy by length."""
    learned = [arm_of(LEARNED, prior) for prior in (NONE, ORACLE, FIXED)]
    lengths = go.Figure()
    for colour, kind in zip(PALETTE, POSITIONS, strict=False):
        for dash, prior in (("dot", NONE), ("solid", ORACLE)):
            lengths.add_trace(_by_length(runs, arm_of(kind, prior), colour, dash))
    lengths.update_layout(
        template=TEMPLATE, height=420, margin={"t": 40},
        yaxis={"title": {"text": "unseen accuracy at the end"}, "tickformat": ".0%", "range": [-0.03, 1.05]},
        xaxis={"title": {"text": f"length of the sequences (trained at {TRAINED})"}, "tickvals": [TRAINED, *LENGTHS]},
    )  # fmt: skip
    return {
        DOTS: plot_times(times_of(runs)),
        f"Unseen accuracy through training, {LEARNED}; median and quartiles over seeds.": plot_accuracy(runs, learned),
        "Unseen accuracy at the end of training by the length of the sequences; medians, and the range over seeds.": (
            lengths
        ),
    }


def _by_length(runs: Runs, name: str, colour: str, dash: str) -> go.Scatter:
    values = [sorted(accuracies(runs, name, UNSEEN, length)) for length in (TRAINED, *LENGTHS)]
    middles = [each[len(each) // 2] for each in values]
    return go.Scatter(
        x=[TRAINED, *LENGTHS], y=middles, name=name, mode="lines+markers", line={"color": colour, "dash": dash},
        error_y={
            "type": "data", "array": [each[-1] - middle for each, middle in zip(values, middles, strict=True)],
            "arrayminus": [middle - each[0] for each, middle in zip(values, middles, strict=True)],
            "thickness": 1,
        },
    )  # fmt: skip


def judge_at(runs: Runs, reading: Grokking) -> list[Claim]:
    """What is claimed of operands anywhere, and of longer sequences."""
    times = times_of(runs, reading)
    of_kind = {kind: arms_of(times, kind) for kind in POSITIONS}
    return [*_anywhere(of_kind), _longer(runs, reading), _imperfect(runs, reading)]


def _anywhere(of_kind: Mapping[str, Arms]) -> list[Claim]:
    learned = of_kind[LEARNED]
    restores = learned.beats(
        "With operands at positions drawn for each sequence, the oracle of each sequence makes runs grok earlier than "
        "no prior", ORACLE, NONE, by="the paper",
    )  # fmt: skip
    others: dict[str, Verdict] = {kind: of_kind[kind].beat(ORACLE, NONE) for kind in (DRAWN, WITHOUT)}
    wrong = learned.beats("It is the oracle of each sequence that does, not one of fixed positions", ORACLE, FIXED,
                          {"the fixed one against no prior": (NONE, FIXED)})  # fmt: skip
    return [replace(restores, readings=others), wrong]


BETTER = (
    f"At the end of training the median accuracy at every length ({', '.join(map(str, LENGTHS))}) is higher with the "
    f"prior by at least {SUBSTANTIAL:.0%} of all examples, and higher by a Mann–Whitney test with p < {SIGNIFICANT:g}: "
    "then the claim is reproduced at that length. Higher by less is partly. Lower by that test is not reproduced, nor "
    f"is what is surely not {SUBSTANTIAL:.0%} higher: lower by that test with so much added to the accuracy without "
    "the prior. All else is undecided."
)
"""The rule of `better`, in words."""


OF_THOSE_THAT_GROK = "among the runs that grok at the length of training, so that something is kept"


def better(first: Sequence[float], second: Sequence[float]) -> Verdict:
    """Whether accuracies are substantially better than others; see `BETTER`."""
    from scipy.stats import mannwhitneyu

    def differ(others: Sequence[float]) -> bool:
        return bool(mannwhitneyu(first, others).pvalue < SIGNIFICANT)

    if min(len(first), len(second)) < FEWEST:
        return "undecided"
    difference = median(first) - median(second)
    if differ(second):
        return "reproduced" if difference >= SUBSTANTIAL else "partly" if difference > 0 else "not reproduced"
    raised = [value + SUBSTANTIAL for value in second]
    return "not reproduced" if difference < SUBSTANTIAL and differ(raised) else "undecided"


def _longer(runs: Runs, reading: Grokking) -> Claim:
    def verdicts(kind: str, *, grokked: bool = False) -> dict[str, Verdict]:
        return {
            f"{label(length)}, {kind}": better(
                *(accuracies(runs, arm_of(kind, prior), reading, length, grokked=grokked) for prior in (ORACLE, NONE))
            )
            for length in LENGTHS
        }

    by_kind = {kind: verdicts(kind) for kind in POSITIONS}
    others: dict[str, Verdict] = {k: together(list(each.values())) for k, each in by_kind.items() if k != DRAWN}
    others[OF_THOSE_THAT_GROK] = together(list(verdicts(DRAWN, grokked=True).values()))
    lines = [
        f"{kind}, {prior}: "
        + "; ".join(
            f"{label(n)} {across(accuracies(runs, arm_of(kind, prior), reading, n), '.1%')}"
            for n in (TRAINED, *LENGTHS)
        )
        + "."
        for kind in POSITIONS
        for prior in (ORACLE, NONE)
    ]
    return Claim(
        "In longer sequences than those of training the prior keeps substantially better accuracy.",
        (BETTER, f"The claim is judged with {DRAWN}, where every position was trained.", EACH_COMPARISON),
        "\n".join(lines),
        together(list(by_kind[DRAWN].values())),
        arms=tuple(arm_of(kind, prior) for kind in POSITIONS for prior in (ORACLE, NONE)),
        readings=others | by_kind[DRAWN],
    )


def _imperfect(runs: Runs, reading: Grokking) -> Claim:
    longest = LENGTHS[-1]

    def holds(kind: str) -> tuple[list[float], list[bool]]:
        found = accuracies(runs, arm_of(kind, ORACLE), reading, longest, grokked=True)
        return found, [CHANCE <= accuracy < THRESHOLD for accuracy in found]

    found, each = holds(DRAWN)
    return Claim(
        "In the longest sequences accuracy with the prior is above chance, and not perfect.",
        (
            f"At the end of training the accuracy at length {longest}, with {DRAWN}, is at least {CHANCE:.0%} "
            f"and below {THRESHOLD:.0%}. Counted are the runs that grok at the length of training.",
            SHARES,
        ),
        sentences(
            f"{so_many(len(each), len(runs.seeds))} grokked",
            f"this holds in {so_many(sum(each), len(each), which='that grokked')}" if each else "",
            f"the accuracy is {across(found, '.1%')}" if each else "",
        ),
        verdict_of(each),
        arms=tuple(arm_of(kind, ORACLE) for kind in POSITIONS),
        readings={kind: verdict_of(holds(kind)[1]) for kind in POSITIONS if kind != DRAWN},
    )


FIGURE = PaperFigure(
    "fig8",
    "Figure 8: operands anywhere, and longer sequences",
    f"Sequences of {TRAINED} positions: two operands and `+` with two random distractors in an alphabet of their own, "
    "the operands at positions drawn for each sequence. No prior, a KL prior toward the oracle of each sequence, or "
    f"one toward positions 0 and 2, of strength {STRENGTH:g}. The model has room for 24 positions, and is also asked "
    "about sequences of 8, 12, 16 and 24, the same operands among more distractors. What tells where a token stands: "
    "learned embeddings, of which training reaches the first six; embeddings at positions drawn anew for each sequence "
    "and epoch; or nothing.",
    arms,
    draw,
    by_every_reading(judge_at),
    notes=(
        "What the paper's model has at positions that training does not reach is lost from our copy.",
        "Operands and distractors have different tokens, since otherwise nothing would tell them apart.",
    ),
)
