"""Early signs are asked of runs that have memorised, are at chance, and whose outcome is known."""

import numpy as np
import pytest
from stories import line, story

from bayesticket.paper.early import EPOCH, Life, tells, told


def rising_to(unseen, grokked=None, **columns):
    return story(grokked=grokked, unseen_accuracy=unseen, **columns)


@pytest.mark.parametrize(
    ("curves", "asked"),
    [
        (story(grokked=5000), True),
        (story(), True),
        (story(memorised=None), False),
        (story(memorised=3000, grokked=5000), False),
        (rising_to(line((1000, 0.0), (1500, 0.5), (5000, 1.0)), grokked=5000), False),
        (rising_to(line((3000, 0.0), (9000, 0.6))), False),
    ],
    ids=["groks", "at chance", "never memorises", "not yet", "has begun", "might still grok"],
)
def test_which_runs_are_asked(curves, asked):
    assert Life.of(curves).is_asked(EPOCH) == asked


def test_a_rise_is_against_the_first_records():
    assert Life.of(story(commutator_defect=line((2000, 100.0), (2020, 1000.0)))).risen == 2020
    assert Life.of(story(commutator_defect=line((2000, 100.0), (2020, 999.0)))).risen is None
    spike = story(commutator_defect=lambda epochs: np.where(epochs == 0, 1000.0, 100.0))
    assert Life.of(spike).risen is None
    unknown = story(commutator_defect=lambda epochs: np.where(epochs < 40, np.nan, np.where(epochs < 900, 1.0, 10.0)))
    assert Life.of(unknown).risen == 900


def lives(n_seeds, groks):
    """Runs of one setting whose norm tells perfectly which of them grok."""
    found = []
    for seed in range(n_seeds):
        curves = story(grokked=5000 if groks(seed) else None, mlp_norm=30.0 if groks(seed) else 40.0)
        found.append(("one setting", seed, Life.of(curves), curves))
    return found


def test_a_perfect_sign_needs_six_seeds_of_either_kind():
    for n_seeds, expected in ((10, "undecided"), (12, "reproduced")):
        found = told(lives(n_seeds, lambda seed: seed % 2 == 0), "mlp_norm")
        assert (found.value, tells(found)) == (0.0, expected)
    assert told(lives(12, lambda seed: True), "mlp_norm") is None
    assert told([], "mlp_norm") is None
    assert tells(None) == "undecided"


def test_a_sign_that_is_the_same_in_all_runs_tells_nothing():
    for n_seeds, expected in ((10, "undecided"), (12, "not reproduced")):
        assert tells(told(lives(n_seeds, lambda seed: seed % 2 == 0), "train_loss")) == expected
