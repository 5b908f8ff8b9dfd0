"""Pages: headings, paragraphs, figures, tables and notes in one HTML file, which opens offline."""

import html
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from bayesticket.figures.style import FONT
from bayesticket.files import prepare_directory, write_atomically


@dataclass(frozen=True)
class Cell:
    """A cell of a table that is more than its text; the text's lines stay lines."""

    text: str = ""
    notes: Sequence[str] = ()
    """Names of `Notes` of the same page, to which the cell links."""
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


@dataclass(frozen=True)
class Notes:
    """Texts by name, to which cells of tables link."""

    texts: Mapping[str, str]


@dataclass(frozen=True)
class Section:
    """A part of a page: heading, paragraphs, then a figure, a table or notes."""

    heading: str
    text: Sequence[str] = ()
    content: go.Figure | Table | Notes | None = None


_STYLE = """
:root { color-scheme: light dark; --ink: #222; --paper: #fafafa; --rule: #d8d8d8; --soft: #5a5a5a }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e4e4; --paper: #1b1c1e; --rule: #44464a; --soft: #a8a8a8 } }
body { font: 17px/1.55 %s; color: var(--ink); background: var(--paper); margin: 0 }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem 1.25rem 4rem }
h1 { font-size: 1.9rem; line-height: 1.2; margin: .5rem 0 1rem }
h2 { font-size: 1.25rem; margin: 2.4rem 0 .5rem }
p { max-width: 46rem; margin: .5rem 0 }
.figure { background: #fff; border: 1px solid var(--rule); border-radius: 8px; padding: .5rem; margin: 1rem 0; overflow: hidden }
.table { overflow-x: auto; margin: 1rem 0 }
table { border-collapse: collapse; font-size: .93rem; font-variant-numeric: tabular-nums }
th, td { padding: .35rem .9rem .35rem 0; border-bottom: 1px solid var(--rule); text-align: right; vertical-align: top }
th { color: var(--soft); font-weight: 600 }
.table:not(.wordy) td { white-space: nowrap }
.wordy td { min-width: 6rem; padding-right: 1.2rem; white-space: pre-line; overflow-wrap: anywhere }
.wordy td:first-child { min-width: 8.5rem }
th:first-child, td:first-child, .wordy th, .wordy td { text-align: left }
a { color: inherit; white-space: nowrap }
summary { color: var(--soft); cursor: pointer }
details, dl { font-size: .93rem }
dl > div { max-width: 46rem; margin: .5rem 0 }
dl > div:target { outline: 2px solid var(--rule); outline-offset: .3rem }
dt { font-weight: 600 }
dd { margin: 0 }
@media (max-width: 48rem) {
main { padding: 1rem .8rem 3rem; overflow-wrap: anywhere }
.figure { padding: .2rem }
.cards table, .cards tbody, .cards tr, .cards td { display: block }
.cards thead { display: none }
.cards tr { border: 1px solid var(--rule); border-radius: 8px; padding: .6rem .8rem; margin: 0 0 .8rem }
.cards td { border: 0; padding: .15rem 0 }
.cards td:first-child { font-weight: 600 }
.cards td:not(:first-child)::before { content: attr(data-label) ": "; color: var(--soft) }
.cards:not(.wordy) td::before { text-align: left }
.cards:not(.wordy) td:not(:first-child) { display: flex; justify-content: space-between; gap: 1rem; white-space: normal }
}
"""  # noqa: E501


def write_page(path: str | os.PathLike[str], title: str, sections: Sequence[Section]) -> Path:
    """Writes sections as one HTML file, which includes all it needs and opens offline; returns its path."""
    target = Path(path).expanduser()
    directory = prepare_directory("path", target.parent)
    body = "\n".join(_section(place, section) for place, section in enumerate(sections))
    script = f"<script>{get_plotlyjs()}</script>" if any(isinstance(s.content, go.Figure) for s in sections) else ""
    name = html.escape(title)
    page = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{name}</title>\n<style>{_STYLE % FONT}</style>\n{script}\n</head>\n"
        f"<body>\n<main>\n<h1>{name}</h1>\n{body}\n</main>\n</body>\n</html>\n"
    )
    written = directory / target.name
    write_atomically(written, lambda temporary: temporary.write_text(page, encoding="utf-8"))
    written.chmod(0o644)
    return written


def _section(place: int, section: Section) -> str:
    paragraphs = "\n".join(f"<p>{html.escape(paragraph)}</p>" for paragraph in section.text)
    heading = f"<h2>{html.escape(section.heading)}</h2>" if section.heading else ""
    return f"<section>\n{heading}\n{paragraphs}\n{_content(place, section.content)}\n</section>"


_CONTROLS = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtons": [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
    "plotlyServerURL": "",  # the page sends nothing anywhere
}


def _content(place: int, content: go.Figure | Table | Notes | None) -> str:
    if content is None:
        return ""
    if isinstance(content, Table):
        return _table(content)
    if isinstance(content, Notes):
        return _notes(content)
    drawn = content.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=f"figure-{place}",
        config=_CONTROLS,
        default_height=f"{content.layout['height'] or 450}px",
    )
    return f'<div class="figure">{drawn}</div>'


def _table(table: Table) -> str:
    cards = len(table.columns) > 2
    kinds = " ".join(["table", *["wordy"] * table.wordy, *["cards"] * cards])
    columns = [html.escape(column) for column in table.columns]
    head = "".join(f"<th>{column}</th>" for column in columns)
    openings = [f'<td data-label="{column}">' if cards else "<td>" for column in columns]
    rows = ("".join(f"{td}{_cell(cell)}</td>" for td, cell in zip(openings, row, strict=True)) for row in table.rows)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f'<div class="{kinds}"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(given: str | Cell) -> str:
    cell = Cell(given) if isinstance(given, str) else given
    links = ", ".join(f'<a href="#{_anchor(name)}">{html.escape(name)}</a>' for name in cell.notes)
    shown = " ".join(filter(None, [html.escape(cell.text), links]))
    if not cell.folded:
        return shown
    lines = "\n".join(map(html.escape, cell.folded))
    return f"{shown}<details><summary>{html.escape(cell.summary)}</summary>{lines}</details>"


def _notes(notes: Notes) -> str:
    entries = "\n".join(
        f'<div id="{_anchor(name)}"><dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd></div>'
        for name, text in notes.texts.items()
    )
    return f"<dl>\n{entries}\n</dl>"


def _anchor(name: str) -> str:
    return re.sub(r"\W+", "-", name.lower())
