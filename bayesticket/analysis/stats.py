"""Statistics of grokking times, with runs that never grokked counted as such, at the few seeds that runs come in.

A run that does not reach its threshold within the epochs trained is censored: its time is known to be later than its
last epoch, and nothing else. Left out, it would make every slow arm look faster than it is.
"""

import itertools
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from bayesticket.errors import BayesticketError, refuse, require_integer, require_number

HALF = 0.5 + 1e-9  # a product of survival fractions that is a half on paper may come out a rounding error above it


@dataclass(frozen=True)
class Estimate:
    """A number and its interval; an end that the data leave open is None, and so is a value that is not reached.

    >>> print(Estimate(1300, 1200, 1440), "·", Estimate(1300, 1200, None), "·", Estimate(0.98, None, None))
    1,300 [1,200, 1,440] · 1,300 [1,200, open] · 0.98
    >>> print(Estimate(None, None, None))
    not reached
    """

    value: float | None
    low: float | None
    high: float | None

    def __str__(self) -> str:
        def shown(number: float | None, none: str) -> str:
            if number is None:
                return none
            return f"{number:,.0f}" if abs(number) >= 99.95 else f"{number:.3g}"

        value = shown(self.value, "not reached")
        if self.low is None and self.high is None:
            return value
        return f"{value} [{shown(self.low, 'open')}, {shown(self.high, 'open')}]"


@dataclass(frozen=True, eq=False)
class Times:
    """Grokking times of the runs of one arm, one run per seed.

    >>> Times.of([1300, None, 1200], trained=[1300, 10_000, 10_000])
    Times(epochs=array([ 1300., 10000.,  1200.]), reached=array([ True, False,  True]))
    """

    epochs: Float[np.ndarray, " runs"]
    """When the run grokked, or, if it did not, the last epoch at which it is known not to have."""
    reached: Bool[np.ndarray, " runs"]
    """Whether it grokked."""

    def __post_init__(self) -> None:
        epochs, reached = self.epochs, self.reached
        if not (isinstance(epochs, np.ndarray) and epochs.ndim == 1 and epochs.dtype.kind == "f" and len(epochs)):
            raise refuse("epochs", epochs, "a numpy array of floats, one for each of at least one run")
        if not (isinstance(reached, np.ndarray) and reached.dtype == bool and reached.shape == epochs.shape):
            raise refuse("reached", reached, f"a numpy array of bools, one for each of the {len(epochs)} runs")
        for epoch in epochs.tolist():
            require_number("epochs", epoch, least=0)

    @classmethod
    def of(cls, reached: Sequence[int | None], trained: Sequence[int]) -> "Times":
        """From what `run.grok_epoch()` says, None being "not within the epochs trained", and from `run.epoch`."""
        if len(reached) != len(trained):
            raise refuse("trained", trained, f"the last epoch of each of the {len(reached)} runs")
        for epoch, last in zip(reached, trained, strict=True):
            require_number("trained", last, least=0)
            if epoch is not None:
                require_number("reached", epoch, least=0)
                if epoch > last:
                    raise refuse("reached", epoch, f"an epoch that was trained, at most {last:,}, or None")
        pairs = zip(reached, trained, strict=True)
        epochs = [float(last if epoch is None else epoch) for epoch, last in pairs]
        return cls(np.array(epochs), np.array([epoch is not None for epoch in reached], dtype=bool))

    def __len__(self) -> int:
        return len(self.epochs)


