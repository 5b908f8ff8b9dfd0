"""Figures of the arms of a sweep: medians of what was recorded, coloured by one axis and in columns by another."""

import itertools

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from bayesticket.errors import BayesticketError
from bayesticket.figures import PALETTE, add_band, plot_arms
from bayesticket.runs import Header
from bayesticket.sweeps import Runs, RunSummary, assemble

COLUMNS = ("test_accuracy", "informative_mass_mean", "kl_to_oracle", "test_loss")
EPOCHS = np.arange(0, 50, 10)


def runs_over(**axes) -> Runs:
    """Three seeds of every combination of labels, with random curves."""
    random = np.random.default_rng(0)

    def record() -> RunSummary:
        curves = pd.DataFrame(random.random((len(EPOCHS), 4)), columns=COLUMNS, index=pd.Index(EPOCHS, name="epoch"))
        return RunSummary(Header({"type": "TrainConfig"}, "finished", int(EPOCHS[-1]), 1.0, {}), curves)

    return assemble({key: record() for key in itertools.product(*axes.values(), range(3))}, axes=tuple(axes))


def drawn(figure: go.Figure, name: str, panel: int) -> go.Scatter:
    """The median of an arm in a panel."""
    axis = "y" if panel == 1 else f"y{panel}"
    (trace,) = [trace for trace in figure.data if (trace.name, trace.yaxis) == (name, axis)]
    return trace


def test_one_axis_is_coloured():
    runs = runs_over(intervention=["none", "kl"])
    figure = plot_arms(runs)
    for place, name in enumerate(runs.labels("intervention")):
        for panel, column in enumerate(COLUMNS, 1):
            trace = drawn(figure, str(name), panel)
            expected = runs.curves[column].sel(intervention=name).median("seed")
            np.testing.assert_allclose(trace.y, expected)
            assert (trace.line.color, trace.xaxis) == (PALETTE[place], "x")
    assert [trace.name for trace in figure.data if trace.showlegend] == ["none", "kl"]


@pytest.mark.parametrize(
    ("given", "colour", "facet"),
    [
        ({}, "intervention", "lr"),
        ({"colour": "lr"}, "lr", "intervention"),
        ({"facet": "intervention"}, "lr", "intervention"),
        ({"colour": "intervention", "facet": "lr"}, "intervention", "lr"),
    ],
)
def test_two_axes_are_coloured_and_in_columns(given: dict, colour: str, facet: str):
    runs = runs_over(intervention=["none", "kl"], lr=[1e-3, 1e-2, 1e-1])
    figure = plot_arms(runs, **given)
    names = {"none": "none", "kl": "kl", 1e-3: "lr 0.001", 1e-2: "lr 0.01", 1e-1: "lr 0.1"}
    for at, label in enumerate(runs.labels(facet)):
        for place, arm in enumerate(runs.labels(colour)):
            for panel, column in enumerate(COLUMNS, 1):
                trace = drawn(figure, names[arm], 4 * at + panel)
                np.testing.assert_allclose(
                    trace.y, runs.curves[column].sel({facet: label, colour: arm}).median("seed").to_numpy()
                )
                assert (trace.line.color, trace.xaxis) == (PALETTE[place], "x" if at == 0 else f"x{at + 1}")
    assert [trace.name for trace in figure.data if trace.showlegend] == [names[arm] for arm in runs.labels(colour)]
    titles = [note.text for note in figure.layout.annotations]
    assert titles[4:] == [names[label] for label in runs.labels(facet)]


def test_columns_do_not_overlap_and_share_their_ranges():
    runs = runs_over(lr=[1e-3, 1e-2, 1e-1], intervention=["none", "kl"])
    layout = plot_arms(runs, facet="lr").layout
    domains = [layout[name].domain for name in ("xaxis", "xaxis2", "xaxis3")]
    assert all(left[1] < right[0] for left, right in itertools.pairwise(domains))
    assert (domains[0][0], domains[-1][1]) == pytest.approx((0.0, 1.0))
    for panel, of_others in ((1, (5, 9)), (3, (7, 11))):
        first = layout["yaxis" if panel == 1 else f"yaxis{panel}"]
        for other in of_others:
            assert layout[f"yaxis{other}"].range == first.range is not None
            assert layout[f"yaxis{other}"].domain == first.domain
            assert layout[f"yaxis{other}"].matches == ("y" if panel == 1 else f"y{panel}")
    low, high = layout["yaxis3"].range
    values = np.log10(runs.curves["kl_to_oracle"].median("seed"))
    assert low < values.min() <= values.max() < high, "of all columns together"


def test_axes_of_one_label_are_not_shown():
    runs = runs_over(intervention=["none", "kl"], weight_decay=[0.1], lr=[1e-2])
    assert plot_arms(runs) == plot_arms(runs.sel(weight_decay=0.1, lr=1e-2))
    (only,) = {trace.name for trace in plot_arms(runs_over(intervention=["kl"])).data} - {None}
    assert only == "kl"
    assert len(plot_arms(runs_over(intervention=["kl"]).sel(intervention="kl")).data) == 12


def test_a_curve_that_an_arm_did_not_record_is_left_out():
    runs = runs_over(intervention=["none", "kl"])
    mass = runs.curves["informative_mass_mean"].where(runs.curves["intervention"] == "kl")
    figure = plot_arms(Runs(runs.curves.assign(informative_mass_mean=mass)))
    assert {trace.name for trace in figure.data if trace.yaxis == "y2"} - {None} == {"kl"}
    empty = go.Figure()
    add_band(empty, runs, "kl", "never_recorded", panel=1, colour=PALETTE[0])
    assert len(empty.data) == 0


@pytest.mark.parametrize(
    ("axes", "given", "said"),
    [
        (("a", "b", "c"), {}, r"^runs: got more than two axes \(a, b, c\); accepted: two, as in runs.sel\(c=1\).plot"),
        (("a", "b", "c"), {"colour": "b"}, r"more than two axes \(b, a, c\)"),
        (("a", "b"), {"colour": "lr"}, "^colour: got 'lr'; accepted: 'a', 'b'$"),
        (("a", "b"), {"facet": "lr"}, "^facet: got 'lr'; accepted: 'a', 'b'$"),
        (("a", "b"), {"colour": "a", "facet": "a"}, "^facet: got 'a'; accepted: another axis than colour='a'$"),
    ],
)
def test_what_cannot_be_drawn_is_one_clear_error(axes: tuple, given: dict, said: str):
    with pytest.raises(BayesticketError, match=said):
        plot_arms(runs_over(**{axis: [1, 2] for axis in axes}), **given)
