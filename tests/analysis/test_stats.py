"""Statistics of grokking times against textbook answers, plain loops, closed forms and simulated runs."""

import itertools
import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesticket.analysis import Estimate, PowerLaw, Times, compare, median_time, power_law, ratio_of_medians
from bayesticket.errors import BayesticketError

properties = settings(deadline=None, max_examples=60, derandomize=True)
seeds = st.integers(0, 2**31)

# Weeks of remission under 6-mercaptopurine and placebo (Freireich et al. 1963; Gehan 1965); minus marks censoring.
TREATED = [6, 6, 6, -6, 7, -9, 10, -10, -11, 13, 16, -17, -19, -20, 22, 23, -25, -32, -32, -34, -35]
PLACEBO = [1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23]


def times(*signed):
    """Epochs, those of censored runs with a minus."""
    return Times.of([epoch if epoch > 0 else None for epoch in signed], [abs(epoch) for epoch in signed])


def draw(generator, n, *, ties=True, censored=0.4):
    """Random times, some of them equal, some censored."""
    epochs = generator.integers(1, 12 if ties else 10**6, size=n)
    return times(*np.where(generator.random(n) < censored, -epochs, epochs).tolist())


def product_limit(arm):
    """The survival curve as exact fractions: [(epoch, survival from it on)]."""
    runs = list(zip(arm.epochs.tolist(), arm.reached.tolist(), strict=True))
    curve, survival = [], Fraction(1)
    for epoch in sorted({epoch for epoch, _ in runs}):
        at_risk = sum(other >= epoch for other, _ in runs)
        grokked = sum(other == epoch and reached for other, reached in runs)
        survival *= 1 - Fraction(grokked, at_risk)
        curve.append((epoch, survival))
    return curve


def median_of(arm):
    return next((epoch for epoch, survival in product_limit(arm) if survival <= Fraction(1, 2)), None)


def contains(interval, value):
    return (interval.low is None or interval.low <= value) and (interval.high is None or value <= interval.high)


# ---- estimates and times


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
    [([700], [5000, 5000], "trained"), ([700], [600], "reached"), ([-1], [600], "reached"), ([], [], "epochs")],
)
def test_impossible_times_are_refused(reached, trained, field):
    with pytest.raises(BayesticketError, match=f"^{field}: got"):
        Times.of(reached, trained)


def test_impossible_arrays_are_refused():
    for epochs in ([math.nan, 1.0], [math.inf, 1.0], [-1.0, 1.0]):
        with pytest.raises(BayesticketError, match=r"^epochs: got"):
            Times(np.array(epochs), np.array([True, True]))


# ---- medians


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


# ---- comparing two arms


def log_rank_p(one, other):
    """Every exchange of runs, with the log-rank numerator counted afresh, epoch by epoch, as exact fractions."""
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
def test_log_rank_by_hand(seed, n, m):
    generator = np.random.default_rng(seed)
    one, other = draw(generator, n), draw(generator, m)
    assert compare(one, other) == pytest.approx(log_rank_p(one, other), abs=1e-12)
    assert compare(one, other) == compare(other, one)


@given(seed=seeds)
@settings(deadline=None, max_examples=15, derandomize=True)
def test_log_rank_of_many_runs_is_scipys(seed):
    generator = np.random.default_rng(seed)
    arms = [scale * generator.exponential(size=60) for scale in (1.0, 1.4)]
    one, other = (Times(epochs.clip(None, 1.5), epochs <= 1.5) for epochs in arms)
    samples = [
        scipy.stats.CensoredData(arm.epochs[arm.reached], right=arm.epochs[~arm.reached]) for arm in (one, other)
    ]
    assert compare(one, other, resamples=5000) == pytest.approx(scipy.stats.logrank(*samples).pvalue, abs=0.03)


def test_log_rank_of_the_textbook():
    """Gehan's data: chi² = 16.8, p = 0.00004; none of 2,000 exchanges is as extreme."""
    assert compare(times(*TREATED), times(*PLACEBO), resamples=2000) == 1 / 2001


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_the_least_p(n):
    fast, slow = times(*range(1, n + 1)), times(*[-99] * n)
    assert compare(fast, slow) == pytest.approx(2 / math.comb(2 * n, n))


