"""How large the weights are and how steep the model is."""

import itertools

import pandas as pd
import plotly.graph_objects as go

from bayesticket.figures.measures.columns import (
    COLOURS,
    accuracy_row,
    columns_of,
    entries_of,
    lines,
    lines_by_setting,
    losses,
)
from bayesticket.figures.measures.family import Family
from bayesticket.figures.panels import Curve, Row
from bayesticket.figures.style import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, VERMILION, Panel
from bayesticket.measures import Column
from bayesticket.model import layer_of, parameter_kind
from bayesticket.runs import Run

_MATRICES: dict[str, tuple[str, str]] = {
    "W_E": (ORANGE, "solid"), "W_pos": (ORANGE, "dash"), "W_U": (ORANGE, "dot"),
    "W_Q": (GREEN, "solid"), "W_K": (GREEN, "dash"), "W_V": (GREEN, "dot"), "W_O": (GREEN, "dashdot"),
    "W_in": (BLUE, "solid"), "W_out": (BLUE, "dash"),
}  # fmt: skip
"""The colour and the dash of each matrix."""


def _weight_norms(run: Run) -> list[Curve]:
    """The norms of the matrices, in the order of `_MATRICES`; named with the layer's number if there are several."""
    columns = [item for entries in entries_of(run, "weight_norms").values() for item in entries.items()]
    layers = {layer_of(entry) for entry, _ in columns} - {None}
    curves: dict[str, list[Curve]] = {matrix: [] for matrix in _MATRICES}
    for entry, column in columns:
        matrix, layer = parameter_kind(entry), layer_of(entry)
        if matrix in _MATRICES:
            name = f"{layer}.{matrix}" if len(layers) > 1 and layer is not None else matrix
            curves[matrix].append(Curve(column, name, *_MATRICES[matrix], 1.6))
    return [curve for matrix in _MATRICES for curve in curves[matrix]]


def _rows(run: Run) -> list[Row]:
    steepness = [
        *lines(run, "lipschitz_bounds", "factors", VERMILION, "factors"),
        *lines(run, "lipschitz_bounds", "products", ORANGE, "products"),
        *lines(run, "lipschitz_bounds", "centred", PURPLE, "centred"),
        *lines(run, "lipschitz_bounds", "steepest example", SKY, "steepest"),
        *lines(run, "lipschitz_bounds", "mean of examples", GREEN, "local"),
    ]
    steps = [
        *lines(run, "contraction", "observed", INK, "observed"),
        *lines(run, "contraction", "pure decay, 2λ − λ²", BLUE, "decay", dash="dash"),
        *lines(run, "contraction", "promised, λ = lr · weight decay", ORANGE, "rate", dash="dot"),
    ]
    interaction = [
        Curve(column, f"‖M‖ of {Column.parse(column).entry}", colour, "dash")
        for (column, _), colour in zip(columns_of(run, "interaction_norm"), itertools.cycle(COLOURS[1:]), strict=False)
    ]
    norms = [*lines(run, "mlp_norm", "MLP", INK, width=2.8), *_weight_norms(run)]
    inside = Panel("in the set N of the norm condition (1) or not (0)", span=(-0.1, 1.1))
    condition = lines(run, "norm_condition", "in N", BLUE, in_legend=False)
    scaled = lines(run, "normalized_mlp_loss", "train, MLP scaled to a fixed norm", PURPLE, width=2.4)
    rank = lines(run, "effective_rank", "effective rank", BLUE, in_legend=False)
    variance = lines(run, "score_variance", "variance over the keys", BLUE)
    return [
        Row(Panel("Frobenius norm", log=True), norms, height=210),
        Row(inside, condition, height=60, integers=True),
        Row(Panel("steepness, from z to the logits", log=True), steepness, height=180),
        Row(Panel("class margin"), lines_by_setting(run, "class_margin", "least")),
        Row(Panel("share of ‖θ‖² that a step takes"), steps),
        Row(Panel("loss", log=True), scaled, losses(run)),
        Row(Panel("effective rank before the unembedding"), rank, height=110, from_zero=True),
        Row(Panel("attention scores", log=True), [*variance, *interaction]),
        accuracy_row(run),
    ]


def _pure_decay(run: Run) -> pd.DataFrame:
    """The contraction `1 − (1 − λ)²` of ‖θ‖² by weight decay alone."""
    rates = run.curves[[column for column, _ in columns_of(run, "contraction", "rate")]]
    decay = pd.DataFrame(1 - (1 - rates) ** 2)
    return decay.set_axis([f"{column.removesuffix('[rate]')}[decay]" for column in rates], axis=1)


CAPACITY = Family(
    "Capacity: how large the weights are, and how steep the model is",
    ("MLPNorm()", "WeightNorms()", "LipschitzBounds()", "ClassMargin()", "Contraction()", "EffectiveRank()"),
    "Look at what grows until the training examples are memorised, what shrinks afterwards, and when. Where a step "
    "takes as much as pure decay would, weight decay alone moves the norm; where it takes less, the optimiser gives "
    "back what decay takes.",
    _rows,
    _pure_decay,
)


def plot_capacity(run: Run) -> go.Figure:
    """Norms, Lipschitz bounds, class margin, contraction, and other measures of how much the model can fit."""
    return CAPACITY.plot(run)
