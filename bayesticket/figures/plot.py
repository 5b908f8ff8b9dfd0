"""The figures' shared parts: one template, curves against epochs, attention patterns, and pictures of them."""

import html
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

from bayesticket.errors import BayesticketError, refuse
from bayesticket.files import prepare_directory, write_atomically
from bayesticket.interventions import Live
from bayesticket.model import HookPoint, mounted, pattern_name
from bayesticket.runs import Run
from bayesticket.tasks import AbstractSymbolicTask, AbstractTask

# Look -------------------------------------------------------------------------------------------------------------

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D")
"""Okabe and Ito's colours, which colour-blind readers can tell apart, in the order in which arms take them."""
INK, GRID = "#222222", "#E4E4E4"
TRAIN, TEST = PALETTE[1], PALETTE[0]
SHADES = ((0.0, "#F4F8FB"), (0.5, "#7FB8D8"), (1.0, "#00476F"))
"""From no attention to much."""
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif"
_AXIS = {
    "gridcolor": GRID,
    "linecolor": "#888888",
    "showline": True,
    "ticks": "outside",
    "tickcolor": "#888888",
    "ticklen": 4,
    "zeroline": False,
    "automargin": True,
    "title": {"font": {"size": 14}},
}
TEMPLATE = go.layout.Template(
    layout={
        "font": {"family": FONT, "size": 14, "color": INK},
        "title": {
            "x": 0,
            "xanchor": "left",
            "y": 1,
            "yanchor": "top",
            "pad": {"l": 12, "t": 14},
            "font": {"size": 17},
            "subtitle": {"font": {"size": 13}},
        },
        "colorway": PALETTE,
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "margin": {"l": 70, "r": 25, "t": 80, "b": 55},
        "hoverlabel": {"bgcolor": "white", "font": {"family": FONT, "size": 13}},
        "xaxis": _AXIS,
        "yaxis": _AXIS,
    }
)
"""The look of every figure."""


@dataclass(frozen=True)
class Panel:
    """One of several panels stacked above a common epoch axis."""

    title: str
    log: bool = False
    span: tuple[float, float] | None = None
    """The range of the vertical axis; fitted to the data by default."""
    percent: bool = False


ACCURACY = Panel("accuracy", span=(-0.03, 1.03), percent=True)
MASS = Panel("attention on the informative positions", span=(-0.03, 1.03))
KL = Panel("divergence of attention from the oracle, in nats", log=True)
LOSS = Panel("loss", log=True)
SIZES = Panel("norm of the MLP, gradient in the attention", log=True)


def stacked(panels: Sequence[Panel], *, panel_height: int = 150, gap: int = 52) -> go.Figure:
    """An empty figure of panels one below the other; panel `i` has the axis `y{i}`, its own legend, and a title."""
    height = len(panels) * panel_height + (len(panels) - 1) * gap
    figure = go.Figure()
    for place, panel in enumerate(panels, 1):
        top = 1 - (place - 1) * (panel_height + gap) / height
        bottom = max(top - panel_height / height, 0.0)
        axis: dict[str, object] = {"domain": [bottom, top], "type": "log" if panel.log else "linear", "nticks": 6}
        if panel.log:
            axis["tickformat"] = "~g"
        if panel.span:
            axis["range"] = panel.span
        if panel.percent:
            axis["tickformat"] = ".0%"
        legend = {"orientation": "h", "x": 1, "xanchor": "right", "y": top, "yanchor": "bottom"}
        figure.update_layout({_axis("yaxis", place): axis, _axis("legend", place): legend})
        figure.add_annotation(
            text=f"<b>{panel.title}</b>", x=0, xanchor="left", xref="paper", y=top, yanchor="bottom", yref="paper",
            yshift=5, showarrow=False,
        )  # fmt: skip
    figure.update_layout(template=TEMPLATE, height=height + 170, margin={"t": 110, "b": 60}, hovermode="x unified")
    # One epoch axis for all panels, below the last, so that a vertical line or a zoom is common to them.
    figure.update_xaxes(title_text="epoch", anchor=_axis("y", len(panels)), tickformat=",d", hoverformat=",d")
    return figure


