"""Panels do not overlap, and names at the right end stand where curves end."""

import dataclasses
import itertools

import numpy as np
import pytest
from figure_cases import EPOCHS, PLOTS, columns_of, made, traces
from hypothesis import given
from hypothesis import strategies as st

from bayesticket.figures import plot_bounds, plot_capacity, plot_structure
from bayesticket.figures.panels import move_apart


def test_names_at_the_right_end_stand_where_curves_end():
    run = made(
        {f"explaining_away[{form}]": np.full(len(EPOCHS), 10.0**at) for at, form in enumerate(("loose", "local"))}
    )
    figure = plot_bounds(run)
    low, high = figure.layout.yaxis.range
    places = {note.text.split("</b>")[0]: note.y for note in figure.layout.annotations if note.yref == "y domain"}
    assert places == {
        "<b>loose": pytest.approx((0 - low) / (high - low)),
        "<b>local": pytest.approx((1 - low) / (high - low)),
    }


@given(st.lists(st.floats(-50, 450), min_size=1, max_size=6).map(sorted))
def test_moved_names_keep_their_order_and_distance(places):
    moved = move_apart(places, least=37, low=14, high=386)
    assert all(14 - 1e-9 <= place <= 386 + 1e-9 for place in moved)
    assert all(after - before >= 37 - 1e-9 for before, after in itertools.pairwise(moved))
    if places == sorted(np.clip(places, 14, 386)) and all(b - a >= 37 for a, b in itertools.pairwise(places)):
        assert moved == places


def test_panels_do_not_overlap(run):
    for plot in PLOTS.values():
        layout = plot(run).layout.to_plotly_json()
        domains = sorted(axis["domain"] for name, axis in layout.items() if name.startswith("yaxis"))
        assert domains[0][0] == 0
        assert domains[-1][1] == 1
        assert all(low[1] < high[0] for low, high in itertools.pairwise(domains))


def test_losses_alone_make_no_panel():
    run = made({"train_loss": EPOCHS + 1.0, "test_loss": EPOCHS + 1.0, "mlp_norm": EPOCHS + 1.0})
    assert set(traces(plot_capacity(run))) == {"MLP", "train", "test"}
    assert len(plot_capacity(run).data) == 3


def test_missing_columns_are_left_out(run):
    fewer = dataclasses.replace(run, curves=run.curves.drop(columns="explaining_away[examples=None][paper]"))
    drawn = traces(plot_bounds(fewer))
    assert set(drawn) == {"measured", "local", "global", "loose", "scaled", "train", "test"}
    structure = [name for name in run.curves if name.startswith(("informative", "kl_to_oracle"))]
    fewer = dataclasses.replace(run, curves=run.curves[structure])
    figure = plot_structure(fewer)
    assert columns_of(figure, fewer) == set(structure)
    assert len([axis for axis in figure.layout.to_plotly_json() if axis.startswith("yaxis")]) == 2
