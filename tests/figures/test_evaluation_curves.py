"""The accuracy on other tasks in figures of a run and of arms, against what was recorded."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import bayesticket as bt
from bayesticket.figures import plot_arms, plot_run
from bayesticket.figures.style import TEST, TRAIN, UNSEEN
from bayesticket.sweeps import RunSummary, assemble

TASK = bt.ModularAddition(p=5)
LABELS = ("T=6", "T=7 <b>", "T=10, more")


@pytest.fixture(scope="module")
def evaluated() -> bt.Run:
    others = {label: bt.ModularAddition(p=5, n_distractors=n) for n, label in enumerate(LABELS, 2)}
    model = bt.Architecture(d_model=8, d_mlp=16, n_ctx=12)
    return bt.train(TASK, model=model, epochs=40, evaluate=others, progress=False)


def of_labels(run: bt.Run, n: int) -> bt.Run:
    """The run with the curves of the first evaluations alone."""
    dropped = [name for name in run.curves if str(name).partition("/")[0] in LABELS[n:]]
    return replace(run, curves=run.curves.drop(columns=dropped))


def panels_of(figure, values) -> list[tuple[str, str]]:
    """Axis and name of the curves that have these values."""
    return [(trace.yaxis, trace.name) for trace in figure.data if np.array_equal(trace.y, values)]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_run_shows_up_to_two_evaluations_beside_its_accuracy_and_more_in_a_panel(evaluated, n):
    run = of_labels(evaluated, n)
    figure, axis = plot_run(run), "y" if n <= 2 else "y2"
    names = ("T=6", "T=7 &lt;b&gt;", "T=10, more")
    for label, name in itertools.islice(zip(LABELS, names, strict=True), n):
        assert (axis, name) in panels_of(figure, run.curves[f"{label}/test_accuracy"])
    drawn = [trace for trace in figure.data if trace.name in names]
    assert len(drawn) == n
    assert len({trace.line.color for trace in drawn} | {TRAIN, TEST, UNSEEN}) == n + 3
    titles = [note.text for note in figure.layout.annotations]
    assert titles.count("<b>accuracy on other tasks</b>") == (n > 2)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_the_other_panels_of_a_run_keep_their_curves(evaluated, n):
    figure, titles = plot_run(of_labels(evaluated, n)), plot_run(of_labels(evaluated, 0)).layout.annotations
    headings = {note.text: place for place, note in enumerate(figure.layout.annotations, 1)}
    for column, title in (("informative_mass_mean", titles[1]), ("kl_to_oracle", titles[2]), ("test_loss", titles[3])):
        place = headings[title.text]
        assert panels_of(figure, evaluated.curves[column])[0][0] == f"y{place}"
    assert panels_of(figure, evaluated.curves["mlp_norm"])[0][0] == f"y{headings[titles[4].text]}"


def test_arms_have_a_panel_for_each_evaluation(evaluated):
    runs = assemble({("none", seed): RunSummary(evaluated.header(), evaluated.curves) for seed in range(2)})
    figure = plot_arms(runs)
    titles = [note.text for note in figure.layout.annotations]
    assert titles[:4] == [f"<b>accuracy{on}</b>" for on in ("", " on T=6", " on T=7 &lt;b&gt;", " on T=10, more")]
    for place, label in enumerate(LABELS, 2):
        curve = evaluated.curves[f"{label}/test_accuracy"]
        assert (f"y{place}", "none") in panels_of(figure, curve)
    assert len(titles) == 7
