"""Power laws against least squares, closed forms, a search of the whole likelihood, and simulated runs."""

import math

import numpy as np
import pytest
import scipy.stats
from arms import STRENGTHS, contains, flat, least_cost, minus_log_likelihood, simulate, times
from helpers import seeds
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesticket.analysis import Estimate, PowerLaw, Times, power_law
from bayesticket.errors import BayesticketError


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
    np.testing.assert_allclose(law.at(STRENGTHS), np.exp(line.intercept + line.slope * np.log(STRENGTHS)), rtol=1e-5)


@pytest.mark.parametrize(("seed", "floor"), [(0, False), (1, True)])
def test_law_against_a_search_of_the_whole_likelihood(seed, floor):
    """Maximum and interval ends against differential evolution on scipy's own normal distribution."""
    arms = simulate(seed, exponent=1.0, floor=150.0 * floor, scale=30, sigma=0.2, end=1500.0)
    law = power_law(STRENGTHS, arms, floor=floor)
    assert law.n_censored > 3

    best = {"exponent": law.exponent.value, "scale": law.scale, "sigma": law.sigma}
    mine = minus_log_likelihood(STRENGTHS, arms, **best, level=law.floor.value if floor else 0.0)
    least = least_cost(STRENGTHS, arms, floor=floor)
    assert mine == pytest.approx(least, abs=1e-5)
    grokked = law.n - law.n_censored
    freedom = grokked - (3 if floor else 2)
    allowed = grokked * math.log1p(scipy.stats.t.ppf(0.975, freedom) ** 2 / freedom) / 2
    ends = [{"exponent": law.exponent.low}, {"exponent": law.exponent.high}]
    if floor:
        ends += [{"level": law.floor.low}, {"level": law.floor.high}]
    for fixed in ends:
        assert least_cost(STRENGTHS, arms, floor=floor, **fixed) - least == pytest.approx(allowed, abs=1e-3), fixed


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
        ([1, 1, 1], FALLING, False, "times_by_strength: got runs that grokked at each strength"),
        ([0.1, 1, 1], FALLING, True, "times_by_strength: got runs that grokked at each strength"),
        ([0.1, 1], [times(9), times(3)], False, r".*\[1, 1\]; accepted: more than 2 in all"),
        ([0.1, 1, 10], [times(-9, -9), times(-9, -9), times(3, 4)], False, r".*\[0, 0, 2\]"),
        ([0.1, 1, 10], FALLING[::-1], True, "floor: got True; .* do not fall"),
        ([0.1, 1, 10], [FALLING[0], FALLING[2], FALLING[2]], True, "floor: got True; .* at two strengths or more"),
        ([0.1, 1, 10], [times(*[-9000] * 3), *FALLING[1:]], True, r"times_by_strength: .*\[0, 3, 3\]"),
        ([0.1, 1], [Times.of([0], [9]), times(3, 4)], False, "times_by_strength: got .* above 0"),
    ],
)
def test_what_no_law_can_be_told_from_is_refused(strengths, arms, floor, message):
    with pytest.raises(BayesticketError, match=f"^{message}"):
        power_law(strengths, arms, floor=floor)
