"""Figure 1: without any intervention, attention condenses, the gradient collapses, and accuracy rises late."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd
import plotly.graph_objects as go

from bayesticket.analysis import find_phases
from bayesticket.figures import ACCURACY, KL, MASS, PALETTE, Panel, add_band, finish_arms, stacked
from bayesticket.paper.figure import (
    CHANCE,
    LAYOUTS,
    SHARES,
    THRESHOLD,
    Claim,
    Curves,
    PaperFigure,
    Scale,
    baseline,
    curves_of,
    verdict_of_share,
)
from bayesticket.paper.words import across, sentences, so_many, when
from bayesticket.runs import TrainConfig, first_epoch, settled_epoch
from bayesticket.sweeps import Runs

CONDENSED = 0.1
"""Attention has condensed when its divergence from the oracle stays below this share of what it was at the start."""
COLLAPSED = 10.0
"""The gradient spikes by this factor from where it began, and has collapsed when it falls by as much."""


def arms(scale: Scale) -> Mapping[str, TrainConfig]:
    """The baseline in both layouts."""
    return {name: baseline(scale, distractors) for name, distractors in LAYOUTS.items()}


def draw(runs: Runs) -> Mapping[str, go.Figure]:
    """Accuracy, attention, divergence and gradient, median and quartiles."""
    panels = (
        replace(ACCURACY, title="test accuracy"),
        MASS,
        KL,
        Panel("gradient of the task in the attention, ‖∂L/∂M‖", log=True),
    )
    columns = ("test_accuracy", "informative_mass_mean", "kl_to_oracle", "attention_gradient")
    figure = stacked(panels, panel_height=165)
    for colour, name in zip(PALETTE, LAYOUTS, strict=False):
        for panel, column in enumerate(columns, 1):
            add_band(figure, runs, name, column, panel=panel, colour=colour)
    finish_arms(figure, panels, int(runs.curves["trained"].max()))
    return {"Test accuracy, attention and gradient without any intervention; median and quartiles over seeds.": figure}


def judge(runs: Runs) -> list[Claim]:
    """What comes before what, for each layout."""
    parts = (_condenses, _waits, _collapses, _rises)
    return [claim for name in LAYOUTS for claim in (part(name, list(curves_of(runs, name).values())) for part in parts)]


def _condensed(curves: Curves) -> int | None:
    kl = curves["kl_to_oracle"]
    return settled_epoch(kl <= CONDENSED * kl.iloc[0])


def _condenses(name: str, tables: Sequence[Curves]) -> Claim:
    condensed = [_condensed(curves) for curves in tables]
    risen = [first_epoch(curves["test_accuracy"] >= 0.5) for curves in tables]
    rose = [(first, then) for first, then in zip(condensed, risen, strict=True) if then is not None]
    before = [then - first for first, then in rose if first is not None and first < then]
    first_in = so_many(len(before), len(rose), which="that reached 50%")
    earlier = f", {across(before)} epochs earlier" if before else ""
    return Claim(
        f"Attention condenses before test accuracy rises ({name}).",
        (
            f"The divergence from the oracle falls to {CONDENSED:.0%} of its first value, and stays below, before test "
            "accuracy reaches 50%. Counted are the runs that reach it.",
            SHARES,
        ),
        sentences(
            f"test accuracy reached 50% {when(risen)}",
            f"attention condensed for good {when(condensed)}",
            f"it did so before test accuracy rose in {first_in}{earlier}" if rose else "",
        ),
        verdict_of_share(len(before), len(rose)),
        arms=(name,),
    )


def _waits(name: str, tables: Sequence[Curves]) -> Claim:
    condensed = [(curves, epoch) for curves in tables if (epoch := _condensed(curves)) is not None]
    accuracies = [float(curves["test_accuracy"].loc[epoch]) for curves, epoch in condensed]
    at_chance = sum(accuracy < CHANCE for accuracy in accuracies)
    below = so_many(at_chance, len(accuracies), which="where it fell so far")
    fell = f"the divergence fell to {CONDENSED:.0%} of its first value for good"
    return Claim(
        f"Test accuracy stays near chance until the divergence is small ({name}).",
        (
            f"When the divergence has fallen to {CONDENSED:.0%} of its first value for good, test accuracy is below "
            f"{CHANCE:.0%}. Counted are the runs where it falls so far.",
            SHARES,
        ),
        sentences(
            f"{fell} in {so_many(len(accuracies), len(tables))}",
            f"test accuracy was then {across(accuracies, '.1%')}" if accuracies else "",
            f"it was below {CHANCE:.0%} in {below}" if accuracies else "",
        ),
        verdict_of_share(at_chance, len(accuracies)),
        arms=(name,),
    )


def _collapses(name: str, tables: Sequence[Curves]) -> Claim:
    known = [ratios for curves in tables if (ratios := _spike(curves)) is not None]
    fell = [ratios for ratios in known if min(ratios) >= COLLAPSED]
    as_claimed = so_many(len(fell), len(known), which="that memorised")
    rises, falls = (across([ratios[place] for ratios in known]) for place in (0, 1))
    return Claim(
        f"The attention's gradient spikes while memorising, then collapses ({name}).",
        (
            f"Its peak before memorising is at least {COLLAPSED:g} times its first value, and {COLLAPSED:g} times its "
            "median from there until grokking, or the end. Counted are the runs that memorise before that.",
            SHARES,
        ),
        sentences(
            f"{so_many(len(known), len(tables))} memorised before they grokked or ended",
            f"the gradient spiked and collapsed in {as_claimed}" if known else "",
            f"the peak was {rises} times the first value, and {falls} times the later median" if known else "",
        ),
        verdict_of_share(len(fell), len(known)),
        arms=(name,),
    )


def _spike(curves: Curves) -> tuple[float, float] | None:
    """The gradient's peak before memorising, as a multiple of its first value and of its median afterwards."""
    memorised = first_epoch(curves["train_accuracy"] >= THRESHOLD)
    gradient = curves["attention_gradient"]
    grokked = first_epoch(curves["test_accuracy"] >= THRESHOLD)
    end = int(gradient.index[-1]) if grokked is None else grokked
    if memorised is None or memorised >= end:
        return None
    peak, later = float(gradient.loc[:memorised].max()), float(gradient.loc[memorised + 1 : end].median())
    return _times(peak, float(gradient.iloc[0])), _times(peak, later)


def _times(number: float, other: float) -> float:
    return number / other if other else math.inf


def _rises(name: str, tables: Sequence[Curves]) -> Claim:
    phases = [find_phases(pd.DataFrame(curves)) for curves in tables]
    grokked = [each for each in phases if each.grokked is not None]
    risen = [each.resurgence for each in grokked]
    n_risen = sum(epoch is not None for epoch in risen)
    return Claim(
        f"Before grokking the gradient rises again and attention moves to the oracle, phase 3 ({name}).",
        (
            "The rule of bayesticket.analysis.find_phases finds a resurgence: the smoothed gradient doubles from its "
            "least value, and the divergence is half of what it was when the run memorised. Counted are the runs that "
            "grok.",
            SHARES,
        ),
        sentences(
            f"{so_many(len(grokked), len(phases))} grokked",
            f"there was a resurgence {when(risen, 'that grokked')}" if grokked else "",
        ),
        verdict_of_share(n_risen, len(grokked)),
        arms=(name,),
    )


FIGURE = PaperFigure(
    "fig1",
    "Figure 1: the dynamics without any intervention",
    "The paper's model is trained on modular addition with weight decay and nothing else, with random distractors "
    "(drawn once per example) and with constant ones.",
    arms,
    draw,
    judge,
)
