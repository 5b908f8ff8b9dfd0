"""How long the plateau lasts: from memorising to grokking, as a law of weight decay, and by Eq. 5."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch

from bayesticket.analysis import PowerLaw, Times, power_law
from bayesticket.errors import BayesticketError
from bayesticket.paper.figure import SHARES, Claim, Curves, Verdict, verdict_of
from bayesticket.paper.readings import OTHERS, THRESHOLD, UNSEEN, Grokking
from bayesticket.paper.strengths import LINEAR, verdict_on_law
from bayesticket.paper.words import across, sentences, so_many
from bayesticket.runs import first_epoch
from bayesticket.theory import plateau_wait_least, plateau_wait_paper


@dataclass(frozen=True)
class Wait:
    """From memorising to grokking."""

    memorised: int
    """When it begins."""
    epochs: float
    reached: bool
    """Whether the run groks; else it is the time to the end."""
    norm: float
    """The norm of the MLP when it memorises."""
    peak: float
    """Its largest norm from then until it groks, or to the end."""
    since_peak: float
    """How long it takes from there."""
    norm_after: float
    """The norm when it groks, or at the end."""
    rate: float
    """lr · weight decay."""


def wait_of(curves: Curves, reading: Grokking = UNSEEN) -> Wait | None:
    """The wait of a run that memorises before it groks."""
    memorised, grokked = first_epoch(curves["train_accuracy"] >= THRESHOLD), reading.epoch(curves)
    end = int(curves["mlp_norm"].index[-1]) if grokked is None else grokked
    if memorised is None or memorised >= end:
        return None
    norms = curves["mlp_norm"].loc[memorised:end]
    at_peak = int(norms.idxmax())
    return Wait(
        memorised=memorised,
        epochs=end - memorised,
        reached=grokked is not None,
        norm=float(norms.iloc[0]),
        peak=float(norms.max()),
        since_peak=end - at_peak,
        norm_after=float(norms.iloc[-1]),
        rate=float(curves["contraction[rate]"].iloc[-1]),
    )


def _fitted(by_decay: Mapping[float, Times], *, floor: bool) -> PowerLaw | None:
    with suppress(BayesticketError):  # too few grokked, or the times do not fall with the decay
        return power_law(list(by_decay), list(by_decay.values()), floor=floor)
    return None


def inverse_in_decay(tables: Mapping[float, Sequence[Curves]], names: tuple[str, ...]) -> Claim:
    """The claim that the wait goes as 1/weight decay."""

    def waits_of(reading: Grokking) -> dict[float, Times]:
        known = {
            decay: [wait for curves in each if (wait := wait_of(curves, reading)) is not None]
            for decay, each in tables.items()
        }
        return {
            decay: Times(np.array([float(wait.epochs) for wait in each]), np.array([wait.reached for wait in each]))
            for decay, each in known.items()
            if each
        }

    def epochs_of(reading: Grokking) -> dict[float, Times]:
        ends = {decay: [max(int(curves["mlp_norm"].index[-1]), 1) for curves in each] for decay, each in tables.items()}
        return {
            decay: Times.of([reading.epoch(curves) for curves in each], ends[decay]) for decay, each in tables.items()
        }

    waits = waits_of(UNSEEN)
    main, plain = "the wait, no floor", _fitted(waits, floor=False)
    laws = {
        main: plain,
        "the wait, down to a floor": _fitted(waits, floor=True),
        "the epoch of grokking": _fitted(epochs_of(UNSEEN), floor=False),
        **{f"the wait by {other}": _fitted(waits_of(other), floor=False) for other in OTHERS},
    }
    verdicts: dict[str, Verdict] = {
        name: verdict_on_law(law, plain if "floor" in name else None) for name, law in laws.items()
    }
    shown = (f"{name}: exponent {law.exponent}" for name, law in laws.items() if law is not None)
    grokked = (_waits_in_words(decay, len(each), waits.get(decay)) for decay, each in tables.items())
    return Claim(
        "The plateau lasts in proportion to 1/weight decay.",
        (
            "The wait from memorising to grokking by unseen accuracy is c · decayᵇ with b = −1: −b is fitted as the "
            "log–log slope, by maximum likelihood, with runs that never grok censored. Counted are the runs that "
            "memorise before they grok.",
            LINEAR,
        ),
        "\n".join([sentences(*shown) or "The runs that grokked determine no law.", *grokked]),
        verdicts.pop(main),
        arms=names,
        readings=verdicts,
    )


def _waits_in_words(decay: float, n: int, waits: Times | None) -> str:
    said = (
        f"Weight decay {decay:g}: {so_many(0 if waits is None else len(waits), n)} memorised before grokking or the end"
    )
    if waits is None or not waits.reached.any():
        return f"{said}."
    return f"{said}; of those that grokked the wait was {across(waits.epochs[waits.reached].tolist())}."


def equation_5(tables: Sequence[Curves], names: tuple[str, ...]) -> Claim:
    """The claim that the norm's contraction bounds the wait from below."""

    def grokked(reading: Grokking) -> list[Wait]:
        found = [wait_of(curves, reading) for curves in tables]
        return [wait for wait in found if wait is not None and wait.reached]

    def largest(waits: Sequence[Wait]) -> float:
        return max((wait.norm_after for wait in waits), default=1.0)

    def from_peak(waits: Sequence[Wait]) -> list[tuple[float, float]]:
        """Each wait and its bound, where the norm has to fall at all."""
        bounds = [(wait.since_peak, _bound(wait.peak, largest(waits), wait.rate)) for wait in waits]
        return [(wait, bound) for wait, bound in bounds if bound > 0]

    waits = grokked(UNSEEN)
    paper, r_max = from_peak(waits), largest(waits)
    memorised = [(wait.epochs, _bound(wait.norm, r_max, wait.rate)) for wait in waits]
    own = [(wait.since_peak, _bound(wait.peak, wait.norm_after, wait.rate)) for wait in waits]
    ratios = [wait / bound for wait, bound in paper]
    return Claim(
        "The plateau lasts at least (2/λ) log(‖θ_mem‖/r_max) (Eq. 5).",
        (
            "The wait from the peak of the MLP's norm, which it has between memorising and grokking by unseen "
            "accuracy, to grokking is at least that, with λ = lr · weight decay, ‖θ_mem‖ the norm at the peak, and "
            "r_max the largest norm at which a run groks. Counted are the runs that grok after memorising, and whose "
            "peak is above r_max.",
            SHARES,
        ),
        sentences(
            f"{so_many(len(waits), len(tables))} grokked after memorising",
            f"r_max is {r_max:.1f}, and the peak is above it in {so_many(len(paper), len(waits), which='of these')}"
            if waits
            else "",
            f"the wait is {across(ratios, '.2f')} times the bound" if ratios else "",
        ),
        _at_least(paper),
        arms=names,
        readings={
            "from memorising, with the norm it has then": _at_least([pair for pair in memorised if pair[1] > 0]),
            "as an upper bound, with the norm at which the run groks": verdict_of(
                [wait <= bound for wait, bound in own if bound > 0]
            ),
            "Section 5.1's contraction of the norm, half as long": _at_least(
                [
                    (wait.since_peak, float(plateau_wait_least(torch.tensor(wait.peak), r_max, wait.rate)))
                    for wait in waits
                    if wait.peak > r_max
                ]
            ),
            **{f"by {other}": _at_least(from_peak(grokked(other))) for other in OTHERS},
        },
    )


def _at_least(pairs: Sequence[tuple[float, float]]) -> Verdict:
    return verdict_of([wait >= bound for wait, bound in pairs])


def _bound(norm: float, radius: float, rate: float) -> float:
    return float(plateau_wait_paper(torch.tensor(norm), radius, rate))
