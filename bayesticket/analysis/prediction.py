"""Does a measure at one epoch tell runs that grok later from those that never will, and when? AUC and rank correlation.

Runs share seeds and settings, so intervals resample these, and not single runs. Of runs that differ in their
interventions, a measure may tell nothing but which intervention acts; pairs of one stratum are free of that.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from bayesticket.analysis.times import Estimate, Times, require_times
from bayesticket.errors import refuse_case, require_integer, require_number

Labels = Shaped[np.ndarray, " runs"]
AllLabels = Shaped[np.ndarray, " all"]
"""Those of all runs, where `runs` are the ones whose value is known."""
Numbers = Int[np.ndarray, " runs"]
Side = Literal["larger", "smaller"]
MISSED = 0.025
"""The share of samples in which a 95 % interval may miss at each end."""
RESAMPLES = 1000


@dataclass(frozen=True)
class Auc:
    """The probability that a run which will grok has the larger value, with its 95 % interval; see `auc`.

    >>> print(Auc(0.1, 0.02, 0.375, pairs=240, clusters=9))
    0.10 [0.02, 0.38]
    """

    value: float
    low: float
    high: float
    pairs: int
    """How many pairs of runs are compared."""
    clusters: int
    """How many clusters have runs of the kind that fewer have: those that grok, or those that never do."""

    @property
    def reach(self) -> float:
        """The most that the lower end can be, with so many clusters."""
        return _reach(self.clusters)

    def side(self, level: float = 0.5) -> Side | None:
        """Which values announce grokking, if the interval lies above `level` or below `1 − level`."""
        return "larger" if self.low > level else "smaller" if self.high < 1 - level else None

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True)
class Prediction:
    """What a measure at an epoch tells of whether runs grok later, and when; printed, one line. See `predict`."""

    measure: str
    epoch: int
    groks: int
    """How many runs at risk, whose value is known, grok later."""
    never: int
    """How many never grok."""
    auc: Auc | None
    """Over all pairs of a run that groks and one that does not; None if there is no pair."""
    auc_within: Auc | None
    """Over the pairs of one arm alone."""
    left: Estimate | None
    """Spearman's correlation with the epochs left, among runs that grok; None of fewer than three, or of ties alone."""
    left_within: Estimate | None
    """That within arms."""

    def __str__(self) -> str:
        told = f"AUC {_or_none(self.auc)}, within arms {_or_none(self.auc_within)}"
        when = f"rank correlation with the time left {_or_none(self.left)}, within arms {_or_none(self.left_within)}"
        runs = f"of {self.groks + self.never} runs {self.groks} grok later"
        return f"{self.measure} at epoch {self.epoch:,}, {runs}: {told}; {when}"

    __repr__ = __str__


def _or_none(found: object) -> str:
    return "none" if found is None else str(found)


def predict(
    values: Float[np.ndarray, " runs"],
    times: Times,
    epoch: int,
    *,
    arms: Labels,
    seeds: Labels,
    measure: str = "measure",
) -> Prediction:
    """What the values of a measure at an epoch tell of the runs that are at risk then.

    See `at_risk`, `auc` and `rank_correlation`; intervals resample arms and seeds. A value is NaN
    where a run did not record it.

    >>> times = Times.of([800, 900, 2000, None, None, None], trained=[5000] * 6)
    >>> arms, seeds = np.repeat(["kl", "none"], 3), np.tile([0, 1, 2], 2)
    >>> kl = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.2])
    >>> print(predict(kl, times, 500, arms=arms, seeds=seeds).auc)
    0.17 [0.00, 0.76]
    """
    require_times("times", times)
    known = at_risk(times, epoch) & ~np.isnan(values)
    groks, clusters = times.reached[known], (arms[known], seeds[known])
    values, left = values[known], times.epochs[known] - epoch
    later = (values[groks], left[groks])
    of_later = [labels[groks] for labels in clusters]
    return Prediction(
        measure,
        epoch,
        int(groks.sum()),
        int((~groks).sum()),
        auc(values, groks, clusters=clusters),
        auc(values, groks, strata=clusters[0], clusters=clusters),
        rank_correlation(*later, clusters=of_later),
        rank_correlation(*later, strata=of_later[0], clusters=of_later),
    )


def at_risk(times: Times, epoch: float) -> Bool[np.ndarray, " runs"]:
    """The runs of which one can ask at an epoch whether they will grok: those that have not, and whose answer is known.

    A run that has grokked has left. One that ended without grokking never groks if it was trained as long as any; if it
    ended earlier, as by divergence, nobody knows.

    >>> at_risk(Times.of([800, 900, None, None], trained=[5000, 5000, 5000, 1000]), 800)
    array([False,  True,  True, False])
    """
    require_number("epoch", epoch, least=0)
    ended = ~times.reached & (times.epochs < times.epochs.max())
    return (times.epochs > epoch) & ~ended


