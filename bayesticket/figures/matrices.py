"""Matrices through training, as pictures: attention, QK and OV by token, the embedding on a circle, weight norms."""

from collections.abc import Iterable

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import torch
from jaxtyping import Float
from plotly.subplots import make_subplots
from torch import Tensor

from bayesticket.errors import refuse, refuse_case, require_epochs, require_integer
from bayesticket.figures.attention import attention_by_head, mean_attention, query_in_words, shown_query
from bayesticket.figures.curves import axis_name
from bayesticket.figures.style import PALETTE, SHADES, TEMPLATE
from bayesticket.measures import Column, WeightNorms, circle_of, key_frequencies
from bayesticket.model import is_matrix, ov_by_token, qk_by_token
from bayesticket.runs import Run, spread

DIVERGING = ((0.0, "#B2473E"), (0.5, "#F7F7F7"), (1.0, "#00476F"))
"""The colours of matrices that have both signs, from the least to the largest, 0 in the middle."""


def plot_pattern(run: Run, *, layer: int = 0, query: int | None = None) -> go.Figure:
    """The attention of the last position through training, mean over test examples and heads; a column a snapshot.

    Of a task that asks at several positions it is that of a `query`, by default the last whose answer can be known.
    """
    epochs = _moments(run)
    rows = [mean_attention(run, layer=layer, epoch=epoch, query=query) for epoch in epochs]
    labels = list(run.config.task.position_labels)
    figure = go.Figure(
        go.Heatmap(
            z=torch.stack(rows).T.numpy(), x=[f"{epoch:,}" for epoch in epochs], y=list(range(len(labels))),
            zmin=0, zmax=1,
            colorscale=SHADES, colorbar={"title": {"text": "weight"}, "thickness": 12}, hovertemplate="%{x}: %{z:.4f}",
        )
    )  # fmt: skip
    shown = query_in_words(run.config.split().test, query)
    title = f"Attention of {shown}, layer {layer}, mean over test examples and heads"
    figure.update_layout(template=TEMPLATE, height=150 + 34 * len(labels), margin={"t": 50}, title=title)
    figure.update_yaxes(tickvals=list(range(len(labels))), ticktext=labels, autorange="reversed", showgrid=False)
    figure.update_xaxes(title_text="epoch (snapshots, not to scale)", type="category", nticks=12, showgrid=False)
    return figure


def plot_heads(run: Run, *, layer: int = 0, query: int | None = None) -> go.Figure:
    """Which head holds which position: the attention of each head through training, mean over test examples.

    A panel a head, with a column for each snapshot; its title names the position that the head attends to most at the
    end. Below them is their sum, which the distributed condition is about (App. E.2): it asks that no operand have less
    than τ_H of it. The query is that of `plot_pattern`.
    """
    epochs = _moments(run)
    moments = [attention_by_head(run, layer=layer, epoch=epoch, query=query) for epoch in epochs]
    weights = torch.stack(moments).permute(1, 2, 0).numpy()
    labels, shown = list(run.config.task.position_labels), query_in_words(run.config.split().test, query)
    most = [f"{labels[head[:, -1].argmax()]}, {head[:, -1].max():.2f}" for head in weights]
    pooled = weights.sum(0)
    largest = max(1.0, float(pooled.max()))
    titles = [f"head {head}: {said}" for head, said in enumerate(most)] + [f"sum over heads, darkest at {largest:.2f}"]
    figure = make_subplots(rows=len(titles), cols=1, subplot_titles=titles, shared_xaxes=True, vertical_spacing=0.06)
    for row, panel in enumerate([*weights, pooled], 1):
        figure.add_heatmap(
            z=panel, x=[f"{epoch:,}" for epoch in epochs], y=list(range(len(labels))), row=row, col=1,
            zmin=0, zmax=1 if row <= len(weights) else largest, colorscale=SHADES,
            showscale=row == 1, colorbar={"title": {"text": "weight"}, "thickness": 12},
            hovertemplate="%{x}: %{z:.4f}<extra></extra>",
        )  # fmt: skip
    figure.update_layout(
        template=TEMPLATE, height=130 + (40 + 24 * len(labels)) * len(titles), margin={"t": 80},
        title=f"Attention of {shown} by head, layer {layer}, mean over test examples",
    )  # fmt: skip
    figure.update_yaxes(tickvals=list(range(len(labels))), ticktext=labels, autorange="reversed", showgrid=False)
    figure.update_xaxes(type="category", nticks=12, showgrid=False)
    figure.update_xaxes(title_text="epoch (snapshots, not to scale)", row=len(titles), col=1)
    return figure


def plot_qk(run: Run, *, epochs: Iterable[int] | None = None, layer: int = 0, head: int = 0) -> go.Figure:
    """The QK circuit by token at some snapshots: the score that each token (down) gives each other (across)."""
    chosen = _chosen(run, epochs)
    matrices = {epoch: qk_by_token(run.at(epoch), layer, head) for epoch in chosen}
    return _side_by_side(f"QK circuit by token, layer {layer}, head {head}: score", matrices, "query", "key")


