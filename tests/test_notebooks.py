"""What tasks, runs, tables and tickets show of themselves in a notebook: well-formed, escaped, and what they say."""

import xml.etree.ElementTree as ET

import pytest

import bayesticket as bt
from bayesticket.analysis import find_ticket
from bayesticket.notebooks import html_lines, html_table, sparkline

SMALL = {"model": bt.Architecture(d_model=8, d_mlp=8), "epochs": 20}
TASK = bt.ModularAddition(p=5)


@pytest.fixture(scope="module")
def run():
    return bt.train(TASK, **SMALL)


def parsed(text):
    """The elements; raises where a notebook would have to guess."""
    return ET.fromstring(f"<div>{text}</div>")


def cells(text):
    return [[cell.text for cell in row.iter("td")] for row in parsed(text).iter("tr")][1:]


def test_a_run_shows_its_accuracies(run):
    shown = parsed(run._repr_html_())
    assert [bold.text for bold in shown.iter("b")] == [repr(run)]
    lines = list(shown.iter("polyline"))
    assert [legend.text for legend in shown.iter("span")] == ["train", "test", "test, unseen"]
    for line, column in zip(lines, ("train_accuracy", "test_accuracy", "unseen_accuracy"), strict=True):
        points = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        assert [x for x, _ in points] == [0, 130, 260]
        assert [y for _, y in points] == pytest.approx([45 - 42 * value for value in run.curves[column]], abs=0.06)


def test_a_curve_without_values_is_no_line():
    (line,) = parsed(sparkline([("unseen", "red", [0, 10], [float("nan")] * 2)], "none")).iter("polyline")
    assert line.get("points") == ""
    assert parsed(sparkline([], "nothing recorded")) is not None


def test_runs_show_each_arm(tmp_path):
    grid = bt.grid(intervention={"none": None, "<kl>": bt.KLPrior()}, lr=[1e-3, 1e-2])
    runs = bt.sweep(TASK, grid, seeds=range(2), store=tmp_path, workers=1, **SMALL)
    assert cells(runs._repr_html_()) == [
        [name, rate, "0 of 2", "never"] for name in ("none", "<kl>") for rate in ("0.001", "0.01")
    ]
    assert cells(runs.sel(lr=1e-3)._repr_html_()) == [[name, "0 of 2", "never"] for name in ("none", "<kl>")]
    assert cells(runs.sel(lr=1e-3, intervention="none")._repr_html_())[0][-2:] == ["0 of 2", "never"]


def test_measured_values_and_tickets_are_tables(run):
    seen = bt.measure(run.model, TASK.split().test, bt.AttentionEntropy())
    assert cells(seen._repr_html_()) == [["attention_entropy", f"{seen['attention_entropy']:.6g}"]]
    ticket = find_ticket(run, 0.5, scope="matrix")
    assert cells(ticket._repr_html_())[0] == ["embed.W_E", "56", "50.0%"]
    assert len(cells(ticket._repr_html_())) == len(ticket.masks)


def test_texts_are_escaped():
    assert cells(html_table(["a"], [["<script>&"]])) == [["<script>&"]]
    assert parsed(html_lines("<b>", "&")) is not None


def test_a_task_says_once_what_it_is_and_how_large():
    own = bt.Task(tokens=[[0, 1], [1, 0]], targets=[0, 1], informative=[True, False])
    assert own._repr_html_().count("n_positions") == 1
    shown = bt.ModularAddition(p=5)._repr_html_()
    assert "25 examples" in shown
    assert shown.count("ModularAddition(p=5)") == 1
    assert bt.ModularAddition(p=5)._repr_mimebundle_()["text/html"] == shown