def fit_log_axes(figure: go.Figure, panels: Sequence[Panel]) -> None:
    """Fits the logarithmic axes to what was drawn: at least a decade, and no more ticks than there is room for."""
    for place, panel in enumerate(panels, 1):
        traces = figure.select_traces({"yaxis": _axis("y", place)})
        drawn = [trace.y for trace in traces if isinstance(trace, go.Scatter)]
        values = np.concatenate([np.empty(0), *(np.asarray(y, dtype=float) for y in drawn if y is not None)])
        values = np.log10(values[np.isfinite(values) & (values > 0)])
        if not panel.log or not len(values):
            continue
        low, high = values.min(), values.max()
        margin = max(0.06 * (high - low), (1 - (high - low)) / 2)
        span = high - low + 2 * margin
        ticks = "D2" if span < 1.5 else max(1, round(span / 5))
        axis = {"range": [low - margin, high + margin], "dtick": ticks}
        figure.update_layout({_axis("yaxis", place): axis})


def _axis(name: str, place: int) -> str:
    return name if place == 1 else f"{name}{place}"


def add_curve(
    figure: go.Figure,
    run: Run,
    column: str,
    *,
    panel: int,
    name: str,
    colour: str,
    dash: str = "solid",
    width: float = 2.0,
    group: str | None = None,
    in_legend: bool = True,
) -> None:
    """Draws one recorded curve of a run into a panel; what the run did not record is left out."""
    if column not in run.curves:
        return
    figure.add_trace(
        go.Scatter(
            x=run.curves.index.to_numpy(),
            y=run.curves[column].to_numpy(),
            name=name,
            mode="lines",
            line={"color": colour, "dash": dash, "width": width},
            yaxis=_axis("y", panel),
            legend=_axis("legend", panel) if group is None else "legend",
            legendgroup=group,
            showlegend=in_legend,
            hovertemplate="%{y:.2%}" if column.endswith("accuracy") else "%{y:.4g}",
        )
    )


def band(
    epochs: ArrayLike, values: ArrayLike, *, name: str, colour: str, panel: int = 1, group: str | None = None
) -> list[go.Scatter]:
    """Median and quartiles over seeds, of values of shape (seeds, epochs): two invisible edges and a line.

    A seed without a value at an epoch (NaN) is left out there; the hover says how many seeds there are.

    >>> lower, upper, median = band([0, 10], [[0.0, 1.0], [0.2, 1.0], [0.4, 0.6]], name="kl", colour=PALETTE[0])
    >>> lower.y.round(2).tolist(), median.y.tolist(), upper.y.round(2).tolist()
    ([0.1, 0.8], [0.2, 1.0], [0.3, 1.0])
    """
    at, table = np.asarray(epochs), np.asarray(values, dtype=float)
    if at.ndim != 1 or table.ndim != 2 or table.shape[1] != len(at):
        raise refuse("values", table.shape, f"shape (seeds, {len(at)}), one column for each epoch")
    known = ~np.isnan(table).all(axis=0)
    at, table = at[known], table[:, known]
    low, middle, high = np.nanquantile(table, (0.25, 0.5, 0.75), axis=0)
    n_seeds = (~np.isnan(table)).sum(axis=0)
    shared = {"x": at, "yaxis": _axis("y", panel), "legendgroup": group or name, "mode": "lines"}
    edge = {**shared, "line": {"width": 0}, "showlegend": False, "hoverinfo": "skip"}
    return [
        go.Scatter(y=low, **edge),
        go.Scatter(y=high, fill="tonexty", fillcolor=_transparent(colour, 0.2), **edge),
        go.Scatter(
            y=middle,
            name=name,
            line={"color": colour, "width": 2},
            customdata=np.column_stack([low, high, n_seeds]),
            hovertemplate="%{y:.4g} (%{customdata[0]:.4g} to %{customdata[1]:.4g}, %{customdata[2]} seeds)",
            **shared,
        ),
    ]


