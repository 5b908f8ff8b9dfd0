"""Figures of one run and of several."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle

import plotly.graph_objects as go

from bayesticket.errors import BayesticketError, refuse_case
from bayesticket.figures.curves import (
    DASHES,
    add_curve,
    columns_by_layer,
    evaluation_curves,
    finish_arms,
    fit_log_axes,
    layers_noted,
    stacked,
)
from bayesticket.figures.strips import add_strips, strips_of_run
from bayesticket.figures.style import (
    ACCURACY,
    ELSEWHERE,
    GREEN,
    GREY,
    KL,
    LOSS,
    MASS,
    OKABE_ITO,
    ORANGE,
    PALETTE,
    PURPLE,
    SIZES,
    SKY,
    TEST,
    TRAIN,
    UNSEEN,
    Look,
    Panel,
    look,
)
from bayesticket.runs import MEMORISED, Run


def plot_run(run: Run) -> go.Figure:
    """A run's accuracy, attention, loss and norms against epochs, with the epochs of memorising and grokking.

    The accuracy on each task that it was evaluated on stands beside that on the test half, or, of more than two, in a
    panel of their own. Below the accuracy a strip shows, for each part of the recipe on a schedule, when it acted and
    how strongly.
    """
    others = evaluation_curves(run.curves)
    apart = len(others) > MOST_BESIDE
    panels = (ACCURACY, *([ELSEWHERE] if apart else []), MASS, KL, LOSS, SIZES)
    figure = stacked(panels)
    mass, divergence, loss, sizes = range(len(panels) - 3, len(panels) + 1)
    for panel, quantity in ((1, "accuracy"), (loss, "loss")):
        add_curve(figure, run, f"train_{quantity}", panel=panel, name="train", colour=TRAIN, dash="dash")
        add_curve(figure, run, f"test_{quantity}", panel=panel, name="test", colour=TEST)
        add_curve(figure, run, f"unseen_{quantity}", panel=panel, name="test, unseen", colour=UNSEEN, dash="dot")
    for (label, column), colour in zip(others.items(), cycle(_EVALUATIONS), strict=False):
        name = html.escape(label, quote=False)
        add_curve(figure, run, column, panel=2 if apart else 1, name=name, colour=colour, width=2.5)
    _add_layers(figure, run, "informative_mass_mean", panel=mass, name="all of them, mean", colour=GREEN)
    _add_layers(figure, run, "informative_mass_least", panel=mass, name="least of any one", colour=GREEN, dash="dot")
    _add_layers(figure, run, "kl_to_oracle", panel=divergence, name="KL", colour=GREEN, in_legend=False)
    add_curve(figure, run, "mlp_norm", panel=sizes, name="norm of the MLP", colour=GREY)
    _add_layers(figure, run, "attention_gradient", panel=sizes, name="attention gradient", colour=PURPLE)
    fit_log_axes(figure, panels)
    milestones = (
        ("memorised", "train", MEMORISED, run.memorised_epoch(), TRAIN),
        ("grokked", "test", run.grok_threshold, run.grok_epoch(), TEST),
    )
    for *_, epoch, colour in milestones:
        if epoch is not None:
            figure.add_vline(x=epoch, line={"color": colour, "width": 1.5, "dash": "dashdot"}, opacity=0.7)
    figure.update_shapes(yref="paper", y0=0, y1=1)
    reached_when = [
        f'<span style="color:{colour}">{word} ({half} accuracy ≥ {threshold:.4g}): {reached(epoch, run)}</span>'
        for word, half, threshold, epoch, colour in milestones
    ]
    figure.update_layout(
        title={"text": html.escape(label_of(run), quote=False), "subtitle": {"text": " · ".join(reached_when)}},
        hoversubplots="axis",
    )
    figure.update_xaxes(range=[0, max(run.epoch, 1)])
    add_strips(figure, strips_of_run(run, GREY))
    return figure


def _add_layers(
    figure: go.Figure, run: Run, measure: str, *, panel: int, name: str, colour: str, dash: str = "solid",
    in_legend: bool = True,
) -> None:  # fmt: skip
    """Draws a measure of attention; where the model has several layers, each under its name and in its colour."""
    for number, (layer, column) in enumerate(columns_by_layer(run.curves, measure).items()):
        drawn = _LAYERS[number % len(_LAYERS)] if layer else colour
        shown = f"{name}, {layer}" if layer else name
        add_curve(
            figure, run, column, panel=panel, name=shown, colour=drawn, dash=dash, in_legend=in_legend or bool(layer)
        )


MOST_BESIDE = 2
"""How many evaluations stand in the panel of the accuracy; more have a panel of their own."""
_EVALUATIONS = (GREEN, ORANGE, SKY, GREY, *PALETTE[len(OKABE_ITO) :])
"""The colours of evaluations, other than those of the halves."""
_LAYERS = (GREEN, PURPLE, SKY, *PALETTE[len(OKABE_ITO) :])
"""The colours of the layers."""


def reached(epoch: int | None, run: Run) -> str:
    """When a run reached something, in words: "epoch 1,300", or "not in 10,000 epochs"."""
    return f"not in {run.epoch:,} epochs" if epoch is None else f"epoch {epoch:,}"


def label_of(run: Run) -> str:
    """A run's task and intervention in a few words."""
    try:
        config = run.config
    except BayesticketError:  # made with a class that is not defined here
        return "run"
    recipe = repr(config.intervention) if config.intervention.parts else "no intervention"
    return f"{config.task!r}, {recipe}, seed {config.seed}"


