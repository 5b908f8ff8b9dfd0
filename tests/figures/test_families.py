"""Figures of families of measures: what is drawn is what was recorded."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from figure_cases import EPOCHS, EXPECTED, PLOTS, columns_of, made, traces

import bayesticket as bt
from bayesticket.figures import (
    FAMILIES,
    plot_bounds,
    plot_capacity,
    plot_frequencies,
    plot_gradients,
    plot_structure,
    write_families,
)
from bayesticket.figures.measures.capacity import CAPACITY
from bayesticket.figures.measures.gradients import GRADIENTS
from bayesticket.figures.measures.structure import STRUCTURE


@pytest.mark.parametrize("name", PLOTS)
def test_what_was_recorded_is_drawn_and_nothing_else(name, run):
    figure = PLOTS[name](run)
    assert {*EXPECTED[name], "train_accuracy", "test_accuracy"} <= columns_of(figure, run)
    gradient = run.curves["attention_gradient"]
    smooth = [gradient.iloc[max(at - 5, 0) : at + 6].median() for at in range(len(gradient))]
    decay = 1 - (1 - run.curves["contraction[rate]"]) ** 2
    known = [*(run.curves[column] for column in run.curves), smooth, decay]
    for trace in figure.data:
        assert any(np.allclose(trace.y, values, rtol=1e-12, equal_nan=True) for values in known), trace.name


def test_pure_decay_is_drawn_beside_the_observed_contraction(run):
    drawn = traces(plot_capacity(run))
    rate = run.curves["contraction[rate]"]
    assert np.array_equal(drawn["observed"].y, run.curves["contraction[observed]"], equal_nan=True)
    assert np.allclose(drawn["pure decay, 2λ − λ²"].y, 2 * rate - rate**2, rtol=1e-9, equal_nan=True)
    assert rate.iloc[-1] == pytest.approx(1e-3)


def test_each_bound_under_its_own_name(run):
    drawn = traces(plot_bounds(run))
    names = {
        "measured": "measured",
        "local": "local",
        "global": "global",
        "loose": "loose",
        "paper": "the paper’s, ‖x‖ ≤ 1",
        "scaled": "scaled",
    }
    for entry, name in names.items():
        assert np.array_equal(drawn[name].y, run.curves[f"explaining_away[examples=None][{entry}]"]), entry
    assert drawn["the paper’s, ‖x‖ ≤ 1"].line.dash == "dot"
    assert {trace.yaxis for name, trace in drawn.items() if name not in ("train", "test")} == {"y"}
    assert {drawn[name].yaxis for name in ("train", "test")} == {"y2"}


def test_the_bounds_axis_is_logarithmic_and_holds_them_all(run):
    figure = plot_bounds(run)
    assert figure.layout.yaxis.type == "log"
    low, high = figure.layout.yaxis.range
    values = np.log10(run.curves[EXPECTED["bounds"]].to_numpy())
    assert low < values.min() < values.max() < high


def test_of_several_explaining_aways_the_plainest_is_shown():
    columns = {f"explaining_away{fields}[measured]": EPOCHS + 1.0 + len(fields) for fields in ("[head=1]", "")}
    shown = plot_bounds(made(columns))
    assert np.array_equal(traces(shown)["measured"].y, EPOCHS + 1.0)


def test_settings_of_one_measure_are_told_apart():
    columns = {f"structural_condition{fields}": EPOCHS / 5000 for fields in ("", "[tau=0.1]", "[tau=0.1,head=1]")}
    drawn = plot_structure(made(columns)).data[:3]
    assert [trace.name for trace in drawn] == ["τ = 0.25", "τ = 0.1", "τ = 0.1, head 1"]
    assert len({trace.line.color for trace in drawn}) == 3
    columns = {f"attention_gradient{fields}": EPOCHS + 1.0 for fields in ("[layer=1]", "")}
    recorded = [trace for trace in plot_gradients(made(columns)).data if trace.name.startswith("recorded")]
    assert [(trace.name, trace.line.dash) for trace in recorded] == [
        ("recorded", "solid"),
        ("recorded, layer 1", "dash"),
    ]


def test_more_than_ten_entries_stay_in_order():
    columns = {f"distributed_mass[{entry}]": np.full(len(EPOCHS), float(entry)) for entry in range(13)}
    drawn = traces(plot_structure(made(dict(sorted(columns.items())))))
    assert [drawn[f"position {place}"].y[0] for place in range(1, 12)] == list(range(11))
    assert drawn["least in any example"].y[0] == 11
    assert drawn["effective number of heads"].y[0] == 12


def test_frequencies_that_are_key_at_the_end_have_names():
    shares = np.full((10, len(EPOCHS)), 0.02)
    shares[[3, 6], -1] = 0.5, 0.32  # more than three times the even share of a tenth
    shares[0, 0] = 0.9  # only at the start
    columns = {f"frequency_shares[{w}]": share for w, share in enumerate(shares, 1)}
    drawn = [trace for trace in plot_frequencies(made(columns)).data if trace.yaxis == "y"]
    named = [trace for trace in drawn if trace.showlegend]
    assert [trace.name for trace in named] == ["w = 4", "w = 7"]
    assert np.array_equal(named[0].y, shares[3])
    others = [trace for trace in drawn if not trace.showlegend]
    assert len(others) == 8
    assert {trace.hoverinfo for trace in others} == {"skip"}


@pytest.mark.parametrize(
    ("name", "measure"),
    [
        ("bounds", r"ExplainingAway\(\)"),
        ("gradients", r"AttentionGradient\(\)"),
        ("structure", r"InformativeMass\(\)"),
        ("capacity", r"LipschitzBounds\(\)"),
        ("frequencies", r"RestrictedLoss\(\)"),
    ],
)
def test_a_run_that_recorded_nothing_of_a_family_is_refused(name, measure, tmp_path):
    bare = made({"train_loss": EPOCHS + 1.0, "test_loss": EPOCHS + 1.0})
    expected = rf"^run: got a run that recorded train_accuracy, test_accuracy, .*; accepted: .*measures=\[.*{measure}"
    with pytest.raises(bt.BayesticketError, match=expected):
        PLOTS[name](bare)
    with pytest.raises(bt.BayesticketError, match=expected):
        write_families(bare, tmp_path / "page.html")
    empty = dataclasses.replace(bare, curves=pd.DataFrame(index=pd.Index([], name="epoch")))
    with pytest.raises(bt.BayesticketError, match=rf"^run: got a run without records; accepted: .*{measure}"):
        PLOTS[name](empty)
    assert not list(tmp_path.iterdir())


def test_the_measures_to_add_are_the_librarys():
    for family in FAMILIES:
        for name in family.measures:
            assert isinstance(eval(name, {kind: getattr(bt, kind) for kind in bt.__all__}), bt.Measure)


def test_a_page_has_a_section_for_each_family_that_was_recorded(run, tmp_path):
    path = write_families(run, tmp_path / "all.html")
    text = path.read_text(encoding="utf-8")
    assert text.count("Plotly.newPlot(") >= 5
    for family in FAMILIES:
        assert f"<h2>{family.heading}</h2>" in text
    assert str(run.phases()) in text
    assert "The first reading is shaded in every figure." in text

    plain = bt.train(bt.ModularAddition(p=7), epochs=10, progress=False)
    text = write_families(plain, tmp_path / "plain.html").read_text(encoding="utf-8")
    recorded = {family.heading for family in FAMILIES if f"<h2>{family.heading}</h2>" in text}
    assert recorded == {family.heading for family in (GRADIENTS, STRUCTURE, CAPACITY)}
