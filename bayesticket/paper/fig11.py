"""Figure 11: attention frozen at the oracle, and the optimiser perturbed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import plotly.graph_objects as go

from bayesticket.figures import ACCURACY, PALETTE, Panel, add_band, finish_arms, stacked
from bayesticket.interventions import FrozenAttention
from bayesticket.measures import Contraction
from bayesticket.optim import AdamW
from bayesticket.paper.arms import LAYOUTS, PLAIN, STRENGTH, arm, baseline, with_prior
from bayesticket.paper.comparing import arm_of, arms_of
from bayesticket.paper.decay import NEAR, SHORTEST, STRAIGHT, Slope, slope_of
from bayesticket.paper.figure import SHARES, Claim, PaperFigure, Scale, arm_names, curves_of, verdict_of
from bayesticket.paper.readings import UNSEEN, Grokking, by_every_reading
from bayesticket.paper.times import BANDS, DOTS, plot_accuracy, plot_times, times_of
from bayesticket.paper.words import across, sentences, so_many
from bayesticket.runs import TrainConfig
from bayesticket.sweeps import Runs
from bayesticket.tasks import ModularAddition

NONE, ORACLE, FROZEN = "no prior", "oracle as a prior", "attention frozen at the oracle"
FULL = arm_of(PLAIN, NONE)
"""The full batch with Adam's usual betas: the arm that the others perturb."""
BATCHES = {f"batches of {size:,}": size for size in (512, 1024)}
BETAS = {f"betas {betas}": betas for betas in ((0.9, 0.98), (0.9, 0.95), (0.5, 0.999))}
PERTURBED = (*BATCHES, *BETAS)
FEWER = 4
"""Runs in batches have so many times fewer epochs, recorded as often more, as an epoch has several steps."""


