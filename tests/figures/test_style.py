"""Arms can be told apart, also by colour-blind readers."""

import itertools

import numpy as np
import pytest
from figure_cases import VISIONS, seen_by

from bayesticket.figures import PALETTE, TEMPLATE, look
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


def test_plotly_colours_its_own_traces_like_arms():
    assert TEMPLATE.layout.colorway == PALETTE


def test_forty_two_arms_have_different_looks():
    looks = [look(place) for place in range(42)]
    assert len(set(looks)) == 42
    assert len({each.colour for each in looks[:14]}) == 14
    assert {each.symbol for each in looks[:7]} == {None}
    assert all(each.symbol for each in looks[7:])
    assert len({each.symbol for each in looks[7:13]}) == 6
