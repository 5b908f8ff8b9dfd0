"""Two arms against each other: every permutation, every resample, and scipy on many runs."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from arms import PLACEBO, TREATED, draw, median_of, times
from helpers import properties, seeds
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesticket.analysis import (
    Comparison,
    Estimate,
    Times,
    compare_times,
    log_rank_excess,
    log_rank_p,
    log_rank_trend,
    median_time,
    ratio_of_medians,
)
from bayesticket.errors import BayesticketError

# --- the log-rank test ---


def exact_p(one, other):
    """The p-value over all permutations, with the log-rank numerator as an exact fraction."""
    runs = [
        (int(epoch), bool(reached))
        for arm in (one, other)
        for epoch, reached in zip(arm.epochs, arm.reached, strict=True)
    ]

    def numerator(mine):
        total = Fraction(0)
        for epoch in {epoch for epoch, reached in runs if reached}:
            at_risk = [i for i, (other, _) in enumerate(runs) if other >= epoch]
            grokked = [i for i in at_risk if runs[i] == (epoch, True)]
            observed = len(set(grokked) & mine)
            total += observed - Fraction(len(grokked) * len(set(at_risk) & mine), len(at_risk))
        return abs(total)

    seen = numerator(set(range(len(one))))
    ways = [numerator(set(mine)) for mine in itertools.combinations(range(len(runs)), len(one))]
    return sum(way >= seen for way in ways) / len(ways)


@given(seed=seeds, n=st.integers(1, 4), m=st.integers(1, 4))
@properties
def test_a_trend_over_two_arms_is_the_log_rank_test(seed, n, m):
    generator = np.random.default_rng(seed)
    one, other = draw(generator, n), draw(generator, m)
    excess, p = log_rank_trend([one, other])
    assert excess == pytest.approx(log_rank_excess(other, one), abs=1e-6)
    assert p == pytest.approx(exact_p(one, other), abs=0.02)


def test_a_trend_needs_an_order_and_survives_censoring():
    early, middle, late = (Times.of([epoch + k for k in range(5)], [500] * 5) for epoch in (100, 200, 300))
    never = Times.of([None] * 5, [500] * 5)
    assert log_rank_trend([never, late, middle, early])[1] < 0.001
    excess, p = log_rank_trend([early, middle, late, never])
    assert excess < 0
    assert p < 0.001
    assert log_rank_trend([early, late, late, early])[1] > 0.2
    assert log_rank_trend([never, never]) == (0.0, 1.0)


@given(seed=seeds, n=st.integers(1, 4), m=st.integers(1, 4))
@properties
def test_log_rank_by_hand(seed, n, m):
    generator = np.random.default_rng(seed)
    one, other = draw(generator, n), draw(generator, m)
    assert log_rank_p(one, other) == pytest.approx(exact_p(one, other), abs=1e-12)
    assert log_rank_p(one, other) == log_rank_p(other, one)


@given(seed=seeds)
@settings(deadline=None, max_examples=15, derandomize=True)
def test_log_rank_of_many_runs_is_scipys(seed):
    generator = np.random.default_rng(seed)
    arms = [scale * generator.exponential(size=60) for scale in (1.0, 1.4)]
    one, other = (Times(epochs.clip(None, 1.5), epochs <= 1.5) for epochs in arms)
    samples = [
        scipy.stats.CensoredData(arm.epochs[arm.reached], right=arm.epochs[~arm.reached]) for arm in (one, other)
    ]
    assert log_rank_p(one, other, resamples=5000) == pytest.approx(scipy.stats.logrank(*samples).pvalue, abs=0.03)


def test_log_rank_of_the_textbook():
    """Gehan's data: chi² = 16.8, p = 0.00004; none of 2,000 exchanges is as extreme."""
    assert log_rank_p(times(*TREATED), times(*PLACEBO), resamples=2000) == 1 / 2001


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_the_least_p(n):
    fast, slow = times(*range(1, n + 1)), times(*[-99] * n)
    assert log_rank_p(fast, slow) == pytest.approx(2 / math.comb(2 * n, n))


def test_no_evidence_has_p_1():
    never = times(-9, -9, -9)
    assert log_rank_p(never, never) == 1
    assert log_rank_p(never, times(-20, -30, -40)) == 1
    assert log_rank_p(times(1, 2, 3), times(1, 2, 3)) == 1
    assert log_rank_p(times(5, 5, 5), times(5, 5)) == 1
    assert log_rank_p(never, times(12, 13, 14)) == 1  # these grokked after the others were no longer watched


