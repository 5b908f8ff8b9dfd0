"""What a screen reader says in place of a figure: its caption, and what is drawn where."""

import re
from collections.abc import Iterable
from typing import cast

import plotly.graph_objects as go


def alternative(figure: go.Figure, caption: str) -> str:
    """The caption, the headings of the panels, the axes, and the names of what is drawn.

    >>> figure = go.Figure(go.Scatter(y=[0, 1], name="test")).update_layout(xaxis_title_text="<b>epoch</b>")
    >>> alternative(figure, "Accuracy")
    'Accuracy. Axes: epoch. Shown: test.'
    """
    layout = cast("dict", figure.layout)
    headings = [each.text for each in layout["annotations"] if each.xref == "paper" and each.x == 0]
    both = (*figure.select_xaxes(), *figure.select_yaxes())
    axes = [cast("dict", axis)["title"]["text"] for axis in both]
    shown = [trace.name for trace in figure.data if trace.showlegend is not False]
    maps = [trace for trace in figure.data if isinstance(trace, go.Heatmap)]
    rows = [label for each in maps for label in (each.y if each.y is not None else ())]
    parts = {"Panels": headings, "Axes": axes, "Rows": rows, "Shown": shown}
    said = [f"{name}: {'; '.join(texts)}." for name, given in parts.items() if (texts := _plain(given))]
    return " ".join([caption.rstrip(".") + ".", *said])


def _plain(texts: Iterable[object]) -> list[str]:
    """Texts without markup, each once."""
    plain = (re.sub(r"<[^>]*>", " ", str(text or "")).strip() for text in texts)
    return list(dict.fromkeys(" ".join(text.split()) for text in plain if text))
