"""Panels of a run's curves above one epoch axis, with its phases shaded behind them and named above."""

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from bayesticket.analysis import Phases
from bayesticket.errors import BayesticketError
from bayesticket.figures.plot import INK, Panel, _axis, add_curve, fit_log_axes, label_of, stacked
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


@dataclass(frozen=True)
class Row:
    """A panel and its curves; those beside them give context, and alone make no panel unless it is there for them."""

    panel: Panel
    curves: Sequence[Curve] = ()
    beside: Sequence[Curve] = ()
    height: int = 150
    from_zero: bool = False
    whole: bool = False
    """Whether its values are whole numbers."""
    context: bool = False

    @property
    def is_drawn(self) -> bool:
        """Whether there is something to show."""
        return bool(self.beside if self.context else self.curves)


TINTS = {"memorisation": "#FDEBD8", "plateau": "#F1F1F1", "resurgence": "#DCECF8", "grokking": "#FFF6C4"}
"""The colours behind the phases; neighbours differ along the axis of yellow and blue, which most eyes can tell."""
STRIP = {"memorisation": "#F3BE85", "plateau": "#CFCFCF", "resurgence": "#93C5EA", "grokking": "#F5DD5F"}
"""Those of the strip above the first panel that has their names."""
TITLE = 78
"""Pixels that the figure's title takes."""
_GAP, _LINE = 52, 20
"""Pixels between panels, and of a line of names above one."""
_WIDTH = 850
"""About how many pixels wide the panels are on a page, by which it is decided whether words fit."""
_GRID = "rgba(0, 0, 0, 0.09)"
"""Seen on white and on the tints alike."""


def phases_of(run: Run) -> Phases | None:
    """The phases, or None for a run without the curves that they are read off."""
    try:
        return run.phases()
    except BayesticketError:
        return None


def draw(run: Run, title: str, rows: Sequence[Row], *, ends_labelled: bool = False) -> go.Figure:
    """The rows that have something to show, one below the other, with the phases of the run.

    With `ends_labelled` the curves of the first panel are named where they end, in place of a legend.
    """
    rows, last = [row for row in rows if row.is_drawn], max(run.epoch, 1)
    found = phases_of(run)
    spans = {} if found is None else {name: span for name, span in found.spans(0, last).items() if span[0] < span[1]}
    names = _place_names(spans, last)
    figure = stacked([row.panel for row in rows], gap=_GAP)
    lines = 1 + max((line for *_, line in names), default=-1)
    height = _arrange(figure, rows, _LINE * lines, legend_first=not ends_labelled)
    _shade(figure, spans, names, n_panels=len(rows), height=height)
    for place, row in enumerate(rows, 1):
        for curve in (*row.beside, *row.curves):
            add_curve(
                figure, run, curve.column, panel=place, name=curve.name, colour=curve.colour, dash=curve.dash,
                width=curve.width, in_legend=curve.in_legend and not (ends_labelled and place == 1),
            )  # fmt: skip
            if not curve.in_hover:
                figure.data[-1].update(hoverinfo="skip", hovertemplate=None)
        if row.from_zero:
            figure.update_layout({_axis("yaxis", place): {"rangemode": "tozero"}})
        if row.whole:
            most = run.curves[[curve.column for curve in row.curves]].max(axis=None)
            figure.update_layout({_axis("yaxis", place): {"tick0": 0, "dtick": max(1, round(most / 5))}})
    fit_log_axes(figure, [row.panel for row in rows])
    _write_powers(figure, rows)
    if ends_labelled:
        _label_ends(figure, run, rows[0])
    said = html.escape(label_of(run), quote=False)
    few = sum(len(row.curves) for row in rows) <= 8
    figure.update_layout(
        title={
            "text": html.escape(title, quote=False),
            "subtitle": {"text": said if found is None else f"{said}<br>{found}"},
        },
        hoversubplots="axis" if few else "single",
    )
    figure.update_xaxes(range=[0, last], gridcolor=_GRID)
    figure.update_yaxes(gridcolor=_GRID)
    return figure


def untitled(figure: go.Figure) -> go.Figure:
    """The figure without its title, for a page that says the same above it."""
    layout = figure.layout
    top, height = layout["margin"]["t"] - TITLE, layout["height"] - TITLE
    return go.Figure(figure).update_layout(title=None, margin={"t": top}, height=height)


def _arrange(figure: go.Figure, rows: Sequence[Row], names: int, *, legend_first: bool) -> int:
    """Gives the panels their own heights, and the first one so many pixels more below its title; returns the height."""
    raised = [_LINE * _lines_of_legend(row) if place or legend_first else 0 for place, row in enumerate(rows)]
    height = sum(row.height for row in rows) + _GAP * (len(rows) - 1) + sum(raised[1:])
    top, over = height, names
    for place, (row, up) in enumerate(zip(rows, raised, strict=True), 1):
        figure.update_layout(
            {
                _axis("yaxis", place): {"domain": [max(top - row.height, 0) / height, top / height]},
                _axis("legend", place): {"y": (top + over) / height, "font": {"size": 12.5}},
            }
        )
        figure.layout["annotations"][place - 1].update(y=(top + over + up) / height)
        top -= row.height + _GAP + (raised[place] if place < len(rows) else 0)
        over = 0
    margin = TITLE + 46 + names + raised[0]
    figure.update_layout(height=height + margin + 60, margin={"t": margin, "b": 60})
    return height