def test_no_evidence_has_p_1():
    never = times(-9, -9, -9)
    assert compare(never, never) == 1
    assert compare(never, times(-20, -30, -40)) == 1
    assert compare(times(1, 2, 3), times(1, 2, 3)) == 1
    assert compare(times(5, 5, 5), times(5, 5)) == 1
    assert compare(never, times(12, 13, 14)) == 1  # these grokked after the others were no longer watched


# ---- ratios


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


# ---- power laws

STRENGTHS = np.array([0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0])


def simulate(seed, *, exponent, floor, scale, sigma, per_strength=5, end=math.inf, strengths=STRENGTHS):
    noise = sigma * np.random.default_rng(seed).standard_normal((len(strengths), per_strength))
    epochs = (floor + scale * strengths[:, None] ** -exponent) * np.exp(noise)
    return [Times(row.clip(None, end), row <= end) for row in epochs]


def flat(strengths, arms):
    s = np.repeat(strengths, [len(arm) for arm in arms])
    return s, np.concatenate([arm.epochs for arm in arms]), np.concatenate([arm.reached for arm in arms])


def minus_log_likelihood(exponent, scale, floor, sigma, strengths, arms):
    s, t, reached = flat(strengths, arms)
    law = scipy.stats.norm(np.log(floor + scale * s**-exponent), sigma)
    return -np.where(reached, law.logpdf(np.log(t)), law.logsf(np.log(t))).sum()


@given(seed=seeds, exponent=st.floats(-1.5, 2.5), confidence=st.sampled_from([0.8, 0.95]))
@settings(deadline=None, max_examples=15, derandomize=True)
def test_uncensored_law_is_least_squares(seed, exponent, confidence):
    arms = simulate(seed, exponent=exponent, floor=0, scale=300, sigma=0.3)
    law = power_law(STRENGTHS, arms, floor=False, confidence=confidence)
    s, t, _ = flat(STRENGTHS, arms)
    line = scipy.stats.linregress(np.log(s), np.log(t))
    half = scipy.stats.t.ppf((1 + confidence) / 2, len(s) - 2) * line.stderr
    residuals = np.log(t) - line.intercept - line.slope * np.log(s)
    assert law.exponent.value == pytest.approx(-line.slope, abs=1e-6)
    assert law.exponent.low == pytest.approx(-line.slope - half, abs=1e-6)
    assert law.exponent.high == pytest.approx(-line.slope + half, abs=1e-6)
    assert law.scale == pytest.approx(math.exp(line.intercept), rel=1e-6)
    assert law.sigma == pytest.approx(residuals.std(), rel=1e-6)
    assert (law.floor, law.n, law.n_censored) == (None, 35, 0)


