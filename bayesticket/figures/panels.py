"""Panels of a run's curves above one epoch axis, with its phases shaded behind them."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import plotly.graph_objects as go

from bayesticket.figures.curves import GAP, add_curve, axis_name, fit_log_axes, stacked
from bayesticket.figures.phases import LINE, WIDTH, phases_in_words, phases_of, place_names, shade
from bayesticket.figures.runs import label_of
from bayesticket.figures.style import INK, Panel
from bayesticket.runs import Run


@dataclass(frozen=True)
class Curve:
    """A recorded column, and how it is drawn."""

    column: str
    name: str
    colour: str
    dash: str = "solid"
    width: float = 2.0
    in_legend: bool = True
    in_hover: bool = True
    formula: str = ""
    """What stands below the name, where curves have their names at their right ends."""


@dataclass(frozen=True)
class Row:
    """A panel and its curves. A row without curves of its own is left out, unless it is there for its context."""

    panel: Panel
    curves: Sequence[Curve] = ()
    context: Sequence[Curve] = ()
    """Curves of other measures, for comparison."""
    height: int = 150
    from_zero: bool = False
    integers: bool = False
    """Whether its values are whole numbers."""
    context_only: bool = False
    """Whether the row is there for its context, without curves of its own."""

    @property
    def is_drawn(self) -> bool:
        """Whether there is something to show."""
        return bool(self.context if self.context_only else self.curves)


TITLE = 96
"""The height of the figure's title, in pixels."""
_GRID = "rgba(0, 0, 0, 0.09)"
"""The colour of the grid, visible on white and on the tints."""


def draw(run: Run, title: str, rows: Sequence[Row], *, ends_labelled: bool = False) -> go.Figure:
    """The rows that have something to show, one below the other, with the run's phases shaded behind them.

    With `ends_labelled` the curves of the first panel have their names at their right ends instead of in a legend.
    """
    rows, last = [row for row in rows if row.is_drawn], max(run.epoch, 1)
    found = phases_of(run)
    spans = {} if found is None else {name: span for name, span in found.spans(0, last).items() if span[0] < span[1]}
    names = place_names(spans, last)
    n_lines = 1 + max((name.line for name in names), default=-1)
    figure = stacked([row.panel for row in rows])
    height = _arrange(figure, rows, LINE * n_lines, legend_first=not ends_labelled)
    shade(figure, spans, names, n_panels=len(rows), height=height)
    for place, row in enumerate(rows, 1):
        for curve in (*row.context, *row.curves):
            add_curve(
                figure, run, curve.column, panel=place, name=curve.name, colour=curve.colour, dash=curve.dash,
                width=curve.width, in_legend=curve.in_legend and not (ends_labelled and place == 1),
            )  # fmt: skip
            if not curve.in_hover:
                figure.data[-1].update(hoverinfo="skip", hovertemplate=None)
        if row.from_zero:
            figure.update_layout({axis_name("yaxis", place): {"rangemode": "tozero"}})
        if row.integers:
            most = run.curves[[curve.column for curve in row.curves]].max(axis=None)
            figure.update_layout({axis_name("yaxis", place): {"tick0": 0, "dtick": max(1, round(most / 5))}})
    fit_log_axes(figure, [row.panel for row in rows])
    _write_powers(figure, rows)
    if ends_labelled:
        _label_ends(figure, run, rows[0])
    label = html.escape(label_of(run), quote=False)
    few = sum(len(row.curves) for row in rows) <= 8
    figure.update_layout(
        title={
            "text": html.escape(title, quote=False),
            "subtitle": {"text": "<br>".join([label, *phases_in_words(run)])},
        },
        hoversubplots="axis" if few else "single",
    )
    figure.update_xaxes(range=[0, last], gridcolor=_GRID)
    figure.update_yaxes(gridcolor=_GRID)
    return figure


def untitled(figure: go.Figure) -> go.Figure:
    """The figure without its title, for a page that has the title as a heading."""
    layout = cast("dict", figure.layout)
    top, height = layout["margin"]["t"] - TITLE, layout["height"] - TITLE
    return go.Figure(figure).update_layout(title=None, margin={"t": top}, height=height)


