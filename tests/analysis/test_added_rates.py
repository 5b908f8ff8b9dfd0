"""The law of added rates against a search of the whole likelihood, the power law, and simulated runs."""

import math

import numpy as np
import pytest
import scipy.stats
from arms import STRENGTHS, contains, least_cost, minus_log_likelihood, simulate, times

from bayesticket.analysis import Times, added_rates, power_law
from bayesticket.errors import BayesticketError

ALL = np.append(0.0, STRENGTHS)
LAW = {"exponent": 1.0, "floor": 600.0, "scale": 100.0, "unaided": 5000.0}


@pytest.mark.parametrize(
    ("seed", "floor", "unaided", "end"),
    [(0, True, 5000.0, math.inf), (1, True, 5000.0, 4500.0), (2, False, 5000.0, 4000.0), (3, True, 30_000.0, 4000.0)],
)
def test_the_fit_against_a_search_of_the_whole_likelihood(seed, floor, unaided, end):
    """Maximum and interval ends against differential evolution on scipy's own normal distribution."""
    law = LAW | {"floor": 600.0 * floor, "unaided": unaided}
    arms = simulate(seed, **law, sigma=0.2, end=end, strengths=ALL)
    fit = added_rates(ALL, arms, floor=floor)
    assert (fit.n_censored > 3) == math.isfinite(end)

    level = fit.floor.value if floor else 0.0
    best = {"exponent": fit.exponent.value, "scale": fit.scale, "sigma": fit.sigma, "level": level}
    mine = minus_log_likelihood(ALL, arms, **best, excess=min(fit.unaided, 1e9) - level)
    least = least_cost(ALL, arms, floor=floor, unaided=True)
    assert mine == pytest.approx(least, abs=1e-5)
    grokked = fit.n - fit.n_censored
    freedom = grokked - (4 if floor else 3)
    allowed = grokked * math.log1p(scipy.stats.t.ppf(0.975, freedom) ** 2 / freedom) / 2
    ends = [{"exponent": fit.exponent.low}, {"exponent": fit.exponent.high}]
    if floor:
        ends += [{"level": fit.floor.low}, {"level": fit.floor.high}]
    for fixed in ends:
        assert least_cost(ALL, arms, floor=floor, unaided=True, **fixed) - least == pytest.approx(allowed, abs=1e-3), (
            fixed
        )


def test_the_law_is_found_again():
    arms = simulate(0, **LAW, sigma=0.2, per_strength=200, end=6500.0, strengths=ALL)
    law = added_rates(ALL, arms, floor=True)
    assert law.n_censored > 10
    assert law.exponent.value == pytest.approx(1, abs=0.05)
    assert contains(law.exponent, 1)
    assert contains(law.floor, 600)
    assert law.unaided == pytest.approx(5000, rel=0.05)
    assert law.scale == pytest.approx(100, rel=0.15)
    assert law.sigma == pytest.approx(0.2, rel=0.05)
    median = 600 + 1 / (1 / 4400 + ALL / 100)
    assert law.at(ALL) == pytest.approx(median, rel=0.05)
    # the power law takes the levelling off at weak strengths for a small exponent
    assert power_law(STRENGTHS, arms[1:], floor=True).exponent.high < 0.9


def test_where_nothing_groks_unaided_it_is_the_power_law():
    infinite = 0
    for seed in range(6):
        arms = simulate(seed, **LAW | {"unaided": math.inf}, sigma=0.2, end=20_000.0, strengths=ALL)
        assert not arms[0].reached.any()
        both, other = added_rates(ALL, arms, floor=True), power_law(STRENGTHS, arms[1:], floor=True)
        if math.isinf(both.unaided):
            infinite += 1
            for one, two in ((both.exponent, other.exponent), (both.floor, other.floor)):
                assert one.value == pytest.approx(two.value, rel=1e-4)
            assert (both.scale, both.sigma) == pytest.approx((other.scale, other.sigma), rel=1e-3)
            np.testing.assert_allclose(both.at(STRENGTHS), other.at(STRENGTHS), rtol=1e-4)
        else:
            assert both.unaided > 20_000 * math.exp(-2 * both.sigma), "hardly shorter than the training that missed it"
    assert infinite >= 2


