"""How arms are compared by their grokking times, and what is said and drawn of them."""

import pytest

from bayesticket.analysis import Times, log_rank_excess, log_rank_p
from bayesticket.figures import PALETTE
from bayesticket.paper.figure import verdict_of_share
from bayesticket.paper.times import SIGNIFICANT, earlier, plot_times, share

END = 5000


def times(*epochs):
    return Times.of(epochs, [END] * len(epochs))


LATE = times(*range(1000, 3000, 100))
NEVER = times(*[None] * 18)


def test_the_arm_that_groks_first_is_earlier_however_few_its_runs():
    first = times(200, 300, 310, 320, 330)
    assert log_rank_p(first, NEVER) < SIGNIFICANT
    assert 0 < log_rank_excess(first, NEVER) < 5
    assert earlier(first, NEVER) == "reproduced"
    assert earlier(NEVER, first) == "not reproduced"


def test_a_p_at_the_level_decides_nothing():
    alone, others = times(4000), times(*range(1000, 2900, 100))
    assert log_rank_p(alone, others) == pytest.approx(SIGNIFICANT, abs=1e-12)
    assert earlier(alone, others) == "undecided"
    four, late = times(200, 210, 220, 230), times(1000, 1010, 1020, 1030)
    assert log_rank_p(four, late) < SIGNIFICANT
    assert earlier(four, late) == "undecided", "nothing is judged on fewer than five"
    assert earlier(LATE, LATE) == "undecided"


@pytest.mark.parametrize(
    ("n", "of", "expected"),
    [(5, 5, "reproduced"), (3, 5, "partly"), (2, 5, "not reproduced"), (3, 6, "partly"), (4, 4, "undecided")],
)
def test_half_of_the_runs_are_partly(n, of, expected):
    assert verdict_of_share(n, of) == expected


def test_an_arm_in_words():
    assert share(times(1000, None, 3000)).startswith("2 of 3 runs grokked, median 3,000 [")
    assert share(times(None, None)) == "none of 2 runs grokked"


def test_every_run_is_a_mark_and_only_a_median_that_is_reached_is_a_bar():
    figure = plot_times({"some": times(1000, 1200, None), "none": times(None, None)})
    grokked, censored, *others = figure.data
    assert list(grokked.x) == [1000, 1200]
    assert list(censored.x) == [END]
    assert {trace.marker.color for trace in (grokked, *others[::2]) if len(trace.x)} == {PALETTE[0]}
    assert censored.marker.color == PALETTE[1]
    for trace in figure.data:
        for place in trace.y:
            assert abs(place - round(place)) < 0.3, "a run stands in the row of its arm"
    assert [list(trace.x) for trace in others] == [[], [END, END]]
    assert [shape.x0 for shape in figure.layout.shapes] == [1200]
    assert list(figure.layout.yaxis.ticktext) == ["some", "none"]
