"""Grokking time as a power law of a strength, fitted by maximum likelihood with censored runs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from bayesticket.analysis.times import Estimate, Times, require_positive
from bayesticket.errors import BayesticketError, refuse, refuse_case, require_number


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
    """None for a law that was fitted without a floor."""
    scale: float
    """The median time at strength 1, minus the floor."""
    sigma: float
    """The standard deviation of the logarithm of a time about the law."""
    n: int
    """The number of runs."""
    n_censored: int
    """How many of them did not grok."""

    def __str__(self) -> str:
        floor = "" if self.floor is None else f"floor {self.floor}, "
        runs = f"{self.n} runs of which {self.n_censored} censored"
        return f"exponent {self.exponent}, {floor}scatter {self.sigma:.2g}, {runs}"

    def at(self, strengths: Float[np.ndarray, " strengths"]) -> Float[np.ndarray, " strengths"]:
        """The median time at each strength, according to the law."""
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

    The fit is by maximum likelihood. With `z = (log t − log(floor + scale · s^(−exponent))) / sigma`, a run that
    grokked at `t` contributes the factor `φ(z) / sigma`, and a run censored at `t` the factor `1 − Φ(z)`. Without a
    floor this is the accelerated failure time model of lognormal times; if no run is censored, it is least squares on
    logarithms. With a floor the exponent is restricted to be at least 0. `sigma` is at least 0.001, which is less than
    the spacing of recorded epochs.

    The interval of a parameter `θ` consists of the values whose profile likelihood is close to the maximum,
    `2 (ℓ_max − ℓ(θ)) ≤ m log(1 + t² / (m − q))`, with `m` runs that grokked, `q` parameters besides `sigma` (3 with a
    floor, 2 without), and Student's `t` with `m − q` degrees of freedom. Without floor and censoring this is exactly
    Student's interval of least squares. An upper end that the likelihood leaves open is None.

    The profile likelihood was chosen because a percentile bootstrap needs more seeds. In 400 simulations of seven
    strengths and five seeds (`sigma` 0.25; no run censored, or a quarter of them, with a floor a seventh), intervals of
    nominally 95 % covered the exponent in 95 to 97 % (the bootstrap, in 200 simulations, in 82 to 85 %), with a floor
    in 96 to 98 % (79 to 88 %), and the floor in 92 to 95 % (83 to 85 %). The runs are assumed to be independent. If a
    seed multiplies the times of all its runs by a common factor, the coverage is 99 % for the exponent and 85 % for the
    floor. If the exponent itself varies between seeds with a standard deviation of 0.06, the coverage is only 65 to
    78 % without a floor, and 82 % for a floor; fitting each seed separately shows whether it varies.

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
        require_positive("times_by_strength", times)
    s = np.repeat(given, [len(times) for times in times_by_strength])
    t = np.concatenate([times.epochs for times in times_by_strength])
    reached = np.concatenate([times.reached for times in times_by_strength])
    parameters = 3 if floor else 2
    m = int(reached.sum())
    if len(np.unique(s[reached])) < parameters or m <= parameters:
        counts = [int(times.reached.sum()) for times in times_by_strength]
        accepted = f"more than {parameters} in all, at {parameters} strengths or more"
        raise refuse_case("times_by_strength", f"runs that grokked at each strength {counts}", accepted)

    from scipy.stats import t as student

    unit, weakest = t[reached].min(), s[reached].min()
    likelihood = _Likelihood(np.log(s / weakest), np.log(t / unit), reached, floor)
    best, cost = likelihood.maximise({})
    if floor and best[0] < 1e-6:
        raise refuse("floor", floor, "False, because these times do not fall with strength")
    if floor and likelihood.maximise({0: likelihood.steepest})[1] < cost + 1e-3:
        raise refuse("floor", floor, "runs that grok clearly above the floor, at two strengths or more")
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

    The height is that of the law above its floor at the weakest strength where a run grokked; the data determine it
    better than the scale at strength 1. Times are in units of the shortest time.
    """

    x: np.ndarray
    y: np.ndarray
    reached: np.ndarray
    floor: bool

    @property
    def steepest(self) -> float:
        """An exponent so large that the law falls to its floor, up to `e^−30`, from one strength to the next."""
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
        """The best parameters from several starts, with some parameters fixed, and their cost."""
        found = [self._descend(start, fixed) for start in [*starts, *self._starts(fixed)]]
        theta, cost, missing = min(found, key=lambda one: one[1])
        if not missing < 1e-5:
            raise BayesticketError("power_law: the maximum of the likelihood was not found for these times")
        return theta, cost

    def interval(self, which: int, best: np.ndarray, allowed: float) -> tuple[float | None, float | None]:
        """The least and the greatest value of one parameter whose profile cost is at most `allowed`."""
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
        """Least squares over the runs that grokked: on logarithms for the exponent, on ratios for the rest."""
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
        """From one start: the parameters, their cost, and how far a quadratic model expects it to fall further."""
        from scipy.optimize import minimize

        bounds = self._bounds(fixed)
        low, high = np.array(bounds).T
        options = {"maxiter": 2000, "maxfun": 5000, "maxcor": 20, "ftol": 1e-14, "gtol": 1e-8}

        def cost(theta: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self.cost(theta)
            return value, np.where(low < high, gradient, 0)

        theta, value, missing = start.clip(low, high), math.inf, math.inf
        for _ in range(3):  # a line search that failed is restarted from where it stopped
            end = minimize(cost, theta, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
            slope = end.x - (end.x - end.jac).clip(low, high)  # no slope in directions that a bound blocks
            theta, value, missing = end.x, float(end.fun), float(slope @ end.hess_inv.dot(slope)) / 2
            if missing < 1e-9:
                break
        return theta, value, missing


def _floats(field: str, given: Sequence[float] | np.ndarray) -> np.ndarray:
    for number in given if len(given) else [None]:
        require_number(field, float(number) if isinstance(number, np.number) else number)
    return np.asarray(given, dtype=float)