def _lines_of_legend(row: Row) -> int:
    """How many lines the legend needs below the panel's title; none where it has room beside it."""
    widths = [7 * len(curve.name) + 46 for curve in (*row.beside, *row.curves) if curve.in_legend]
    if 8.2 * len(row.panel.title) + sum(widths) <= _WIDTH:
        return 0
    if sum(widths) <= _WIDTH:
        return 1
    return math.ceil(len(widths) / max(_WIDTH // max(widths), 1))


def _place_names(spans: Mapping[str, tuple[int, int]], last: int) -> list[tuple[str, float, str, int]]:
    """The phases' names with place, anchor and line: 0 is the strip, and above it is where the strip is too short."""
    placed: list[tuple[str, float, str, int]] = []
    taken = [0.0]
    for name, (start, end) in spans.items():
        left, right, width = start / last, end / last, (7 * len(name) + 8) / _WIDTH
        if right - left >= width:
            placed.append((name, (left + right) / 2, "center", 0))
            continue
        begins = min(left, 1 - width)
        line = next((line for line, until in enumerate(taken) if line and until <= begins), len(taken))
        taken[line : line + 1] = [begins + width]
        placed.append((name, left, "left", line) if begins == left else (name, 1.0, "right", line))
    return placed


def _shade(
    figure: go.Figure,
    spans: Mapping[str, tuple[int, int]],
    names: Sequence[tuple[str, float, str, int]],
    *,
    n_panels: int,
    height: int,
) -> None:
    """Shades the phases in every panel, and writes their names on a strip above the first one."""
    shapes = []
    for name, (start, end) in spans.items():
        span = {"type": "rect", "name": name, "x0": start, "x1": end, "line": {"width": 0}, "layer": "below"}
        shapes += [
            span | {"xref": "x", "yref": f"{_axis('y', panel)} domain", "y0": 0, "y1": 1, "fillcolor": TINTS[name]}
            for panel in range(1, n_panels + 1)
        ]
        strip = {"y0": 1 + 2 / height, "y1": 1 + (_LINE - 1) / height, "fillcolor": STRIP[name]}
        shapes.append(span | strip | {"xref": "x", "yref": "paper"})
    figure.update_layout(shapes=shapes)
    last = max((end for _, end in spans.values()), default=1)
    for name, at, anchor, line in names:
        figure.add_annotation(
            text=name, x=at * last, xref="x", xanchor=anchor, y=1, yref="paper", yanchor="bottom",
            yshift=_LINE * line + 2, showarrow=False, font={"size": 12, "color": INK}, borderpad=1,
            bgcolor=STRIP[name] if line else None,
        )  # fmt: skip


def _write_powers(figure: go.Figure, rows: Sequence[Row]) -> None:
    """Writes 10⁻⁶ for 0.000001 on logarithmic axes that go so far."""
    for place, row in enumerate(rows, 1):
        axis = figure.layout[_axis("yaxis", place)]
        if row.panel.log and axis["range"] is not None and (axis["range"][0] < -4 or axis["range"][1] > 5):
            axis.update(tickformat=None, exponentformat="power", tickfont={"size": 11.5})


def _label_ends(figure: go.Figure, run: Run, row: Row) -> None:
    """Names the curves of the first panel at their right ends, moved apart where they would touch."""
    low, high = figure.layout["yaxis"]["range"] or (0.0, 1.0)
    ends: list[tuple[float, Curve]] = []
    for curve in row.curves:
        values = run.curves[curve.column].to_numpy()
        values = values[np.isfinite(values) & (values > 0)]
        if len(values):
            ends.append(((float(np.log10(values[-1])) - low) / (high - low) * row.height, curve))
    ends.sort(key=lambda end: end[0])
    places = apart([place for place, _ in ends], least=37, low=14, high=row.height - 14)
    for place, (_, curve) in zip(places, ends, strict=True):
        figure.add_annotation(
            text=curve.name, x=1, xref="paper", xanchor="left", xshift=8, y=place / row.height, yref="y domain",
            yanchor="middle", align="left", showarrow=False, font={"size": 12.5, "color": curve.colour},
        )  # fmt: skip
    figure.update_layout(margin={"r": 155})


def apart(places: Sequence[float], *, least: float, low: float, high: float) -> list[float]:
    """Rising places moved until neighbours are a least distance from each other, within bounds that have room.

    >>> apart([10, 20, 90], least=30, low=0, high=100)
    [10, 40, 90]
    >>> apart([80, 90, 95], least=20, low=0, high=100)
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
