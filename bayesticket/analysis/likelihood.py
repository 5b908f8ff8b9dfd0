"""The likelihood of grokking times whose median is a law of a strength: its maximum, and profile intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float

from bayesticket.errors import BayesticketError

EXPONENT, HEIGHT, FLOOR, LOG_SIGMA, RATE = range(5)
"""The places of the parameters in `θ`."""
NO_RATE = 1e-9
"""The least unaided rate, in units of one over the shortest time: no data can tell it from none."""

Rows = Float[np.ndarray, " rows"]
Theta = Float[np.ndarray, "rows 5"]


@dataclass(frozen=True)
class Likelihood:
    """The likelihood of times `t`, `log t ~ Normal(log(floor + 1 / (rate + e^−line)), sigma)`, with censored runs.

    Here `line = height − exponent · x`, and `x` is the logarithm of the strength divided by the weakest strength at
    which a run grokked. So without a rate `e^height` is the law above its floor at that strength, which the data
    determine better than the scale at strength 1. Times are in units of the shortest one. All methods work on many rows
    of parameters at once.
    """

    x: Float[np.ndarray, " runs"]
    """Minus infinity for strength 0."""
    y: Float[np.ndarray, " runs"]
    """The logarithms of the times."""
    reached: Bool[np.ndarray, " runs"]
    floor: bool
    """Whether the law has a floor; without one it is 0."""
    unaided: bool
    """Whether the law has a rate at strength 0; without one it is 0."""

    @property
    def steepest(self) -> float:
        """An exponent so large that the law falls to its floor, up to `e^−30`, from one strength to the next."""
        x = self.x[self.reached & np.isfinite(self.x)]
        return 30 / float(np.diff(np.unique(x)).min())

    @property
    def bounds(self) -> tuple[Float[np.ndarray, " 5"], Float[np.ndarray, " 5"]]:
        """The least and the largest value of each parameter."""
        exponents = (0.0 if self.floor or self.unaided else -self.steepest, self.steepest)
        floors, rates = (0.0, 1e6 if self.floor else 0.0), (NO_RATE, 1e6) if self.unaided else (0.0, 0.0)
        low, high = zip(exponents, (-60.0, 60.0), floors, (math.log(1e-3), 5.0), rates, strict=True)
        return np.array(low), np.array(high)

    def maximise(self, fixed: Sequence[tuple[int, float]] = (), nearby: Theta | None = None) -> tuple[Theta, Rows]:
        """The best parameters and their cost; where parameters are `fixed`, one row for each of them and its value.

        The search starts from a grid, and in each row also from the parameters `nearby`.
        """
        low, high = (np.tile(bound, (max(len(fixed), 1), 1)) for bound in self.bounds)
        for row, (place, value) in enumerate(fixed):
            low[row, place] = high[row, place] = value
        starts = self._starts(low, high)
        if nearby is not None:
            starts = np.concatenate([starts, nearby[:, None].clip(low[:, None], high[:, None])], axis=1)
        rows, n = starts.shape[:2]
        low, high = np.repeat(low, n, axis=0), np.repeat(high, n, axis=0)
        theta, cost, missing = self._descend(starts.reshape(rows * n, 5), low, high)
        best = cost.reshape(rows, n).argmin(axis=1) + n * np.arange(rows)
        if not (missing[best] < 1e-5).all():
            raise BayesticketError("times_by_strength: the maximum of the likelihood was not found for these times")
        return theta[best], cost[best]

    def intervals(
        self, places: Sequence[int], best: Float[np.ndarray, " 5"], cost: float, allowed: float
    ) -> list[tuple[float | None, float | None]]:
        """For each of some parameters, the least and the greatest value whose profile cost is at most `allowed`.

        An end is None where the likelihood leaves it open, and 0 where the parameter cannot be less. All ends are
        searched at once, on the square root of the cost, which is nearly linear in the parameter.
        """
        margin = math.sqrt(allowed - cost)
        ends = [
            _End(place, side, float(bound[place]), float(best[place]), -margin, best, self._reach(place, best, margin))
            for place in places
            for side, bound in zip((-1, 1), self.bounds, strict=True)
        ]
        while searched := [end for end in ends if not end.found]:
            fixed = [(end.place, end.next_value()) for end in searched]
            thetas, costs = self.maximise(fixed, np.stack([end.nearby for end in searched]))
            for end, (_, value), theta, found in zip(searched, fixed, thetas, costs, strict=True):
                end.learn(value, math.sqrt(max(found - cost, 0.0)) - margin, theta)
        return list(zip([end.value for end in ends[::2]], [end.value for end in ends[1::2]], strict=True))

    def _reach(self, place: int, best: Float[np.ndarray, " 5"], margin: float) -> float:
        """How far an end would be, were the cost quadratic."""
        low, high = self.bounds
        free = (best > low) & (best < high)
        free[place] = True
        curvature = np.where(free[:, None] & free, self.derivatives(best[None])[2][0], np.eye(5))
        if np.linalg.eigvalsh(curvature).min() < 1e-9:
            return 0.1
        return margin * math.sqrt(2 * np.linalg.inv(curvature)[place, place])

    def _starts(self, low: Theta, high: Theta) -> Float[np.ndarray, "rows starts 5"]:
        """For each of several exponents the best of a grid, within the bounds of each row."""
        told = self.reached & np.isfinite(self.x)
        x, y = self.x[told], self.y[told]
        slope = -np.polyfit(x, y, 1)[0]
        several = self.floor or self.unaided
        slopes = max(slope, 0.1) * np.array([1, 2, 4, 8, 16]) if several else np.array([slope])
        floors = np.array([0, 0.5, 0.9] if self.floor else [0])
        shares = np.array([0, 1] if self.unaided else [0])
        quantiles = np.array([0.2, 0.5, 0.8] if several else [0.5])
        alone = np.exp(np.median(self.y[~np.isfinite(self.x)])) if self.unaided else np.inf

        grid = np.stack(np.meshgrid(slopes, floors, shares, quantiles, indexing="ij"), axis=-1).reshape(-1, 4)
        theta = np.zeros((len(low), len(grid), 5))
        theta[..., EXPONENT], theta[..., FLOOR] = grid[:, 0], grid[:, 1]
        theta = theta.clip(low[:, None], high[:, None])
        theta[..., RATE] = grid[:, 2] / np.maximum(alone - theta[..., FLOOR], 0.1)
        theta = theta.clip(low[:, None], high[:, None])
        # A quantile of the heights at which the law would pass through each single run.
        rates = 1 / np.maximum(np.exp(y) - theta[..., FLOOR, None], 0.02) - theta[..., RATE, None]
        heights = np.sort(theta[..., EXPONENT, None] * x - np.log(rates.clip(1e-3)), axis=-1)
        which = (grid[:, 3] * (len(x) - 1)).astype(int)
        theta[..., HEIGHT] = np.take_along_axis(heights, np.tile(which[:, None], (len(low), 1, 1)), -1)[..., 0]
        theta = theta.clip(low[:, None], high[:, None])
        errors = (self.y - self._median(theta.reshape(-1, 5))[0])[:, told].reshape(*theta.shape[:2], -1)
        theta[..., LOG_SIGMA] = np.log(np.sqrt(np.mean(errors**2, axis=-1)).clip(0.02))
        theta = theta.clip(low[:, None], high[:, None])
        costs = self._cost(theta.reshape(-1, 5))[0].reshape(len(low), len(slopes), -1)
        best = costs.argmin(axis=-1)[..., None, None]
        return np.take_along_axis(theta.reshape(len(low), len(slopes), -1, 5), best, 2)[:, :, 0]

    def _descend(self, theta: Theta, low: Theta, high: Theta) -> tuple[Theta, Rows, Rows]:
        """Newton steps within bounds from each row: parameters, costs, and how far each is expected to fall further."""
        value, gradient, hessian = self.derivatives(theta)
        length, missing = np.ones(len(theta)), np.full(len(theta), np.inf)
        for _ in range(300):
            at_low, at_high = (theta <= low + 1e-6) & (gradient > 0), (theta >= high - 1e-6) & (gradient < 0)
            step, missing = _newton(gradient, hessian, (low < high) & ~at_low & ~at_high)
            rows = np.flatnonzero((missing > 1e-11) & (length > 1e-9))
            if not len(rows):
                break
            longest = np.abs(step) / (1 + np.abs(theta) / 2)
            step = step * (length / np.maximum(longest.max(axis=1), 1))[:, None]
            tried = np.select([at_low, at_high], [low, high], theta + step).clip(low, high)[rows]
            new = self.derivatives(tried)
            lower = new[0] < value[rows]
            length[rows] = np.where(lower, np.minimum(4 * length[rows], 1), length[rows] / 4)
            theta[rows[lower]] = tried[lower]
            for known, found in zip((value, gradient, hessian), new, strict=True):
                known[rows[lower]] = found[lower]
        return theta, value, missing

    def _median(self, theta: Theta) -> tuple[Float[np.ndarray, "rows runs"], ...]:
        """The logarithms of the median, of its excess above the floor, and of the rate that the strength adds."""
        exponent, height, floor, _, rate = theta.T[:, :, None]
        with np.errstate(divide="ignore"):
            aided = np.where(np.isfinite(self.x), exponent * self._finite_x - height, -np.inf)
            excess = -np.logaddexp(np.log(rate), aided)
            return np.logaddexp(np.log(floor), excess), excess, aided

    @cached_property
    def _finite_x(self) -> Float[np.ndarray, " runs"]:
        return np.where(np.isfinite(self.x), self.x, 0.0)

    def _cost(self, theta: Theta) -> tuple[Rows, tuple[Float[np.ndarray, "rows runs"], ...]]:
        """Minus the logarithm of the likelihood; of each run `z`, `log(1 − Φ(z))`, and what `_median` gives."""
        from scipy.special import log_ndtr

        log_sigma, medians = theta[:, LOG_SIGMA, None], self._median(theta)
        z = (self.y - medians[0]) * np.exp(-log_sigma)
        survival = log_ndtr(-z)
        return np.where(self.reached, log_sigma + z**2 / 2, -survival).sum(axis=1), (z, survival, *medians)

    def derivatives(self, theta: Theta) -> tuple[Rows, Theta, Float[np.ndarray, "rows 5 5"]]:
        """Minus the logarithm of the likelihood, its gradient, and its second derivatives."""
        value, (z, survival, median, excess, aided) = self._cost(theta)
        sigma = np.exp(theta[:, LOG_SIGMA, None])
        hazard = np.exp(-(z**2) / 2 - math.log(2 * math.pi) / 2 - survival)
        by_z, by_zz = np.where(self.reached, z, hazard), np.where(self.reached, 1.0, hazard * (hazard - z))
        by_median = -by_z / sigma

        above = np.exp(excess - median)  # the share of the median that lies above the floor
        share = np.exp(aided + excess)  # the share of the rate that the strength adds
        slow = above * np.exp(np.minimum(excess, 100))
        of_line = np.stack([-self._finite_x, np.ones(len(self.x))])  # the derivatives of the line
        of_median = np.zeros((len(theta), 5, len(self.x)))
        of_median[:, :2] = (above * share)[:, None] * of_line
        of_median[:, FLOOR], of_median[:, RATE] = np.exp(np.minimum(-median, 100)), -slow
        of_z = -of_median / sigma[:, None]
        of_z[:, LOG_SIGMA] = -z
        gradient = (of_z @ by_z[..., None])[..., 0]
        gradient[:, LOG_SIGMA] += self.reached.sum()

        hessian = (of_z * by_zz[:, None]) @ of_z.swapaxes(1, 2)
        # The second derivatives of z: of the logarithm of the median, by the rule for logarithms; then with log sigma.
        hessian -= (of_median * by_median[:, None]) @ of_median.swapaxes(1, 2)
        curved = by_median * above * share * (2 * share - 1)
        hessian[:, :2, :2] += (of_line * curved[:, None]) @ of_line.T
        hessian[:, RATE, RATE] += 2 * (by_median * slow**2 / np.maximum(above, 1e-300)).sum(axis=1)
        for place, mixed in (
            (RATE, -2 * (of_line @ (by_median * slow * share)[..., None])[..., 0]),
            (LOG_SIGMA, -(of_median @ by_median[..., None])[..., 0]),
        ):
            hessian[:, place, : mixed.shape[1]] += mixed
            hessian[:, : mixed.shape[1], place] += mixed
        hessian[:, LOG_SIGMA, LOG_SIGMA] += (by_z * z).sum(axis=1)
        return value, gradient, hessian


@dataclass
class _End:
    """An end of an interval while it is searched: in growing steps, and once it is passed by regula falsi."""

    place: int
    side: int
    bound: float
    """The parameter cannot go beyond this."""
    inside: float
    excess_inside: float
    """By how much the square root of the cost is too large; negative inside the interval."""
    nearby: Float[np.ndarray, " 5"]
    """The best parameters at the last value inside."""
    step: float
    outside: float | None = None
    excess_outside: float = math.nan
    last_side: int = 0
    found: bool = False
    value: float | None = None

    def __post_init__(self):
        if self.inside == self.bound:
            self._stop_at_bound()

    def next_value(self) -> float:
        """The value to be tried next."""
        if self.outside is not None:
            share = self.excess_inside / (self.excess_inside - self.excess_outside)
            return self.inside + share * (self.outside - self.inside)
        tried = self.inside + self.side * self.step
        self.step *= 2
        return self.bound if (tried - self.bound) * self.side >= 0 else tried

    def learn(self, value: float, excess: float, theta: Float[np.ndarray, " 5"]) -> None:
        """Takes note of the excess at a value; the side that stays twice counts half (the Illinois rule)."""
        side = 1 if excess > 0 else -1
        if side > 0:
            self.outside, self.excess_outside = value, excess
            if self.last_side == side:
                self.excess_inside /= 2
        else:
            self.inside, self.excess_inside, self.nearby = value, excess, theta
            if self.last_side == side and self.outside is not None:
                self.excess_outside /= 2
        self.last_side = side
        narrow = self.outside is not None and abs(self.outside - self.inside) < 1e-9
        if abs(excess) < 1e-8 or narrow:
            self.found, self.value = True, value
        elif self.inside == self.bound:
            self._stop_at_bound()

    def _stop_at_bound(self) -> None:
        self.found, self.value = True, 0.0 if self.bound == 0 else None


def _newton(
    gradient: Theta, hessian: Float[np.ndarray, "rows 5 5"], free: Bool[np.ndarray, "rows 5"]
) -> tuple[Theta, Rows]:
    """Steps in the free parameters, downhill whatever the sign of the curvature, and what they are expected to gain."""
    slope = np.where(free, gradient, 0.0)
    curvature = np.where(free[:, :, None] & free[:, None, :], hessian, np.eye(5))
    scale = np.sqrt(np.abs(np.diagonal(curvature, axis1=1, axis2=2))).clip(1e-12)
    values, vectors = np.linalg.eigh(curvature / scale[:, :, None] / scale[:, None, :])
    along = (vectors.swapaxes(1, 2) @ (slope / scale)[..., None])[..., 0]
    gain = along / np.abs(values).clip(1e-9)
    return -(vectors @ gain[..., None])[..., 0] / scale, (along * gain).sum(axis=1) / 2
