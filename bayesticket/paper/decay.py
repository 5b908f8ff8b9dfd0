"""Weight decay swept: how the norm contracts on the plateau, and how long the plateau lasts (Eq. 5, Conjecture E.1)."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import plotly.graph_objects as go
import torch

from bayesticket.analysis import PowerLaw, Times, power_law
from bayesticket.errors import BayesticketError
from bayesticket.figures import ACCURACY, PALETTE, Panel, add_band, finish_arms, shades, stacked
from bayesticket.measures import AttentionEntropy, Contraction, ScoreVariance
from bayesticket.optim import Lion, Muon
from bayesticket.paper.arms import arm, baseline
from bayesticket.paper.figure import (
    SHARES,
    Claim,
    Curves,
    PaperFigure,
    Scale,
    Verdict,
    arm_names,
    curves_of,
    verdict_of,
)
from bayesticket.paper.phases import Story, plateau_change
from bayesticket.paper.readings import OTHERS, THRESHOLD, UNSEEN, Grokking
from bayesticket.paper.strengths import LINEAR, verdict_on_law
from bayesticket.paper.times import DOTS, plot_times, times_of
from bayesticket.paper.words import across, sentences, so_many
from bayesticket.runs import TrainConfig, first_epoch
from bayesticket.sweeps import Runs
from bayesticket.theory import plateau_wait_least, plateau_wait_paper

DECAYS = (0.3, 0.5, 1.0, 2.0, 3.0)
OPTIMIZERS = {"Muon": Muon(lr=0.01, weight_decay=0.1), "Lion": Lion(lr=1e-4, weight_decay=10.0)}
"""Other optimisers, with the same lr · weight decay as AdamW at weight decay 1."""
NEAR = 0.25
"""A rate is near another if it differs by no more than this share of it."""
STRAIGHT = 0.95
"""The contraction is geometric when a line fits the norm's logarithm with at least this R²."""
CONTRACTED = 0.9
"""A norm has contracted when it is this share of its peak."""
SHORTEST = 5
"""A contraction is fitted to so many records at least."""
RECORDED = (ScoreVariance(), AttentionEntropy(), Contraction())


def decay_arm(decay: float) -> str:
    """The name of an arm of the sweep."""
    return f"weight decay {decay:g}"


