"""Weight decay swept: how the norm contracts on the plateau, and how long the plateau lasts (Eq. 5, Conjecture E.1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import plotly.graph_objects as go

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
    arm_names,
    curves_of,
    verdict_of,
)
from bayesticket.paper.phases import Story, plateau_change
from bayesticket.paper.readings import UNSEEN
from bayesticket.paper.times import DOTS, plot_times, times_of
from bayesticket.paper.waits import equation_5, inverse_in_decay
from bayesticket.paper.words import across, sentences, so_many
from bayesticket.runs import TrainConfig
from bayesticket.sweeps import Runs

DECAYS = (0.3, 0.5, 1.0, 2.0, 3.0)
OPTIMIZERS = {"Muon": Muon(lr=0.01, weight_decay=0.1), "Lion": Lion(lr=1e-3, weight_decay=1.0)}
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
    colours = [*shades(len(DECAYS)), *PALETTE[1:]]  # shades are of the first colour
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


def judge(runs: Runs) -> list[Claim]:
    """What is claimed of contraction and of the plateau's length."""
    by_decay = {decay: list(curves_of(runs, decay_arm(decay)).values()) for decay in DECAYS}
    tables = [curves for each in by_decay.values() for curves in each]
    names = tuple(map(decay_arm, DECAYS))
    claims = {
        "Section 5.1": [_geometric(tables, names), inverse_in_decay(by_decay, names), equation_5(tables, names)],
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
    notes=(
        "Lion first had the learning rate 1e-4 and weight decay 10, with which no run of either model memorised within "
        "5,000 epochs, so that nothing could be judged. Its rate was then chosen by the training accuracy of seed 7 "
        "alone, before any run of seeds 0 to 4: with 3e-4 it was 97% after 3,000 epochs, with 1e-3 99% after 1,400.",
    ),
)
