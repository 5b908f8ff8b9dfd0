"""The arms of a sweep: medians and quartiles over seeds."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from typing import cast

import plotly.graph_objects as go

from bayesticket.errors import refuse, refuse_case, require_choice
from bayesticket.figures.curves import (
    DASHES,
    axis_name,
    band,
    columns_by_layer,
    evaluation_curves,
    finish_arms,
    hold_last_values,
    layers_noted,
    stacked,
)
from bayesticket.figures.strips import Strip, add_strips, strips_of_arm
from bayesticket.figures.style import ACCURACY, ELSEWHERE, KL, LOSS, MASS, Look, Panel, look
from bayesticket.sweeps import Runs, name_of


def plot_arms(runs: Runs, colour: str | None = None, facet: str | None = None) -> go.Figure:
    """The arms of a sweep, median and quartiles over seeds: accuracy, attention and loss against epochs.

    Each label on the axis `colour` has a colour, and each label on the axis `facet` a column of panels. By default
    these are the first and the second axis of more than one label; a third has to be narrowed by `runs.sel`. A run that
    was stopped after grokking keeps its last value for as long as other runs of its arm last. Below the accuracy a
    strip shows when a prior on a schedule acted, and how strongly; each task that the runs were evaluated on has a
    panel.
    """
    runs, colour, facet = _chosen_axes(runs, colour, facet)
    recorded = [str(name) for name, curve in runs.curves.items() if not bool(curve.isnull().all())]
    shown = _shown(recorded)
    curves = [columns_by_layer(recorded, measure) for measure in shown.values()]
    panels = [layers_noted(panel, layers) for panel, layers in zip(shown, curves, strict=True)]
    figure = stacked(panels, panel_height=175)
    columns = _parts(runs, facet)
    if facet is not None:
        _add_columns(figure, panels, [title for title, _ in columns])
    in_legend: set[str] = set()
    strips: list[Strip] = []
    for column, (_, part) in enumerate(columns, 1):
        for place, (name, arm) in enumerate(_parts(part, colour)):
            new = bool(name) and name not in in_legend
            if _add_arm(figure, arm, curves, column=column, name=name, drawn_as=look(place), in_legend=new):
                in_legend.add(name)
            strips += strips_of_arm(arm, look(place).colour, name, column=column)
    finish_arms(figure, panels * len(columns), int(runs.curves["trained"].max()))
    if facet is not None:
        _share_ranges(figure, len(panels), len(columns))
    add_strips(figure, strips)
    return figure


_SHOWN = {ACCURACY: "test_accuracy", MASS: "informative_mass_mean", KL: "kl_to_oracle", LOSS: "test_loss"}
"""The measure in each panel, from top to bottom."""


def _shown(recorded: Sequence[str]) -> dict[Panel, str]:
    """The same, with a panel below the accuracy for each task that the runs were evaluated on."""
    others = {
        replace(ELSEWHERE, title=f"accuracy on {html.escape(label, quote=False)}"): curve
        for label, curve in evaluation_curves(recorded).items()
    }
    return {ACCURACY: _SHOWN[ACCURACY], **others, **_SHOWN}


def _parts(runs: Runs, axis: str | None) -> list[tuple[str, Runs]]:
    """The runs at each label of an axis, with its name; without an axis all runs, without a name."""
    if axis is None:
        return [("", runs)]
    return [(name_of([label], [axis]), runs.sel(**{axis: label})) for label in runs.labels(axis)]


def _add_arm(
    figure: go.Figure, arm: Runs, curves: Sequence[Mapping[str, str]], *, column: int, name: str, drawn_as: Look,
    in_legend: bool,
) -> bool:  # fmt: skip
    """Draws an arm into a column of panels, from the curves of each by layer; whether there was anything to draw."""
    drawn = False
    for row, layers in enumerate(curves, 1):
        panel = (column - 1) * len(curves) + row
        for (layer, curve), dash in zip(layers.items(), cycle(DASHES), strict=False):
            drawn |= _add_median(
                figure, arm, curve, panel=panel, column=column, name=name, drawn_as=drawn_as,
                in_legend=in_legend and not drawn, layer=layer, dash=dash,
            )  # fmt: skip
    return drawn


def add_band(
    figure: go.Figure, runs: Runs, arm: str, curve: str, *, panel: int, colour: str, symbol: str | None = None,
    name: str | None = None, in_legend: bool | None = None,
) -> None:  # fmt: skip
    """Draws the median and quartiles over seeds of one curve of an arm; does nothing if the arm did not record it.

    The arm is a label on the first axis of the runs, which must be their only one.
    """
    _add_median(
        figure, runs.sel(**{runs.axes[0]: arm}), curve, panel=panel, column=1, name=name or arm,
        drawn_as=Look(colour, symbol), in_legend=panel == 1 if in_legend is None else in_legend,
    )  # fmt: skip


def _add_median(
    figure: go.Figure, arm: Runs, curve: str, *, panel: int, column: int, name: str, drawn_as: Look, in_legend: bool,
    layer: str = "", dash: str = "solid",
) -> bool:  # fmt: skip
    """Draws one curve of runs that have no axis but seeds; whether there was anything to draw."""
    if curve not in arm.curves or bool(arm.curves[curve].isnull().all()):
        return False
    recorded = arm.curves[curve].dropna("epoch", how="all").transpose("seed", "epoch")  # others may record more often
    drawn = band(
        recorded["epoch"].to_numpy(), hold_last_values(recorded.to_numpy()),
        name=", ".join(filter(None, (name, layer))), colour=drawn_as.colour, symbol=drawn_as.symbol,
        dash=dash, panel=panel, group=name,
    )  # fmt: skip
    drawn[-1].showlegend = in_legend
    for trace in drawn:
        trace.xaxis = axis_name("x", column)
    figure.add_traces(drawn)
    return True


def _chosen_axes(runs: Runs, colour: str | None, facet: str | None) -> tuple[Runs, str | None, str | None]:
    """The axes that are shown, and the runs without the other axes, which have one label each."""
    for name, given in (("colour", colour), ("facet", facet)):
        if given is not None:
            require_choice(name, given, runs.axes)
    if colour is not None and colour == facet:
        raise refuse("facet", facet, f"another axis than colour={colour!r}")
    long = [axis for axis in runs.axes if len(runs.labels(axis)) > 1 and axis not in (colour, facet)]
    short = [axis for axis in runs.axes if len(runs.labels(axis)) == 1 and axis not in (colour, facet)]
    if colour is None and (long or short):
        colour = (long or short).pop(0)
    if facet is None and long:
        facet = long.pop(0)
    if long:
        several = ", ".join((str(colour), str(facet), *long))
        label = runs.labels(long[0])[0]
        raise refuse_case("runs", f"more than two axes ({several})", f"two, as in runs.sel({long[0]}={label!r}).plot()")
    return runs.sel(**{axis: runs.labels(axis)[0] for axis in short}), colour, facet


def _add_columns(figure: go.Figure, panels: Sequence[Panel], titles: Sequence[str]) -> None:
    """Divides stacked panels into columns, one for each title; all columns of a panel share its vertical axis."""
    gap = 0.03
    width = (1 - gap * (len(titles) - 1)) / len(titles)
    first = figure.layout["xaxis"].to_plotly_json()
    for column, title in enumerate(titles):
        left = column * (width + gap)
        across = {"domain": [left, left + width], "nticks": max(3, 9 // len(titles))}
        if column:
            across = first | across | {"anchor": axis_name("y", (column + 1) * len(panels))}
            for place in range(1, len(panels) + 1):
                own = figure.layout[axis_name("yaxis", place)].to_plotly_json()
                shared = {"matches": axis_name("y", place), "anchor": axis_name("x", column + 1)}
                name = axis_name("yaxis", column * len(panels) + place)
                figure.update_layout({name: own | shared | {"showticklabels": False}})
        figure.update_layout({axis_name("xaxis", column + 1): across})
        figure.add_annotation(
            text=title, x=left + width / 2, xanchor="center", xref="paper", y=1, yanchor="bottom", yref="paper",
            yshift=28, showarrow=False, font={"size": 15},
        )  # fmt: skip


def _share_ranges(figure: go.Figure, n_panels: int, n_columns: int) -> None:
    """Gives all columns of a panel one range, and makes room for the titles of the columns."""
    for panel in range(1, n_panels + 1):
        names = [axis_name("yaxis", column * n_panels + panel) for column in range(n_columns)]
        axes = [cast("dict", figure.layout)[name] for name in names]
        fitted = [axis for axis in axes if axis["range"] is not None]
        if fitted:
            widest = max(fitted, key=lambda axis: axis["range"][1] - axis["range"][0])
            low, high = min(axis["range"][0] for axis in fitted), max(axis["range"][1] for axis in fitted)
            for axis in axes:
                axis.update(range=[low, high], dtick=widest["dtick"])
    figure.update_layout(margin={"t": 105}, height=cast("dict", figure.layout)["height"] + 30)