def auc(
    values: Float[np.ndarray, " runs"],
    groks: Bool[np.ndarray, " runs"],
    *,
    strata: Labels | None = None,
    clusters: Sequence[Labels] = (),
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Auc | None:
    """The area under the ROC curve, `P(X > Y) + P(X = Y)/2`: X of a run that will grok, Y of one that never will.

    It is the Mann–Whitney statistic as a share of all pairs: ½ says nothing, and below ½ it is the smaller values that
    announce grokking. The direction is read off, not chosen. With `strata` only runs of one stratum make pairs, all of
    which count alike. Runs whose value is NaN are left out.

    The interval, of 95 %, is a percentile bootstrap over `clusters`, by default the single runs. Of several labellings,
    such as setting and seed, each is resampled and the weights are multiplied (Owen 2007), which allows for runs that
    share either. Where no two runs are in the wrong order no resample has any, and the interval would be one point. So
    its lower end is at most `0.025^(1/n)`, what `n` successes out of `n` show (Clopper and Pearson), and its upper end
    at least one minus that: with fewer than 6 clusters no interval excludes ½, with fewer than 17 none is above 0.8.
    Here `n` is the number of clusters with runs of either kind that have a pair, of the kind that has fewer, counted in
    the labelling that has most.

    >>> print(auc(np.arange(20.0), np.arange(20) >= 10))
    1.00 [0.69, 1.00]
    """
    _require_runs("groks", groks, values)
    known = ~np.isnan(values)
    values, groks = values[known], groks[known]
    labels, strata = _labels(known, clusters), _strata(known, strata)
    paired = np.isin(strata, np.intersect1d(strata[groks], strata[~groks]))
    if not paired.any():
        return None
    weights = _weights(labels, resamples, seed)
    smaller, others = _compared(values, strata, weights, groks, ~groks)
    pairs = (weights[groks] * others).sum(axis=0)
    drawn = (weights[groks] * smaller).sum(axis=0)[pairs > 0] / pairs[pairs > 0]
    n = max(min(len(set(each[paired & kind].tolist())) for kind in (groks, ~groks)) for each in labels)
    low, high = np.quantile(drawn, [MISSED, 1 - MISSED])
    return Auc(
        value=float(drawn[0]),
        low=float(min(low, _reach(n))),
        high=float(max(high, 1 - _reach(n))),
        pairs=int(pairs[0]),
        clusters=n,
    )


def rank_correlation(
    values: Float[np.ndarray, " runs"],
    others: Float[np.ndarray, " runs"],
    *,
    strata: Labels | None = None,
    clusters: Sequence[Labels] = (),
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate | None:
    """Spearman's correlation of two values of each run, with a 95 % interval; None if it is not defined.

    With `strata`, runs are ranked within each, and the ranks, less their mean there and divided by the number of runs,
    are correlated over all runs. Runs whose value is NaN are left out. The interval is a percentile bootstrap over
    clusters, as in `auc`. It is open if there are fewer than three clusters, and ranks that agree in all runs have one
    of no width, which shows no more than that they do.

    >>> rank_correlation(np.array([1.0, 2.0, 3.0, 4.0]), np.array([10.0, 30.0, 20.0, 40.0])).value
    0.8
    """
    _require_runs("others", others, values)
    known = ~(np.isnan(values) | np.isnan(others))
    values, others = values[known], others[known]
    labels, strata = _labels(known, clusters), _strata(known, strata)
    if len(values) < 3:
        return None
    weights = _weights(labels, resamples, seed)
    one, other = (_centred_ranks(each, strata, weights) for each in (values, others))
    spread = (weights * one**2).sum(axis=0) * (weights * other**2).sum(axis=0)
    defined = spread > 1e-12
    if not defined[0]:
        return None
    drawn = (weights * one * other).sum(axis=0)[defined] / np.sqrt(spread[defined])
    value = round(float(drawn[0]), 12)
    if min(len(set(each.tolist())) for each in labels) < 3:
        return Estimate(value, None, None)
    low, high = np.quantile(drawn, [MISSED, 1 - MISSED])
    return Estimate(value, float(low), float(high))


def told_from(found: Mapping[int, Auc | None], level: float = 0.5) -> tuple[int, Side] | None:
    """The first epoch from which the interval stays above `level`, or below `1 − level`; and which of the two it is.

    Only epochs count at which there are clusters enough for an interval to lie there, see `Auc.reach`; None if there is
    none, or the interval lies elsewhere at the last of them. The intervals are pointwise.

    >>> far, near = Auc(0.1, 0.0, 0.3, pairs=90, clusters=9), Auc(0.4, 0.2, 0.6, pairs=90, clusters=9)
    >>> told_from({100: far, 200: near, 500: far, 1000: far, 2000: None}), told_from({100: far}, level=0.8)
    ((500, 'smaller'), None)
    """
    sides: list[tuple[int, Side | None]]
    sides = [(epoch, each.side(level)) for epoch, each in sorted(found.items()) if each and each.reach > level]
    lasting = list(itertools.takewhile(lambda each: each[1] == sides[-1][1], reversed(sides)))
    if not lasting or (side := lasting[-1][1]) is None:
        return None
    return lasting[-1][0], side


def _reach(n: int) -> float:
    return MISSED ** (1 / n)


def _centred_ranks(
    values: Float[np.ndarray, " runs"], strata: Numbers, weights: Float[np.ndarray, "runs samples"]
) -> Float[np.ndarray, "runs samples"]:
    """The rank of each run in its stratum, ties halved, less the mean rank and divided by the number of runs there."""
    everyone = np.ones(len(values), dtype=bool)
    smaller, n = _compared(values, strata, weights, everyone, everyone)
    return (smaller - n / 2) / np.maximum(n, 1)


def _compared(
    values: Float[np.ndarray, " all"],
    strata: Int[np.ndarray, " all"],
    weights: Float[np.ndarray, "all samples"],
    ours: Bool[np.ndarray, " all"],
    theirs: Bool[np.ndarray, " all"],
) -> tuple[Float[np.ndarray, "runs samples"], Float[np.ndarray, "runs samples"]]:
    """For each of our runs, what theirs of its stratum weigh: those of smaller values, ties halved, and all of them.

    Both are differences of sums in the order of strata and values, so that no pair is looked at.
    """
    order = np.lexsort((values, strata))
    new = (np.diff(strata[order]) != 0) | (values[order][1:] != values[order][:-1])
    places = np.empty_like(order)
    places[order] = np.cumsum(np.r_[0, new])
    below, up_to = _sums(places[ours], places[theirs], weights[theirs])
    start, end = _sums(strata[ours], strata[theirs], weights[theirs])
    return (below + up_to) / 2 - start, end - start


def _sums(
    places: Int[np.ndarray, " runs"], others: Int[np.ndarray, " others"], weights: Float[np.ndarray, "others samples"]
) -> list[Float[np.ndarray, "runs samples"]]:
    """What the others weigh that come before each place, and those before it or at it."""
    order = np.argsort(others)
    sums = np.cumsum(np.r_[np.zeros((1, weights.shape[1])), weights[order]], axis=0)
    return [sums[np.searchsorted(others[order], places, side)] for side in ("left", "right")]


def _weights(labels: Sequence[Numbers], resamples: int, seed: int) -> Float[np.ndarray, "runs samples"]:
    """How often each run is in each sample: in the first once, as it is, then as often as its clusters are drawn."""
    require_integer("resamples", resamples, least=1)
    require_integer("seed", seed, least=0)
    drawn = _drawn(tuple(int(each.max()) + 1 for each in labels), resamples, seed)
    weights = prod(times[each] for times, each in zip(drawn, labels, strict=True))
    return np.c_[np.ones(len(labels[0])), weights]


@lru_cache(maxsize=4)
def _drawn(clusters: Sequence[int], resamples: int, seed: int) -> list[Float[np.ndarray, "clusters samples"]]:
    """How often each cluster of each labelling is drawn; many measures of the same runs ask for the same draws."""
    generator = np.random.default_rng(seed)
    return [generator.multinomial(n, np.full(n, 1 / n), size=resamples).T.astype(float, order="C") for n in clusters]


def _labels(known: Bool[np.ndarray, " all"], clusters: Sequence[AllLabels]) -> list[Numbers]:
    """The clusters of known runs, numbered; without clusters each run is one."""
    for each in clusters:
        _require_runs("clusters", each, known)
    return [np.unique(each[known], return_inverse=True)[1] for each in (*clusters,) or (np.arange(len(known)),)]


def _strata(known: Bool[np.ndarray, " all"], strata: AllLabels | None) -> Numbers:
    """The strata of known runs, numbered; without strata all are in one."""
    if strata is None:
        return np.zeros(int(known.sum()), dtype=int)
    _require_runs("strata", strata, known)
    return np.unique(strata[known], return_inverse=True)[1]


def _require_runs(field: str, given: np.ndarray, like: np.ndarray) -> None:
    if given.shape != like.shape or given.ndim != 1:
        raise refuse_case(field, f"an array of shape {given.shape}", f"one entry for each of the {len(like)} runs")
