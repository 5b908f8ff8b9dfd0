"""The gradient of the task loss in the attention, from which the phases of a run are read off."""

from dataclasses import replace

import pandas as pd
import plotly.graph_objects as go

from bayesticket.analysis import WINDOW, smoothed
from bayesticket.figures.measures.columns import accuracy_row, columns_of, lines
from bayesticket.figures.measures.family import Family
from bayesticket.figures.panels import Row
from bayesticket.figures.style import GREEN, INK, KL, Panel
from bayesticket.measures import Column
from bayesticket.runs import Run


def _rows(run: Run) -> list[Row]:
    raw = lines(run, "attention_gradient", "recorded", "#D9A3C6", width=1.2)
    smooth = lines(run, "attention_gradient", f"median of {WINDOW} records", "#A8508A", "smooth", width=2.6)
    divergence = lines(run, "kl_to_oracle", "KL", GREEN, in_legend=False)
    return [
        Row(Panel("gradient of the task loss in the attention, ‖∂L/∂M‖", log=True), [*raw, *smooth], height=260),
        Row(Panel("commutator defect", log=True), lines(run, "commutator_defect", "defect", INK, in_legend=False)),
        Row(KL, context=divergence, context_only=True),
        accuracy_row(run),
    ]


def _smooth(run: Run) -> pd.DataFrame:
    """The gradient from which the phases are read off: the median of neighbouring records."""
    columns = [column for column, _ in columns_of(run, "attention_gradient")]
    return smoothed(run.curves, columns).set_axis([_smooth_name(Column.parse(column)) for column in columns], axis=1)


def _smooth_name(column: Column) -> str:
    return str(replace(column, entry=f"{column.entry}.smooth" if column.entry else "smooth"))


GRADIENTS = Family(
    "Gradients: when attention learns",
    ("AttentionGradient()",),
    "The phases are read off these curves: the plateau begins where the gradient, after memorising, has fallen to half "
    "of its peak; resurgence begins where it has doubled again while the divergence from the oracle has halved. The "
    "other reading, by training loss and the MLP's norm, is that of Section 5.1. Look at whether test accuracy rises "
    "before resurgence, or after.",
    _rows,
    _smooth,
)


def plot_gradients(run: Run) -> go.Figure:
    """The task's gradient in the attention, with the divergence and the accuracies that also determine the phases."""
    return GRADIENTS.plot(run)
