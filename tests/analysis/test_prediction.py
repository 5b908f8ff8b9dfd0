"""Predicting grokking: pairs counted one by one, scipy, every labelling, and clusters that are resampled."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from arms import times
from helpers import properties, seeds
from hypothesis import assume, given
from hypothesis import strategies as st

from bayesticket.analysis import Auc, Times, at_risk, auc, predict, rank_correlation, told_from


def draw(seed, n, *, ties=True, missing=0.1):
    """Values, some of them equal, infinite or NaN, whether each run groks, and strata."""
    generator = np.random.default_rng(seed)
    tied = np.array([-np.inf, 0, 1, 2, np.inf])
    values = generator.choice(tied, n) if ties else generator.normal(size=n)
    values[generator.random(n) < missing] = np.nan
    return values, generator.random(n) < 0.5, generator.integers(0, 3, n)


def counted(values, groks, strata):
    """Pairs in which the run that groks has the larger value, ties as a half, and all pairs."""
    pairs = [
        (values[i] > values[j]) + 0.5 * (values[i] == values[j])
        for i, j in itertools.product(range(len(values)), repeat=2)
        if groks[i] and not groks[j] and strata[i] == strata[j] and not np.isnan(values[[i, j]]).any()
    ]
    return sum(pairs), len(pairs)


# --- the AUC ---


@given(seed=seeds, n=st.integers(1, 12))
@properties
def test_the_auc_is_the_share_of_pairs_of_a_stratum_that_are_in_order(seed, n):
    values, groks, strata = draw(seed, n)
    for labels in (None, strata):
        right, pairs = counted(values, groks, np.zeros(n) if labels is None else labels)
        found = auc(values, groks, strata=labels, resamples=5)
        assert (found is None) == (pairs == 0)
        if found is not None:
            assert (found.value, found.pairs) == (pytest.approx(right / pairs), pairs)
            assert 0 <= found.low <= found.high <= 1


@given(seed=seeds, n=st.integers(2, 30))
@properties
def test_the_auc_is_mann_and_whitneys_statistic_over_all_pairs(seed, n):
    values, groks, _ = draw(seed, n, missing=0)
    assume(groks.any() and not groks.all())
    statistic = scipy.stats.mannwhitneyu(values[groks], values[~groks]).statistic
    found = auc(values, groks, resamples=5)
    assert found is not None
    assert found.value == pytest.approx(statistic / groks.sum() / (~groks).sum())


@given(seed=seeds)
@properties
def test_only_the_order_of_values_counts_and_the_opposite_order_gives_the_rest(seed):
    values, groks, strata = draw(seed, 12)
    given_to = {"strata": strata, "clusters": (strata, np.arange(12) % 4), "resamples": 50}
    found, other = auc(values, groks, **given_to), auc(-values, groks, **given_to)
    assert found == auc(np.exp(values) - 7, groks, **given_to)
    if found is not None and other is not None:
        assert (other.value, other.low, other.high) == pytest.approx((1 - found.value, 1 - found.high, 1 - found.low))


def test_labels_that_say_nothing_give_one_half_on_average():
    values = np.array([1.0, 2.0, 2.0, 5.0, 7.0, 7.0])
    found = []
    for grokked in itertools.combinations(range(6), 2):
        each = auc(values, np.isin(np.arange(6), grokked), resamples=1)
        assert each is not None
        found.append(each.value)
    assert np.mean(found) == pytest.approx(0.5)


def test_what_an_arm_alone_decides_is_not_told_within_arms():
    arms = np.repeat(["kl", "none"], 4)
    groks = np.array([1, 1, 1, 0, 0, 0, 0, 1], dtype=bool)
    kl = np.array([0.1, 0.2, 0.3, 0.2, 5.1, 5.3, 5.2, 5.2])  # the prior makes it small, and that is all
    together, within = auc(kl, groks), auc(kl, groks, strata=arms)
    assert together is not None
    assert within is not None
    assert together.value == 0.25
    assert (within.value, within.pairs) == (0.5, 6)


def test_where_runs_tell_nothing_there_is_no_auc_and_equal_values_say_nothing():
    values, groks = np.arange(4.0), np.array([True, True, False, False])
    for all_alike in (np.ones(4, dtype=bool), np.zeros(4, dtype=bool)):
        assert auc(values, all_alike) is None
    assert auc(np.full(4, np.nan), groks) is None
    assert auc(np.array([1.0, 2.0, np.nan, np.nan]), groks) is None
    assert auc(values[:0], groks[:0]) is None
    assert auc(values, groks, strata=groks) is None
    equal = auc(np.ones(4), groks)
    assert equal is not None
    assert (equal.value, equal.low <= 0.5 <= equal.high) == (0.5, True)


def test_runs_without_a_value_are_as_if_they_were_not_there():
    values, groks, strata = draw(3, 30, ties=False, missing=0.3)
    known = ~np.isnan(values)
    clusters = np.arange(30) % 7
    there = auc(values[known], groks[known], strata=strata[known], clusters=[clusters[known]])
    assert auc(values, groks, strata=strata, clusters=[clusters]) == there


# --- its interval ---


@pytest.mark.parametrize("n", [1, 3, 8, 20])
def test_complete_separation_shows_no_more_than_as_many_successes(n):
    found = auc(np.arange(3.0 * n), np.arange(3 * n) >= n)
    exact = scipy.stats.binomtest(n, n).proportion_ci(method="exact")
    assert found is not None
    assert (found.value, found.low, found.high, found.clusters) == (1.0, pytest.approx(exact.low), 1.0, n)
    assert found.reach == found.low


def test_with_fewer_than_six_clusters_nothing_is_told():
    runs = np.arange(40)
    for n in (5, 6):
        found = auc(runs.astype(float), runs >= 20, clusters=[np.where(runs >= 20, runs, runs % n)])
        assert found is not None
        assert (found.side() == "larger") == (n == 6)


def test_runs_of_a_cluster_are_not_counted_as_if_each_were_another():
    values, groks, settings = draw(5, 40, ties=False, missing=0)
    seed_of = np.arange(40) % 5
    once, twice = (
        auc(np.tile(values, n), np.tile(groks, n), clusters=[np.tile(settings, n), np.tile(seed_of, n)]) for n in (1, 2)
    )
    assert once is not None
    assert twice is not None
    assert (twice.value, twice.low, twice.high) == pytest.approx((once.value, once.low, once.high))
    alone, doubled = auc(values, groks), auc(np.tile(values, 2), np.tile(groks, 2))
    assert alone is not None
    assert doubled is not None
    assert doubled.high - doubled.low < 0.9 * (alone.high - alone.low)


def world(generator, n_settings, n_seeds):
    """Values and outcomes of settings by seeds: both share what a setting and what a seed does, besides noise."""
    shape = {"setting": (n_settings, 1), "seed": (1, n_seeds), "run": (n_settings, n_seeds)}
    value, outcome = np.zeros((2, n_settings, n_seeds))
    for level, (of_value, of_outcome) in {"setting": (1, 1), "seed": (0.5, 0.3), "run": (1, 0.5)}.items():
        one, other = generator.normal(size=(2, *shape[level]))
        value = value + of_value * one
        outcome = outcome + of_outcome * (0.5 * one + math.sqrt(0.75) * other)
    settings, seed_of = np.indices(value.shape)
    return value.ravel(), outcome.ravel() > 0, settings.ravel(), seed_of.ravel()


def test_intervals_that_resample_settings_and_seeds_cover_the_auc_and_those_over_runs_do_not():
    generator = np.random.default_rng(0)
    values, groks, _, _ = world(generator, 400, 400)
    statistic = scipy.stats.mannwhitneyu(values[groks], values[~groks]).statistic
    true = statistic / groks.sum() / (~groks).sum()
    covered = {"both": 0, "runs": 0}
    for _ in range(100):
        values, groks, settings, seed_of = world(generator, 24, 10)
        for name, clusters in {"both": (settings, seed_of), "runs": ()}.items():
            found = auc(values, groks, clusters=clusters, resamples=200)
            assert found is not None
            covered[name] += found.low <= true <= found.high
    assert covered["both"] >= 90
    assert covered["runs"] <= 80


# --- rank correlation ---


@given(seed=seeds, n=st.integers(3, 20))
@properties
def test_the_rank_correlation_is_spearmans(seed, n):
    values, _, others = draw(seed, n, missing=0)
    assume(len(set(values)) > 1 and len(set(others)) > 1)
    found = rank_correlation(values, others.astype(float), resamples=5)
    assert found is not None
    assert found.value == pytest.approx(scipy.stats.spearmanr(values, others).statistic)


@given(seed=seeds)
@properties
def test_within_strata_runs_are_ranked_there_alone(seed):
    values, _, strata = draw(seed, 15, ties=False, missing=0)
    others = np.random.default_rng(seed + 1).integers(0, 6, 15).astype(float)
    ranks = np.zeros((2, 15))
    for stratum in set(strata.tolist()):
        of = strata == stratum
        for row, each in zip(ranks, (values, others), strict=True):
            row[of] = (scipy.stats.rankdata(each[of]) - (of.sum() + 1) / 2) / of.sum()
    assume(ranks.any(axis=1).all())
    found = rank_correlation(values, others, strata=strata, resamples=5)
    assert found is not None
    assert found.value == pytest.approx(np.corrcoef(ranks)[0, 1])
    shifted = rank_correlation(values + 100 * strata, others - 30 * strata, strata=strata, resamples=5)
    assert shifted is not None
    assert shifted.value == pytest.approx(found.value)


def test_a_correlation_that_is_not_defined_is_none_and_of_few_clusters_it_has_no_interval():
    assert rank_correlation(np.arange(2.0), np.arange(2.0)) is None
    assert rank_correlation(np.ones(5), np.arange(5.0)) is None
    assert rank_correlation(np.array([1, 2, np.nan, np.nan]), np.arange(4.0)) is None
    of_two = rank_correlation(np.arange(6.0), np.arange(6.0), clusters=[np.arange(6) % 2])
    assert of_two is not None
    assert (of_two.value, of_two.low, of_two.high) == (1.0, None, None)


# --- runs, epochs, directions ---


def test_at_risk_are_runs_that_have_not_grokked_and_whose_outcome_is_known():
    arm = times(300, 500, -1000, -400, 1200)
    assert at_risk(arm, 300).tolist() == [False, True, False, False, True]  # 1,200 epochs are needed to be sure
    assert at_risk(times(300, 500, -1000, -400), 299).tolist() == [True, True, True, False]


def test_an_epoch_tells_only_if_every_later_one_does_on_the_same_side():
    below, above, near = (Auc(0.5, low, high, pairs=9, clusters=9) for low, high in ((0, 0.3), (0.6, 1), (0.4, 0.9)))
    assert told_from({100: near, 200: below, 500: below}) == (200, "smaller")
    assert told_from({500: above, 200: below, 100: above}) == (500, "larger")
    assert told_from({100: below, 200: near}) is None
    few = Auc(0.5, 0.1, 0.9, pairs=9, clusters=5)
    assert told_from({100: above, 200: few, 500: None}) == (100, "larger")
    assert told_from({100: few}) is None
    assert told_from({}) is None
    assert told_from({100: above}, level=0.8) is None
    assert told_from({100: Auc(0.9, 0.81, 1.0, pairs=9, clusters=17)}, level=0.8) == (100, "larger")


def test_a_prediction_is_of_the_runs_at_risk_that_have_a_value_and_prints_in_a_line():
    grokked = Times.of([100, 700, 800, 900, None, None, None, None], trained=[2000] * 7 + [600])
    values = np.array([9.0, 1, 2, 3, 4, 5, np.nan, 0])
    arms, seed_of = np.repeat([0, 1], 4), np.tile(range(4), 2)
    found = predict(values, grokked, 500, arms=arms, seeds=seed_of, measure="kl_to_oracle")
    assert (found.groks, found.never) == (3, 2)
    assert found.auc is not None
    assert (found.auc.value, found.auc.pairs, found.auc_within) == (0.0, 6, None)
    assert found.left is not None
    assert found.left.value == 1.0
    assert str(found).startswith("kl_to_oracle at epoch 500, of 5 runs 3 grok later: AUC 0.00 [0.00, ")
    assert "within arms none; rank correlation with the time left 1" in str(found)
    assert predict(values, grokked, 5000, arms=arms, seeds=seed_of).auc is None


def test_the_order_of_runs_does_not_matter():
    values, groks, settings = draw(1, 40)
    seed_of, order = np.arange(40) % 5, np.random.default_rng(0).permutation(40)
    one, other = (
        auc(values[by], groks[by], strata=settings[by], clusters=(settings[by], seed_of[by]))
        for by in (np.arange(40), order)
    )
    assert one == other
