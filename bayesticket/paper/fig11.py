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
from bayesticket.paper.decay import CONTRACTED, NEAR, SHORTEST, Slope, slope_of
from bayesticket.paper.figure import SHARES, Claim, Curves, PaperFigure, Scale, arm_names, curves_of, verdict_of
from bayesticket.paper.readings import UNSEEN, Grokking, by_every_reading
from bayesticket.paper.times import BANDS, DOTS, plot_accuracy, plot_times, times_of
from bayesticket.paper.waits import wait_of
from bayesticket.paper.words import across, sentences, so_many
from bayesticket.runs import TrainConfig
from bayesticket.sweeps import Runs

NONE, ORACLE, FROZEN = "no prior", "oracle as a prior", "attention frozen at the oracle"
FULL = arm_of(PLAIN, NONE)
"""The full batch with Adam's usual betas: the arm that the others perturb."""
BATCHES = {f"batches of {size:,}": size for size in (512, 1024)}
N_TRAIN = 3830
"""The number of training examples at the paper's scale."""
BETAS = {f"betas {betas}": betas for betas in ((0.9, 0.98), (0.9, 0.95), (0.5, 0.999))}
PERTURBED = (*BATCHES, *BETAS)


def arms(scale: Scale) -> Mapping[str, TrainConfig]:
    """Frozen attention beside the prior and none, in both layouts, and the optimiser perturbed."""
    found: dict[str, TrainConfig] = {}
    for layout, distractors in LAYOUTS.items():
        found[arm_of(layout, NONE)] = baseline(scale, distractors)
        found[arm_of(layout, ORACLE)] = with_prior(scale, distractors)
        found[arm_of(layout, FROZEN)] = arm(scale, FrozenAttention("oracle"), distractors=distractors)
    plain = arm(scale, distractors="constant", measures=(Contraction(),))
    betas = {name: replace(plain, optimizer=AdamW(betas=pair)) for name, pair in BETAS.items()}
    return found | {name: _in_batches(scale, name) for name in BATCHES} | betas


def _in_batches(scale: Scale, name: str) -> TrainConfig:
    """As many steps as the full batch has, of which an epoch has several; recorded and stopped by steps too."""
    steps = steps_of(name)
    epochs, often = (max(each // steps, 1) for each in (scale.epochs, scale.record_every))
    shorter = replace(scale, epochs=epochs, record_every=often)
    return arm(
        shorter, distractors="constant", measures=(Contraction(),), patience=200 // steps, batch_size=BATCHES[name]
    )


def draw(runs: Runs) -> Mapping[str, go.Figure]:
    """Grokking times, accuracy with frozen attention, and the norm under perturbed optimisers."""
    steps = " and ".join(f"{steps_of(name)} steps in {name}" for name in BATCHES)
    pictures = {f"{DOTS} An epoch has {steps}, and one step elsewhere.": plot_times(times_of(runs))}
    for layout in LAYOUTS:
        names = [arm_of(layout, name) for name in (NONE, ORACLE, FROZEN)]
        pictures[f"{BANDS[:-1]} ({layout})."] = plot_accuracy(runs, names)
    panels = [replace(ACCURACY, title="unseen accuracy"), Panel("norm of the MLP", log=True)]
    figure = stacked(panels, panel_height=240)
    known = arm_names(runs)
    for colour, name in zip(PALETTE, [each for each in (FULL, *PERTURBED) if each in known], strict=False):
        for panel, column in enumerate((UNSEEN.curve, "mlp_norm"), 1):
            add_band(figure, runs, name, column, panel=panel, colour=colour)
    finish_arms(figure, panels, int(runs.curves["trained"].max()))
    perturbed = "The optimiser perturbed, constant distractors; median and quartiles over seeds."
    return pictures | {f"{perturbed} An epoch has {steps}.": figure}


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
            FROZEN, {"no prior does": (NONE, FROZEN)}, "a control", NONE,
        ))  # fmt: skip
    return found