def arms(scale: Scale) -> Mapping[str, TrainConfig]:
    """AdamW at each weight decay, where it is below 1 for twice as many epochs, and two other optimisers."""
    found = {
        decay_arm(decay): baseline(scale, "constant")
        if decay == 1.0
        else arm(
            scale,
            distractors="constant",
            weight_decay=decay,
            measures=RECORDED,
            epochs=scale.epochs * (2 if decay < 1 else 1),
        )
        for decay in DECAYS
    }
    half = {"epochs": max(scale.epochs // 2, 1), "measures": RECORDED}
    return found | {
        name: arm(scale, distractors="constant", optimizer=optimizer, **half) for name, optimizer in OPTIMIZERS.items()
    }


def draw(runs: Runs) -> Mapping[str, go.Figure]:
    """Accuracy, norm and scores by decay, and grokking times."""
    shown = {
        UNSEEN.curve: ACCURACY,
        "mlp_norm": Panel("norm of the MLP", log=True),
        "score_variance": Panel("variance of the scores", log=True),
    }
    panels = list(shown.values())
    figure = stacked(panels, panel_height=200)
    colours = [*shades(len(DECAYS)), *PALETTE]
    for colour, name in zip(colours, arm_names(runs), strict=False):
        for panel, column in enumerate(shown, 1):
            add_band(figure, runs, name, column, panel=panel, colour=colour)
    finish_arms(figure, panels, int(runs.curves["trained"].max()))
    return {
        "Unseen accuracy, the norm of the MLP and the variance of the scores; median and quartiles over seeds.": figure,
        DOTS: plot_times(times_of(runs)),
    }


@dataclass(frozen=True)
class Slope:
    """How the norm of the MLP falls on the plateau of a run."""

    observed: float
    """Minus the slope of its logarithm, per epoch."""
    promised: float
    """lr · weight decay."""
    straight: float
    """R² of that line."""
    linear: float
    """R² of a line in the norm itself."""

    @property
    def geometric(self) -> bool:
        """Whether the norm falls geometrically: a line fits its logarithm, and fits it better than the norm."""
        return self.straight >= STRAIGHT and self.straight > self.linear


def slope_of(curves: Curves) -> Slope | None:
    """The contraction on the plateau; None without one, or where it is too short."""
    story = Story.of(curves)
    if story.by_norm.plateau is None:
        return None
    norms = story.between("mlp_norm", story.by_norm.plateau, story.by_norm.resurgence or story.end)
    if len(norms) < SHORTEST or norms.nunique() == 1:
        return None
    epochs, values = norms.index.to_numpy(dtype=float), norms.to_numpy()
    slope, straight = _line(epochs, np.log(values))
    return Slope(-slope, float(curves["contraction[rate]"].iloc[-1]), straight, _line(epochs, values)[1])


def _line(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Slope and R² of a line by least squares."""
    slope, offset = np.polyfit(x, y, 1)
    missed = np.square(y - slope * x - offset).sum() / np.square(y - y.mean()).sum()
    return float(slope), 1 - float(missed)


@dataclass(frozen=True)
class Wait:
    """From memorising to grokking."""

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
        epochs=end - memorised,
        reached=grokked is not None,
        norm=float(norms.iloc[0]),
        peak=float(norms.max()),
        since_peak=end - at_peak,
        norm_after=float(norms.iloc[-1]),
        rate=float(curves["contraction[rate]"].iloc[-1]),
    )


def judge(runs: Runs) -> list[Claim]:
    """What is claimed of contraction and of the plateau's length."""
    by_decay = {decay: list(curves_of(runs, decay_arm(decay)).values()) for decay in DECAYS}
    tables = [curves for each in by_decay.values() for curves in each]
    names = tuple(map(decay_arm, DECAYS))
    claims = {
        "Section 5.1": [_geometric(tables, names), _law(by_decay, names), _equation_5(tables, names)],
        "Conjecture E.1": [_variance(tables, names)],
        "Props. B.1 and B.2": [_contracts(name, list(curves_of(runs, name).values())) for name in OPTIMIZERS],
    }
    return [replace(claim, about=about) for about, judged in claims.items() for claim in judged]


def _geometric(tables: Sequence[Curves], names: tuple[str, ...]) -> Claim:
    slopes = [slope for curves in tables if (slope := slope_of(curves)) is not None]
    ratios = [slope.observed / slope.promised for slope in slopes]
    near = [abs(ratio - 1) <= NEAR for ratio in ratios]
    holds = [close and slope.geometric for close, slope in zip(near, slopes, strict=True)]
    return Claim(
        "On the plateau the norm of the MLP contracts geometrically, at the rate lr · weight decay.",
        (
            "The plateau is that of bayesticket.analysis.find_phases_by_norm, to phase 3, or grokking, or the end. A "
            f"line fits the logarithm of the smoothed norm with an R² of at least {STRAIGHT:g}, better than one fits "
            f"the norm itself, and its slope differs from −lr · weight decay by at most {NEAR:.0%}. Counted are the "
            f"runs of all weight decays whose plateau has {SHORTEST} records.",
            SHARES,
        ),
        sentences(
            f"{so_many(len(slopes), len(tables))} had such a plateau",
            f"the rate was {across(ratios, '.2f')} times lr · weight decay, with an R² of "
            f"{across([slope.straight for slope in slopes], '.3f')}"
            if slopes
            else "",
        ),
        verdict_of(holds),
        arms=names,
        readings={
            "geometrically, at any rate": verdict_of([slope.geometric for slope in slopes]),
            "at that rate, or at least half of it": verdict_of([ratio >= 0.5 for ratio in ratios]),
            "it contracts at all": verdict_of([slope.observed > 0 for slope in slopes]),
        },
    )


def _fitted(by_decay: Mapping[float, Times], *, floor: bool) -> PowerLaw | None:
    with suppress(BayesticketError):  # too few grokked, or the times do not fall with the decay
        return power_law(list(by_decay), list(by_decay.values()), floor=floor)
    return None


def _law(tables: Mapping[float, Sequence[Curves]], names: tuple[str, ...]) -> Claim:
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


def _equation_5(tables: Sequence[Curves], names: tuple[str, ...]) -> Claim:
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


def _variance(tables: Sequence[Curves], names: tuple[str, ...]) -> Claim:
    stories = [Story.of(curves) for curves in tables]
    found = [(plateau_change(each, "score_variance"), plateau_change(each, "attention_entropy")) for each in stories]
    known = [(variance, entropy) for variance, entropy in found if variance is not None and entropy is not None]
    return Claim(
        "On the plateau the variance of the scores contracts toward 0 (Conjecture E.1).",
        (
            "From the beginning of the plateau (bayesticket.analysis.find_phases_by_norm) to phase 3, or grokking, or "
            "the end, the smoothed variance of the scores falls to half or less. Counted are the runs of all weight "
            "decays with a plateau.",
            SHARES,
        ),
        sentences(
            f"{so_many(len(known), len(tables))} had a plateau",
            f"over it the variance was multiplied by {across([each[0] for each in known], '.2f')}, the entropy of "
            f"attention by {across([each[1] for each in known], '.2f')}"
            if known
            else "",
        ),
        verdict_of([variance <= 0.5 for variance, _ in known]),
        arms=names,
        readings={
            "it falls at all": verdict_of([variance < 1 for variance, _ in known]),
            "attention becomes more uniform": verdict_of([entropy > 1 for _, entropy in known]),
        },
    )


def _contracts(name: str, tables: Sequence[Curves]) -> Claim:
    memorised = [curves for curves in tables if Story.of(curves).by_norm.memorised is not None]
    fell = [float(curves["mlp_norm"].iloc[-1] / curves["mlp_norm"].max()) for curves in memorised]
    inequality = [curves["contraction[slack]"].dropna() for curves in tables]
    slacks = [float(each.min()) for each in inequality if len(each)]
    return Claim(
        f"Weight decay contracts the norm under {name} too.",
        (
            f"The norm of the MLP ends at {CONTRACTED:.0%} of its peak or less; a run ends 200 epochs after grokking. "
            "Counted are the runs that memorise.",
            SHARES,
        ),
        sentences(
            f"{so_many(len(memorised), len(tables))} memorised",
            f"the norm ended at {across(fell, '.0%')} of its peak" if fell else "",
            f"the right side of Def. 3.2's inequality is at least {across(slacks, '.2f')} times the left"
            if slacks
            else "",
        ),
        verdict_of([share <= CONTRACTED for share in fell]),
        arms=(name,),
        readings={
            "it has begun to, by a hundredth": verdict_of([share <= 0.99 for share in fell]),
            "Def. 3.2's inequality holds at every recorded step": verdict_of([slack >= 1 - 1e-6 for slack in slacks]),
        },
    )


FIGURE = PaperFigure(
    "decay",
    "Decay: weight decay and the length of the plateau",
    "Constant distractors, no prior, AdamW with weight decay from 0.3 to 3 (below 1 for twice as many epochs); and "
    "Muon and Lion with the same lr · weight decay as AdamW at 1, for half as many.",
    arms,
    draw,
    judge,
)
