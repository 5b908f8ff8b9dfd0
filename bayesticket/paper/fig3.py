"""Figure 3: the strength of the KL prior against the time it takes to grok; its controls are in `controls`."""

from collections.abc import Mapping
from dataclasses import replace

import plotly.graph_objects as go

from bayesticket.figures import ACCURACY, GREY, add_band, finish_arms, shades, stacked
from bayesticket.interventions import KLPrior
from bayesticket.paper.alignment import align_claims
from bayesticket.paper.arms import LAYOUTS, STRENGTH, arm, baseline, with_prior
from bayesticket.paper.figure import Claim, PaperFigure, Scale, arm_names
from bayesticket.paper.readings import UNSEEN, Grokking, by_every_reading
from bayesticket.paper.strengths import STRENGTHS, earlier_with_strength, linear_in_inverse, plot_law, strength_arm
from bayesticket.runs import TrainConfig
from bayesticket.sweeps import Runs


def arms(scale: Scale) -> Mapping[str, TrainConfig]:
    """The strengths in both layouts, and the baselines."""
    found: dict[str, TrainConfig] = {}
    for layout, distractors in LAYOUTS.items():
        found[strength_arm(layout, 0)] = baseline(scale, distractors)
        for strength in STRENGTHS:
            found[strength_arm(layout, strength)] = (
                with_prior(scale, distractors)
                if strength == STRENGTH
                else arm(scale, KLPrior(strength=strength), distractors=distractors)
            )
    return found


def draw(runs: Runs) -> Mapping[str, go.Figure]:
    """Accuracy by strength, and grokking times by strength with the fitted laws."""
    return {
        "Unseen accuracy by the strength of the prior; median and quartiles over seeds.": _accuracies(runs),
        "Grokking time against 1/strength. A dot is a run; a triangle one that had not grokked when training ended. "
        "The dashed line is the law of added rates, 1/(T − floor) = 1/(T₀ − floor) + strengthᵇ/c, with T₀ the time "
        "without a prior; the dotted one is floor + c · strength⁻ᵇ, which has no such time.": plot_law(runs),
    }


def _accuracies(runs: Runs) -> go.Figure:
    panels = [replace(ACCURACY, title=f"unseen accuracy, {layout}") for layout in LAYOUTS]
    figure = stacked(panels, panel_height=220)
    colours = dict(zip((0.0, *STRENGTHS), (GREY, *shades(len(STRENGTHS))), strict=True))
    names = arm_names(runs)
    for panel, layout in enumerate(LAYOUTS, 1):
        for strength, colour in colours.items():
            if (name := strength_arm(layout, strength)) in names:
                label = f"{strength:g}" if strength else "none"
                add_band(figure, runs, name, UNSEEN.curve, panel=panel, colour=colour, name=label)
    finish_arms(figure, panels, int(runs.curves["trained"].max()))
    return figure


def _judge_at(runs: Runs, reading: Grokking) -> list[Claim]:
    """Earlier with strength, and linear in its inverse, in each layout."""
    judged = (earlier_with_strength, linear_in_inverse)
    return [claim for layout in LAYOUTS for claim in (each(runs, layout, reading) for each in judged)]


def judge(runs: Runs) -> list[Claim]:
    """What is claimed of grokking times, and of attention under the prior."""
    return [*by_every_reading(_judge_at)(runs), *(claim for layout in LAYOUTS for claim in align_claims(runs, layout))]


FIGURE = PaperFigure(
    "fig3",
    "Figure 3: the strength of the prior",
    "A KL prior toward the oracle at nine strengths over three decades, with random and with constant distractors.",
    arms,
    draw,
    judge,
    notes=("What might do the same without its structure is tried in the controls.",),
)
