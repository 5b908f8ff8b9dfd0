"""Arms of a sweep: median and quartiles over seeds, and a look for each of many."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from figure_cases import named

import bayesticket as bt
from bayesticket.figures import look, plot_arms, plot_runs, side_by_side
from bayesticket.figures.curves import hold_last_values

ARMS = {f"arm {place}": None for place in range(1, 10)}  # equal, so that there is little to train


@pytest.fixture(scope="module")
def nine(tmp_path_factory):
    store = tmp_path_factory.mktemp("store")
    model = bt.Architecture(d_model=4, d_mlp=4)
    with ThreadPoolExecutor(1) as threads:
        return bt.sweep(
            bt.ModularAddition(p=3), ARMS, seeds=[0, 1], store=store, epochs=20, model=model,
            executor=threads, progress=False,
        )  # fmt: skip


def looks_of(figure, name):
    """The colours and symbols of an arm's solid lines."""
    lines = [trace for trace in named(figure, name) if trace.line.width and trace.line.dash in (None, "solid")]
    return {(trace.line.color, trace.marker.symbol if "markers" in trace.mode else None) for trace in lines}


def test_nine_arms_differ_in_colour_and_the_last_two_have_symbols(nine):
    figure = plot_arms(nine)
    expected = [look(place) for place in range(9)]
    for arm, drawn in zip(ARMS, expected, strict=True):
        assert looks_of(figure, arm) == {(drawn.colour, drawn.symbol)}
    assert len({drawn.colour for drawn in expected}) == 9
    assert [drawn.symbol is None for drawn in expected] == [True] * 7 + [False] * 2


def test_nine_runs_differ_in_colour_and_symbol(nine):
    runs = {arm: nine.run(arm, 0) for arm in ARMS}
    for figure in (plot_runs(runs), side_by_side(runs)):
        seen = [looks_of(figure, arm) for arm in ARMS]
        assert seen == [{(look(place).colour, look(place).symbol)} for place in range(9)]
    for trace in named(plot_runs(runs), "arm 9, train"):
        assert (trace.line.dash, trace.mode) == ("dash", "lines"), "symbols belong to the test curves"


def test_symbols_are_few_enough_to_see_the_line(nine):
    marked = [trace for trace in plot_arms(nine).data if trace.mode == "lines+markers"]
    assert marked
    assert {trace.marker.maxdisplayed for trace in marked} == {10}


def test_an_arm_is_drawn_as_its_median(nine):
    drawn, *_ = [trace for trace in named(plot_arms(nine), "arm 3") if trace.yaxis in (None, "y")]
    curves = [nine.run("arm 3", seed).curves["test_accuracy"] for seed in (0, 1)]
    np.testing.assert_allclose(drawn.y, np.mean(curves, axis=0))  # the median of two


def test_an_ended_curve_keeps_its_value_until_the_longest_ends():
    values = np.array([[1.0, np.nan, np.nan, np.nan], [1.0, 2.0, 3.0, np.nan]])
    np.testing.assert_array_equal(hold_last_values(values), [[1, 1, 1, np.nan], [1, 2, 3, np.nan]])
