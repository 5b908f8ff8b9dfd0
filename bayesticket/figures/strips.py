"""When a prior acted: strips below the accuracy, one for each part of a recipe whose strength is a schedule."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from typing import cast

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from bayesticket.errors import BayesticketError
from bayesticket.figures.curves import axis_name
from bayesticket.figures.style import transparent
from bayesticket.runs import Run
from bayesticket.schedules import Schedule
from bayesticket.specs import JSON, Spec, default_values, described_kind, restore
from bayesticket.sweeps import Runs

WORDS, HEIGHT, SPACE = 17, 13, 7
"""Pixels of a strip's words, of the strip itself, and between two of them."""
MOST_POINTS = 2000
"""A strip has no more points: a schedule of more corners is shown by its largest values."""


@dataclass(frozen=True, eq=False)
class Strip:
    """One schedule of a run or an arm, as it is drawn."""

    name: str
    shares: Float[np.ndarray, "epochs"]
    """Its values in each epoch that was trained, as shares of the largest value."""
    largest: float
    colour: str
    column: int = 1
    """The column of panels that it stands in, from 1."""


def strips_of_run(run: Run, colour: str, name: str = "") -> list[Strip]:
    """The strips of a run, in one colour, with a name in front of their words."""
    return _strips(run.description.get("intervention"), run.epoch, colour, name)


def strips_of_arm(runs: Runs, colour: str, name: str = "", *, column: int = 1) -> list[Strip]:
    """The strips of the runs of one arm: of its first seed, as the others have the same recipe."""
    ids = runs.curves["id"].to_numpy().ravel()
    recipe = json.loads(runs.curves.attrs.get("scheduled", "{}")).get(str(ids[0])) if len(ids) else None
    return _strips(recipe, int(runs.curves["trained"].max()), colour, name, column)


def _strips(recipe: JSON, end: int, colour: str, name: str, column: int = 1) -> list[Strip]:
    found: dict[str, Strip] = {}
    for words, schedule in _scheduled(recipe):
        whole = f"{name}: {words}" if name else words
        candidates = itertools.chain([whole], (f"{whole} ({number})" for number in itertools.count(2)))
        own = next(each for each in candidates if each not in found)
        values = np.array([float(schedule.at(epoch)) for epoch in range(end)])
        largest = max(float(schedule.largest), values.max(initial=0.0))
        found[own] = Strip(own, values / (largest or 1.0), largest, colour, column)
    return [strip for strip in found.values() if strip.shares.any()]


def _scheduled(described: JSON, within: str = "") -> Iterator[tuple[str, Schedule]]:
    """The schedules in a description, each with the part it belongs to, in words.

    They are read from descriptions, so that it needs neither the other classes of the recipe nor its tensors.
    """
    if isinstance(described, list):
        for entry in described:
            yield from _scheduled(entry, within)
    if not isinstance(described, dict):
        return
    kind = described_kind(described)
    words = within if kind == "Recipe" else f"{within}, {kind}" if within else _in_words(described)
    for field, value in (_defaults(kind) | described).items():
        if isinstance(value, Schedule):
            yield _with_field(words, field), value
        elif isinstance(value, dict) and issubclass(Spec.kinds.get(described_kind(value), object), Schedule):
            try:
                schedule = restore(value, {})
            except BayesticketError:  # of a class that has changed, or with tensors
                continue
            yield _with_field(words, field), cast("Schedule", schedule)
        else:
            yield from _scheduled(cast("JSON", value), words)


def _defaults(kind: str) -> dict[str, object]:
    """The schedules that fields of a class are by default, which descriptions leave out."""
    known = Spec.kinds.get(kind)
    found = {} if known is None else default_values(known)
    return {name: value for name, value in found.items() if value is not MISSING and isinstance(value, Schedule)}


def _with_field(words: str, field: str) -> str:
    return words if field == "strength" else f"{words}, {field}"


def _in_words(described: Mapping[str, JSON]) -> str:
    """A part of a recipe in a few words: its class, and what is a word or a number and differs from the default."""
    plain = {name: value for name, value in described.items() if isinstance(value, bool | int | float | str)}
    shown = ", ".join(f"{name}={value}" for name, value in plain.items() if name != "type")
    return described_kind(described) + (f" ({shown})" if shown else "")


# Drawing ----------------------------------------------------------------------------------------------------------


