"""What a screen reader says in place of a figure: its caption, and what is drawn where."""

import re
from collections.abc import Iterable

import plotly.graph_objects as go


def alternative(figure: go.Figure, caption: str) -> str:
    """The caption, the headings of the panels, the axes, and the names of what is drawn.

    >>> figure = go.Figure(go.Scatter(y=[0, 1], name="test")).update_layout(xaxis_title_text="<b>epoch</b>")
    >>> alternative(figure, "Accuracy")
    'Accuracy. Axes: epoch. Shown: test.'
    """
    drawn = figure.to_plotly_json()
    layout, traces = drawn["layout"], drawn["data"]
    beside = [each for each in layout.get("annotations", ()) if each.get("xref") == "paper" and each.get("x") == 0]
    headings = [each.get("text") for each in beside]
    sides = [axis for side in ("xaxis", "yaxis") for name, axis in layout.items() if name.startswith(side)]
    axes = [axis.get("title", {}).get("text") for axis in sides]
    shown = [trace.get("name") for trace in traces if trace.get("showlegend") is not False]
    maps = [trace for trace in traces if trace["type"] == "heatmap"]
    rows = [label for each in maps for label in (each["y"] if each.get("y") is not None else ())]
    parts = {"Panels": headings, "Axes": axes, "Rows": rows, "Shown": shown}
    said = [f"{name}: {'; '.join(texts)}." for name, given in parts.items() if (texts := _plain(given))]
    return " ".join([caption.rstrip(".") + ".", *said])


def _plain(texts: Iterable[object]) -> list[str]:
    """Texts without markup, each once."""
    plain = (re.sub(r"<[^>]*>", " ", str(text or "")).strip() for text in texts)
    return list(dict.fromkeys(" ".join(text.split()) for text in plain if text))
