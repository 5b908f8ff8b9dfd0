"""The arms of a sweep: medians and quartiles over seeds."""

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from bayesticket.figures.curves import band, finish_arms, held, stacked
from bayesticket.figures.style import ACCURACY, KL, LOSS, MASS, look

if TYPE_CHECKING:
    from bayesticket.sweeps import Runs


def plot_arms(runs: "Runs") -> go.Figure:
    """The arms of a sweep, median and quartiles over seeds: accuracy, attention and loss against epochs.

    A run that was stopped after grokking keeps its last value for as long as other runs of its arm last.
    """
    panels = (ACCURACY, MASS, KL, LOSS)
    columns = ("test_accuracy", "informative_mass_mean", "kl_to_oracle", "test_loss")
    figure = stacked(panels, panel_height=175)
    for place, arm in enumerate(runs["intervention"].to_numpy()):
        drawn = look(place)
        for panel, column in enumerate(columns, 1):
            add_band(figure, runs, str(arm), column, panel=panel, colour=drawn.colour, symbol=drawn.symbol)
    finish_arms(figure, panels, int(runs["trained"].max()))
    return figure


def add_band(
    figure: go.Figure,
    runs: "Runs",
    arm: str,
    column: str,
    *,
    panel: int,
    colour: str,
    symbol: str | None = None,
    name: str | None = None,
    in_legend: bool | None = None,
) -> None:
    """Draws the median and quartiles over seeds of one curve of an arm; does nothing if the arm did not record it."""
    if column not in runs or bool(runs[column].sel(intervention=arm).isnull().all()):
        return
    values = held(runs[column].sel(intervention=arm).transpose("seed", "epoch").to_numpy())
    drawn = band(
        runs["epoch"].to_numpy(), values, name=name or arm, colour=colour, symbol=symbol, panel=panel, group=name or arm
    )
    drawn[-1].showlegend = panel == 1 if in_legend is None else in_legend
    figure.add_traces(drawn)
