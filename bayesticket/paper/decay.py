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
from bayesticket.paper.figure import SHARES, Claim, Curves, PaperFigure, Scale, arm_names, curves_of, verdict_of
from bayesticket.paper.phases import Story, plateau_change
from bayesticket.paper.readings import UNSEEN
from bayesticket.paper.strengths import LINEAR, verdict_on_law
from bayesticket.paper.times import DOTS, plot_times, times_of
from bayesticket.paper.words import across, sentences, so_many
from bayesticket.runs import TrainConfig
from bayesticket.sweeps import Runs
from bayesticket.theory import plateau_wait_least, plateau_wait_paper

DECAYS = (0.3, 0.5, 1.0, 2.0, 3.0)
OTHERS = {"Muon": Muon(lr=0.01, weight_decay=0.1), "Lion": Lion(lr=1e-4, weight_decay=10.0)}
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
        name: arm(scale, distractors="constant", optimizer=optimizer, **half) for name, optimizer in OTHERS.items()
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
    """R² of the line."""


def slope_of(curves: Curves) -> Slope | None:
    """The contraction on the plateau; None without one, or where it is too short."""
    story = Story.of(curves)
    if story.by_norm.plateau is None:
        return None
    norms = story.between("mlp_norm", story.by_norm.plateau, story.by_norm.resurgence or story.end)
    if len(norms) < SHORTEST or norms.nunique() == 1:
        return None
    epochs, logs = norms.index.to_numpy(dtype=float), np.log(norms.to_numpy())
    slope, offset = np.polyfit(epochs, logs, 1)
    missed = np.square(logs - slope * epochs - offset).sum() / np.square(logs - logs.mean()).sum()
    return Slope(-float(slope), float(curves["contraction[rate]"].iloc[-1]), 1 - float(missed))


@dataclass(frozen=True)
class Wait:
    """From memorising to grokking by unseen accuracy."""

    epochs: float
    reached: bool
    """Whether the run groks; else it is the time to the end."""
    norm: float
    """The norm of the MLP when it memorises."""
    norm_after: float
    """The norm when it groks, or at the end."""
    rate: float
    """lr · weight decay."""


def wait_of(curves: Curves) -> Wait | None:
    """The wait of a run that memorises."""
    story, norms = Story.of(curves), curves["mlp_norm"]
    if (memorised := story.by_norm.memorised) is None:
        return None
    waited = max(story.end - memorised, 1)
    rate = float(curves["contraction[rate]"].iloc[-1])
    at, after = float(norms.loc[memorised]), float(norms.loc[story.end])
    return Wait(waited, story.by_norm.grokked is not None, at, after, rate)


def judge(runs: Runs) -> list[Claim]:
    """What is claimed of contraction and of the plateau's length."""
    by_decay = {decay: list(curves_of(runs, decay_arm(decay)).values()) for decay in DECAYS}
    tables = [curves for each in by_decay.values() for curves in each]
    names = tuple(map(decay_arm, DECAYS))
    claims = {
        "Section 5.1": [_geometric(tables, names), _law(by_decay, names), _equation_5(tables, names)],
        "Conjecture E.1": [_variance(tables, names)],
        "Props. B.1 and B.2": [_contracts(name, list(curves_of(runs, name).values())) for name in OTHERS],
    }
    return [replace(claim, about=about) for about, judged in claims.items() for claim in judged]


def _geometric(tables: Sequence[Curves], names: tuple[str, ...]) -> Claim:
    slopes = [slope for curves in tables if (slope := slope_of(curves)) is not None]
    ratios = [slope.observed / slope.promised for slope in slopes]
    near = [abs(ratio - 1) <= NEAR for ratio in ratios]
    holds = [close and slope.straight >= STRAIGHT for close, slope in zip(near, slopes, strict=True)]
    return Claim(
        "On the plateau the norm of the MLP contracts geometrically, at the rate lr · weight decay.",
        (
            "The plateau is that of bayesticket.analysis.find_phases_by_norm, to phase 3, or grokking, or the end. A "
            f"line fits the logarithm of the smoothed norm with an R² of at least {STRAIGHT:g}, and its slope differs "
            f"from −lr · weight decay by at most {NEAR:.0%}. Counted are the runs of all weight decays whose plateau "
            f"has {SHORTEST} records.",
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
            "geometrically, at any rate": verdict_of([slope.straight >= STRAIGHT for slope in slopes]),
            "at that rate, or at least half of it": verdict_of([ratio >= 0.5 for ratio in ratios]),
            "it contracts at all": verdict_of([slope.observed > 0 for slope in slopes]),
        },
    )


