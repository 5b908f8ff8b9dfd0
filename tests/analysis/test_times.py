"""Grokking times and their medians against textbook answers, plain loops and simulated runs."""

import math

import numpy as np
import pytest
import scipy.stats
from arms import PLACEBO, TREATED, contains, draw, median_of, product_limit, times
from helpers import properties, seeds
from hypothesis import given
from hypothesis import strategies as st

from bayesticket.analysis import Estimate, Times, median_time, power_law, ratio_of_medians
from bayesticket.errors import BayesticketError

# --- estimates and times ---


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (Estimate(1300, 1200, 1440), "1,300 [1,200, 1,440]"),
        (Estimate(1300.4, 1200, None), "1,300 [1,200, open]"),
        (Estimate(None, 10_000, None), "not reached [10,000, open]"),
        (Estimate(None, None, None), "not reached"),
        (Estimate(99.97, 99.91, 999.6), "100 [99.9, 1,000]"),
        (Estimate(-0.98765, -1.2345, 0.0), "-0.988 [-1.23, 0]"),
        (Estimate(0.99, None, None), "0.99"),
    ],
)
def test_estimates_read_well(given, shown):
    assert str(given) == shown


def test_a_run_that_never_groks_is_kept_at_its_last_epoch():
    arm = Times.of([700, None, 900], [5000, 4000, 900])
    assert arm.epochs.tolist() == [700, 4000, 900]
    assert arm.reached.tolist() == [True, False, True]
    assert len(arm) == 3


@pytest.mark.parametrize(
    ("reached", "trained", "field"),
    [
        ([700], [5000, 5000], "trained"),
        ([700], [600], "reached"),
        ([-1], [600], "reached"),
        ([None], [-1], "trained"),
        ([], [], "epochs"),
    ],
)
def test_impossible_times_are_refused(reached, trained, field):
    with pytest.raises(BayesticketError, match=f"^{field}: got"):
        Times.of(reached, trained)


def test_impossible_arrays_are_refused():
    for epochs in ([math.nan, 1.0], [math.inf, 1.0], [-1.0, 1.0]):
        with pytest.raises(BayesticketError, match=r"^epochs: got"):
            Times(np.array(epochs), np.array([True, True]))


# --- medians ---


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("arm", [times(5), times(-5), times(5, 5, 5), times(3, 5, -8), times(-3, 5, 8)])
def test_nobody_is_warned_of_what_arises_at_the_ends_of_the_curve(arm):
    median_time(arm)


def test_median_of_the_textbook():
    assert median_time(times(*TREATED)) == Estimate(23, 13, None)
    assert median_time(times(*PLACEBO)) == Estimate(8, 4, 11)


@given(seed=seeds, n=st.integers(1, 12), ties=st.booleans())
@properties
def test_median_against_the_product_limit(seed, n, ties):
    arm = draw(np.random.default_rng(seed), n, ties=ties)
    found = median_time(arm)
    assert found.value == median_of(arm)
    for end in (found.low, found.high):
        assert end is None or end in {0.0, *arm.epochs.tolist()}
    if found.value is not None:
        assert contains(found, found.value)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 24, 28, 30])
def test_median_of_runs_that_all_grok_is_the_middle_one(n):
    """Also of 24, 28 and 30, whose product of fractions comes out above a half by a rounding error."""
    arm = times(*range(1, n + 1))
    assert median_time(arm).value == (n + 1) // 2


@given(seed=seeds, n=st.integers(12, 40), confidence=st.sampled_from([0.8, 0.95, 0.99]))
@properties
def test_interval_against_the_band_by_hand(seed, n, confidence):
    """With twelve runs or more, and no curve at 0, the ends come from the log-log band alone."""
    arm = draw(np.random.default_rng(seed), n, ties=False, censored=0.3)
    arm = Times(np.append(arm.epochs, 2e6), np.append(arm.reached, False))
    z = scipy.stats.norm.ppf((1 + confidence) / 2)
    low = high = None
    variance = 0.0
    for epoch, survival in product_limit(arm):
        at_risk = (arm.epochs >= epoch).sum()
        grokked = ((arm.epochs == epoch) & arm.reached).sum()
        variance += grokked / (at_risk * (at_risk - grokked)) if grokked else 0.0
        if survival == 1:
            continue
        width = z * math.sqrt(variance) / abs(math.log(survival))
        if low is None and survival ** math.exp(width) <= 0.5:
            low = epoch
        if high is None and survival ** math.exp(-width) <= 0.5:
            high = epoch
    found = median_time(arm, confidence)
    assert found.high == high
    assert found.low == (arm.epochs.max() if low is None else low)


