"""Where attention is: informative mass, divergence, entropy, structural condition, separability margin."""

import plotly.graph_objects as go

from bayesticket.figures.measures.columns import (
    DARK,
    accuracy_row,
    entries_of,
    in_words,
    lines,
    lines_by_setting,
    numbered,
)
from bayesticket.figures.measures.family import Family
from bayesticket.figures.panels import Curve, Row
from bayesticket.figures.style import BLUE, GREEN, INK, MASS, ORANGE, PURPLE, SKY, VERMILION, Panel
from bayesticket.measures import StructuralCondition
from bayesticket.runs import Run


def _rows(run: Run) -> list[Row]:
    by_position = [
        curve
        for setting, entries in entries_of(run, "informative_mass_by_position").items()
        for curve in numbered(entries.values(), _of(setting, "position"))
    ]
    mean = lines(run, "informative_mass_mean", "all of them, mean", GREEN, width=2.4)
    least = lines(run, "informative_mass_least", "least in any example", GREEN, dash="dot", width=2.4)
    thresholds = lines_by_setting(run, "structural_condition", "", "threshold", colours=DARK)
    shares = [
        *lines_by_setting(run, "structural_condition", f"τ = {StructuralCondition().tau}"),
        *lines_by_setting(run, "structural_condition", "", "share", colours=DARK, dash="dash"),
    ]
    divergences = [
        *lines(run, "kl_to_oracle", "the oracle", GREEN),
        *lines_by_setting(run, "kl_to_target", "uniform", colours=(ORANGE, PURPLE, SKY, VERMILION, BLUE)),
    ]
    entropy = lines(run, "attention_entropy", "entropy", BLUE, in_legend=False)
    margins = lines_by_setting(run, "separability_margin", "from the distractors’ centroid (Δ)", "margin")
    return [
        Row(MASS, [*by_position, *mean, *least], height=190),
        Row(Panel("least attention on an informative position, and τ", log=True), thresholds, least),
        Row(Panel("share of inputs that satisfy B(τ)", span=(-0.03, 1.03), percent=True), shares, height=110),
        Row(Panel("divergence of attention from its target, in nats", log=True), divergences),
        Row(Panel("entropy of attention, in nats"), entropy, height=110, from_zero=True),
        Row(Panel("separability margin of the values"), margins, from_zero=True),
        Row(Panel("informative mass of all heads together"), _all_heads(run), from_zero=True),
        accuracy_row(run),
    ]


def _all_heads(run: Run) -> list[Curve]:
    curves: list[Curve] = []
    for setting, entries in entries_of(run, "distributed_mass").items():
        *positions, least, heads = entries.values()
        curves += numbered(positions, _of(setting, "position"))
        curves.append(Curve(least, _of(setting, "least in any example"), GREEN, "dot", 2.4))
        curves.append(Curve(heads, _of(setting, "effective number of heads"), INK, "dash"))
    return curves


def _of(setting: str, name: str) -> str:
    """The name of a curve, after the measure's setting where there is one."""
    return f"{in_words(setting)}, {name}" if setting else name


STRUCTURE = Family(
    "Structure: where attention is, and should be",
    ("InformativeMass()", "KLToOracle()", "AttentionEntropy()", "StructuralCondition()", "SeparabilityMargin()"),
    "Look at which comes first: attention on the informative positions (the mean, and the least that any example "
    "gives) or test accuracy. A derived τ is what the structural condition B(τ) demands, given the model's own margin "
    "and steepness; where it is missing, some training example is still answered wrongly.",
    _rows,
)


def plot_structure(run: Run) -> go.Figure:
    """Attention on the informative positions, divergence, entropy, structural condition and separability margin."""
    return STRUCTURE.plot(run)
