"""Figures as pictures: one that stays readable when it is small, and PNG files."""

import os
from collections.abc import Mapping
from pathlib import Path

import plotly.graph_objects as go

from bayesticket.errors import BayesticketError
from bayesticket.figures.curves import axis_name
from bayesticket.figures.style import TEMPLATE, look, marked
from bayesticket.files import prepare_directory, require_path, write_atomically
from bayesticket.runs import Run


def side_by_side(runs: Mapping[str, Run]) -> go.Figure:
    """Test accuracy beside the attention on informative positions, with large letters and thick lines.

    A dotted line is the accuracy on unseen test examples, where they were recorded.
    """
    figure = go.Figure()
    columns = (
        ("test_accuracy", "test accuracy (dotted: unseen pairs)"),
        ("informative_mass_mean", "attention on the informative positions"),
    )
    for place, (column, title) in enumerate(columns, 1):
        for depth, (name, run) in enumerate(runs.items()):
            drawn = look(depth)
            figure.add_trace(
                go.Scatter(
                    x=run.curves.index.to_numpy(), y=run.curves[column].to_numpy(), name=name,
                    line={"color": drawn.colour, "width": max(3, 7 - 1.5 * depth)}, showlegend=place == 1,
                    xaxis=axis_name("x", place), yaxis=axis_name("y", place), **marked(drawn.symbol, drawn.colour),
                )
            )  # fmt: skip
            if column == "test_accuracy" and "unseen_accuracy" in run.curves:
                figure.add_trace(
                    go.Scatter(
                        x=run.curves.index.to_numpy(), y=run.curves["unseen_accuracy"].to_numpy(),
                        name=f"{name}, unseen", line={"color": drawn.colour, "width": 3, "dash": "dot"}, mode="lines",
                        showlegend=False,
                    )
                )  # fmt: skip
        left = 0.54 * (place - 1)
        last = max(run.epoch for run in runs.values())
        ticks = {"tickformat": ",d", "nticks": 6, "range": [0, last * 1.02]}
        figure.update_layout(
            {
                axis_name("xaxis", place): {
                    "domain": [left, left + 0.46],
                    "anchor": axis_name("y", place),
                    "title": {"text": "epoch", "font": {"size": 20}},
                }
                | ticks,
                axis_name("yaxis", place): {
                    "anchor": axis_name("x", place),
                    "range": [-0.03, 1.03],
                    "tickformat": ".0%",
                    "nticks": 6,
                },
            }
        )
        figure.add_annotation(
            text=f"<b>{title}</b>", x=left, xanchor="left", xref="paper", y=1.02, yanchor="bottom", yref="paper",
            showarrow=False,
        )  # fmt: skip
    legend = {"orientation": "h", "x": 0.5, "xanchor": "center", "y": 1.14, "yanchor": "bottom", "font": {"size": 22}}
    figure.update_layout(
        template=TEMPLATE, legend=legend, font={"size": 20}, margin={"l": 75, "r": 30, "t": 105, "b": 70}
    )
    return figure


def write_picture(figure: go.Figure, path: str | os.PathLike[str], *, width: int, height: int) -> Path:
    """Writes a figure as PNG and returns the path; needs kaleido, and Chrome or Chromium."""
    target = require_path("path", path, "the path of a picture")
    prepare_directory("path", target.parent)
    try:
        data = figure.to_image(format="png", width=width, height=height, scale=1)
    except (ValueError, RuntimeError, ImportError) as error:
        raise BayesticketError(
            f"picture: could not be drawn ({_first_line(error)}); accepted: an installed kaleido>=1, and a Chrome or "
            "Chromium in its usual place or at the path in the environment variable BROWSER_PATH"
        ) from error
    write_atomically(target, lambda temporary: temporary.write_bytes(data))
    target.chmod(0o644)
    return target


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