@pytest.mark.parametrize("floor", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_law_against_a_search_of_the_whole_likelihood(seed, floor):
    """Maximum and interval ends against differential evolution on scipy's own normal distribution."""
    arms = simulate(seed, exponent=1.0, floor=150.0 * floor, scale=30, sigma=0.2, end=1500.0)
    law = power_law(STRENGTHS, arms, floor=floor)
    assert law.n_censored > 3

    def cost(logs, exponent=None, level=None):
        logs = list(logs)
        exponent = logs.pop() if exponent is None else exponent
        level = (math.exp(logs.pop()) if level is None else level) if floor else 0.0
        scale, sigma = (math.exp(number) for number in logs)
        return minus_log_likelihood(exponent, scale, level, sigma, STRENGTHS, arms)

    def search(**fixed):
        free = [(0, 7), (-3, 1)]  # of scale and sigma, in logarithms
        if floor and "level" not in fixed:
            free.append((-5, 7))
        if "exponent" not in fixed:
            free.append((0, 3))
        options = {"seed": 0, "tol": 1e-8, "maxiter": 400, "popsize": 8}
        return scipy.optimize.differential_evolution(lambda logs: cost(logs, **fixed), free, **options).fun

    level = law.floor.value if floor else 0.0
    mine = minus_log_likelihood(law.exponent.value, law.scale, level, law.sigma, STRENGTHS, arms)
    least = search()
    assert mine == pytest.approx(least, abs=1e-5)
    grokked = law.n - law.n_censored
    freedom = grokked - (3 if floor else 2)
    allowed = grokked * math.log1p(scipy.stats.t.ppf(0.975, freedom) ** 2 / freedom) / 2
    ends = [{"exponent": law.exponent.low}, {"exponent": law.exponent.high}]
    if floor:
        ends += [{"level": law.floor.low}, {"level": law.floor.high}]
    for fixed in ends:
        assert search(**fixed) - least == pytest.approx(allowed, abs=1e-3), fixed


def test_law_is_found_again_and_censoring_matters():
    truth = {"exponent": 1.0, "floor": 0, "scale": 100, "sigma": 0.6}
    arms = simulate(0, **truth, per_strength=200, end=4000.0)
    law = power_law(STRENGTHS, arms, floor=False)
    assert 0.15 < law.n_censored / law.n < 0.35
    assert law.exponent.value == pytest.approx(1.0, abs=0.02)
    assert law.scale == pytest.approx(100, rel=0.04)
    assert law.sigma == pytest.approx(0.6, rel=0.04)
    dropped = [Times(arm.epochs[arm.reached], arm.reached[arm.reached]) for arm in arms]
    assert power_law(STRENGTHS, dropped, floor=False).exponent.high < 0.97
    taken_as_reached = [Times(arm.epochs, np.full(len(arm), True)) for arm in arms]
    assert power_law(STRENGTHS, taken_as_reached, floor=False).exponent.high < 0.95


def test_floor_is_found_again():
    truth = {"exponent": 1.0, "floor": 600, "scale": 100, "sigma": 0.2}
    law = power_law(STRENGTHS, simulate(0, **truth, per_strength=200, end=9000.0), floor=True)
    assert law.exponent.value == pytest.approx(1.0, abs=0.04)
    assert law.floor.value == pytest.approx(600, rel=0.03)
    assert contains(law.floor, 600)
    assert contains(law.exponent, 1)
    assert law.scale == pytest.approx(100, rel=0.1)
    assert law.at(STRENGTHS) == pytest.approx(600 + 100 / STRENGTHS, rel=0.06)
    # without the floor the same times seem to fall far more slowly
    assert power_law(STRENGTHS, simulate(0, **truth), floor=False).exponent.high < 0.6


def test_a_floor_that_is_not_there_may_be_0():
    arms = simulate(3, exponent=1.0, floor=0, scale=100, sigma=0.2)
    law = power_law(STRENGTHS, arms, floor=True)
    assert law.floor.low == 0
    assert law.floor.high < min(arm.epochs.min() for arm in arms)
    assert contains(law.exponent, 1)


@pytest.mark.parametrize("by", [0.01, 37.0])
@pytest.mark.parametrize("floor", [False, True])
def test_units_do_not_matter(by, floor):
    arms = simulate(0, exponent=1.0, floor=60, scale=30, sigma=0.2, end=2000.0)
    law = power_law(STRENGTHS, arms, floor=floor)
    other = power_law(STRENGTHS / by, [Times(by * arm.epochs, arm.reached) for arm in arms], floor=floor)
    for end in ("value", "low", "high"):
        assert getattr(other.exponent, end) == pytest.approx(getattr(law.exponent, end), rel=1e-4)
        if floor:
            assert getattr(other.floor, end) == pytest.approx(by * getattr(law.floor, end), rel=1e-4)
    assert other.scale == pytest.approx(by ** (1 - law.exponent.value) * law.scale, rel=1e-3)


def test_intervals_of_the_exponent_cover_it():
    """At 50 %, where an interval too wide is as easily seen as one too narrow."""
    covered = 0
    for seed in range(40):
        arms = simulate(seed, exponent=1.0, floor=0, scale=30, sigma=0.25, end=800.0)
        covered += contains(power_law(STRENGTHS, arms, floor=False, confidence=0.5).exponent, 1.0)
    assert 13 <= covered <= 27


def test_times_without_scatter():
    arms = simulate(0, exponent=1.0, floor=500, scale=100, sigma=0)
    law = power_law(STRENGTHS, arms, floor=True)
    assert (law.exponent.value, law.floor.value) == (pytest.approx(1, abs=1e-4), pytest.approx(500, rel=1e-4))
    assert law.exponent.high - law.exponent.low < 0.01


def test_an_exponent_with_an_open_end():
    """Only the weakest strength is clearly above the floor: the times could fall as steeply as one likes."""
    arms = [times(2500, 2510, 2520), times(525, 528, 530), times(490, 520, 530)]
    law = power_law([0.1, 1.0, 10.0], arms, floor=True)
    assert law.exponent.high is None
    assert law.exponent.low > 1
    assert contains(law.floor, 513)


def test_a_law_reads_well():
    law = PowerLaw(Estimate(1, 0.9, 1.104), None, scale=1.0, sigma=0.123, n=35, n_censored=4)
    assert str(law) == "exponent 1 [0.9, 1.1], scatter 0.12, 35 runs of which 4 censored"


FALLING = [times(2500, 2600, 2700), times(700, 720, 740), times(510, 520, 530)]


@pytest.mark.parametrize(
    ("strengths", "arms", "floor", "message"),
    [
        ([0.1, 1, 0], FALLING, False, "strengths: got .* above 0"),
        ([0.1, 1, math.nan], FALLING, False, "strengths: got nan"),
        ([], [], False, "strengths: got None"),
        ([0.1, 1], FALLING, False, "times_by_strength: got 3; accepted: times at each of the 2 strengths"),
        ([1, 1, 1], FALLING, False, "times_by_strength: got 'runs that grokked at each strength"),
        ([0.1, 1, 1], FALLING, True, "times_by_strength: got 'runs that grokked at each strength"),
        ([0.1, 1], [times(9), times(3)], False, r".*\[1, 1\]'; accepted: more than 2 in all"),
        ([0.1, 1, 10], [times(-9, -9), times(-9, -9), times(3, 4)], False, r".*\[0, 0, 2\]'"),
        ([0.1, 1, 10], FALLING[::-1], True, "floor: got True; .* do not fall"),
        ([0.1, 1, 10], [FALLING[0], FALLING[2], FALLING[2]], True, "floor: got True; .* at two strengths or more"),
        ([0.1, 1, 10], [times(*[-9000] * 3), *FALLING[1:]], True, r"times_by_strength: .*\[0, 3, 3\]'"),
        ([0.1, 1], [Times.of([0], [9]), times(3, 4)], False, "times_by_strength: got .* above 0"),
    ],
)
def test_what_no_law_can_be_told_from_is_refused(strengths, arms, floor, message):
    with pytest.raises(BayesticketError, match=f"^{message}"):
        power_law(strengths, arms, floor=floor)


def test_the_same_seed_gives_the_same_interval():
    drawn = np.random.default_rng(0).integers(100, 3000, size=(2, 7)).tolist()
    one, other = (times(*epochs) for epochs in drawn)
    assert ratio_of_medians(one, other, resamples=50, seed=3) == ratio_of_medians(one, other, resamples=50, seed=3)
    found = {ratio_of_medians(one, other, resamples=50, seed=seed).high for seed in range(20)}
    assert len(found) > 1


# ---- refusals and imports


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, math.nan])
def test_confidence_is_checked(confidence):
    calls = [
        lambda: median_time(times(1, 2, 3), confidence),
        lambda: ratio_of_medians(times(1, 2), times(1, 2), confidence=confidence),
        lambda: power_law([0.1, 1, 10], FALLING, floor=False, confidence=confidence),
    ]
    for call in calls:
        with pytest.raises(BayesticketError, match=r"^confidence: got"):
            call()


def test_resampling_is_checked():
    for options in ({"resamples": 0}, {"seed": -1}):
        for call in (compare, ratio_of_medians):
            with pytest.raises(BayesticketError, match=f"^{next(iter(options))}: got"):
                call(times(1), times(2), **options)


def test_scipy_is_loaded_only_when_it_is_used():
    code = "import sys, bayesticket.analysis.stats; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
