"""What the pictures of a figure show: every arm, all of its training, and each name once."""

import numpy as np
import pytest
from stories import runs_of, story

from bayesticket.figures.style import PALETTE
from bayesticket.paper import fig1, fig2, fig3, fig5
from bayesticket.paper.figure import Scale

LAST = 10_000
COLUMNS = {
    f"explaining_away[{form}]": 1.0
    for form in ("measured", "local", "global", "loose", "paper", "measured/local", "local/global", "global/loose")
}
FIGURES = {
    "fig1": (fig1, list(fig1.LAYOUTS), 4),
    "fig2": (fig2, [fig2.name_of(norm, prior) for norm in fig2.NORMS for prior in fig2.PRIORS], 1),
    "fig3": (fig3, [fig3.strength_arm(layout, s) for layout in fig3.LAYOUTS for s in (0.0, *fig3.STRENGTHS)], 1),
    "fig5": (fig5, [str(name) for name in fig5.arms(Scale())], None),
}
"""Each figure, its arms, and in how many panels an arm is shown."""


def is_median(trace) -> bool:
    return trace.mode == "lines" and trace.fill is None and trace.line.width != 0


@pytest.fixture(scope="module")
def drawn():
    """The pictures of figures whose first arm alone groks, after which it is no longer trained."""
    return {
        name: module.draw(runs_of({arm: [story(grokked=None if place else 1800, **COLUMNS)] * 2
                                   for place, arm in enumerate(arms)}))
        for name, (module, arms, _) in FIGURES.items()
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


@pytest.mark.parametrize("name", ["fig1", "fig2", "fig3"])
def test_every_arm_is_in_its_panels(drawn, name):
    _, arms, panels = FIGURES[name]
    curves = next(figure for figure in drawn[name].values() if figure.layout.xaxis.range is not None)
    assert sum(map(is_median, curves.data)) == panels * len(arms)


def test_the_law_is_drawn_on_logarithms_with_a_mark_for_every_run():
    arms = {fig3.strength_arm(layout, strength): [story(grokked=int(1000 + 60 / strength) // 20 * 20), story()]
            for layout in fig3.LAYOUTS for strength in fig3.STRENGTHS}  # fmt: skip
    _, law = fig3.draw(
        runs_of(arms | {fig3.strength_arm(layout, 0.0): [story()] * 2 for layout in fig3.LAYOUTS})
    ).values()
    assert law.layout.xaxis.type == law.layout.yaxis.type == "log"
    marks = {(trace.marker.symbol, trace.showlegend): trace for trace in law.data if trace.mode == "markers"}
    assert set(marks) == {("circle", True), ("triangle-up-open", False)}
    for trace in marks.values():
        np.testing.assert_allclose(sorted(trace.x), sorted(1 / np.array(fig3.STRENGTHS)))
    assert {trace.marker.color for trace in law.data if trace.mode == "markers"} == set(PALETTE[: len(fig3.LAYOUTS)])