def test_the_sign_of_the_excess_says_which_arm_is_earlier():
    early, late = times(1, 2, 3), times(4, 5, -6)
    assert log_rank_excess(early, late) > 0 > log_rank_excess(late, early)
    assert log_rank_excess(early, late) == pytest.approx(-log_rank_excess(late, early))
    assert log_rank_excess(early, early) == pytest.approx(0)
    # by hand: 3 runs grok, of which 3/6, 2/5 and 1/4 were expected in the first arm
    assert log_rank_excess(early, late) == pytest.approx(3 - (3 / 6 + 2 / 5 + 1 / 4))


def test_a_run_censored_when_another_groks_was_at_risk_then():
    assert log_rank_excess(times(5), times(-5)) == pytest.approx(1 - 1 / 2)
    assert log_rank_excess(times(5), times(-4)) == pytest.approx(0)
    assert log_rank_excess(times(5), times(5)) == pytest.approx(0)


def test_permutations_are_drawn_only_above_the_number_given():
    """Of two against two there are six, of which two are as extreme."""
    one, other = times(1, 2), times(3, 4)
    assert log_rank_p(one, other, resamples=6) == 2 / 6
    drawn = [log_rank_p(one, other, resamples=5, seed=seed) for seed in range(20)]
    assert len(set(drawn)) > 1
    assert all((6 * p).is_integer() for p in drawn)  # what was seen counts as one of six
    assert min(drawn) >= 1 / 6


def test_twenty_thousand_permutations_are_drawn_unless_told_otherwise():
    generator = np.random.default_rng(0)
    one, other = draw(generator, 9), draw(generator, 9)
    p = log_rank_p(one, other)  # 48,620 permutations
    assert p == log_rank_p(one, other, seed=0)
    assert 0 < p < 1
    assert p * 20_001 == pytest.approx(round(p * 20_001), abs=1e-9)


# --- ratios ---


def bounds(arm):
    """The least and the most that the median can be."""
    median = median_of(arm)
    return (max(arm.epochs), math.inf) if median is None else (median, median)


@given(seed=seeds, paired=st.booleans())
@settings(deadline=None, max_examples=12, derandomize=True)
def test_ratio_against_every_resample(seed, paired):
    """At most 2.5 % of all the ways to draw seeds lie beyond an end, up to what 4,000 draws of them can tell."""
    generator = np.random.default_rng(seed)
    n = 4 if paired else 3
    one, other = draw(generator, n, censored=0.3), draw(generator, n, censored=0.3)
    draws = [list(drawn) for drawn in itertools.product(range(n), repeat=n)]
    sides = [[bounds(Times(arm.epochs[i], arm.reached[i])) for i in draws] for arm in (one, other)]
    both = zip(*sides, strict=True) if paired else itertools.product(*sides)
    least, most = np.array([(low / other_high, high / other_low) for (low, high), (other_low, other_high) in both]).T

    found = ratio_of_medians(one, other, paired=paired, resamples=4000, seed=seed % 1000)
    high = math.inf if found.high is None else found.high
    assert np.mean(least < found.low) < 0.035
    assert np.mean(least <= found.low) > 0.015
    assert np.mean(most > high) < 0.035
    assert np.mean(most >= high) > 0.015
    medians = median_of(one), median_of(other)
    assert found.value == (None if None in medians else pytest.approx(medians[0] / medians[1]))


def test_pairing_takes_out_what_seeds_share():
    one = times(800, 900, 1300, 700, 2000)
    twice = times(1600, 1800, 2600, 1400, 4000)
    assert ratio_of_medians(twice, one) == Estimate(2, 2, 2)
    apart = ratio_of_medians(twice, one, paired=False)
    assert apart.low < 1.3
    assert apart.high > 3


def test_ratio_to_an_arm_that_never_groks():
    fast, never = times(800, 900, 850, 870, 910), times(*[-5000] * 5)
    assert ratio_of_medians(never, fast) == Estimate(None, 5000 / 910, None)
    assert ratio_of_medians(fast, never) == Estimate(None, 0, 910 / 5000)
    assert ratio_of_medians(never, never) == Estimate(None, 0, None)


def test_one_run_gives_no_interval():
    assert ratio_of_medians(times(600), times(200)) == Estimate(3, None, None)
    assert ratio_of_medians(times(600), times(200, 300, 400), paired=False) == Estimate(2, None, None)


def test_resamples_that_are_not_reached_open_the_interval():
    one, other = times(100, 110, 120, -500, -500), times(100, 100, 100, 100, 100)
    assert ratio_of_medians(one, other) == Estimate(1.2, 1, None)
    closed = ratio_of_medians(times(100, 110, 120), times(100, 100, 100))  # what dropping the censored would claim
    assert closed.high == 1.2