def plot_ov(run: Run, *, epochs: Iterable[int] | None = None, layer: int = 0, head: int = 0) -> go.Figure:
    """The OV circuit by token at some snapshots: what attending to a token (down) adds to each logit (across)."""
    chosen = _chosen(run, epochs)
    matrices = {epoch: ov_by_token(run.at(epoch), layer, head) for epoch in chosen}
    return _side_by_side(f"OV circuit by token, layer {layer}, head {head}: logit", matrices, "token", "output")


def plot_circle(run: Run, frequency: int | None = None, *, epochs: Iterable[int] | None = None) -> go.Figure:
    """The embedding of each number in the plane of a frequency's cosine and sine, by default the first key frequency.

    A model that uses the frequency has the numbers on a circle, each a step of `2π · frequency / p` from the next.
    """
    chosen = _chosen(run, epochs)
    whole = run.config.split().test
    test = whole.at(shown_query(whole))
    if frequency is None:
        if not (keys := key_frequencies(run.model, test)):
            raise refuse_case("frequency", "a run without key frequencies", "one of its frequencies, such as 1")
        frequency = keys[0]
    require_integer("frequency", frequency, least=1)
    figure = _row(f"Embeddings of the numbers, in the plane of frequency {frequency}", chosen)
    circles = {epoch: circle_of(run.at(epoch), test, frequency).numpy() for epoch in chosen}
    most = 1.08 * max(float(np.linalg.norm(points, axis=1).max()) for points in circles.values())
    for place, points in enumerate(circles.values(), 1):
        figure.add_scatter(
            x=points[:, 0], y=points[:, 1], mode="markers+lines", row=1, col=place, showlegend=False,
            text=[str(number) for number in range(len(points))], hovertemplate="%{text}<extra></extra>",
            line={"width": 0.4, "color": "#BBBBBB"},
            marker={"color": list(range(len(points))), "colorscale": "HSV", "size": 6},
        )  # fmt: skip
        figure.update_xaxes(range=[-most, most], row=1, col=place, showgrid=False, nticks=3)
        figure.update_yaxes(
            range=[-most, most],
            row=1,
            col=place,
            showgrid=False,
            nticks=3,
            scaleanchor=axis_name("x", place),
        )
    figure.update_xaxes(title_text="cosine", row=1, col=1)
    figure.update_yaxes(title_text="sine", row=1, col=1)
    return figure


def plot_norms(run: Run) -> go.Figure:
    """The norms of the weight matrices through training; biases begin at zero, which no logarithmic axis shows."""
    norms = pd.DataFrame(run.measure(WeightNorms()))
    figure = go.Figure()
    entries = {name: column.entry for name in norms if (column := Column.parse(name)).measure == WeightNorms().name}
    matrices = {name: entry for name, entry in entries.items() if is_matrix(entry)}
    for place, (name, entry) in enumerate(matrices.items()):
        figure.add_scatter(x=norms.index, y=norms[name], name=entry, line={"color": PALETTE[place % len(PALETTE)]})
    figure.update_layout(template=TEMPLATE, height=400, margin={"t": 50}, title="Norms of the weight matrices")
    figure.update_xaxes(title_text="epoch", tickformat=",d")
    figure.update_yaxes(title_text="Frobenius norm", type="log", tickformat="~g")
    return figure


def _moments(run: Run) -> list[int]:
    """The epochs of all snapshots; raises where there are none."""
    if not isinstance(run, Run):
        raise refuse("run", run, "a Run")
    if not run.snapshots:
        raise refuse_case("run", "a run without snapshots", "one trained with snapshots=bt.LogSpaced(60)")
    return list(run.snapshots)


def _chosen(run: Run, epochs: Iterable[int] | None, n: int = 4) -> list[int]:
    """The epochs given, or a few of all snapshots, evenly by their order."""
    if epochs is not None:
        return require_epochs(epochs)
    return spread(_moments(run), n)


def _row(title: str, epochs: list[int]) -> go.Figure:
    """An empty figure of panels side by side, one for each epoch."""
    titles = [f"epoch {epoch:,}" for epoch in epochs]
    figure = make_subplots(rows=1, cols=len(epochs), subplot_titles=titles, horizontal_spacing=0.05)
    figure.update_layout(template=TEMPLATE, height=360, margin={"t": 75, "b": 50}, title=title)
    return figure


def _side_by_side(title: str, matrices: "dict[int, Float[Tensor, 'row column']]", rows: str, columns: str) -> go.Figure:
    """Matrices on one scale of colours, 0 in the middle."""
    figure = _row(title, list(matrices))
    most = max(float(matrix.abs().max()) for matrix in matrices.values()) or 1.0
    for place, matrix in enumerate(matrices.values(), 1):
        figure.add_heatmap(
            z=matrix.float().numpy(), row=1, col=place,
            zmin=-most, zmax=most, colorscale=DIVERGING, showscale=place == 1,
            colorbar={"thickness": 12}, hovertemplate=f"{rows} %{{y}}, {columns} %{{x}}: %{{z:.3f}}<extra></extra>",
        )  # fmt: skip
        figure.update_yaxes(autorange="reversed", showgrid=False, nticks=5, row=1, col=place)
        figure.update_xaxes(showgrid=False, nticks=5, title_text=columns, row=1, col=place)
    figure.update_yaxes(title_text=rows, row=1, col=1)
    return figure
