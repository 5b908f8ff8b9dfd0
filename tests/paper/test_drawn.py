"""What the pictures of a figure show: every arm, all of its training, and each name once."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from stories import runs_of, story
from worlds import every_arm

from bayesticket.figures.arms import add_band
from bayesticket.figures.style import PALETTE
from bayesticket.paper import MODULES, find_figure
from bayesticket.paper.arms import LAYOUTS
from bayesticket.paper.strengths import STRENGTHS, plot_law, strength_arm

LAST = 10_000
PANELS = {"fig1": 7, "fig2": 1, "fig3": 1}
"""In how many panels an arm is shown."""
FIGURES = [name for name in MODULES if name not in ("controls", "equation9", "specification", "early")]


def is_median(trace) -> bool:
    return trace.mode == "lines" and trace.fill is None and trace.line.width != 0


@pytest.fixture(scope="module")
def drawn():
    """The pictures of figures whose first arm alone groks, after which it is no longer trained."""
    return {
        name: find_figure(name).draw(
            runs_of({arm: [story(grokked=None if place else 1800)] * 2
                     for place, arm in enumerate(every_arm(find_figure(name)))})
        )
        for name in FIGURES
    }  # fmt: skip


@pytest.mark.parametrize("name", FIGURES)
def test_the_epochs_go_on_to_the_end_of_the_longest_run(drawn, name):
    curves = next(figure for figure in drawn[name].values() if figure.layout.xaxis.range is not None)
    assert {tuple(axis.range) for axis in curves.select_xaxes() if axis.range is not None} == {(0, LAST)}


@pytest.mark.parametrize("name", FIGURES)
def test_a_name_stands_once_in_a_legend(drawn, name):
    for figure in drawn[name].values():
        shown = [trace.name for trace in figure.data if trace.showlegend is not False]
        assert len(shown) == len(set(shown)), shown


@pytest.mark.parametrize("name", PANELS)
def test_every_arm_is_in_its_panels(drawn, name):
    arms, panels = every_arm(find_figure(name)), PANELS[name]
    curves = next(figure for figure in drawn[name].values() if figure.layout.xaxis.range is not None)
    assert sum(map(is_median, curves.data)) == panels * len(arms)


def test_the_law_is_drawn_on_logarithms_with_a_mark_for_every_run():
    arms = {strength_arm(layout, strength): [story(grokked=int(1000 + 60 / strength) // 20 * 20), story()]
            for layout in LAYOUTS for strength in STRENGTHS}  # fmt: skip
    law = plot_law(runs_of(arms | {strength_arm(layout, 0.0): [story()] * 2 for layout in LAYOUTS}))
    assert law.layout.xaxis.type == law.layout.yaxis.type == "log"
    marks = {(trace.marker.symbol, trace.showlegend): trace for trace in law.data if trace.mode == "markers"}
    assert set(marks) == {("circle", True), ("triangle-up-open", False)}
    for trace in marks.values():
        np.testing.assert_allclose(sorted(trace.x), sorted(1 / np.array(STRENGTHS)))
    assert {trace.marker.color for trace in law.data if trace.mode == "markers"} == set(PALETTE[: len(LAYOUTS)])


def test_an_arm_has_no_steps_where_another_recorded_more_often():
    tables = {
        name: pd.DataFrame({"train_loss": np.linspace(1, 0, len(epochs))}, pd.Index(epochs, name="epoch"))
        for name, epochs in (("often", range(0, 41, 10)), ("seldom", range(0, 41, 20)))
    }
    runs, figure = runs_of({name: [table] for name, table in tables.items()}), go.Figure()
    add_band(figure, runs, "seldom", "train_loss", panel=1, colour=PALETTE[0])
    assert [(list(trace.x), list(trace.y)) for trace in figure.data] == [([0, 20, 40], [1.0, 0.5, 0.0])] * 3
