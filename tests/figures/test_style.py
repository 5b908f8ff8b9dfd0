"""Arms can be told apart, also by colour-blind readers."""

import itertools

import numpy as np
import pytest
from figure_cases import VISIONS, seen_by

from bayesticket.figures import GREY, PALETTE, TEMPLATE, look, shades
from bayesticket.figures.style import OKABE_ITO


def closest(colours, vision):
    seen = [seen_by(colour, np.asarray(VISIONS[vision])) for colour in colours]
    return min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2))


@pytest.mark.parametrize("vision", VISIONS)
def test_fourteen_colours_can_be_told_apart_by_every_reader(vision):
    assert len(PALETTE) == 14
    assert PALETTE[:7] == OKABE_ITO
    assert closest(PALETTE, vision) > 16  # 2.3 is just noticeable


@pytest.mark.parametrize("vision", VISIONS)
def test_every_colour_has_contrast_on_white(vision):
    white = seen_by("#FFFFFF", np.asarray(VISIONS[vision]))
    assert all(white[0] - seen_by(colour, np.asarray(VISIONS[vision]))[0] > 20 for colour in PALETTE)


@pytest.mark.parametrize("n", [2, 7, 9, 10])
def test_shades_are_of_one_hue_and_can_be_told_apart(n):
    seen = np.array([seen_by(colour, np.eye(3)) for colour in shades(n)])
    assert (np.diff(seen[:, 0]) < -5).all(), "darker at every step"
    assert np.degrees(np.ptp(np.arctan2(seen[:, 2], seen[:, 1]))) < 25, "blue all the way"
    for vision in VISIONS:
        assert closest([GREY, *shades(n)], vision) > 6  # 2.3 is just noticeable


def test_plotly_colours_its_own_traces_like_arms():
    assert TEMPLATE.layout.colorway == PALETTE


def test_forty_two_arms_have_different_looks():
    looks = [look(place) for place in range(42)]
    assert len(set(looks)) == 42
    assert len({each.colour for each in looks[:14]}) == 14
    assert {each.symbol for each in looks[:7]} == {None}
    assert all(each.symbol for each in looks[7:])
    assert len({each.symbol for each in looks[7:13]}) == 6