def _transparent(colour: str, opacity: float) -> str:
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


# Runs -------------------------------------------------------------------------------------------------------------


def plot_run(run: Run) -> go.Figure:
    """A run's accuracy, attention, loss and norms against epochs, with the epochs of memorising and grokking."""
    panels = (ACCURACY, MASS, KL, LOSS, SIZES)
    figure = stacked(panels)
    for panel, quantity in ((1, "accuracy"), (4, "loss")):
        add_curve(figure, run, f"train_{quantity}", panel=panel, name="train", colour=TRAIN, dash="dash")
        add_curve(figure, run, f"test_{quantity}", panel=panel, name="test", colour=TEST)
    add_curve(figure, run, "informative_mass_mean", panel=2, name="all of them, mean", colour=PALETTE[2])
    least = "least of any one"
    add_curve(figure, run, "informative_mass_least", panel=2, name=least, colour=PALETTE[2], dash="dot")
    add_curve(figure, run, "kl_to_oracle", panel=3, name="KL", colour=PALETTE[2], in_legend=False)
    add_curve(figure, run, "mlp_norm", panel=5, name="norm of the MLP", colour=PALETTE[6])
    add_curve(figure, run, "attention_gradient", panel=5, name="attention gradient", colour=PALETTE[3])
    fit_log_axes(figure, panels)
    milestones = (
        ("memorised", "train", run.memorised_epoch(), TRAIN),
        ("grokked", "test", run.grok_epoch(), TEST),
    )
    for _, _, epoch, colour in milestones:
        if epoch is not None:
            figure.add_vline(x=epoch, line={"color": colour, "width": 1.5, "dash": "dashdot"}, opacity=0.7)
    figure.update_shapes(yref="paper", y0=0, y1=1)
    said = [
        f'<span style="color:{colour}">{word} ({half} accuracy ≥ 99%): {reached(epoch, run)}</span>'
        for word, half, epoch, colour in milestones
    ]
    figure.update_layout(
        title={"text": html.escape(label_of(run), quote=False), "subtitle": {"text": " · ".join(said)}},
        hoversubplots="axis",
    )
    figure.update_xaxes(range=[0, max(run.epoch, 1)])
    return figure


def reached(epoch: int | None, run: Run) -> str:
    """When something was reached in a run: "epoch 1,300", or "not in 10,000 epochs"."""
    return f"not in {run.epoch:,} epochs" if epoch is None else f"epoch {epoch:,}"


def label_of(run: Run) -> str:
    """A run's task and intervention in a few words."""
    try:
        config = run.config
    except BayesticketError:  # made with a class that is not here
        return "run"
    recipe = repr(config.intervention) if config.intervention.parts else "no intervention"
    return f"{config.task!r}, {recipe}, seed {config.seed}"


def plot_runs(runs: Mapping[str, Run]) -> go.Figure:
    """Several runs in one figure, a colour each: accuracy, attention and loss against epochs.

    A dot marks where a run grokked. A run that was stopped after grokking ends where it was stopped.
    """
    if not runs:
        raise refuse("runs", runs, "at least one run, by name")
    panels = [_explained(panel) for panel in (ACCURACY, MASS, KL, LOSS)]
    figure = stacked(panels, panel_height=175)
    for place, (name, run) in enumerate(runs.items()):
        # Later ones are thinner, so that those beneath can still be seen.
        _add_run(figure, name, run, PALETTE[place % len(PALETTE)], width=max(1.6, 3.2 - 0.6 * place))
    finish_arms(figure, panels, max(run.epoch for run in runs.values()))
    return figure