def arms(scale: Scale) -> Mapping[str, TrainConfig]:
    """Frozen attention beside the prior and none, in both layouts, and the optimiser perturbed."""
    found: dict[str, TrainConfig] = {}
    for layout, distractors in LAYOUTS.items():
        found[arm_of(layout, NONE)] = baseline(scale, distractors)
        found[arm_of(layout, ORACLE)] = with_prior(scale, distractors)
        found[arm_of(layout, FROZEN)] = arm(scale, FrozenAttention("oracle"), distractors=distractors)
    plain = arm(scale, distractors="constant", measures=(Contraction(),))
    epochs, often = (max(each // FEWER, 1) for each in (scale.epochs, scale.record_every))
    batches = {
        name: replace(plain, batch_size=size, epochs=epochs, record_every=often) for name, size in BATCHES.items()
    }
    betas = {name: replace(plain, optimizer=AdamW(betas=pair)) for name, pair in BETAS.items()}
    return found | batches | betas


def draw(runs: Runs) -> Mapping[str, go.Figure]:
    """Grokking times, accuracy with frozen attention, and the norm under perturbed optimisers."""
    pictures = {DOTS: plot_times(times_of(runs))}
    for layout in LAYOUTS:
        names = [arm_of(layout, name) for name in (NONE, ORACLE, FROZEN)]
        pictures[f"{BANDS[:-1]} ({layout})."] = plot_accuracy(runs, names)
    panels = [ACCURACY, Panel("norm of the MLP", log=True)]
    figure = stacked(panels, panel_height=240)
    known = arm_names(runs)
    for colour, name in zip(PALETTE, [each for each in (FULL, *PERTURBED) if each in known], strict=False):
        for panel, column in enumerate((UNSEEN.curve, "mlp_norm"), 1):
            add_band(figure, runs, name, column, panel=panel, colour=colour)
    finish_arms(figure, panels, int(runs.curves["trained"].max()))
    return pictures | {"The optimiser perturbed, constant distractors; median and quartiles over seeds.": figure}


def judge(runs: Runs) -> list[Claim]:
    """What is claimed of the MLP alone, and of contraction."""
    return [*by_every_reading(_judge_at)(runs), _contracts(runs)]


def _judge_at(runs: Runs, reading: Grokking) -> list[Claim]:
    times = times_of(runs, reading)
    found = []
    for layout in LAYOUTS:
        arms = arms_of(times, layout)
        found.append(arms.beats(
            "With attention frozen at the oracle the MLP generalises earlier than with attention learned", FROZEN, NONE,
            {"than with the oracle as a prior": (FROZEN, ORACLE)}, "the paper",
        ))  # fmt: skip
        found.append(arms.matches(
            "The prior takes the time that the MLP alone needs: it matches or outperforms frozen attention", ORACLE,
            FROZEN, {"no prior does": (NONE, FROZEN)}, "a control",
        ))  # fmt: skip
    return found


@dataclass(frozen=True)
class _Contraction:
    """How the norm of the MLP falls on the plateau of a run, and at which rate an epoch should make it fall."""

    slope: Slope
    steps: int
    """Optimiser steps in an epoch."""

    @property
    def ratio(self) -> float:
        """The rate over lr · weight decay."""
        return self.slope.observed / (self.slope.promised * self.steps)


def steps_of(arm: str, n_train: int) -> int:
    """How many steps an epoch of an arm has.

    >>> [steps_of(name, 3830) for name in ("batches of 512", "batches of 1,024", "betas (0.9, 0.98)")]
    [8, 4, 1]
    """
    return math.ceil(n_train / BATCHES[arm]) if arm in BATCHES else 1


def _contractions(runs: Runs, name: str) -> list[_Contraction]:
    steps = steps_of(name, len(ModularAddition().split().train))
    found = (slope_of(curves) for curves in curves_of(runs, name).values())
    return [_Contraction(slope, steps) for slope in found if slope is not None]


def _contracts(runs: Runs) -> Claim:
    by_arm = {name: _contractions(runs, name) for name in PERTURBED}
    every = [each for found in by_arm.values() for each in found]

    def geometric(found: Sequence[_Contraction]) -> list[bool]:
        return [each.slope.geometric and each.slope.observed > 0 for each in found]

    lines = [
        f"{name[0].upper()}{name[1:]}: the rate is {across([each.ratio for each in found], '.2f')} times lr · weight "
        f"decay, with an R² of {across([each.slope.straight for each in found], '.3f')}."
        for name, found in {FULL: _contractions(runs, FULL), **by_arm}.items()
        if found
    ]
    counted = so_many(len(every), sum(len(runs.seeds) for _ in by_arm))
    return Claim(
        "In batches and with other betas the norm of the MLP still contracts geometrically on the plateau.",
        (
            "The plateau is that of bayesticket.analysis.find_phases_by_norm, to phase 3, or grokking, or the end. A "
            f"line fits the logarithm of the smoothed norm with an R² of at least {STRAIGHT:g}, better than one fits "
            "the norm itself, and falls. Counted are the runs, in batches or with other betas, whose plateau has "
            f"{SHORTEST} records.",
            SHARES,
        ),
        "\n".join([sentences(f"{counted} had such a plateau"), *lines]),
        verdict_of(geometric(every)),
        arms=(FULL, *PERTURBED),
        readings={
            **{name: verdict_of(geometric(found)) for name, found in by_arm.items()},
            "it contracts at all": verdict_of([each.slope.observed > 0 for each in every]),
            f"at the rate lr · weight decay, to {NEAR:.0%}": verdict_of(
                [abs(each.ratio - 1) <= NEAR for each in every]
            ),
        },
        about="Props. B.1 and B.2",
    )


FIGURE = PaperFigure(
    "fig11",
    "Figure 11: frozen attention, and the optimiser perturbed",
    f"Attention frozen at the oracle, beside a KL prior of strength {STRENGTH:g} toward it, and none, in both layouts. "
    "With constant distractors, and without a prior: batches of 512 and 1,024 for the full batch of 3,830, with a "
    f"{FEWER}th of the epochs, and three other pairs of Adam's betas for (0.9, 0.999).",
    arms,
    draw,
    judge,
)
