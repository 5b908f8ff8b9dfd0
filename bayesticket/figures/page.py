"""Pages: headings, paragraphs, figures, tables, notes and films in one HTML file, which opens offline."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import plotly.graph_objects as go
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from bayesticket.figures.alternatives import alternative
from bayesticket.figures.style import FONT
from bayesticket.files import prepare_directory, require_path, write_atomically


@dataclass(frozen=True)
class Cell:
    """A cell of a table that is more than its text; the text's lines stay lines."""

    text: str = ""
    notes: Sequence[str] = ()
    """Names of `Notes` of the same page, to which the cell links."""
    link: str = ""
    """The anchor of a row of the same page, to which the text links."""
    summary: str = ""
    folded: Sequence[str] = ()
    """Lines that are folded away, until a reader opens them by a click on the summary."""


@dataclass(frozen=True)
class Table:
    """A table. Columns after the first are aligned to the right, or to the left if `wordy`.

    On a narrow screen each row of a table with more than two columns is a card of its own.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    wordy: bool = False
    named_by: int = 0
    """The column that says what a row is about; screen readers say it with each cell."""
    anchors: Sequence[str] = ()
    """The anchor of each row; without them cells cannot link to rows."""
    headings: Mapping[int, str] = field(default_factory=dict)
    """Headings within the table, by the number of the row that they stand before."""


@dataclass(frozen=True)
class Notes:
    """Texts by name, to which cells of tables link."""

    texts: Mapping[str, str]


Frame = tuple[Mapping[str, object], Mapping[str, object], Sequence[int]]
"""What plotly's `update` is given: new values of traces by attribute, a list for each; of the layout; which traces."""


@dataclass(frozen=True)
class Moving:
    """A figure that changes from frame to frame."""

    caption: str
    figure: go.Figure
    """The first frame."""
    frames: Sequence[Frame]


@dataclass(frozen=True)
class Film:
    """Figures in columns that move together, by one slider."""

    labels: Sequence[str]
    """What is said of each frame."""
    columns: Mapping[str, Sequence[Moving]]
    """The figures, by the heading of their column."""


@dataclass(frozen=True)
class Section:
    """A part of a page: heading, paragraphs, then a figure, a table, notes or a film."""

    heading: str
    text: Sequence[str] = ()
    content: go.Figure | Table | Notes | Film | None = None


@dataclass(frozen=True)
class Fold:
    """Sections that are folded away under a heading, until a reader opens them, or follows a link into them."""

    heading: str
    summary: str
    """What is said of them beside the heading."""
    sections: Sequence[Section]


def write_page(path: str | os.PathLike[str], title: str, sections: Sequence[Section | Fold]) -> Path:
    """Writes sections as one HTML file, which includes all it needs and opens offline; returns its path."""
    target = require_path("path", path, "the path of a page")
    directory = prepare_directory("path", target.parent)
    parts = [section for each in sections for section in (each.sections if isinstance(each, Fold) else [each])]
    kinds = {_kind(section.content) for section in parts}
    page = _template().render(
        title=title,
        sections=sections,
        folds=any(isinstance(each, Fold) for each in sections),
        font=FONT,
        wide="Film" in kinds,
        plotly=get_plotlyjs() if kinds & {"Figure", "Film"} else "",
    )
    written = directory / target.name
    write_atomically(written, lambda temporary: temporary.write_text(page, encoding="utf-8"))
    written.chmod(0o644)
    return written


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined
    )
    environment.filters |= {"alternative": alternative, "anchor": _anchor, "cell": _cell, "drawn": _drawn}
    environment.filters |= {"frames": _frames, "kind": _kind}
    return environment.get_template("page.html")


def _kind(content: object) -> str:
    return "" if content is None else type(content).__name__


def _cell(given: str | Cell) -> Cell:
    return Cell(given) if isinstance(given, str) else given


def _anchor(name: str) -> str:
    return re.sub(r"\W+", "-", name.lower())


_CONTROLS = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtons": [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
    "plotlyServerURL": "",  # the page sends nothing anywhere
}


def _drawn(figure: go.Figure, place: object, *, controls: bool = True) -> Markup:
    """A figure as plotly writes it into a page, with or without its controls."""
    drawn = figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=f"figure-{place}",
        config=_CONTROLS | ({} if controls else {"displayModeBar": False}),
        default_height=f"{figure.layout['height'] or 450}px",
    )
    return Markup(drawn)


def _frames(film: Film, place: int) -> Markup:
    """The frames of a film as JSON that cannot end the script it stands in."""
    parts = [
        {"id": f"figure-{place}-{column}-{row}", "frames": moving.frames}
        for column, each in enumerate(film.columns.values())
        for row, moving in enumerate(each)
    ]
    return Markup(json.dumps({"labels": film.labels, "parts": parts}, separators=(",", ":")).replace("<", "\\u003c"))