def test_runs_that_are_censored_at_strength_0_are_data():
    """The longer they did not grok, the longer the unaided time has to be."""
    aided = simulate(4, **LAW, sigma=0.1, strengths=STRENGTHS)
    short, long = (added_rates(ALL, [times(*[-end] * 5), *aided], floor=True) for end in (3000, 9000))
    assert short.unaided < 7000 < long.unaided
    assert (short.n_censored, long.n_censored) == (5, 5)


def test_intervals_cover_the_exponent():
    """At 50 %, where an interval too wide is as easily seen as one too narrow."""
    covered = 0
    for seed in range(24):
        arms = simulate(seed, **LAW, sigma=0.15, end=6000.0, strengths=ALL)
        covered += contains(added_rates(ALL, arms, floor=True, confidence=0.5).exponent, 1.0)
    assert 6 <= covered <= 18


@pytest.mark.parametrize("by", [0.01, 37.0])
def test_units_do_not_matter(by):
    arms = simulate(0, **LAW, sigma=0.2, end=6000.0, strengths=ALL)
    law = added_rates(ALL, arms, floor=True)
    other = added_rates(ALL / by, [Times(by * arm.epochs, arm.reached) for arm in arms], floor=True)
    for end in ("value", "low", "high"):
        assert getattr(other.exponent, end) == pytest.approx(getattr(law.exponent, end), rel=1e-4)
        assert getattr(other.floor, end) == pytest.approx(by * getattr(law.floor, end), rel=1e-4)
    assert other.unaided == pytest.approx(by * law.unaided, rel=1e-3)


def test_the_order_of_the_strengths_does_not_matter():
    arms = simulate(0, **LAW, sigma=0.2, strengths=ALL)
    law, other = (added_rates(ALL[::step], arms[::step], floor=True) for step in (1, -1))
    assert other.exponent.low == pytest.approx(law.exponent.low, rel=1e-5)


def test_it_reads_well_and_has_a_time_at_strength_0():
    law = added_rates(ALL, simulate(0, **LAW, sigma=0.0, strengths=ALL), floor=True)
    assert str(law).startswith("exponent 1 [0.999, 1], floor 600 [600, 600], unaided 5,000, scatter 0.001, ")
    np.testing.assert_allclose(law.at(ALL), 600 + 1 / (1 / 4400 + ALL / 100), rtol=1e-3)
    never = added_rates(
        ALL, [times(*[-50_000] * 5), *simulate(0, **LAW | {"unaided": math.inf}, sigma=0.0)], floor=True
    )
    assert "unaided never, " in str(never)
    assert never.at(np.zeros(1)).tolist() == [math.inf]


FALLING = [times(5000, 5100), times(2500, 2600), times(700, 720), times(510, 520)]


@pytest.mark.parametrize(
    ("strengths", "arms", "floor", "message"),
    [
        ([0.1, 1, 10, 20], FALLING, False, "strengths: got .* accepted: numbers of at least 0, one of which is 0"),
        ([0, 0.1, 1, -1], FALLING, False, "strengths: got .* accepted: numbers of at least 0"),
        ([0, 0.1, 1], FALLING, False, "times_by_strength: got 4; accepted: times at each of the 3 strengths"),
        ([0, 0, 1, 10], FALLING, True, r"times_by_strength: .*\[2, 2, 2, 2\]; .*, at 3 strengths or more above 0"),
        ([0, 1], [times(9, 8), times(3, 2)], False, "times_by_strength: got runs that grokked at each strength"),
        ([0, 1, 10], [times(9), times(3), times(2)], False, r".*\[1, 1, 1\]; accepted: more than 3 in all"),
        ([0, 0.1, 1, 10], FALLING[::-1], False, "times_by_strength: got times that do not fall with strength"),
        ([0, 0.1, 1, 10], [FALLING[0]] * 2 + [FALLING[3]] * 2, True, "floor: got True; .* clearly between the floor"),
    ],
)
def test_what_no_law_can_be_told_from_is_refused(strengths, arms, floor, message):
    with pytest.raises(BayesticketError, match=f"^{message}"):
        added_rates(strengths, arms, floor=floor)