def test_ratios_are_refused_where_they_mean_nothing():
    with pytest.raises(BayesticketError, match=r"^paired: got True; accepted: False, for arms of 2 and 3 runs"):
        ratio_of_medians(times(1, 2), times(1, 2, 3))
    assert ratio_of_medians(times(1, 2), times(1, 2, 3), paired=False).value == 0.5
    with pytest.raises(BayesticketError, match=r"^other: got \[0.0\]; accepted: epochs above 0"):
        ratio_of_medians(times(1), Times.of([0], [9]))


def test_the_same_seed_gives_the_same_interval():
    drawn = np.random.default_rng(0).integers(100, 3000, size=(2, 7)).tolist()
    one, other = (times(*epochs) for epochs in drawn)
    assert ratio_of_medians(one, other, resamples=50, seed=3) == ratio_of_medians(one, other, resamples=50, seed=3)
    found = {ratio_of_medians(one, other, resamples=50, seed=seed).high for seed in range(20)}
    assert len(found) > 1


def test_resampling_is_checked():
    for options in ({"resamples": 0}, {"seed": -1}):
        for call in (log_rank_p, ratio_of_medians):
            with pytest.raises(BayesticketError, match=f"^{next(iter(options))}: got"):
                call(times(1), times(2), **options)


def test_the_percentiles_are_order_statistics():
    """Two pairs draw (1, 1), (1, 2), (2, 1) or (2, 2): a quarter of the resamples has the greater ratio."""
    one, other = times(100, 300), times(100, 100)
    assert ratio_of_medians(one, other, confidence=0.9) == Estimate(1, 1, 3)
    assert ratio_of_medians(one, other, confidence=0.4) == Estimate(1, 1, 1)  # 30 % outside at either end
    assert ratio_of_medians(other, one, confidence=0.9) == Estimate(1, 100 / 300, 1)
    # with one or two resamples the ends are the least and the greatest of them
    ends = [ratio_of_medians(one, other, resamples=1, seed=seed) for seed in range(8)]
    assert {(end.low, end.high) for end in ends} == {(1, 1), (3, 3)}
    ends = [ratio_of_medians(one, other, resamples=2, seed=seed) for seed in range(12)]
    assert {(end.low, end.high) for end in ends} == {(1, 1), (1, 3), (3, 3)}


# --- both at once ---


def test_a_comparison_reads_in_one_line():
    comparison = Comparison(
        names=("kl", "none"),
        medians=(Estimate(1300, 1200, None), Estimate(6160, 5900, None)),
        grokked=(5, 4),
        runs=(5, 6),
        ratio=Estimate(0.211, 0.19, None),
        p=0.00794,
    )
    shown = (
        "kl 1,300 [1,200, open] (5 of 5) against none 6,160 [5,900, open] (4 of 6): "
        "ratio 0.211 [0.19, open], log-rank p = 0.0079"
    )
    assert str(comparison) == repr(comparison) == shown


@given(seed=seeds, n=st.integers(1, 6), confidence=st.sampled_from([0.8, 0.95]))
@settings(deadline=None, max_examples=15, derandomize=True)
def test_a_comparison_says_what_its_parts_say(seed, n, confidence):
    generator = np.random.default_rng(seed)
    one, other = draw(generator, n), draw(generator, n)
    comparison = compare_times(one, other, names=("a", "b"), confidence=confidence)
    assert comparison.names == ("a", "b")
    assert comparison.medians == (median_time(one, confidence), median_time(other, confidence))
    assert comparison.ratio == ratio_of_medians(one, other, confidence=confidence)
    assert comparison.p == log_rank_p(one, other)
    assert comparison.grokked == (one.reached.sum(), other.reached.sum())
    assert comparison.runs == (n, n)


def test_a_run_that_grokked_at_epoch_0_leaves_no_ratio():
    at_once, later = Times.of([0, 2, 3], trained=[9] * 3), Times.of([4, 5, 6], trained=[9] * 3)
    for one, other in ((at_once, later), (later, at_once)):
        comparison = compare_times(one, other)
        assert comparison.ratio is None
        assert "ratio not defined, as a run grokked at epoch 0" in str(comparison)
        assert comparison.p == log_rank_p(one, other)


def test_arms_of_other_seeds_are_compared_unpaired():
    one, other = times(1, 2, 3), times(4, 5)
    comparison = compare_times(one, other, paired=False)
    assert comparison.ratio == ratio_of_medians(one, other, paired=False)
    assert comparison.runs == comparison.grokked == (3, 2)
    with pytest.raises(BayesticketError, match=r"^paired: got True"):
        compare_times(one, other)
