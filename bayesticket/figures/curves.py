"""Curves against epochs, in panels above one epoch axis."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import cycle
from typing import cast

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from jaxtyping import Float
from numpy.typing import ArrayLike

from bayesticket.errors import refuse
from bayesticket.figures.style import TEMPLATE, Panel, marked, transparent
from bayesticket.measures import Column
from bayesticket.runs import Run

GAP = 52
"""Pixels between two panels."""
NARROW = 640
"""The width of a figure on a page beside a column of links, by which its legend is broken into lines."""


def stacked(panels: Sequence[Panel], *, panel_height: int = 150) -> go.Figure:
    """An empty figure of panels one below the other; panel `i`, from 1, has its own vertical axis, legend and title."""
    height = len(panels) * panel_height + (len(panels) - 1) * GAP
    figure = go.Figure()
    for place, panel in enumerate(panels, 1):
        top = 1 - (place - 1) * (panel_height + GAP) / height
        bottom = max(top - panel_height / height, 0.0)
        axis: dict[str, object] = {"domain": [bottom, top], "type": "log" if panel.log else "linear", "nticks": 6}
        if panel.log:
            axis["tickformat"] = "~g"
        if panel.span:
            axis["range"] = panel.span
        if panel.percent:
            axis["tickformat"] = ".0%"
        legend = {"orientation": "h", "x": 1, "xanchor": "right", "y": top, "yanchor": "bottom"}
        figure.update_layout({axis_name("yaxis", place): axis, axis_name("legend", place): legend})
        figure.add_annotation(
            text=panel.heading, x=0, xanchor="left", xref="paper", y=top, yanchor="bottom", yref="paper",
            yshift=5, showarrow=False, align="left",
        )  # fmt: skip
    figure.update_layout(template=TEMPLATE, height=height + 170, margin={"t": 110, "b": 60}, hovermode="x unified")
    # All panels share one epoch axis, below the last, so that vertical lines and zooms apply to all of them.
    figure.update_xaxes(title_text="epoch", anchor=axis_name("y", len(panels)), tickformat=",d", hoverformat=",d")
    return figure


def fit_log_axes(figure: go.Figure, panels: Sequence[Panel]) -> None:
    """Fits the logarithmic axes to the curves: each spans at least a decade and has at most about five ticks."""
    for place, panel in enumerate(panels, 1):
        traces = figure.select_traces({"yaxis": axis_name("y", place)})
        drawn = [trace.y for trace in traces if isinstance(trace, go.Scatter)]
        values = np.concatenate([np.empty(0), *(np.asarray(y, dtype=float) for y in drawn if y is not None)])
        values = np.log10(values[np.isfinite(values) & (values > 0)])
        if not panel.log or not len(values):
            continue
        low, high = values.min(), values.max()
        margin = max(0.06 * (high - low), (1 - (high - low)) / 2)
        span = high - low + 2 * margin
        ticks = "D2" if span < 1.5 else max(1, round(span / 5))
        axis = {"range": [low - margin, high + margin], "dtick": ticks}
        figure.update_layout({axis_name("yaxis", place): axis})


def axis_name(name: str, place: int) -> str:
    """What plotly calls the axis or legend at a place, counted from 1.

    >>> axis_name("yaxis", 1), axis_name("yaxis", 2)
    ('yaxis', 'yaxis2')
    """
    return name if place == 1 else f"{name}{place}"


DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
"""The dashes of the layers, where one colour has several."""


def columns_by_layer(names: Iterable[str], measure: str) -> dict[str, str]:
    """The columns of a measure with default fields, by the layer that they are of; "" for a model's only layer.

    >>> columns_by_layer(["mlp_norm", "kl_to_oracle"], "kl_to_oracle")
    {'': 'kl_to_oracle'}
    >>> columns_by_layer(["kl_to_oracle[layer=each][L0]", "kl_to_oracle[layer=each][L1]"], "kl_to_oracle")
    {'layer 0': 'kl_to_oracle[layer=each][L0]', 'layer 1': 'kl_to_oracle[layer=each][L1]'}
    """
    columns = sorted((Column.parse(name) for name in names if name.startswith(measure)), key=lambda each: each.order)
    found: dict[str, str] = {}
    for column in columns:
        is_default = column.curve == measure and column.fields in ("", "layer=each")
        if is_default and not column.quantity and "head" not in column.place:
            found[f"layer {column.place['layer']}" if column.place else ""] = str(column)
    return found


def evaluation_curves(names: Iterable[str]) -> dict[str, str]:
    """The columns of the accuracy on other tasks, by the label of each, numbers in labels in order.

    >>> evaluation_curves(["test_accuracy", "T=12/test_accuracy", "T=12/test_loss", "T=8/test_accuracy"])
    {'T=8': 'T=8/test_accuracy', 'T=12': 'T=12/test_accuracy'}
    """
    columns = sorted((Column.parse(str(name)) for name in names), key=lambda each: each.order)
    own = [each for each in columns if each.evaluation and str(each) == f"{each.evaluation}/test_accuracy"]
    return {each.evaluation: str(each) for each in own}


def layers_noted(panel: Panel, layers: Iterable[str]) -> Panel:
    """The panel with a note on the dashes of the layers, where several layers are drawn."""
    named = [layer for layer in layers if layer]
    dashes = (f"{layer} {_IN_WORDS.get(dash, dash)}" for layer, dash in zip(named, cycle(DASHES), strict=False))
    return replace(panel, note=", ".join(dashes)) if named else panel


_IN_WORDS = {"dash": "dashed", "dot": "dotted"}


def add_curve(
    figure: go.Figure,
    run: Run,
    column: str,
    *,
    panel: int,
    name: str,
    colour: str,
    dash: str = "solid",
    width: float = 2.0,
    symbol: str | None = None,
    group: str | None = None,
    in_legend: bool = True,
) -> None:
    """Draws one recorded curve of a run into a panel; does nothing if the run did not record it."""
    if column not in run.curves:
        return
    figure.add_trace(
        go.Scatter(
            x=run.curves.index.to_numpy(),
            y=run.curves[column].to_numpy(),
            name=name,
            line={"color": colour, "dash": dash, "width": width},
            yaxis=axis_name("y", panel),
            legend=axis_name("legend", panel) if group is None else "legend",
            legendgroup=group,
            showlegend=in_legend,
            hovertemplate="%{y:.2%}" if column.endswith("accuracy") else "%{y:.4g}",
            **marked(symbol, colour),
        )
    )


def band(
    epochs: ArrayLike,
    values: ArrayLike,
    *,
    name: str,
    colour: str,
    symbol: str | None = None,
    dash: str = "solid",
    panel: int = 1,
    group: str | None = None,
) -> list[go.Scatter]:
    """Median and quartiles over seeds of values of shape (seeds, epochs): three traces, lower, upper and median.

    The two quartiles are invisible lines with the area between them filled. At each epoch, seeds without a value (NaN)
    are left out; the hover text says how many there are.

    >>> from bayesticket.figures import PALETTE
    >>> lower, upper, median = band([0, 10], [[0.0, 1.0], [0.2, 1.0], [0.4, 0.6]], name="kl", colour=PALETTE[0])
    >>> lower.y.round(2).tolist(), median.y.tolist(), upper.y.round(2).tolist()
    ([0.1, 0.8], [0.2, 1.0], [0.3, 1.0])
    """
    at, table = np.asarray(epochs), np.asarray(values, dtype=float)
    if at.ndim != 1 or table.ndim != 2 or table.shape[1] != len(at):
        raise refuse("values", table.shape, f"shape (seeds, {len(at)}), one column for each epoch")
    known = ~np.isnan(table).all(axis=0)
    at, table = at[known], table[:, known]
    quantile = np.nanquantile if np.isnan(table).any() else np.quantile  # which is far faster
    low, middle, high = quantile(table, (0.25, 0.5, 0.75), axis=0)
    n_seeds = (~np.isnan(table)).sum(axis=0)
    shared = {"x": at, "yaxis": axis_name("y", panel), "legendgroup": group or name}
    edge = {**shared, "mode": "lines", "line": {"width": 0}, "showlegend": False, "hoverinfo": "skip"}
    return [
        go.Scatter(y=low, **edge),
        go.Scatter(y=high, fill="tonexty", fillcolor=transparent(colour, 0.2), **edge),
        go.Scatter(
            y=middle,
            name=name,
            line={"color": colour, "width": 2, "dash": dash},
            customdata=np.column_stack([low, high, n_seeds]),
            hovertemplate="%{y:.4g} (%{customdata[0]:.4g} to %{customdata[1]:.4g}, %{customdata[2]} seeds)",
            **shared,
            **marked(symbol, colour),
        ),
    ]


def hold_last_values(values: Float[np.ndarray, "seeds epochs"]) -> Float[np.ndarray, "seeds epochs"]:
    """Curves of one arm, where each that has ended keeps its last value until the longest one ends.

    >>> hold_last_values(np.array([[1.0, np.nan, np.nan], [1.0, 2.0, np.nan]]))
    array([[ 1.,  1., nan],
           [ 1.,  2., nan]])
    """
    known = np.flatnonzero(~np.isnan(values).all(axis=0))
    if not len(known):
        return values
    end = known[-1] + 1
    filled = pd.DataFrame(values[:, :end]).ffill(axis=1).to_numpy()
    return np.concatenate([filled, values[:, end:]], axis=1)


def finish_arms(figure: go.Figure, panels: Sequence[Panel], last: int) -> None:
    """Fits the axes of a figure of several arms to epochs 0 to `last`, and puts the legend above the first panel."""
    fit_log_axes(figure, panels)
    names = {"x": 0, "xanchor": "left", "y": 1, "yref": "container", "yanchor": "top", "font": {"size": 15}}
    traces = cast("tuple[go.Scatter, ...]", figure.data)
    width = sum(9 * len(str(trace.name)) + 60 for trace in traces if trace.showlegend)
    more = 24 * (max(math.ceil(width / NARROW), 1) - 1)
    height = cast("dict", figure.layout)["height"] + more
    figure.update_layout(margin={"t": 75 + more}, height=height, legend=names, hoversubplots="single")
    figure.update_xaxes(range=[0, last])
