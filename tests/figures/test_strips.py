"""Strips that show when a prior acted, against the schedules themselves and the panels as they are without them."""

import itertools
import math

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

import bayesticket as bt
from bayesticket.figures import plot_arms, plot_run, plot_runs
from bayesticket.figures.strips import MOST_POINTS, corners
from bayesticket.paper.times import plot_accuracy
from bayesticket.runs import Header, Run, TrainConfig
from bayesticket.runs.description import describe_config
from bayesticket.schedules import Schedule
from bayesticket.sweeps import RunSummary, assemble

END = 2000
COLUMNS = ("train_accuracy", "test_accuracy", "unseen_accuracy", "informative_mass_mean", "kl_to_oracle", "test_loss")


@bt.spec
class Wave(Schedule):
    """A schedule of one's own, of as many corners as there are epochs."""

    period: int = 100

    def at(self, epoch):
        return 1 + math.sin(2 * math.pi * epoch / self.period)

    @property
    def largest(self):
        return 2.0


@bt.spec
class WavingPrior(bt.Intervention):
    """Is on a schedule by default, which descriptions leave out."""

    strength: Schedule = Wave()

    def penalty(self, context, activations):
        return None


def run_of(recipe, end=END) -> Run:
    description, tensors = describe_config(TrainConfig(intervention=recipe))
    curves = pd.DataFrame(0.5, columns=COLUMNS, index=pd.Index(range(0, end + 1, 100), name="epoch"))
    return Run(description, tensors, {}, curves, end)


def runs_of(end=END, lr=(1e-3,), **arms):
    summaries = {}
    for name, rate, seed in itertools.product(arms, lr, range(2)):
        config = bt.runs.configure(intervention=arms[name], lr=rate, seed=seed)
        run = run_of(None, end)
        header = Header(describe_config(config)[0], "finished", end, 1.0, {})
        summaries[name, rate, seed] = RunSummary(header, run.curves)
    return assemble(summaries, axes=("intervention", "lr"))


def strips(figure: go.Figure) -> dict[str, list[go.Scatter]]:
    """The strips of a figure by name, which alone are filled down to zero."""
    found = [trace for trace in figure.data if trace.fill == "tozeroy"]
    return {name: [each for each in found if each.name == name] for name in dict.fromkeys(each.name for each in found)}


def words(figure: go.Figure) -> list[str]:
    return [each.text for each in figure.layout.annotations]


