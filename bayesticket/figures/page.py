"""Pages: headings, paragraphs, figures and tables in one HTML file, which opens offline."""

import html
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from bayesticket.figures.style import FONT
from bayesticket.files import prepare_directory, write_atomically


@dataclass(frozen=True)
class Table:
    """A table of plain text. Columns after the first are aligned to the right, or to the left if `wordy`."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    wordy: bool = False


@dataclass(frozen=True)
class Section:
    """A part of a page: heading, paragraphs, then a figure or a table."""

    heading: str
    text: Sequence[str] = ()
    content: go.Figure | Table | None = None


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
.wordy td { min-width: 6rem; padding-right: 1.2rem }
th:first-child, td:first-child, .wordy th, .wordy td { text-align: left }
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


def _content(place: int, content: go.Figure | Table | None) -> str:
    if content is None:
        return ""
    if isinstance(content, Table):
        return f'<div class="table{" wordy" if content.wordy else ""}">{_table(content)}</div>'
    drawn = content.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=f"figure-{place}",
        config=_CONTROLS,
        default_height=f"{content.layout['height'] or 450}px",
    )
    return f'<div class="figure">{drawn}</div>'


def _table(table: Table) -> str:
    head = "".join(f"<th>{html.escape(column)}</th>" for column in table.columns)
    rows = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in table.rows]
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(f'<tr>{row}</tr>' for row in rows)}</tbody></table>"