def steps_of(arm: str, n_train: int = N_TRAIN) -> int:
    """How many steps an epoch of an arm has.

    >>> [steps_of(name) for name in ("batches of 512", "batches of 1,024", "betas (0.9, 0.98)")]
    [8, 4, 1]
    """
    return math.ceil(n_train / BATCHES[arm]) if arm in BATCHES else 1


@dataclass(frozen=True)
class Contracting:
    """How the norm of the MLP falls while a run waits, from memorising to grokking or the end."""

    left: float
    """The norm at the end of the wait as a share of its peak in it."""
    slope: Slope | None
    """The line through its logarithm on the plateau; None where there is none."""
    steps: int
    """Optimiser steps in an epoch."""

    @property
    def ratio(self) -> float | None:
        """The rate over lr · weight decay."""
        return None if self.slope is None else self.slope.observed / (self.slope.promised * self.steps)

    @property
    def geometric(self) -> bool:
        """Whether the norm falls on the plateau, and geometrically."""
        return self.slope is not None and self.slope.geometric and self.slope.observed > 0


def contraction_of(curves: Curves, steps: int) -> Contracting | None:
    """The contraction while a run waits; None without a wait, or with one that is too short."""
    wait = wait_of(curves)
    if wait is None or len(curves["mlp_norm"].loc[wait.memorised : wait.memorised + wait.epochs]) < SHORTEST:
        return None
    return Contracting(wait.norm_after / wait.peak, slope_of(curves), steps)


def _contractions(runs: Runs, name: str) -> list[Contracting]:
    found = (contraction_of(curves, steps_of(name)) for curves in curves_of(runs, name).values())
    return [each for each in found if each is not None]


def _contracts(runs: Runs) -> Claim:
    by_arm = {name: _contractions(runs, name) for name in (FULL, *PERTURBED)}
    every = [each for name in PERTURBED for each in by_arm[name]]

    def holds(found: Sequence[Contracting], least: float = CONTRACTED) -> list[bool]:
        return [each.left <= least for each in found]

    lines = [
        f"{name[0].upper()}{name[1:]}: the norm falls to {across([each.left for each in found], '.0%')} of its peak"
        + (f", on the plateau at {across(rates, '.2f')} times lr · weight decay." if rates else ".")
        for name, found in by_arm.items()
        if found
        for rates in [[each.ratio for each in found if each.ratio is not None]]
    ]
    counted = so_many(len(every), len(runs.seeds) * len(PERTURBED))
    near = [each.ratio is not None and abs(each.ratio - 1) <= NEAR for each in every]
    return Claim(
        "In batches and with other betas the norm of the MLP still contracts while runs wait.",
        (
            "Between memorising and grokking by unseen accuracy, or the end, the norm of the MLP falls to "
            f"{CONTRACTED:.0%} of its peak there or less. Counted are the runs, in batches or with other betas, that "
            f"memorise and then wait for {SHORTEST} records, whether their norm falls or not.",
            SHARES,
        ),
        "\n".join([sentences(f"{counted} waited so long"), *lines]),
        verdict_of(holds(every)),
        arms=(FULL, *PERTURBED),
        readings={
            "in the full batch with the usual betas": verdict_of(holds(by_arm[FULL])),
            **{name: verdict_of(holds(by_arm[name])) for name in PERTURBED},
            "by a hundredth": verdict_of(holds(every, 0.99)),
            "geometrically: on the plateau a line fits the norm's logarithm, and better than the norm": verdict_of(
                [each.geometric for each in every]
            ),
            f"on the plateau at the rate lr · weight decay, to {NEAR:.0%}": verdict_of(near),
        },
        about="Props. B.1 and B.2",
    )


FIGURE = PaperFigure(
    "fig11",
    "Figure 11: frozen attention, and the optimiser perturbed",
    f"Attention frozen at the oracle, beside a KL prior of strength {STRENGTH:g} toward it, and none, in both layouts. "
    f"With constant distractors, and without a prior: batches of 512 and 1,024 for the full batch of {N_TRAIN:,}, for "
    "as many steps, and three other pairs of Adam's betas for (0.9, 0.999).",
    arms,
    draw,
    judge,
)