def held(values: Float[np.ndarray, "seeds epochs"]) -> Float[np.ndarray, "seeds epochs"]:
    """Curves of one arm in which those that have ended keep their last value until the last one ends.

    >>> held(np.array([[1.0, np.nan, np.nan], [1.0, 2.0, np.nan]]))
    array([[ 1.,  1., nan],
           [ 1.,  2., nan]])
    """
    known = np.flatnonzero(~np.isnan(values).all(axis=0))
    if not len(known):
        return values
    end = known[-1] + 1
    filled = pd.DataFrame(values[:, :end]).ffill(axis=1).to_numpy()
    return np.concatenate([filled, values[:, end:]], axis=1)


def finish_arms(figure: go.Figure, panels: Sequence[Panel], last: int) -> None:
    """Fits the axes of a figure of several arms, and puts their names above the title of its first panel."""
    fit_log_axes(figure, panels)
    names = {"x": 0, "xanchor": "left", "y": 1, "yref": "container", "yanchor": "top", "font": {"size": 15}}
    figure.update_layout(margin={"t": 75}, legend=names, hoversubplots="single")
    figure.update_xaxes(range=[0, last])


_LINES = {
    ACCURACY: "test solid, train dashed",
    MASS: "mean solid, least of any one dotted",
    LOSS: "test solid, train dashed",
}


def _explained(panel: Panel) -> Panel:
    note = f"</b> ({_LINES[panel]})<b>" if panel in _LINES else ""
    return Panel(panel.title + note, panel.log, panel.span, panel.percent)


def _add_run(figure: go.Figure, name: str, run: Run, colour: str, width: float) -> None:
    def curve(column: str, panel: int, suffix: str = "", dash: str = "solid", *, in_legend: bool = False) -> None:
        add_curve(
            figure, run, column, panel=panel, name=name + suffix, colour=colour, dash=dash,
            width=width if dash == "solid" else 1.2, group=name,
            in_legend=in_legend,
        )  # fmt: skip

    curve("test_accuracy", 1, in_legend=True)
    curve("train_accuracy", 1, ", train", "dash")
    curve("informative_mass_mean", 2)
    curve("informative_mass_least", 2, ", least", "dot")
    curve("kl_to_oracle", 3)
    curve("test_loss", 4)
    curve("train_loss", 4, ", train", "dash")
    if (epoch := run.grok_epoch()) is not None:
        figure.add_trace(
            go.Scatter(
                x=[epoch], y=[run.curves["test_accuracy"].loc[epoch]], mode="markers", name=f"{name}, grokked",
                marker={"color": colour, "size": 9}, legendgroup=name, showlegend=False, hoverinfo="skip",
            )
        )  # fmt: skip


# Attention --------------------------------------------------------------------------------------------------------


def mean_attention(run: Run, *, layer: int = 0) -> Float[Tensor, "T"]:
    """Where the last position attends, averaged over test examples and heads, under the run's intervention."""
    config, kept = run.config, []
    test = config.task.split(config.train_fraction, config.seed_of("split")).test
    live = Live(config.intervention, run.model, test)
    live.epoch = run.epoch

    def keep(pattern: Tensor, hook: HookPoint) -> None:
        kept.append(pattern[..., -1, :].mean((0, 1)))

    with mounted(run.model, [*live.edits, (pattern_name(layer), keep)]), torch.no_grad():
        run.model(test.tokens)
    return kept[0]


def position_labels(task: AbstractTask) -> list[str]:
    """What stands at each position of a task's sequences, as far as it is the same in all of them.

    >>> from bayesticket.tasks import ModularAddition
    >>> position_labels(ModularAddition(p=7))
    ['a', '+', 'b', 'noise', '=']
    """
    numbered = [str(position) for position in range(task.n_positions - 1)]
    if not isinstance(task, AbstractSymbolicTask):
        return [*numbered, "query"]
    layout = task.layout
    if not layout.separated or task.positions == "random" or layout.n_operands > 26:
        return [*numbered, "="]
    operands = iter("abcdefghijklmnopqrstuvwxyz")
    operator = {"ModularMultiplication": "×", "PermutationComposition": "∘"}.get(type(task).__name__, "+")
    noise = "%" if task.distractors == "constant" else "noise"
    fillers = iter([operator] * layout.n_operators + [noise] * layout.n_noise)
    return [*(next(operands if at in layout.home else fillers) for at in range(task.n_positions - 1)), "="]