def median_time(times: Times, confidence: float = 0.95) -> Estimate:
    """The Kaplan–Meier median of grokking times.

    With `n(t)` runs not yet grokked nor censored just before `t`, of which `d(t)` grok at it,
    `S(t) = Π_{u ≤ t} (1 − d(u) / n(u))`, and the median is the first `t` with `S(t) ≤ 1/2` (of an even number of runs
    that all grok: the lower of the middle two). It is None where `S` never falls to a half.

    The interval holds the times at which the pointwise log-log band of `S` contains 1/2 (Brookmeyer and Crowley 1982).
    Greenwood's variance gives no band where `S` is 1 or 0; there it is the binomial one, `α^(1/n)` and `1 − α^(1/m)`,
    with `n` runs at risk and `m` that grokked. Where runs are too few for the upper end to be closed even if all of
    them grok, nothing can be missed above it, and all of `1 − confidence` is spent on the lower end.

    What five runs can say, nothing being assumed of how times are distributed: from the first to the last of five
    covers the median with probability 1 − 2/32 = 93.75 %, so at 95 % the upper end is open even if all five grok
    (from the first on: 96.9 %). A confidence of 0.9 gives the first and the last if all of them grok, and an open end
    if one does not. With six, all grokked, first to last is what 95 % gives. Four or fewer bound nothing at 95 %. Over
    five to fifteen runs that all grok the nominal 95 % cover between 93 and 98 %.

    >>> print(median_time(Times.of([1300, 1200, 1440, 1280, None], trained=[10_000] * 5)))
    1,300 [1,200, open]
    >>> print(median_time(Times.of([1300, 1200, 1440, 1280, 1310], trained=[10_000] * 5), confidence=0.9))
    1,300 [1,200, 1,440]
    >>> print(median_time(Times.of([None] * 5, trained=[10_000] * 5)))
    not reached [10,000, open]
    """
    require_number("confidence", confidence, above=0, below=1)
    from scipy.stats import CensoredData, ecdf

    sample = CensoredData(uncensored=times.epochs[times.reached], right=times.epochs[~times.reached])
    curve = ecdf(sample).sf
    # between two neighbours of `borders` the curve, and so its band, is constant
    borders, survival = np.append(0.0, curve.quantiles), np.append(1.0, curve.probabilities)
    at_risk = np.append((times.epochs >= curve.quantiles[:, None]).sum(axis=1), 0)

    def band(confidence: float) -> tuple[np.ndarray, np.ndarray]:
        with warnings.catch_warnings():  # of the ends, which are filled in by the binomial
            warnings.filterwarnings("ignore", "The confidence interval is undefined", RuntimeWarning)
            low, high = curve.confidence_interval(confidence, method="log-log")
        return np.append(np.nan, low.probabilities), np.append(np.nan, high.probabilities)

    miss = 1 - confidence
    ends = [1.0, 1 - (miss / 2) ** (1 / max(times.reached.sum(), 1))]
    high = _first(borders, np.select([survival == 1, survival == 0], ends, band(confidence)[1]) <= HALF)
    below = miss if 1 - (miss / 2) ** (1 / len(times)) > HALF else miss / 2
    untouched = below ** (1 / np.maximum(at_risk, 1))
    lower = np.select([at_risk == 0, survival == 1], [0.0, untouched], band(max(1 - 2 * below, 0.0))[0])
    return Estimate(_finite(_medians(times.epochs, times.reached).item()), _first(borders, lower <= HALF), high)


def compare(times: Times, other: Times, *, resamples: int = 20_000, seed: int = 0) -> float:
    """The two-sided log-rank p of two arms having the same distribution of grokking times.

    The statistic is the log-rank numerator, observed less expected number of runs that grok,
    `U = Σ_{i in times} (reached_i − H(t_i))`, with the hazard of both arms together `H(t) = Σ_{u ≤ t} d(u) / n(u)`. Its
    distribution is found by exchanging runs between the arms, in every way if there are at most `resamples`, because
    the normal approximation fails at this size: for two arms of five of which one is faster throughout it claims
    p = 0.0018, and chance does this in 2 cases of 252. So 0.0079 is the least p that five against five seeds can give
    (four against four: 0.029; three against three: 0.1, so that they cannot show anything at 5 %).

    Arms trained for different numbers of epochs can be compared; then p is approximate. Runs of the same seeds in both
    arms are not paired: five pairs could give no p below 2/32. If no run grokked, p is 1: no evidence.

    >>> fast = Times.of([800, 900, 850, 870, 910], trained=[5000] * 5)
    >>> slow = Times.of([1300, None, 2100, None, 1250], trained=[5000] * 5)
    >>> round(compare(fast, slow), 4)
    0.0079
    >>> compare(fast, fast)
    1.0
    """
    require_integer("resamples", resamples, least=1)
    require_integer("seed", seed, least=0)
    n, scores = len(times), _log_rank_scores(times, other)
    if math.comb(len(scores), n) <= resamples:
        arms = scores[np.array(list(itertools.combinations(range(len(scores)), n)))]
    else:
        shuffled = np.random.default_rng(seed).permuted(np.tile(scores, (resamples, 1)), axis=1)
        arms = np.concatenate([scores[None], shuffled])[:, :n]
    sizes = np.abs(arms.sum(axis=1)).round(9)  # what is equal on paper is counted as equal
    return float((sizes >= np.abs(scores[:n].sum()).round(9)).mean())


