"""A run's phases, shaded behind its panels and named above them."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

import plotly.graph_objects as go

from bayesticket.analysis import Phases
from bayesticket.errors import BayesticketError
from bayesticket.figures.curves import axis_name
from bayesticket.figures.style import INK
from bayesticket.runs import Run

TINTS = {"memorisation": "#FDEBD8", "plateau": "#F1F1F1", "resurgence": "#DCECF8", "grokking": "#FFF6C4"}
"""The colours behind the phases; neighbours differ in yellow and blue, which most colour-blind readers can tell."""
STRIP = {"memorisation": "#F3BE85", "plateau": "#CFCFCF", "resurgence": "#93C5EA", "grokking": "#F5DD5F"}
"""The colours of the strip above the first panel, which holds the phases' names."""
READINGS: Mapping[Literal["gradient", "norm"], str] = {
    "gradient": "the attention's gradient",
    "norm": "training loss and the MLP's norm",
}
"""What the phases are read off, in words; the first reading is the one that is shaded."""
LINE = 20
"""The height of a line of names, in pixels."""
WIDTH = 850
"""The approximate width of the panels on a page in pixels, from which follows whether words fit."""


class PhaseName(NamedTuple):
    """Where the name of a phase is written."""

    name: str
    at: float
    """Its place along the epoch axis, from 0 to 1."""
    anchor: str
    """Which part of the name stands there: left, center or right."""
    line: int
    """0 for the strip; further lines lie above it."""


def phases_of(run: Run) -> Phases | None:
    """The phases that are shaded, or None if the run has not recorded the curves that determine them."""
    try:
        return run.phases()
    except BayesticketError:
        return None


def phases_in_words(run: Run) -> list[str]:
    """The phases by both readings, the shaded one first; nothing of a reading whose curves are not recorded."""
    found: list[str] = []
    for by, how in READINGS.items():
        with suppress(BayesticketError):
            found.append(f"by {how}: {run.phases(by)}")
    return found


def place_names(spans: Mapping[str, tuple[int, int]], last: int) -> list[PhaseName]:
    """Where the phases' names are written: on the strip, or above it if the phase is too short for its name.

    >>> [(name.name, name.line) for name in place_names({"memorisation": (0, 10), "plateau": (10, 1000)}, 1000)]
    [('memorisation', 1), ('plateau', 0)]
    """
    placed: list[PhaseName] = []
    taken = [0.0]  # where the last name of each line ends
    for name, (start, end) in spans.items():
        left, right, width = start / last, end / last, (7 * len(name) + 8) / WIDTH
        if right - left >= width:
            placed.append(PhaseName(name, (left + right) / 2, "center", 0))
            continue
        begins = min(left, 1 - width)
        line = next((line for line, until in enumerate(taken) if line and until <= begins), len(taken))
        taken[line : line + 1] = [begins + width]  # of a new line too
        fits = begins == left
        placed.append(PhaseName(name, left if fits else 1.0, "left" if fits else "right", line))
    return placed


def shade(
    figure: go.Figure,
    spans: Mapping[str, tuple[int, int]],
    names: Sequence[PhaseName],
    *,
    n_panels: int,
    height: int,
) -> None:
    """Shades the phases in every panel, and writes their names on a strip above the first one."""
    shapes = []
    for name, (start, end) in spans.items():
        span = {"type": "rect", "name": name, "x0": start, "x1": end, "line": {"width": 0}, "layer": "below"}
        shapes += [
            span | {"xref": "x", "yref": f"{axis_name('y', panel)} domain", "y0": 0, "y1": 1, "fillcolor": TINTS[name]}
            for panel in range(1, n_panels + 1)
        ]
        strip = {"y0": 1 + 2 / height, "y1": 1 + (LINE - 1) / height, "fillcolor": STRIP[name]}
        shapes.append(span | strip | {"xref": "x", "yref": "paper"})
    figure.update_layout(shapes=shapes)
    last = max((end for _, end in spans.values()), default=1)
    for name, at, anchor, line in names:
        figure.add_annotation(
            text=name, x=at * last, xref="x", xanchor=anchor, y=1, yref="paper", yanchor="bottom",
            yshift=LINE * line + 2, showarrow=False, font={"size": 12, "color": INK}, borderpad=1,
            bgcolor=STRIP[name] if line else None,
        )  # fmt: skip