def plot_runs(runs: Mapping[str, Run]) -> go.Figure:
    """Several runs in one figure, each in its own colour: accuracy, attention and loss against epochs.

    A dot marks the epoch of grokking. The curves of a run that was stopped after grokking end where it was stopped.
    """
    if not runs:
        raise refuse_case("runs", "no runs", "at least one run, by name")
    layers = list(
        dict.fromkeys(layer for run in runs.values() for layer in columns_by_layer(run.curves, "kl_to_oracle"))
    )
    panels = [_explained(panel, layers) for panel in (ACCURACY, MASS, KL, LOSS)]
    figure = stacked(panels, panel_height=175)
    for place, (name, run) in enumerate(runs.items()):
        # Later curves lie above earlier ones, and are thinner, so that the earlier ones can still be seen.
        _add_run(figure, name, run, look(place), width=max(1.6, 3.2 - 0.6 * place))
    finish_arms(figure, panels, max(run.epoch for run in runs.values()))
    looks = [(name, run, look(place).colour) for place, (name, run) in enumerate(runs.items())]
    add_strips(figure, [strip for name, run, colour in looks for strip in strips_of_run(run, colour, name)])
    return figure


_LINE_STYLES = {
    ACCURACY: "test solid, unseen dotted, train dashed",
    MASS: "mean solid, least of any one dotted",
    LOSS: "test solid, train dashed",
}


def _explained(panel: Panel, layers: Sequence[str]) -> Panel:
    """The panel with a note on what its line styles mean."""
    if any(layers) and panel in (MASS, KL):
        return layers_noted(panel, layers)
    return replace(panel, note=_LINE_STYLES.get(panel, ""))


def _add_run(figure: go.Figure, name: str, run: Run, drawn: Look, width: float) -> None:
    def curve(column: str, panel: int, suffix: str = "", dash: str = "solid", *, in_legend: bool = False) -> None:
        thick = dash == "solid"
        add_curve(
            figure, run, column, panel=panel, name=name + suffix, colour=drawn.colour, dash=dash,
            width=width if thick else 1.2, symbol=drawn.symbol if thick else None, group=name, in_legend=in_legend,
        )  # fmt: skip

    curve("test_accuracy", 1, in_legend=True)
    curve("train_accuracy", 1, ", train", "dash")
    curve("unseen_accuracy", 1, ", unseen", "dot")
    for panel, measure in ((2, "informative_mass_mean"), (3, "kl_to_oracle")):
        for (layer, column), dash in zip(columns_by_layer(run.curves, measure).items(), cycle(DASHES), strict=False):
            curve(column, panel, f", {layer}" if layer else "", dash)
    curve("informative_mass_least", 2, ", least", "dot")
    curve("test_loss", 4)
    curve("train_loss", 4, ", train", "dash")
    if (epoch := run.grok_epoch()) is not None:
        figure.add_trace(
            go.Scatter(
                x=[epoch], y=[run.curves["test_accuracy"].loc[epoch]], mode="markers", name=f"{name}, grokked",
                marker={"color": drawn.colour, "size": 9}, legendgroup=name, showlegend=False, hoverinfo="skip",
            )
        )  # fmt: skip
