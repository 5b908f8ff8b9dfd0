"""What the prior does to attention: how its divergence decays and how soon, and what becomes of the plateau."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from bayesticket.analysis import Times, find_phases, find_phases_by_norm
from bayesticket.paper.arms import STRENGTH
from bayesticket.paper.figure import SHARES, Claim, Curves, curves_of, verdict_of
from bayesticket.paper.readings import THRESHOLD, UNSEEN
from bayesticket.paper.strengths import LAWS, LINEAR, STRENGTHS, laws_of, strength_arm, verdict_on_law
from bayesticket.paper.words import across, sentences, so_many
from bayesticket.runs import first_epoch
from bayesticket.sweeps import Runs

ALIGNED = 0.1
"""Attention is aligned when its divergence from the oracle is this share of its first value."""
FALLS_TO = 1e-3
"""The decay of the divergence is fitted until it is this share of its first value, or, first, until the run groks."""
SHORTEST = 5
"""A decay is fitted to so many records at least."""
SOON = 2.0
"""Grokking follows memorising at once if its epoch is at most this many times that of memorising."""


def align_claims(runs: Runs, layout: str) -> list[Claim]:
    """What is claimed of attention under the prior, in one layout."""
    name = strength_arm(layout, STRENGTH)
    tables = list(curves_of(runs, name).values())
    claims = [
        _decays(layout, name, tables),
        _scales(runs, layout),
        _no_plateau(layout, name, tables),
        _ratio_grows(layout, name, tables),
    ]
    return [replace(claim, about="Theorem 5.2") for claim in claims]


def decay_slopes(curves: Curves) -> tuple[float, float, float] | None:
    """How the logarithm of the divergence falls: R² against the epoch, R² against its logarithm, and that slope.

    None where fewer than `SHORTEST` records lie between the first one and the end of the decay.
    """
    kl = curves["kl_to_oracle"].dropna()
    ends = [epoch for epoch in (first_epoch(kl <= FALLS_TO * kl.iloc[0]), UNSEEN.epoch(curves)) if epoch is not None]
    kl = kl.loc[: min(ends, default=kl.index[-1])]
    kl = kl[(kl > 0) & (kl.index > 0)]
    if len(kl) < SHORTEST or kl.nunique() == 1:
        return None
    epochs, logs = kl.index.to_numpy(dtype=float), np.log(kl.to_numpy())
    (exponential, _), (power, slope) = _fit(epochs, logs), _fit(np.log(epochs), logs)
    return exponential, power, slope


def _fit(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """R² and slope of a line by least squares."""
    slope, offset = np.polyfit(x, y, 1)
    return 1 - float(np.square(y - slope * x - offset).sum() / np.square(y - y.mean()).sum()), float(slope)


def _decays(layout: str, name: str, tables: Sequence[Curves]) -> Claim:
    fits = [fit for curves in tables if (fit := decay_slopes(curves)) is not None]
    exponential = [by_epoch > by_log for by_epoch, by_log, _ in fits]
    as_inverse = [by_log >= by_epoch and -1.5 <= slope <= -0.5 for by_epoch, by_log, slope in fits]
    return Claim(
        f"Under the prior the divergence decays exponentially ({layout}).",
        (
            f"With strength {STRENGTH:g}, from the first record until the divergence is {FALLS_TO:g} times its first "
            "value, or until the run groks, its logarithm is closer to a line in the epoch than to one in the epoch's "
            f"logarithm, by R². Counted are the runs with {SHORTEST} such records.",
            SHARES,
        ),
        sentences(
            f"the decay could be fitted in {so_many(len(fits), len(tables))}",
            f"R² is {across([fit[0] for fit in fits], '.2f')} for an exponential and "
            f"{across([fit[1] for fit in fits], '.2f')} for a power, whose exponent is "
            f"{across([fit[2] for fit in fits], '.2f')}"
            if fits
            else "",
        ),
        verdict_of(exponential),
        arms=(name,),
        readings={"it decays as 1/t (a power is closer, its exponent between −1.5 and −0.5)": verdict_of(as_inverse)},
    )


def _scales(runs: Runs, layout: str) -> Claim:
    times = {strength: _alignment_times(runs, strength_arm(layout, strength)) for strength in (0.0, *STRENGTHS)}
    laws = laws_of(times)
    medians = "; ".join(
        f"{strength:g}: {across([epoch for epoch, did in zip(each.epochs, each.reached, strict=True) if did])}"
        for strength, each in times.items()
        if strength and each.reached.any()
    )
    fitted = (f"the exponent of {LAWS[law]} is {fit.exponent}" for law, fit in laws.items() if fit is not None)
    return Claim(
        f"The time until attention is aligned is in proportion to 1/strength ({layout}).",
        (
            f"It is aligned when the divergence is first {ALIGNED:.0%} of its first value, between records where its "
            "logarithm, joined by lines, says so. The law of added rates is fitted to these epochs, as it is to "
            "grokking times, since attention may align without a prior too.",
            LINEAR,
        ),
        sentences(f"epochs of alignment by strength: {medians}" if medians else "no run aligned", *fitted),
        verdict_on_law(laws["added rates"]),
        arms=tuple(strength_arm(layout, strength) for strength in times),
        readings={LAWS[law]: verdict_on_law(fit) for law, fit in list(laws.items())[1:]},
    )


def _alignment_times(runs: Runs, name: str) -> Times:
    """When attention is aligned in the runs of an arm; those where it never is are censored."""
    tables = list(curves_of(runs, name).values())
    reached = [alignment_time(curves) for curves in tables]
    ended = [max(float(curves["kl_to_oracle"].index[-1]), 1.0) for curves in tables]
    epochs = [last if epoch is None else epoch for epoch, last in zip(reached, ended, strict=True)]
    return Times(np.array(epochs), np.array([epoch is not None for epoch in reached]))


def alignment_time(curves: Curves) -> float | None:
    """When attention is aligned, interpolated between records, which under a strong prior are far apart."""
    kl = curves["kl_to_oracle"].dropna()
    level = ALIGNED * float(kl.iloc[0])
    if (epoch := first_epoch((kl <= level) & (kl.index > 0))) is None:
        return None
    at = int(np.searchsorted(kl.index.to_numpy(), epoch))
    (begin, end), (above, below) = kl.index[at - 1 : at + 1], kl.iloc[at - 1 : at + 1].clip(lower=1e-12)
    fallen = (np.log(above) - np.log(level)) / (np.log(above) - np.log(below)) if above > below else 1.0
    return max(float(begin + fallen * (end - begin)), 1.0)


def _no_plateau(layout: str, name: str, tables: Sequence[Curves]) -> Claim:
    grokked = [curves for curves in tables if UNSEEN.epoch(curves) is not None]
    frames = [pd.DataFrame(curves) for curves in grokked]
    by_norm, by_gradient = (
        [find(frame, curve=UNSEEN.curve).plateau is None for frame in frames]
        for find in (find_phases_by_norm, find_phases)
    )
    waits = [_wait(curves) for curves in grokked]
    known = [wait for wait in waits if math.isfinite(wait)]
    return Claim(
        f"Under the prior there is no plateau ({layout}).",
        (
            f"With strength {STRENGTH:g} the rule of bayesticket.analysis.find_phases_by_norm finds no plateau "
            "between memorising and grokking by unseen accuracy. Counted are the runs that grok.",
            SHARES,
        ),
        sentences(
            f"{so_many(len(grokked), len(tables))} grokked",
            f"{so_many(sum(by_norm), len(by_norm), which='that grokked')} had no plateau" if grokked else "",
            f"the epoch of grokking was {across(known, '.1f')} times that of memorising" if known else "",
        ),
        verdict_of(by_norm),
        arms=(name,),
        readings={
            "by the gradient in the attention (find_phases)": verdict_of(by_gradient),
            f"grokking within {SOON:g} times the epoch of memorising": verdict_of([wait <= SOON for wait in waits]),
        },
    )


def _wait(curves: Curves) -> float:
    """The epoch of grokking, as a multiple of that of memorising."""
    memorised, grokked = first_epoch(curves["train_accuracy"] >= THRESHOLD), UNSEEN.epoch(curves)
    return grokked / memorised if memorised and grokked is not None else math.inf


def _ratio_grows(layout: str, name: str, tables: Sequence[Curves]) -> Claim:
    ratios = [found for curves in tables if (found := gradient_ratios(curves)) is not None]
    grown = [later > before for before, later, _ in ratios]
    at_end = [last > before for before, _, last in ratios]
    before, later = (across([each[place] for each in ratios], ".2g") for place in (0, 1))
    return Claim(
        f"The prior's gradient grows against the task's after memorising ({layout}).",
        (
            f"With strength {STRENGTH:g}, the ratio of ‖∂D/∂M‖ to the task's ‖∂L/∂M‖, the median over the records from "
            "memorising to grokking, or to the end, is larger than the median before. Counted are the runs that "
            "memorise before they grok.",
            SHARES,
        ),
        sentences(
            f"{so_many(len(ratios), len(tables))} memorised before they grokked or ended",
            f"the ratio was {before} before and {later} after" if ratios else "",
        ),
        verdict_of(grown),
        arms=(name,),
        readings={"the last record against the median before": verdict_of(at_end)},
    )


def gradient_ratios(curves: Curves) -> tuple[float, float, float] | None:
    """The prior's gradient over the task's: the medians before and after memorising, and the last value."""
    memorised, grokked = first_epoch(curves["train_accuracy"] >= THRESHOLD), UNSEEN.epoch(curves)
    if memorised is None or "prior_gradient" not in curves:
        return None
    task = curves["attention_gradient"]
    ratio = (STRENGTH * curves["prior_gradient"] / task.where(task > 0)).dropna()
    before = ratio.loc[: memorised - 1]
    later = ratio.loc[memorised : ratio.index[-1] if grokked is None else grokked - 1]
    if not len(before) or not len(later):
        return None
    return float(before.median()), float(later.median()), float(later.iloc[-1])