def corners(values: Float[np.ndarray, "epochs"]) -> tuple[np.ndarray, np.ndarray]:
    """Epochs and values of a polygon that is the curve: what lies on straight lines is left out.

    Of a curve with very many corners it has the largest value of every few epochs, so that no peak is lost.

    >>> corners(np.array([0.0, 0.0, 0.0, 1.0, 1.0, 1.0]))
    (array([0, 2, 3, 6]), array([0., 0., 1., 1.]))
    """
    at, held = np.arange(len(values) + 1), np.append(values, values[-1:])  # the last value holds for its epoch
    bends = np.abs(np.diff(held, 2)) > 1e-9
    kept = np.concatenate([[True], bends, [True]])
    if kept.sum() <= MOST_POINTS:
        return at[kept], held[kept]
    width = -(-len(held) // MOST_POINTS)
    starts = np.arange(0, len(held), width)
    return np.append(starts, at[-1]), np.append(np.maximum.reduceat(held, starts), held[-1])


def add_strips(figure: go.Figure, strips: Sequence[Strip]) -> None:
    """Draws strips below the first panel of a finished figure of stacked panels, which makes room for them.

    The height of a strip is the share of the schedule's largest value. Strips of one name in several columns share a
    row. Without strips the figure stays as it is.
    """
    rows = list(dict.fromkeys(strip.name for strip in strips))
    if not rows:
        return
    pixels = len(rows) * (WORDS + HEIGHT + SPACE)
    bottom, height = _make_room(figure, pixels)
    for strip in strips:
        top = bottom - (WORDS + rows.index(strip.name) * (WORDS + HEIGHT + SPACE)) / height
        _add_strip(figure, strip, low=top - HEIGHT / height, high=top)
    axes = {axis: figure.layout[axis_name("xaxis", axis)] for axis in {strip.column for strip in strips}}
    if min(domain[0] for domain in _domains(figure)) >= bottom:  # a single panel: its axis moves below the strips
        for column, axis in axes.items():
            axis.anchor = axis_name("y", _n_axes(figure) - len(strips) + _lowest(strips, rows, column) + 1)


def _lowest(strips: Sequence[Strip], rows: Sequence[str], column: int) -> int:
    """The number of the lowest strip of a column."""
    own = [number for number, strip in enumerate(strips) if strip.column == column]
    return max(own, key=lambda number: rows.index(strips[number].name))


def _n_axes(figure: go.Figure) -> int:
    return sum(name.startswith("yaxis") for name in figure.layout.to_plotly_json())


def _domains(figure: go.Figure) -> list[tuple[float, float]]:
    """The domains of the panels, strips left out."""
    axes = [axis for name, axis in figure.layout.to_plotly_json().items() if name.startswith("yaxis")]
    return [tuple(axis["domain"]) for axis in axes if axis.get("visible", True)]


def _make_room(figure: go.Figure, pixels: int) -> tuple[float, float]:
    """Makes a figure higher below its first panel; the new lower end of that, and the new height, in pixels."""
    layout = cast("dict", figure.layout)
    margin, bottom = layout["margin"], layout["yaxis"]["domain"][0]
    height = layout["height"] - margin["t"] - margin["b"]
    whole = height + pixels

    def moved(y: float) -> float:
        return max(0.0, 1 - ((1 - y) * height + (pixels if y <= bottom - 1e-9 else 0)) / whole)

    for name, part in list(figure.layout.to_plotly_json().items()):
        if name.startswith("yaxis"):
            low, high = part["domain"]
            own = moved(high) - (high - low) * height / whole
            figure.update_layout({name: {"domain": [max(own, 0.0), moved(high)]}})
        elif name.startswith("legend") and part.get("yref") != "container" and part.get("y") is not None:
            figure.update_layout({name: {"y": moved(part["y"])}})
    for annotation in layout["annotations"]:
        if annotation.yref == "paper":
            annotation.y = moved(annotation.y)
    for shape in layout["shapes"]:
        if shape.yref == "paper":
            shape.update(y0=moved(shape.y0), y1=moved(shape.y1))
    figure.update_layout(height=layout["height"] + pixels)
    return layout["yaxis"]["domain"][0], whole


def _add_strip(figure: go.Figure, strip: Strip, *, low: float, high: float) -> None:
    """One strip with its words above it, on an axis of its own."""
    place = _n_axes(figure) + 1
    across = cast("dict", figure.layout)[axis_name("xaxis", strip.column)]
    x_axis, y_axis = axis_name("x", strip.column), axis_name("y", place)
    own = {"domain": [max(low, 0.0), high], "range": [0, 1], "visible": False, "fixedrange": True, "anchor": x_axis}
    figure.update_layout({axis_name("yaxis", place): own})
    epochs, shares = corners(strip.shares)
    figure.add_trace(
        go.Scatter(
            x=epochs, y=shares, customdata=strip.largest * shares, name=strip.name, mode="lines", fill="tozeroy",
            fillcolor=transparent(strip.colour, 0.45), line={"color": strip.colour, "width": 1.5}, showlegend=False,
            xaxis=x_axis, yaxis=y_axis, hovertemplate="%{customdata:.4g}", cliponaxis=False,
        )
    )  # fmt: skip
    figure.add_annotation(
        text=f"{strip.name}, at most {strip.largest:.4g}", x=(across["domain"] or (0.0, 1.0))[0], xanchor="left",
        xref="paper", y=high, yanchor="bottom", yref="paper", yshift=-1, showarrow=False, align="left",
        font={"size": 11.5},
    )  # fmt: skip