def excess(times: Times, other: Times) -> float:
    """The log-rank numerator `U` of `compare`: above 0 where the first arm groks earlier, below 0 where later.

    >>> fast, slow = Times.of([800, 900], [5000] * 2), Times.of([1300, None], [5000] * 2)
    >>> round(excess(fast, slow), 3), round(excess(slow, fast), 3)
    (1.167, -1.167)
    """
    return float(_log_rank_scores(times, other)[: len(times)].sum())


def _log_rank_scores(times: Times, other: Times) -> Float[np.ndarray, " runs"]:
    """Of each run of both arms, whether it grokked less the hazard of both until its time."""
    epochs = np.concatenate([times.epochs, other.epochs])
    reached = np.concatenate([times.reached, other.reached])
    not_before = epochs[:, None] >= epochs  # [i, j]: run i is at risk when j groks or is censored
    return reached - not_before @ (reached / not_before.sum(axis=0))


def ratio_of_medians(
    times: Times,
    other: Times,
    *,
    paired: bool = True,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Estimate:
    """How many times longer one arm takes than another: the ratio of their Kaplan–Meier medians.

    The interval is the percentile bootstrap over seeds. `paired` draws the same seeds in both arms, which must then be
    in the same order; `paired=False` draws them apart. A resample in which a median is not reached is kept: that median
    is anything from the last epoch of its runs to infinity, and the lower end of the interval is taken over the least
    that the ratio can then be, the upper end over the most. The ends are order statistics, as there is no interpolating
    between numbers and infinities (where `scipy.stats.bootstrap` gives nan). The ratio itself is None unless both
    medians are reached.

    What five seeds can say: where 95 % was claimed, 93 to 95 % measured with paired lognormal times that are all
    reached, and 98 to 99 % with unpaired ones. If one in four runs or more is censored, most intervals are open above;
    95 to 99 % measured. Fewer seeds cannot support it: three pairs cover 75 % at most. One run gives no interval.

    >>> fast = Times.of([800, 900, 850, 870, 910], trained=[5000] * 5)
    >>> slow = Times.of([1300, None, 2100, None, 1250], trained=[5000] * 5)
    >>> print(ratio_of_medians(slow, fast))
    2.41 [1.37, open]
    >>> never = Times.of([None] * 5, [5000] * 5)
    >>> print(ratio_of_medians(never, fast), "·", ratio_of_medians(fast, never))
    not reached [5.49, open] · not reached [0, 0.182]
    """
    require_number("confidence", confidence, above=0, below=1)
    require_integer("resamples", resamples, least=1)
    require_integer("seed", seed, least=0)
    for name, arm in (("times", times), ("other", other)):
        _require_positive(name, arm)
    if paired and len(times) != len(other):
        raise refuse("paired", paired, f"False, for arms of {len(times)} and {len(other)} runs")
    medians = [_finite(_medians(arm.epochs, arm.reached).item()) for arm in (times, other)]
    value = None if medians[0] is None or medians[1] is None else medians[0] / medians[1]
    if min(len(times), len(other)) == 1:
        return Estimate(value, None, None)
    generator = np.random.default_rng(seed)
    one = generator.integers(len(times), size=(resamples, len(times)))
    two = one if paired else generator.integers(len(other), size=(resamples, len(other)))

    def bounds(arm: Times, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        epochs = arm.epochs[drawn]
        most = _medians(epochs, arm.reached[drawn])
        return np.where(np.isfinite(most), most, epochs.max(axis=-1)), most

    (least, most), (other_least, other_most) = bounds(times, one), bounds(other, two)
    outside = int(resamples * (1 - confidence) / 2)
    low = np.sort(least / other_most)[outside]
    high = np.sort(most / other_least)[resamples - 1 - outside]
    return Estimate(value, float(low), _finite(high))


@dataclass(frozen=True)
class PowerLaw:
    """Grokking time against strength, `T = floor + scale · s^(−exponent)`, with lognormal scatter `sigma`.

    >>> law = PowerLaw(Estimate(1.0, 0.9, 1.1), Estimate(600, 500, 690), scale=200.0, sigma=0.1, n=35, n_censored=4)
    >>> print(law)
    exponent 1 [0.9, 1.1], floor 600 [500, 690], scatter 0.1, 35 runs of which 4 censored
    >>> law.at(np.array([0.1, 1.0, 10.0]))
    array([2600.,  800.,  620.])
    """

    exponent: Estimate
    floor: Estimate | None
    """None where it was taken to be 0."""
    scale: float
    """How far above the floor the median time is at strength 1."""
    sigma: float
    """The standard deviation of the logarithm of a time around the law."""
    n: int
    n_censored: int

    def __str__(self) -> str:
        floor = "" if self.floor is None else f"floor {self.floor}, "
        runs = f"{self.n} runs of which {self.n_censored} censored"
        return f"exponent {self.exponent}, {floor}scatter {self.sigma:.2g}, {runs}"

    def at(self, strengths: Float[np.ndarray, " strengths"]) -> Float[np.ndarray, " strengths"]:
        """The median time that the law gives at each strength."""
        assert self.exponent.value is not None
        floor = 0.0 if self.floor is None or self.floor.value is None else self.floor.value
        return floor + self.scale * strengths**-self.exponent.value


def power_law(
    strengths: Sequence[float] | Float[np.ndarray, " strengths"],
    times_by_strength: Sequence[Times],
    *,
    floor: bool,
    confidence: float = 0.95,
) -> PowerLaw:
    """How grokking time falls with a strength `s`: `log T ~ Normal(log(floor + scale · s^(−exponent)), sigma)`.

    Maximum likelihood: with `z = (log t − log(floor + scale · s^(−exponent))) / sigma`, a run that grokked at `t`
    counts `φ(z) / sigma`, and one that had not by `t` counts `1 − Φ(z)`. Without a floor this is the accelerated
    failure time model of lognormal times; with nothing censored it is least squares on logarithms. With a floor the
    exponent is at least 0. `sigma` is at least 0.001, finer than epochs are recorded.

    The interval of a parameter `θ` holds the values that cost the profile likelihood little,
    `2 (ℓ_max − ℓ(θ)) ≤ m log(1 + t² / (m − q))`, with `m` runs that grokked, `q` parameters besides `sigma` (3 with a
    floor, 2 without), and Student's `t` at `m − q` degrees of freedom. Without floor and censoring this is exactly
    Student's interval of least squares. An upper end that the likelihood does not close is None.

    It was chosen over the percentile bootstrap of seeds, of which there are too few to draw from. Of 400 simulations of
    seven strengths and five seeds (`sigma` 0.25; nothing censored, or a quarter, with a floor a seventh), intervals
    that claim 95 % held the exponent in 95 to 97 % (the bootstrap, of 200, in 82 to 85 %), with a floor in 96 to 98 %
    (79 to 88 %), and the floor in 92 to 95 % (83 to 85 %). Runs are taken to be independent. If a seed makes all its
    runs slower or faster by as much, the exponent is held in 99 % and the floor in 85 %. If the exponent itself differs
    between seeds, by a standard deviation of 0.06, it is held in only 65 to 78 % without a floor, and a floor in 82 %:
    a law fitted to each seed apart shows whether it does.

    >>> strengths = [0.1, 1.0, 10.0]
    >>> times = [Times.of(epochs, [9000] * 3) for epochs in ([None, 7500, None], [1300, 1500, 1350], [560, 610, 580])]
    >>> print(power_law(strengths, times, floor=True))
    exponent 0.968 [0.809, 1.19], floor 487 [342, 634], scatter 0.079, 9 runs of which 2 censored
    """
    require_number("confidence", confidence, above=0, below=1)
    given = _floats("strengths", strengths)
    if not (given > 0).all():
        raise refuse("strengths", strengths, "numbers above 0")
    if len(given) != len(times_by_strength):
        raise refuse("times_by_strength", len(times_by_strength), f"times at each of the {len(given)} strengths")
    for times in times_by_strength:
        _require_positive("times_by_strength", times)
    s = np.repeat(given, [len(times) for times in times_by_strength])
    t = np.concatenate([times.epochs for times in times_by_strength])
    reached = np.concatenate([times.reached for times in times_by_strength])
    parameters = 3 if floor else 2
    m = int(reached.sum())
    if len(np.unique(s[reached])) < parameters or m <= parameters:
        counts = [int(times.reached.sum()) for times in times_by_strength]
        accepted = f"more than {parameters} in all, at {parameters} strengths or more"
        raise refuse("times_by_strength", f"runs that grokked at each strength {counts}", accepted)

    from scipy.stats import t as student

    unit, weakest = t[reached].min(), s[reached].min()
    likelihood = _Likelihood(np.log(s / weakest), np.log(t / unit), reached, floor)
    best, cost = likelihood.maximise({})
    if floor and best[0] < 1e-6:
        raise refuse("floor", floor, "False, as these times do not fall with strength")
    if floor and likelihood.maximise({0: likelihood.steepest})[1] < cost + 1e-3:
        raise refuse("floor", floor, "times above the floor, and reached, at two strengths or more")
    quantile = float(student.ppf((1 + confidence) / 2, m - parameters))
    allowed = cost + m * math.log1p(quantile**2 / (m - parameters)) / 2
    exponent = Estimate(float(best[0]), *likelihood.interval(0, best, allowed))
    at_floor = None
    if floor:
        low, high = likelihood.interval(2, best, allowed)
        at_floor = Estimate(*(None if end is None else float(unit * end) for end in (float(best[2]), low, high)))
    return PowerLaw(
        exponent=exponent,
        floor=at_floor,
        scale=float(unit * np.exp(best[1] + best[0] * np.log(weakest))),
        sigma=float(np.exp(best[3])),
        n=len(t),
        n_censored=len(t) - m,
    )


@dataclass(frozen=True)
class _Likelihood:
    """The likelihood of `power_law` in `θ = (exponent, log height, floor, log sigma)`.

    The height is that of the law above its floor at the weakest strength that was reached, which the data fix better
    than the scale at strength 1. Times are in units of the shortest.
    """

    x: np.ndarray
    y: np.ndarray
    reached: np.ndarray
    floor: bool

    @property
    def steepest(self) -> float:
        """An exponent at which what is above the floor is gone, by `e^−30`, from one strength to the next."""
        return 30 / float(np.diff(np.unique(self.x[self.reached])).min())

    def cost(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Minus the logarithm of the likelihood, and its gradient."""
        from scipy.special import log_ndtr

        exponent, height, floor, log_sigma = theta
        sigma, reached = np.exp(log_sigma), self.reached
        line = height - exponent * self.x
        with np.errstate(divide="ignore"):
            median = np.logaddexp(np.log(floor), line)
        z = (self.y - median) / sigma
        survival = log_ndtr(-z)
        value = np.where(reached, log_sigma + z**2 / 2, -survival).sum()
        by_z = np.where(reached, z, np.exp(-(z**2) / 2 - math.log(2 * math.pi) / 2 - survival))
        by_median, by_line = -by_z / sigma, -by_z / sigma * np.exp(line - median)
        by_floor = by_median * np.exp(np.minimum(-median, 100))
        gradient = [-by_line * self.x, by_line, by_floor, reached - by_z * z]
        return float(value), np.sum(gradient, axis=1)

    def maximise(self, fixed: dict[int, float], *starts: np.ndarray) -> tuple[np.ndarray, float]:
        """The best parameters, some of them fixed, over several starts; and their cost."""
        found = [self._descend(start, fixed) for start in [*starts, *self._starts(fixed)]]
        theta, cost, missing = min(found, key=lambda one: one[1])
        if not missing < 1e-5:
            raise BayesticketError("power_law: got times for which the likelihood's maximum was not found")
        return theta, cost

    def interval(self, which: int, best: np.ndarray, allowed: float) -> tuple[float | None, float | None]:
        """The values of one parameter between which its profile costs no more than is allowed."""
        from scipy.optimize import root_scalar

        def end(outward: float, bound: float) -> float | None:
            inside, step, latest = float(best[which]), 0.05, best

            def excess(value: float) -> float:
                nonlocal latest
                latest, cost = self.maximise({which: value}, latest)
                return cost - allowed

            while True:
                tried = inside + outward * step
                if (tried - bound) * outward >= 0:
                    tried = bound
                if excess(tried) > 0:
                    return float(root_scalar(excess, bracket=(inside, tried), xtol=1e-9).root)
                if tried == bound:
                    return bound if bound == 0 else None
                inside, step = tried, 2 * step

        low, high = self._bounds({})[which]
        return end(-1.0, low), end(1.0, high)

    def _bounds(self, fixed: dict[int, float]) -> list[tuple[float, float]]:
        exponent = (0.0 if self.floor else -self.steepest, self.steepest)
        bounds = [exponent, (-60.0, 60.0), (0.0, 1e6 if self.floor else 0.0), (math.log(1e-3), 5.0)]
        return [(fixed[i], fixed[i]) if i in fixed else pair for i, pair in enumerate(bounds)]

    def _starts(self, fixed: dict[int, float]) -> list[np.ndarray]:
        """Least squares over the runs that were reached: of logarithms for the exponent, of ratios for the rest."""
        x, y = self.x[self.reached], self.y[self.reached]
        slope = -np.polyfit(x, y, 1)[0]
        if self.floor:
            slope = max(slope, 0.1)
        starts = []
        for exponent in [fixed[0]] if 0 in fixed else [slope, 1.5 * slope, 3 * slope] if self.floor else [slope]:
            parts = np.stack([np.exp((-exponent * x).clip(-100, 100)), np.full(len(x), self.floor)], axis=1)
            height, floor = np.linalg.lstsq(parts / np.exp(y)[:, None], np.ones(len(x)))[0].clip([1e-3, 0])
            floor = fixed.get(2, float(floor))
            error = y - np.log(floor + height * parts[:, 0])
            starts.append(np.array([exponent, np.log(height), floor, np.log(max(np.sqrt(np.mean(error**2)), 0.02))]))
        return starts

    def _descend(self, start: np.ndarray, fixed: dict[int, float]) -> tuple[np.ndarray, float, float]:
        """From one start, the parameters, their cost, and what a quadratic says could still be gained."""
        from scipy.optimize import minimize

        bounds = self._bounds(fixed)
        low, high = np.array(bounds).T
        options = {"maxiter": 2000, "maxfun": 5000, "maxcor": 20, "ftol": 1e-14, "gtol": 1e-8}

        def cost(theta: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self.cost(theta)
            return value, np.where(low < high, gradient, 0)

        theta, value, missing = start.clip(low, high), math.inf, math.inf
        for _ in range(3):  # from where a line search lost its way, a fresh one goes on
            end = minimize(cost, theta, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
            slope = end.x - (end.x - end.jac).clip(low, high)  # without what a bound holds back
            theta, value, missing = end.x, float(end.fun), float(slope @ end.hess_inv.dot(slope)) / 2
            if missing < 1e-9:
                break
        return theta, value, missing


def _medians(epochs: np.ndarray, reached: np.ndarray) -> np.ndarray:
    """The Kaplan–Meier median along the last axis, infinite where it is not reached."""
    order = np.lexsort((~reached, epochs), axis=-1)  # a run censored when another groks was at risk then
    epochs, reached = np.take_along_axis(epochs, order, -1), np.take_along_axis(reached, order, -1)
    survival = np.cumprod(1 - reached / np.arange(epochs.shape[-1], 0, -1), axis=-1)
    found = survival <= HALF
    at = np.take_along_axis(epochs, found.argmax(axis=-1)[..., None], -1)[..., 0]
    return np.where(found.any(axis=-1), at, np.inf)


def _first(borders: np.ndarray, holds: np.ndarray) -> float | None:
    return float(borders[holds.argmax()]) if holds.any() else None


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None


def _floats(field: str, given: Sequence[float] | np.ndarray) -> np.ndarray:
    for number in given if len(given) else [None]:
        require_number(field, float(number) if isinstance(number, np.number) else number)
    return np.asarray(given, dtype=float)


def _require_positive(field: str, times: Times) -> None:
    if not (times.epochs > 0).all():
        raise refuse(field, times.epochs.tolist(), "epochs above 0, as their ratios and logarithms are taken")