def test_what_few_runs_can_say():
    five, six = times(1, 2, 3, 4, 5), times(1, 2, 3, 4, 5, 6)
    assert median_time(five) == Estimate(3, 1, None)
    assert median_time(five, 0.9) == Estimate(3, 1, 5)
    assert median_time(times(1, 2, 3, 4, -9), 0.9) == Estimate(3, 1, None)
    assert median_time(six) == Estimate(3, 1, 6)
    assert median_time(times(1, 2, 3, 4)) == Estimate(2, 0, None)
    assert median_time(times(7)) == Estimate(7, 0, None)
    assert median_time(times(7, 7, 7, 7, 7, 7)) == Estimate(7, 7, 7)
    # six, of which one left before the others grokked, are no more than five at the upper end
    assert median_time(times(-1, 2, 3, 4, 5, 6)) == Estimate(4, 1, None)
    # one run covers the median from 0 upwards with certainty, from its own time upwards with probability 1/2
    assert median_time(times(7), 0.5) == Estimate(7, 0, None)
    assert median_time(times(7), 0.3) == Estimate(7, 7, None)


@pytest.mark.parametrize(
    ("arm", "median"),
    [
        (times(1, 2), 1),  # S falls from 1 to exactly 1/2 at the first of two
        (times(1, 2, 3, 4), 2),
        (times(1, 1, 3, 4), 1),  # exactly 1/2 by two runs at once
        (times(1, 2, 2, 4), 2),
        (times(3, 3, -3, -3), 3),
        (times(1, 2, -2, -2, -2), None),  # 3/5, and nobody is watched any more
        (times(1, 2, -9, -9), 2),  # exactly 1/2 for good
        (times(1, -9, -9), None),
        (times(-1, 2, 3), 2),
        (times(-2, 2, 3), 3),  # a run censored at 2 was at risk at 2: 2/3; had it left before, 1/2
        (times(-2, -2, 2, 3), 3),
        (times(2, -2, 3), 3),
        (times(-1, -1, -1, 5), 5),
    ],
)
def test_the_median_where_runs_tie_with_a_half_with_each_other_and_with_censoring(arm, median):
    found = median_time(arm)
    assert found.value == median_of(arm) == median
    assert median_time(Times(arm.epochs[::-1].copy(), arm.reached[::-1].copy())) == found


def test_when_more_than_half_is_censored():
    assert median_time(times(1, 2, -9, -9)) == Estimate(2, 0, None)
    assert median_time(times(1, 2, -9, -9, -9)) == Estimate(None, 1, None)
    assert median_time(times(-9, -9, -9, -9, -9)) == Estimate(None, 9, None)
    assert median_time(times(-9)) == Estimate(None, 0, None)
    # a run stopped early says nothing of the time after: the other four are too few
    assert median_time(times(-2, -9, -9, -9, -9)) == Estimate(None, 2, None)


@pytest.mark.parametrize("end", [math.inf, 1.25, 0.95])
@pytest.mark.parametrize(
    ("n", "confidence", "least"), [(5, 0.95, 0.95), (5, 0.9, 0.9), (8, 0.95, 0.93), (12, 0.95, 0.93)]
)
def test_intervals_of_the_median_cover_it(n, confidence, least, end):
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        epochs = np.exp(0.3 * generator.standard_normal(n))  # a median of 1
        covered += contains(median_time(Times(epochs.clip(None, end), epochs <= end), confidence), 1.0)
    assert covered / 200 > least - 0.03


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, math.nan])
def test_confidence_is_checked(confidence):
    calls = [
        lambda: median_time(times(1, 2, 3), confidence),
        lambda: ratio_of_medians(times(1, 2), times(1, 2), confidence=confidence),
        lambda: power_law([0.1, 1, 10], [times(9, 8), times(7, 6), times(5, 4)], floor=False, confidence=confidence),
    ]
    for call in calls:
        with pytest.raises(BayesticketError, match=r"^confidence: got"):
            call()
