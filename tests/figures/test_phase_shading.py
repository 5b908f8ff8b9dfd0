"""The shading is that of the run's phases, and their names are readable."""

import itertools

import numpy as np
import pytest
from figure_cases import EPOCHS, PLOTS, STORY, VISIONS, made, seen_by, traces
from hypothesis import given
from hypothesis import strategies as st

from bayesticket.figures import plot_bounds
from bayesticket.figures.phases import STRIP, TINTS, phases_of, place_names


@pytest.mark.parametrize("name", ["bounds", "gradients", "capacity"])
def test_the_shading_is_that_of_the_phases(name):
    run = made(STORY | {"explaining_away[measured]": EPOCHS + 1.0, "mlp_norm": EPOCHS + 1.0, "train_loss": 1.0})
    spans = run.phases().spans(0, run.epoch)
    assert list(spans) == ["memorisation", "plateau", "resurgence", "grokking"]
    figure = PLOTS[name](run)
    shapes = figure.layout.shapes
    axes = [axis.replace("yaxis", "y") for axis in figure.layout.to_plotly_json() if axis.startswith("yaxis")]
    for axis in axes:
        own = [shape for shape in shapes if shape.yref == f"{axis} domain"]
        assert {shape.name: (shape.x0, shape.x1) for shape in own} == spans
        assert {shape.name: shape.fillcolor for shape in own} == TINTS
        assert {(shape.y0, shape.y1) for shape in own} == {(0, 1)}
    strip = [shape for shape in shapes if shape.yref == "paper"]
    assert {shape.name: (shape.x0, shape.x1) for shape in strip} == spans
    assert all(1 < shape.y0 < shape.y1 for shape in strip)
    assert len(shapes) == len(spans) * (len(axes) + 1)
    assert {shape.layer for shape in shapes} == {"below"}
    names = {note.text: note.x for note in figure.layout.annotations if note.text in spans}
    assert all(spans[phase][0] <= at <= spans[phase][1] for phase, at in names.items())
    assert list(names) == list(spans)
    assert str(run.phases()) in figure.layout.title.subtitle.text
    assert f"by training loss and the MLP's norm: {run.phases('norm')}" in figure.layout.title.subtitle.text


def test_a_run_without_the_curves_of_phases_is_not_shaded():
    run = made({"explaining_away[measured]": EPOCHS + 1.0})
    assert phases_of(run) is None
    figure = plot_bounds(run)
    assert not figure.layout.shapes
    assert np.array_equal(traces(figure)["measured"].y, EPOCHS + 1.0)


@given(
    borders=st.lists(st.integers(1, 999), min_size=3, max_size=3, unique=True).map(sorted),
)
def test_names_of_phases_do_not_overlap(borders):
    spans = dict(zip(TINTS, itertools.pairwise([0, *borders, 1000]), strict=True))
    placed = place_names(spans, 1000)
    assert [name for name, *_ in placed] == list(spans)
    taken: dict[int, float] = {}
    shift = {"left": 0.0, "center": 0.5, "right": 1.0}
    for name, at, anchor, line in placed:
        width = 7 * len(name) / 850
        begins = at - shift[anchor] * width
        assert begins >= taken.get(line, 0) - 1e-9, (name, line)
        taken[line] = begins + width
        assert taken[line] <= 1 + 1e-9
        inside = spans[name][0] / 1000 <= begins and begins + width <= spans[name][1] / 1000
        assert (line == 0) <= inside, "on the strip only where the phase has room"


@pytest.mark.parametrize("vision", VISIONS)
def test_colour_blind_readers_can_tell_the_phases(vision):
    for colours, least in ((TINTS, 4), (STRIP, 14)):  # 2.3 is just noticeable
        seen = [seen_by(colour, np.asarray(VISIONS[vision])) for colour in colours.values()]
        assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > least
