"""Figures of one run and of several."""

import itertools

import numpy as np
import pytest
from figure_cases import named

from bayesticket.errors import BayesticketError
from bayesticket.figures import PALETTE, TEMPLATE, plot_run, plot_runs
from bayesticket.runs import Run


class TestRun:
    def test_draws_every_recorded_curve(self, runs: dict[str, Run]):
        run = runs["none"]
        drawn = [np.asarray(trace.y) for trace in plot_run(run).data]
        for column in run.curves:
            assert any(np.array_equal(y, run.curves[column]) for y in drawn), column

    def test_marks_memorising_and_grokking(self, runs: dict[str, Run]):
        run = runs["none"]
        curves = run.curves.copy()
        curves["train_accuracy"], curves["test_accuracy"] = [0.1, 1.0, 1.0, 1.0], [0.1, 0.1, 0.1, 0.99]
        grokked = Run(run.description, run.tensors, run.weights, curves, run.epoch)
        figure = grokked.plot()
        assert [shape.x0 for shape in figure.layout.shapes] == [10, 30]
        assert "epoch 10<" in figure.layout.title.subtitle.text
        never = Run(run.description, run.tensors, run.weights, curves * 0, run.epoch).plot()
        assert len(never.layout.shapes) == 0
        assert never.layout.title.subtitle.text.count("not in 30 epochs") == 2

    def test_shares_one_epoch_axis_and_the_template(self, runs: dict[str, Run]):
        figure = plot_run(runs["none"])
        assert {trace.xaxis for trace in figure.data} == {None}
        assert figure.layout.xaxis.type is None
        assert figure.layout.template == TEMPLATE
        domains = sorted(figure.layout[f"yaxis{place}"].domain for place in ("", 2, 3, 4, 5))
        assert all(low[1] < high[0] for low, high in itertools.pairwise(domains))

    def test_does_without_what_was_not_recorded(self, runs: dict[str, Run]):
        run = runs["none"]
        curves = run.curves[["train_accuracy", "test_accuracy"]]
        assert len(Run(run.description, run.tensors, run.weights, curves, run.epoch).plot().data) == 2


class TestRuns:
    def test_gives_each_run_a_colour_and_a_name(self, runs: dict[str, Run]):
        figure = plot_runs(runs)
        for name, colour in zip(runs, PALETTE, strict=False):
            own = [trace for trace in figure.data if trace.legendgroup == name]
            assert {trace.line.color for trace in own} == {colour}
            assert sum(trace.showlegend for trace in own) == 1
            assert any(np.array_equal(trace.y, runs[name].curves["test_accuracy"]) for trace in own)
        assert {trace.line.dash for trace in named(figure, "none, train")} == {"dash"}
        assert list(figure.layout.xaxis.range) == [0, 30]

    def test_refuses_none(self):
        with pytest.raises(BayesticketError, match="at least one run"):
            plot_runs({})