def plot_patterns(patterns: Mapping[str, Float[Tensor, "T"]], labels: Sequence[str]) -> go.Figure:
    """Attention over positions as a heat map, one row each: the oracle and the arms, say."""
    rows = list(patterns)
    for name in rows:
        if len(patterns[name]) != len(labels):
            raise refuse(f"patterns[{name!r}]", len(patterns[name]), f"one weight for each of {len(labels)} positions")
    weights = torch.stack([patterns[name].float() for name in rows]).cpu().numpy()
    figure = go.Figure(
        go.Heatmap(
            z=weights,
            x=list(range(len(labels))),
            y=rows,
            zmin=0,
            zmax=max(0.5, float(weights.max())),
            colorscale=SHADES,
            xgap=3,
            ygap=3,
            text=weights,
            texttemplate="%{text:.2f}" if len(labels) <= 12 else "",
            hovertemplate="%{y}: %{z:.4f}<extra></extra>",
            colorbar={"title": {"text": "weight"}, "thickness": 12, "outlinewidth": 0, "nticks": 4},
        )
    )
    figure.update_layout(template=TEMPLATE, height=110 + 46 * len(rows), margin={"t": 40, "b": 20})
    figure.update_yaxes(autorange="reversed", showline=False, ticks="", showgrid=False)
    figure.update_xaxes(
        tickvals=list(range(len(labels))), ticktext=labels, side="top", showline=False, ticks="", showgrid=False
    )
    return figure


# Pictures ---------------------------------------------------------------------------------------------------------


def side_by_side(runs: Mapping[str, Run]) -> go.Figure:
    """Test accuracy beside the attention on informative positions, drawn large enough to be shrunk."""
    figure = go.Figure()
    columns = (("test_accuracy", "test accuracy"), ("informative_mass_mean", "attention on the informative positions"))
    for place, (column, title) in enumerate(columns, 1):
        for depth, (name, run) in enumerate(runs.items()):
            figure.add_trace(
                go.Scatter(
                    x=run.curves.index.to_numpy(), y=run.curves[column].to_numpy(), name=name, mode="lines",
                    line={"color": PALETTE[depth % len(PALETTE)], "width": max(3, 7 - 1.5 * depth)},
                    showlegend=place == 1, xaxis=_axis("x", place), yaxis=_axis("y", place),
                )
            )  # fmt: skip
        left = 0.54 * (place - 1)
        last = max(run.epoch for run in runs.values())
        ticks = {"tickformat": ",d", "nticks": 6, "range": [0, last * 1.02]}
        figure.update_layout(
            {
                _axis("xaxis", place): {
                    "domain": [left, left + 0.46],
                    "anchor": _axis("y", place),
                    "title": {"text": "epoch", "font": {"size": 20}},
                }
                | ticks,
                _axis("yaxis", place): {
                    "anchor": _axis("x", place),
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
    """Writes a figure as PNG, for which kaleido and a Chromium are needed; returns the path."""
    target = Path(path).expanduser()
    prepare_directory("path", target.parent)
    try:
        data = figure.to_image(format="png", width=width, height=height, scale=1)
    except (ValueError, RuntimeError, ImportError) as error:
        raise BayesticketError(
            f"picture: could not be drawn ({_first_line(error)}); accepted: an installed kaleido>=1, and a Chrome or "
            "Chromium, found by itself or through the environment variable BROWSER_PATH"
        ) from error
    write_atomically(target, lambda temporary: temporary.write_bytes(data))
    target.chmod(0o644)
    return target


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