def _arrange(figure: go.Figure, rows: Sequence[Row], names: int, *, legend_first: bool) -> int:
    """Gives each panel its height, with `names` pixels for the phases' names above the first; returns the height."""
    legends = [LINE * _lines_of_legend(row) if place or legend_first else 0 for place, row in enumerate(rows)]
    height = sum(row.height for row in rows) + GAP * (len(rows) - 1) + sum(legends[1:])
    top = height
    for place, (row, legend) in enumerate(zip(rows, legends, strict=True), 1):
        if place > 1:
            top -= legend
        above = top + (names if place == 1 else 0)  # from there up: the legend, then the panel's title
        figure.update_layout(
            {
                axis_name("yaxis", place): {"domain": [max(top - row.height, 0) / height, top / height]},
                axis_name("legend", place): {"y": above / height, "font": {"size": 12.5}},
            }
        )
        figure.layout["annotations"][place - 1].update(y=(above + legend) / height)
        top -= row.height + GAP
    margin = TITLE + 46 + names + legends[0]
    figure.update_layout(height=height + margin + 60, margin={"t": margin, "b": 60})
    return height


def _lines_of_legend(row: Row) -> int:
    """How many lines the legend needs below the panel's title: none if there is room for it beside the title."""
    widths = [7 * len(curve.name) + 46 for curve in (*row.context, *row.curves) if curve.in_legend]
    if 8.2 * len(f"{row.panel.title} {row.panel.note}") + sum(widths) <= WIDTH:
        return 0
    if sum(widths) <= WIDTH:
        return 1
    return math.ceil(len(widths) / max(WIDTH // max(widths), 1))


def _write_powers(figure: go.Figure, rows: Sequence[Row]) -> None:
    """Writes powers such as 10⁻⁶ on logarithmic axes that reach below 10⁻⁴ or above 10⁵."""
    for place, row in enumerate(rows, 1):
        axis = cast("dict", figure.layout)[axis_name("yaxis", place)]
        if row.panel.log and axis["range"] is not None and (axis["range"][0] < -4 or axis["range"][1] > 5):
            axis.update(tickformat=None, exponentformat="power", tickfont={"size": 11.5})


def _label_ends(figure: go.Figure, run: Run, row: Row) -> None:
    """Writes the names of the first panel's curves at their right ends, moved apart where they would overlap."""
    low, high = cast("dict", figure.layout)["yaxis"]["range"] or (0.0, 1.0)
    ends: list[tuple[float, Curve]] = []
    for curve in row.curves:
        values = run.curves[curve.column].to_numpy()
        values = values[np.isfinite(values) & (values > 0)]
        if len(values):
            ends.append(((float(np.log10(values[-1])) - low) / (high - low) * row.height, curve))
    ends.sort(key=lambda end: end[0])
    places = move_apart([place for place, _ in ends], least=37, low=14, high=row.height - 14)
    for place, (_, curve) in zip(places, ends, strict=True):
        formula = f"<br><span style='color:{INK}'>{curve.formula}</span>" if curve.formula else ""
        figure.add_annotation(
            text=f"<b>{curve.name}</b>{formula}", x=1, xref="paper", xanchor="left", xshift=8, y=place / row.height,
            yref="y domain", yanchor="middle", align="left", showarrow=False,
            font={"size": 12.5, "color": curve.colour},
        )  # fmt: skip
    figure.update_layout(margin={"r": 155})


def move_apart(places: Sequence[float], *, least: float, low: float, high: float) -> list[float]:
    """Moves places, given in increasing order, until neighbours are at least `least` apart, between two bounds.

    >>> move_apart([10, 20, 90], least=30, low=0, high=100)
    [10, 40, 90]
    >>> move_apart([80, 90, 95], least=20, low=0, high=100)
    [60, 80, 100]
    """
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + least if moved else low))
    most = high
    for index in reversed(range(len(moved))):
        moved[index] = min(moved[index], most)
        most = moved[index] - least
    return moved
