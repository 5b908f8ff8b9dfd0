"""What the prior does to attention: how its divergence decays and how soon, and what becomes of the plateau."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from bayesticket.analysis import Phases, Times, find_phases, find_phases_by_norm, median_time
from bayesticket.paper.arms import STRENGTH
from bayesticket.paper.figure import SHARES, Claim, Curves, Verdict, curves_of, verdict_of
from bayesticket.paper.readings import OTHERS, THRESHOLD, UNSEEN, Grokking
from bayesticket.paper.strengths import LAWS, LINEAR, STRENGTHS, laws_of, strength_arm, verdicts_on_laws
from bayesticket.paper.words import across, sentences, so_many
from bayesticket.runs import first_epoch
from bayesticket.sweeps import Runs

ALIGNED = 0.1
"""Attention is aligned when its divergence from the oracle is this share of its first value."""
FALLS_TO = 1e-3
"""The decay of the divergence is fitted until it is this share of its first value, or, first, until the run groks."""
TENFOLD = 0.1
SHORTEST = 5
"""A decay is fitted to so many records at least."""
WEAK = 0.1
"""The strength of another reading, at which the decay has more records."""
APART = 2.0
"""A law of alignment is judged where the median epoch of one strength is at least this many times that of another."""
SOON = 2.0
"""Grokking follows memorising at once if its epoch is at most this many times that of memorising."""


def align_claims(runs: Runs, layout: str) -> list[Claim]:
    """What is claimed of attention under the prior, in one layout."""
    name = strength_arm(layout, STRENGTH)
    tables = list(curves_of(runs, name).values())
    claims = [
        _decays(runs, layout),
        _scales(runs, layout),
        _no_plateau(layout, name, tables),
        _ratio_grows(layout, name, tables),
    ]
    return [replace(claim, about="Theorem 5.2") for claim in claims]


@dataclass(frozen=True)
class Decay:
    """How well an exponential and an inverse of time, each with a floor, fit the logarithm of a divergence: by R²."""

    exponential: float
    inverse: float


def decay_of(curves: Curves, falls_to: float = FALLS_TO) -> Decay | None:
    """How the divergence decays: as `D₀ e^(−kt) + D∞` or as `D₀/(1 + ct) + D∞`, fitted to its logarithm.

    It is followed until it is a share of its first value, or until the run groks. None where it falls less than
    tenfold, or has fewer than `SHORTEST` records.
    """
    kl = curves["kl_to_oracle"].dropna()
    ends = [epoch for epoch in (first_epoch(kl <= falls_to * kl.iloc[0]), UNSEEN.epoch(curves)) if epoch is not None]
    kl = kl.loc[: min(ends, default=kl.index[-1])]
    kl = kl[kl > 0]
    if len(kl) < SHORTEST or kl.min() > TENFOLD * kl.iloc[0]:
        return None
    epochs, logs = kl.index.to_numpy(dtype=float), np.log(kl.to_numpy())
    return Decay(*(_fit(shape, epochs - epochs[0], logs) for shape in (_exponential, _inverse)))


def _exponential(t: np.ndarray, rate: float) -> np.ndarray:
    return np.exp(-np.minimum(rate * t, 700))


def _inverse(t: np.ndarray, rate: float) -> np.ndarray:
    return 1 / (1 + rate * t)


def _fit(shape: Callable[[np.ndarray, float], np.ndarray], t: np.ndarray, logs: np.ndarray) -> float:
    """R² of the best `log(D₀ shape(t) + D∞)`, from several first guesses of the rate."""
    from scipy.optimize import least_squares

    def missed(parameters: np.ndarray) -> np.ndarray:
        first, rate, floor = np.exp(np.clip(parameters, -60, 60))
        return np.log(first * shape(t, rate) + floor + 1e-300) - logs

    guesses = [
        [logs[0], np.log(turns / t[-1]), floor] for turns in (1, 10, 100, 1000) for floor in (logs.min() - 1, -30.0)
    ]
    least = min(float(np.square(least_squares(missed, guess).fun).sum()) for guess in guesses)
    return 1 - least / float(np.square(logs - logs.mean()).sum())


def _decays(runs: Runs, layout: str) -> Claim:
    def decays(strength: float, falls_to: float = FALLS_TO) -> list[Decay]:
        tables = curves_of(runs, strength_arm(layout, strength)).values()
        return [found for curves in tables if (found := decay_of(curves, falls_to)) is not None]

    def exponentially(found: Sequence[Decay]) -> Verdict:
        return verdict_of([each.exponential > each.inverse for each in found])

    found, weak = decays(STRENGTH), decays(WEAK)
    return Claim(
        f"Under the prior the divergence decays exponentially ({layout}).",
        (
            f"With strength {STRENGTH:g}, from the first record until the divergence is {FALLS_TO:g} times its first "
            "value, or until the run groks, D₀e^(−kt) + D∞ fits its logarithm better than D₀/(1 + ct) + D∞, by R². "
            f"Counted are the runs in which it falls at least tenfold, over {SHORTEST} records or more.",
            SHARES,
        ),
        sentences(
            f"the decay could be fitted in {so_many(len(found), len(runs.seeds))}",
            f"R² is {across([each.exponential for each in found], '.3f')} for the exponential and "
            f"{across([each.inverse for each in found], '.3f')} for the inverse"
            if found
            else "",
            f"with strength {WEAK:g} it could be fitted in {so_many(len(weak), len(runs.seeds))}, with an R² of "
            f"{across([each.exponential for each in weak], '.3f')} and {across([each.inverse for each in weak], '.3f')}"
            if weak
            else "",
        ),
        exponentially(found),
        arms=(strength_arm(layout, STRENGTH), strength_arm(layout, WEAK)),
        readings={
            "as 1/t: the inverse fits better": verdict_of([each.inverse >= each.exponential for each in found]),
            f"with strength {WEAK:g}": exponentially(weak),
            "until a tenth of its first value": exponentially(decays(STRENGTH, TENFOLD)),
        },
    )


def _scales(runs: Runs, layout: str) -> Claim:
    times = {strength: _alignment_times(runs, strength_arm(layout, strength)) for strength in (0.0, *STRENGTHS)}
    laws = laws_of(times)
    unknown: dict[str, Verdict] = dict.fromkeys(LAWS.values(), "undecided")
    verdict, *others = (verdicts_on_laws(laws) if _differ(times) else unknown).items()
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
            f"It is undecided too where no two strengths have medians that differ {APART:g}-fold: records are some "
            "epochs apart, and a law of so small a difference rests on what is interpolated between them.",
        ),
        sentences(f"epochs of alignment by strength: {medians}" if medians else "no run aligned", *fitted),
        verdict[1],
        arms=tuple(strength_arm(layout, strength) for strength in times),
        readings=dict(others),
    )


def _differ(times: Mapping[float, Times]) -> bool:
    """Whether the median epoch of alignment depends on the strength enough for a law of it to be judged."""
    medians = [median_time(each).value for strength, each in times.items() if strength]
    reached = [median for median in medians if median is not None]
    return bool(reached) and (len(reached) < len(medians) or max(reached) >= APART * min(reached))


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
    def judged(reading: Grokking) -> tuple[list[bool], list[bool], list[float]]:
        """Of each run that groks: whether neither its norm nor a wait shows a plateau, the former alone, the wait."""
        grokked = [curves for curves in tables if reading.epoch(curves) is not None]
        by_norm = [_has_no_plateau(curves, find_phases_by_norm, reading) for curves in grokked]
        waits = [_wait(curves, reading) for curves in grokked]
        return [norm and wait <= SOON for norm, wait in zip(by_norm, waits, strict=True)], by_norm, waits

    holds, by_norm, waits = judged(UNSEEN)
    known = [wait for wait in waits if math.isfinite(wait)]
    grokked = [curves for curves in tables if UNSEEN.epoch(curves) is not None]
    return Claim(
        f"Under the prior there is no plateau ({layout}).",
        (
            f"With strength {STRENGTH:g} the rule of bayesticket.analysis.find_phases_by_norm finds no plateau "
            f"between memorising and grokking by unseen accuracy, and the epoch of grokking is at most {SOON:g} times "
            "that of memorising. Counted are the runs that grok.",
            SHARES,
        ),
        sentences(
            f"{so_many(len(grokked), len(tables))} grokked",
            f"{so_many(sum(by_norm), len(by_norm), which='that grokked')} had no plateau by the norm"
            if grokked
            else "",
            f"the epoch of grokking was {across(known, '.1f')} times that of memorising" if known else "",
        ),
        verdict_of(holds),
        arms=(name,),
        readings={
            "by the norm alone": verdict_of(by_norm),
            "by the wait alone": verdict_of([wait <= SOON for wait in waits]),
            "by the gradient in the attention (find_phases)": verdict_of(
                [_has_no_plateau(curves, find_phases, UNSEEN) for curves in grokked]
            ),
            **{f"by {other}": verdict_of(judged(other)[0]) for other in OTHERS},
        },
    )


def _has_no_plateau(curves: Curves, find: Callable[..., Phases], reading: Grokking) -> bool:
    found = find(pd.DataFrame(curves), curve=reading.curve, grokking=reading.threshold)
    return found.plateau is None


def _wait(curves: Curves, reading: Grokking) -> float:
    """The epoch of grokking, as a multiple of that of memorising; at most 1 where a run groks first."""
    memorised, grokked = first_epoch(curves["train_accuracy"] >= THRESHOLD), reading.epoch(curves)
    return grokked / memorised if memorised and grokked is not None else 1.0 if grokked is not None else math.inf


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
