"""Figure 1: without any intervention, attention condenses, the gradient collapses, and accuracy rises late."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd
import plotly.graph_objects as go

from bayesticket.config import TrainConfig
from bayesticket.paper.figure import (
    LAYOUTS,
    Claim,
    Curves,
    PaperFigure,
    Scale,
    across,
    baseline,
    curves_of,
    first_epoch,
    verdict_of_share,
)
from bayesticket.phases import find_phases
from bayesticket.plot import ACCURACY, KL, MASS, PALETTE, Panel, add_band, finish_arms, stacked
from bayesticket.sweep import Runs

CONDENSED = 0.1
"""Attention has condensed when its divergence from the oracle is this share of what it was at the start."""
COLLAPSED = 10.0
"""The gradient has collapsed when its median after memorising is this many times smaller than its peak before."""


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
    finish_arms(figure, panels, int(runs["trained"].max()))
    return {"Test accuracy, attention and gradient without any intervention; median and quartiles over seeds.": figure}


def judge(runs: Runs) -> list[Claim]:
    """Both claims of the figure, and the phase between them, for each layout."""
    return [claim for name in LAYOUTS for claim in (_condenses(runs, name), _collapses(runs, name), _rises(runs, name))]


def _condenses(runs: Runs, name: str) -> Claim:
    condensed, risen = [], []
    for curves in curves_of(runs, name).values():
        kl = curves["kl_to_oracle"]
        risen.append(first_epoch(curves["test_accuracy"] >= 0.5))
        condensed.append(first_epoch(kl <= CONDENSED * kl.iloc[0]))
    rose = [(first, then) for first, then in zip(condensed, risen, strict=True) if then is not None]
    before = [then - first for first, then in rose if first is not None and first < then]
    return Claim(
        f"Attention condenses before test accuracy rises ({name}).",
        f"Of the runs whose test accuracy reaches 50%, the divergence from the oracle falls to {CONDENSED:.0%} of its "
        "first value earlier: in all, reproduced; in half, partly. Undecided with fewer than three such runs.",
        f"{len(rose)} of {len(risen)} runs reached 50%, {_at(risen)}; "
        f"{sum(epoch is not None for epoch in condensed)} condensed, {_at(condensed)}; {len(before)} condensed before "
        "their accuracy rose" + (f", {across(before)} epochs earlier." if before else "."),
        verdict_of_share(len(before), len(rose)),
    )


def _collapses(runs: Runs, name: str) -> Claim:
    ratios = [_fall(curves) for curves in curves_of(runs, name).values()]
    known = [ratio for ratio in ratios if ratio is not None]
    fell = [ratio for ratio in known if ratio >= COLLAPSED]
    return Claim(
        f"The attention's gradient spikes while memorising, then collapses ({name}).",
        f"Its peak before memorising is at least {COLLAPSED:g} times its median from there until grokking (or the "
        "end): in all runs that memorise, reproduced; in half, partly.",
        f"In {len(fell)} of {len(known)} runs; peak over later median {across(known)}.",
        verdict_of_share(len(fell), len(known)),
    )


def _fall(curves: Curves) -> float | None:
    memorised = first_epoch(curves["train_accuracy"] >= 0.99)
    grokked = first_epoch(curves["test_accuracy"] >= 0.99)
    if memorised is None:
        return None
    gradient = curves["attention_gradient"]
    end = int(gradient.index[-1]) if grokked is None else grokked
    later = gradient.loc[memorised + 1 : end].median()
    return float(gradient.loc[:memorised].max() / later) if later > 0 else None


def _rises(runs: Runs, name: str) -> Claim:
    phases = [find_phases(pd.DataFrame(curves)) for curves in curves_of(runs, name).values()]
    grokked = [each for each in phases if each.grokked is not None]
    risen = [each for each in grokked if each.resurgence is not None]
    return Claim(
        f"Before grokking the gradient rises again and attention moves to the oracle, phase 3 ({name}).",
        "The rule of bayesticket.phases finds a resurgence (the smoothed gradient doubles from its least, and the "
        "divergence is half of what it was when memorised) in all grokked runs: reproduced; in half: partly.",
        f"{len(grokked)} of {len(phases)} runs grokked; resurgence in {len(risen)} of them, "
        f"{_at([each.resurgence for each in risen])}.",
        verdict_of_share(len(risen), len(grokked)),
    )


def _at(epochs: Sequence[float | None]) -> str:
    known = [epoch for epoch in epochs if epoch is not None]
    return f"at epoch {across(known)}" if known else "at no epoch"


FIGURE = PaperFigure(
    "fig1",
    "Figure 1: the dynamics without any intervention",
    "The paper's model is trained on modular addition with weight decay and nothing else, with random distractors "
    "(drawn once per example) and with constant ones.",
    arms,
    draw,
    judge,
)