def _fitted(by_decay: Mapping[float, Times], *, floor: bool) -> PowerLaw | None:
    with suppress(BayesticketError):  # too few grokked, or the times do not fall with the decay
        return power_law(list(by_decay), list(by_decay.values()), floor=floor)
    return None


def _law(tables: Mapping[float, Sequence[Curves]], names: tuple[str, ...]) -> Claim:
    waits, times = {}, {}
    for decay, arm_tables in tables.items():
        known = [wait for curves in arm_tables if (wait := wait_of(curves)) is not None]
        ends = [int(curves["mlp_norm"].index[-1]) for curves in arm_tables]
        times[decay] = Times.of([UNSEEN.epoch(curves) for curves in arm_tables], [max(end, 1) for end in ends])
        if known:
            waits[decay] = Times(
                np.array([float(wait.epochs) for wait in known]), np.array([wait.reached for wait in known])
            )
    laws = {
        "the wait, no floor": _fitted(waits, floor=False),
        "the wait, down to a floor": _fitted(waits, floor=True),
        "the epoch of grokking": _fitted(times, floor=False),
    }
    shown = (f"{name}: exponent {law.exponent}" for name, law in laws.items() if law is not None)
    grokked = (
        f"Weight decay {decay:g}: {so_many(int(each.reached.sum()), len(each))} grokked, the wait was "
        f"{across(each.epochs[each.reached].tolist())}."
        for decay, each in waits.items()
        if each.reached.any()
    )
    return Claim(
        "The plateau lasts in proportion to 1/weight decay.",
        (
            "The wait from memorising to grokking by unseen accuracy is c · decayᵇ with b = −1: −b is fitted as the "
            "log–log slope, by maximum likelihood, with runs that never grok censored.",
            LINEAR,
        ),
        "\n".join([sentences(*shown) or "The runs that grokked determine no law.", *grokked]),
        verdict_on_law(laws["the wait, no floor"]),
        arms=names,
        readings={name: verdict_on_law(law) for name, law in list(laws.items())[1:]},
    )


def _equation_5(tables: Sequence[Curves], names: tuple[str, ...]) -> Claim:
    waits = [wait for curves in tables if (wait := wait_of(curves)) is not None and wait.reached]
    largest = max((wait.norm_after for wait in waits), default=1.0)
    paper = [_bound(wait, largest) for wait in waits]
    ratios = [wait.epochs / bound for wait, bound in zip(waits, paper, strict=True) if bound > 0]
    own = [_bound(wait, wait.norm_after) for wait in waits]
    least = [float(plateau_wait_least(torch.tensor(wait.norm), largest, wait.rate)) for wait in waits]
    return Claim(
        "The plateau lasts at least (2/λ) log(‖θ_mem‖/r_max) (Eq. 5).",
        (
            "The wait from memorising to grokking by unseen accuracy is at least that, with λ = lr · weight decay, the "
            "norm of the MLP at memorising, and r_max the largest norm at which a run groks. Counted are the runs that "
            "grok.",
            SHARES,
        ),
        sentences(
            f"{so_many(len(waits), len(tables))} grokked after memorising",
            f"r_max is {largest:.1f}" if waits else "",
            f"the wait is {across(ratios, '.2f')} times the bound" if ratios else "",
        ),
        verdict_of([wait.epochs >= bound for wait, bound in zip(waits, paper, strict=True)]),
        arms=names,
        readings={
            "as an upper bound, with the norm at which the run groks": verdict_of(
                [wait.epochs <= bound for wait, bound in zip(waits, own, strict=True)]
            ),
            "Section 5.1's contraction of the norm, half as long": verdict_of(
                [wait.epochs >= bound for wait, bound in zip(waits, least, strict=True)]
            ),
        },
    )


def _bound(wait: Wait, radius: float) -> float:
    return float(plateau_wait_paper(torch.tensor(wait.norm), radius, wait.rate))


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
            f"The norm of the MLP ends at {CONTRACTED:.0%} of its peak or less. Counted are the runs that memorise.",
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
            "Def. 3.2's inequality holds at every recorded step": verdict_of([slack >= 1 - 1e-6 for slack in slacks])
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