SCHEDULES = [
    bt.Anneal(2.0, 0.0, last=800),
    bt.Anneal(0.5, 1.5, first=300, last=5000),
    bt.Window(3.0, start=700, stop=750),
    bt.Window(0.1, start=1500),
    bt.Window(1.0, start=0, stop=1),
    bt.Window(1.0, start=END - 1),
    Wave(),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_a_strip_is_the_schedule_as_a_share_of_its_largest_value(schedule):
    figure = plot_run(run_of(bt.KLPrior(strength=schedule)))
    ((name, (strip,)),) = strips(figure).items()
    found = np.interp(range(END), strip.x, strip.y)
    np.testing.assert_allclose(found, [schedule.at(epoch) / schedule.largest for epoch in range(END)], atol=1e-8)
    assert (strip.x[0], strip.x[-1]) == (0, END)
    assert name == "KLPrior"
    assert f"KLPrior, at most {schedule.largest:g}" in words(figure)


def test_no_peak_of_a_schedule_of_many_corners_is_lost():
    values = np.random.default_rng(0).random(20_001)
    values[12_345] = 7.0
    at, shares = corners(values)
    assert len(at) <= MOST_POINTS + 1
    assert shares.max() == 7.0
    assert abs(at[shares.argmax()] - 12_345) <= 20_001 / MOST_POINTS + 1


@pytest.mark.parametrize("recipe", [None, bt.KLPrior(), bt.KLPrior(strength=bt.Window(1.0, start=END))], ids=repr)
def test_what_is_on_no_schedule_or_starts_too_late_changes_no_figure(recipe):
    plain, figure = plot_run(run_of(None)), plot_run(run_of(recipe))
    assert figure.data == plain.data
    assert figure.layout.update(title=None) == plain.layout.update(title=None)
    arms = {"one": None, "other": recipe}
    assert not strips(plot_arms(runs_of(**arms)))
    assert not strips(plot_runs({name: run_of(recipe) for name, recipe in arms.items()}))


def test_each_part_has_a_strip_named_by_what_it_is():
    recipe = (
        bt.KLPrior("uniform", strength=bt.Anneal(last=500))
        + bt.NormMatch(radius=30.0)
        + bt.MixedAttention(weight=bt.Window(0.5, start=100))
        + bt.GradientNoise(like=bt.KLPrior(strength=bt.Anneal(last=900)), fraction=bt.Window(2.0, start=50))
        + bt.KLPrior("uniform", strength=bt.Window(1.0, start=3))
        + WavingPrior()
    )
    figure = plot_run(run_of(recipe))
    assert set(strips(figure)) == {
        "KLPrior (target=uniform)", "MixedAttention, weight", "GradientNoise, KLPrior", "GradientNoise, fraction",
        "KLPrior (target=uniform) (2)", "WavingPrior",
    }  # fmt: skip
    assert len({trace.yaxis for (trace,) in strips(figure).values()}) == 6


def test_arms_with_schedules_have_strips_in_their_colours_and_the_others_none():
    arms = {"none": None, "early": bt.KLPrior(strength=bt.Window(1.0, stop=50)), "plain": bt.KLPrior()}
    for figure in (
        plot_arms(runs_of(**arms)),
        plot_runs({name: run_of(recipe) for name, recipe in arms.items()}),
        plot_accuracy(runs_of(**arms).sel(lr=1e-3), arms),
    ):
        assert list(strips(figure)) == ["early: KLPrior"]
        (strip,) = strips(figure)["early: KLPrior"]
        (line,) = {trace.line.color for trace in figure.data if trace.name == "early"}
        assert strip.line.color == line


def test_columns_of_a_sweep_have_strips_of_their_own_in_one_row():
    figure = plot_arms(runs_of(lr=(1e-3, 1e-2), none=None, late=bt.KLPrior(strength=bt.Window(1.0, start=900))))
    (pair,) = strips(figure).values()
    assert [strip.xaxis for strip in pair] == ["x", "x2"]
    domains = [figure.layout[strip.yaxis.replace("y", "yaxis")].domain for strip in pair]
    assert domains[0] == domains[1]


def test_strips_lie_below_the_first_panel_and_the_other_panels_keep_their_heights():
    two = bt.KLPrior(strength=bt.Anneal(last=500)) + bt.MixedAttention(weight=bt.Window(0.5, start=100))
    for plain, figure in (
        (plot_run(run_of(None)), plot_run(run_of(two))),
        (plot_arms(runs_of(one=None, two=None)), plot_arms(runs_of(one=None, two=two))),
        (plot_accuracy(runs_of(a=None).sel(lr=1e-3), ["a"]), plot_accuracy(runs_of(a=two).sel(lr=1e-3), ["a"])),
    ):
        pixels, before = (each.layout.height - each.layout.margin.t - each.layout.margin.b for each in (figure, plain))
        panels = sorted((axis for axis in plain.layout if axis.startswith("yaxis")), key=lambda axis: (len(axis), axis))
        for axis in panels:
            own, old = (np.array(each.layout[axis].domain) for each in (figure, plain))
            assert np.ptp(own) * pixels == pytest.approx(np.ptp(old) * before)
            assert own[1] in [note.y for note in figure.layout.annotations]  # its title stands on it
        assert figure.layout["yaxis"].domain[1] == 1
        below = [figure.layout[trace.yaxis.replace("y", "yaxis")].domain for (trace,) in strips(figure).values()]
        order = [figure.layout["yaxis"].domain, *below, *(figure.layout[axis].domain for axis in panels[1:])]
        assert all(upper[0] > lower[1] for upper, lower in itertools.pairwise(order))
        lowest = min(figure.layout, key=lambda name: figure.layout[name].domain[0] if name.startswith("yaxis") else 2)
        assert figure.layout.xaxis.anchor == lowest.replace("axis", "")
