"""Figure 1: without any intervention, attention condenses, the gradient collapses, and accuracy rises late."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import plotly.graph_objects as go

from bayesticket.figures import ACCURACY, KL, MASS, PALETTE, Panel, add_band, finish_arms, stacked
from bayesticket.paper.arms import LAYOUTS, baseline
from bayesticket.paper.figure import SHARES, Claim, Curves, PaperFigure, Scale, curves_of, verdict_of
from bayesticket.paper.phases import phase_claims
from bayesticket.paper.readings import CHANCE, TEST, THRESHOLD, UNSEEN, Grokking, by_accuracy
from bayesticket.paper.words import across, sentences, so_many, when
from bayesticket.runs import TrainConfig, first_epoch, settled_epoch
from bayesticket.sweeps import Runs

CONDENSED = 0.1
"""Attention has condensed when its divergence from the oracle is this share of what it was at the start."""
COLLAPSED = 10.0
"""The gradient spikes by this factor from where it began, and has collapsed when it falls by as much."""
RISEN = 0.5
"""Accuracy has risen when it reaches this."""


def arms(scale: Scale) -> Mapping[str, TrainConfig]:
    """The baseline in both layouts."""
    return {name: baseline(scale, distractors) for name, distractors in LAYOUTS.items()}


def draw(runs: Runs) -> Mapping[str, go.Figure]:
    """Accuracy, attention, divergence, gradient, training loss and norm, median and quartiles."""
    curves = {
        UNSEEN.curve: replace(ACCURACY, title="accuracy on unseen test examples"),
        TEST.curve: replace(ACCURACY, title="test accuracy"),
        "informative_mass_mean": MASS,
        "kl_to_oracle": KL,
        "attention_gradient": Panel("gradient of the task in the attention, ‖∂L/∂M‖", log=True),
        "train_loss": Panel("training loss", log=True),
        "mlp_norm": Panel("norm of the MLP"),
    }
    panels = list(curves.values())
    figure = stacked(panels, panel_height=150)
    for colour, name in zip(PALETTE, LAYOUTS, strict=False):
        for panel, column in enumerate(curves, 1):
            add_band(figure, runs, name, column, panel=panel, colour=colour)
    finish_arms(figure, panels, int(runs.curves["trained"].max()))
    return {"Accuracy, attention and gradient without any intervention; median and quartiles over seeds.": figure}


def judge(runs: Runs) -> list[Claim]:
    """What comes before what, for each layout."""

    def of_layout(name: str) -> list[Claim]:
        tables = list(curves_of(runs, name).values())

        def judge_at(runs: Runs, reading: Grokking) -> list[Claim]:
            return [_condenses(name, tables, reading), _waits(name, tables, reading)]

        return [*by_accuracy(judge_at)(runs), _collapses(name, tables), *phase_claims(name, tables)]

    return [claim for name in LAYOUTS for claim in of_layout(name)]


Condensing = Callable[[Curves], int | None]


def first_condensed(curves: Curves, share: float = CONDENSED) -> int | None:
    """When the divergence is first small."""
    kl = curves["kl_to_oracle"]
    return first_epoch(kl <= share * kl.iloc[0])


def condensed_for_good(curves: Curves) -> int | None:
    """From when on the divergence is small at every record."""
    kl = curves["kl_to_oracle"]
    return settled_epoch(kl <= CONDENSED * kl.iloc[0])


FOR_GOOD = "condensed when the divergence is small for good"
OTHERWISE: Mapping[str, Condensing] = {
    FOR_GOOD: condensed_for_good,
    "condensed at a twentieth of the first divergence": partial(first_condensed, share=0.05),
    "condensed at a fifth of it": partial(first_condensed, share=0.2),
}
"""Other readings of when attention has condensed."""


def _condenses(name: str, tables: Sequence[Curves], reading: Grokking) -> Claim:
    def lead(condensed: Condensing) -> list[int | None]:
        """By how much attention condenses earlier, for each run whose accuracy rises; None where it does not."""
        pairs = [(condensed(curves), reading.epoch(curves, RISEN)) for curves in tables]
        return [then - first if first is not None and first < then else None for first, then in pairs if then]

    leads = lead(first_condensed)
    before = [each for each in leads if each is not None]
    first_in = so_many(len(before), len(leads), which=f"that reached {RISEN:.0%}")
    return Claim(
        f"Attention condenses before accuracy rises ({name}).",
        (
            f"The divergence from the oracle first falls to {CONDENSED:.0%} of its first value before accuracy reaches "
            f"{RISEN:.0%}. Counted are the runs that reach it.",
            SHARES,
        ),
        sentences(
            f"{reading.accuracy} reached {RISEN:.0%} {when([reading.epoch(curves, RISEN) for curves in tables])}",
            f"attention first condensed {when([first_condensed(curves) for curves in tables])}",
            f"it condensed for good {when([condensed_for_good(curves) for curves in tables])}",
            f"it first did so before accuracy rose in {first_in}" if leads else "",
            f"it was {across(before)} epochs earlier" if before else "",
        ),
        verdict_of([each is not None for each in leads]),
        arms=(name,),
        readings={
            said: verdict_of([each is not None for each in lead(condensed)]) for said, condensed in OTHERWISE.items()
        },
    )


def _waits(name: str, tables: Sequence[Curves], reading: Grokking) -> Claim:
    leaving = [curves for curves in tables if reading.epoch(curves, CHANCE) is not None]

    def waits(condensed: Condensing) -> list[bool]:
        """Of each run whose accuracy leaves chance, whether attention has condensed before."""
        pairs = [(condensed(curves), reading.epoch(curves, CHANCE)) for curves in leaving]
        return [first is not None and then is not None and first < then for first, then in pairs]

    holds = waits(first_condensed)
    ends = [(curves, first_condensed(curves)) for curves in tables]
    highest = [float(curves[reading.curve].loc[:epoch].max()) for curves, epoch in ends]
    return Claim(
        f"Accuracy stays near chance until the divergence is small ({name}).",
        (
            f"Accuracy is below {CHANCE:.0%} until, and when, the divergence is first {CONDENSED:.0%} of its first "
            "value. Counted are the runs whose accuracy ever leaves chance.",
            SHARES,
        ),
        sentences(
            f"{reading.accuracy} reached {CHANCE:.0%} {when([reading.epoch(curves, CHANCE) for curves in tables])}",
            f"the divergence fell to {CONDENSED:.0%} of its first value {when([epoch for _, epoch in ends])}",
            f"until then, or the end, the best {reading.accuracy} was {across(highest, '.1%')}",
            f"it left chance after that in {so_many(sum(holds), len(holds), which='that ever left it')}"
            if holds
            else "",
        ),
        verdict_of(holds),
        arms=(name,),
        readings={said: verdict_of(waits(condensed)) for said, condensed in OTHERWISE.items()},
    )


def _collapses(name: str, tables: Sequence[Curves]) -> Claim:
    known = [ratios for curves in tables if (ratios := _spike(curves)) is not None]
    fell = [min(ratios[:2]) >= COLLAPSED for ratios in known]
    as_claimed = so_many(sum(fell), len(known), which="that memorised")
    rises, falls, least = (across([ratios[place] for ratios in known]) for place in range(3))
    return Claim(
        f"The attention's gradient spikes while memorising, then collapses ({name}).",
        (
            f"Its peak before memorising is at least {COLLAPSED:g} times its first value, and {COLLAPSED:g} times its "
            "median from there until grokking by unseen accuracy, or the end. Counted are the runs that memorise "
            "before that.",
            SHARES,
        ),
        sentences(
            f"{so_many(len(known), len(tables))} memorised before they grokked or ended",
            f"the gradient spiked and collapsed in {as_claimed}" if known else "",
            f"the peak was {rises} times the first value, {falls} times the later median, and {least} times the least "
            "value later"
            if known
            else "",
        ),
        verdict_of(fell),
        arms=(name,),
        readings={
            "the least value afterwards in place of the median": verdict_of(
                [min(rise, low) >= COLLAPSED for rise, _, low in known]
            ),
            "the collapse alone, without a spike": verdict_of([fall >= COLLAPSED for _, fall, _ in known]),
        },
    )


def _spike(curves: Curves) -> tuple[float, float, float] | None:
    """The gradient's peak before memorising, over its first value, and over its median and least afterwards."""
    memorised = first_epoch(curves["train_accuracy"] >= THRESHOLD)
    gradient = curves["attention_gradient"]
    grokked = UNSEEN.epoch(curves)
    end = int(gradient.index[-1]) if grokked is None else grokked
    if memorised is None or memorised >= end:
        return None
    peak, later = float(gradient.loc[:memorised].max()), gradient.loc[memorised + 1 : end]
    return tuple(_times(peak, float(value)) for value in (gradient.iloc[0], later.median(), later.min()))  # type: ignore[return-value]


def _times(number: float, other: float) -> float:
    return number / other if other else math.inf


FIGURE = PaperFigure(
    "fig1",
    "Figure 1: the dynamics without any intervention",
    "It is trained on modular addition with weight decay and nothing else, with random distractors (drawn once per "
    "example) and with constant ones.",
    arms,
    draw,
    judge,
)
