"""How tasks, runs and tables show themselves in a notebook: small pieces of HTML, in the notebook's own colours."""

import html
from collections.abc import Iterable, Sequence

WIDTH, HEIGHT = 260, 48
"""Pixels of a sparkline."""


def html_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; numbers and texts are escaped.

    >>> html_table(["a"], [["<1"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;1</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows
    )  # fmt: skip
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def sparkline(curves: Sequence[tuple[str, str, Sequence[float], Sequence[float]]], title: str) -> str:
    """Curves between 0 and 1 in a small picture: of each its name, colour, places and values; values may be NaN."""
    last = max((max(places, default=0) for _, _, places, _ in curves), default=0) or 1
    lines, legend = [], []
    for name, colour, places, values in curves:
        known = [(place, value) for place, value in zip(places, values, strict=True) if value == value]
        points = " ".join(
            f"{WIDTH * place / last:.1f},{HEIGHT - 3 - (HEIGHT - 6) * value:.1f}" for place, value in known
        )
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        legend.append(f'<span style="color:{colour}">{html.escape(name)}</span>')
    picture = (
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{html.escape(title)}" '
        f'style="border-bottom:1px solid currentColor">{"".join(lines)}</svg>'
    )
    return f"{picture}<div>{' · '.join(legend)}</div>"


def html_lines(*lines: str) -> str:
    """Texts, one below the other, the first one in bold.

    >>> html_lines("Run", "a < b")
    '<div><b>Run</b></div><div>a &lt; b</div>'
    """
    first, *rest = (html.escape(line) for line in lines)
    return "".join([f"<div><b>{first}</b></div>", *(f"<div>{line}</div>" for line in rest)])
