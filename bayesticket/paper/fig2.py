"""Figure 2: norm control crossed with where attention is drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from textwrap import wrap

import numpy as np
import plotly.graph_objects as go
from numpy.typing import ArrayLike

from bayesticket.figures import ACCURACY, GREY, PALETTE, TEMPLATE, add_band, finish_arms, stacked
from bayesticket.interventions import Intervention, KLPrior, NormMatch, QKPenalty, Recipe
from bayesticket.measures import AttentionEntropy, WeightNorms
from bayesticket.paper.arms import STRENGTH, arm, baseline, with_prior
from bayesticket.paper.factorial import (
    ALL,
    CONSTANT,
    DECAY,
    FREE,
    HELD,
    LARGER,
    NORMS,
    OLD,
    QK,
    SMALLER,
    judge_at,
    name_of,
    norms_at_grokking,
)
from bayesticket.paper.figure import PaperFigure, Scale, arm_names, curves_of
from bayesticket.paper.readings import THRESHOLD, UNSEEN, by_every_reading
from bayesticket.paper.words import across
from bayesticket.runs import TrainConfig
from bayesticket.sweeps import Configs, Runs
from bayesticket.tasks import ModularAddition

PRIORS = {
    "no prior": Recipe(),
    "oracle": KLPrior(strength=STRENGTH),
    "adversarial": KLPrior("adversarial", strength=STRENGTH),
}
TICKS = (0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999)
"""Of the axis of accuracies."""
TITLES = {
    DECAY: "weight decay 1.0",
    FREE: "no norm control",
    HELD: "MLP held at r_max, weight decay on all else",
    SMALLER: "MLP held at half of r_max",
    LARGER: "MLP held at twice r_max",
    ALL: "all weights held, no weight decay",
    OLD: "MLP held at r_max, no weight decay on anything else",
    QK: "MLP held at r_max, QK penalty 0.5",
    CONSTANT[DECAY]: "constant distractors, weight decay 1.0",
    CONSTANT[FREE]: "constant distractors, no norm control",
}


def factorial_arm(scale: Scale, recipe: Intervention, weight_decay: float | None = None) -> TrainConfig:
    """An arm with two random distractors, so that attention on the distractors can memorise."""
    task = ModularAddition(p=scale.p, n_distractors=2)
    return arm(scale, recipe, task=task, measures=(AttentionEntropy(), WeightNorms()), weight_decay=weight_decay)


def arms(scale: Scale) -> Mapping[str, TrainConfig]:
    """What needs no radius: with weight decay and without, under each prior; the same with constant distractors."""
    two = {
        name_of(norm, prior): factorial_arm(scale, recipe, decay)
        for norm, decay in ((DECAY, None), (FREE, 0.0))
        for prior, recipe in PRIORS.items()
    }
    return {
        **two,
        name_of(CONSTANT[DECAY], "no prior"): baseline(scale, "constant"),
        name_of(CONSTANT[DECAY], "oracle"): with_prior(scale, "constant"),
        name_of(CONSTANT[FREE], "no prior"): arm(scale, distractors="constant", weight_decay=0.0),
        name_of(CONSTANT[FREE], "oracle"): arm(scale, PRIORS["oracle"], distractors="constant", weight_decay=0.0),
    }


def radius_of(runs: Runs, scope: str = "mlp") -> float:
    """The largest norm at which runs with weight decay grok, r_max; if none does, the median norm where they end."""
    reached = norms_at_grokking(runs, scope)
    ended = norms_at_grokking(runs, scope, at_the_end=True)
    return round(max(reached) if reached else median(ended), 1)


def then(scale: Scale, runs: Runs) -> Configs:
    """The arms with held norms, whose radius is that of runs that grok under weight decay.

    The projection follows the step, so that weight decay of the held weights has no effect on their norm: with decay on
    everything, all but the MLP decays.
    """
    radius, whole = radius_of(runs), radius_of(runs, "all")
    sphere, all_held = NormMatch(radius=radius), NormMatch(radius=whole, scope="all")
    neither = ("no prior", "oracle")
    made = {name_of(HELD, prior): factorial_arm(scale, recipe + sphere) for prior, recipe in PRIORS.items()}
    made |= {
        name_of(norm, "oracle"): factorial_arm(scale, PRIORS["oracle"] + NormMatch(radius=factor * radius))
        for norm, factor in ((SMALLER, 0.5), (LARGER, 2.0))
    }
    made |= {name_of(ALL, prior): factorial_arm(scale, PRIORS[prior] + all_held, 0.0) for prior in PRIORS}
    made |= {name_of(OLD, prior): factorial_arm(scale, PRIORS[prior] + sphere, 0.0) for prior in neither}
    made |= {
        name_of(QK, prior): factorial_arm(scale, recipe + QKPenalty(0.5) + sphere) for prior, recipe in PRIORS.items()
    }
    return {(name, seed): replace(config, seed=seed) for seed in range(scale.seeds) for name, config in made.items()}


def draw(runs: Runs) -> Mapping[str, go.Figure]:
    """Unseen accuracy at its best, and through training."""
    names = arm_names(runs)
    rows = [norm for norm in NORMS if any(name_of(norm, prior) in names for prior in PRIORS)]
    spread = across(norms_at_grokking(runs, "mlp"), ".1f")
    return {
        "The best accuracy of each run on unseen test examples, on a logit scale; one dot a seed, and a line at the "
        f"accuracy that counts as grokking, {THRESHOLD:.0%}. The norm of the MLP at grokking, of the runs with weight "
        f"decay and two random distractors that grok: {spread}.": _best(runs, rows),
        "Unseen accuracy through training; median and quartiles over seeds.": _through_training(runs, rows),
    }


def _best(runs: Runs, rows: Sequence[str]) -> go.Figure:
    figure, names = go.Figure(), arm_names(runs)
    for place, (colour, prior) in enumerate(zip(PALETTE, PRIORS, strict=False)):
        dots = [
            (row + (place - 1) / 4 + spread, UNSEEN.best(curves))
            for row, norm in enumerate(rows)
            if (name := name_of(norm, prior)) in names
            for spread, curves in zip(
                np.linspace(-0.1, 0.1, len(runs.seeds)), curves_of(runs, name).values(), strict=True
            )
        ]
        if dots:
            y, best = zip(*dots, strict=True)
            figure.add_scatter(
                x=_logit(best), y=y, customdata=best, name=prior, mode="markers", marker={"color": colour, "size": 8},
                hovertemplate="%{customdata:.2%}",
            )  # fmt: skip
    figure.add_vline(x=float(_logit(THRESHOLD)), line={"color": GREY, "width": 1})
    figure.update_layout(
        template=TEMPLATE, height=120 + 46 * len(rows), margin={"t": 40, "l": 10},
        legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"},
    )  # fmt: skip
    titles = ["<br>".join(wrap(TITLES[norm], 30)) for norm in rows]
    figure.update_yaxes(
        tickvals=list(range(len(rows))), ticktext=titles, autorange="reversed", showgrid=False, ticks=""
    )
    figure.update_xaxes(
        title_text="best unseen accuracy",
        tickvals=_logit(TICKS),
        ticktext=[f"{100 * each:g}%" for each in TICKS],
    )
    return figure


def _logit(accuracy: ArrayLike) -> np.ndarray:
    """The logit of accuracies, at most as far out as the first and the last tick."""
    from scipy.special import logit

    return logit(np.clip(accuracy, TICKS[0], TICKS[-1]))


def _through_training(runs: Runs, rows: Sequence[str]) -> go.Figure:
    panels = [replace(ACCURACY, title=TITLES[norm]) for norm in rows]
    figure, names, seen = stacked(panels, panel_height=130), arm_names(runs), set[str]()
    for colour, prior in zip(PALETTE, PRIORS, strict=False):
        for panel, norm in enumerate(rows, 1):
            if (name := name_of(norm, prior)) in names:
                first = prior not in seen
                add_band(figure, runs, name, UNSEEN.curve, panel=panel, colour=colour, name=prior, in_legend=first)
                seen.add(prior)
    finish_arms(figure, panels, int(runs.curves["trained"].max()))
    return figure


FIGURE = PaperFigure(
    "fig2",
    "Figure 2: norm control crossed with structure",
    "Two random distractors, so that attention on them can memorise. Norm control: weight decay 1.0, none (weight "
    "decay 0), or a held norm. The MLP is held on the sphere whose radius is r_max, the largest norm at which runs "
    "with weight decay grok, while weight decay stays 1.0 on everything else; at half and at twice that radius, too. "
    "Beside these: all weights held, without weight decay; the MLP held, without weight decay on anything else; and "
    "the MLP held with an L2 penalty of 0.5 on W_Q and W_K. Structure: no prior, a KL prior of strength "
    f"{STRENGTH:g} toward the oracle, or toward the distractors. Weight decay crossed with the oracle is also run with "
    "constant distractors, where runs may grok without a prior.",
    arms,
    draw,
    by_every_reading(judge_at),
    then,
)
