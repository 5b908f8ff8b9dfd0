"""Arms of grokking times, written out, drawn or simulated from a law, and their survival curve by hand."""

import math
from fractions import Fraction

import numpy as np
import scipy.optimize
import scipy.stats

from bayesticket.analysis import Times

# Weeks of remission under 6-mercaptopurine and placebo (Freireich et al. 1963; Gehan 1965); negative: censored.
TREATED = [6, 6, 6, -6, 7, -9, 10, -10, -11, 13, 16, -17, -19, -20, 22, 23, -25, -32, -32, -34, -35]
PLACEBO = [1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23]


def times(*signed):
    """An arm from its epochs, negative for censored runs."""
    return Times.of([epoch if epoch > 0 else None for epoch in signed], [abs(epoch) for epoch in signed])


def draw(generator, n, *, ties=True, censored=0.4):
    """Random times, some of them equal, some censored."""
    epochs = generator.integers(1, 12 if ties else 10**6, size=n)
    return times(*np.where(generator.random(n) < censored, -epochs, epochs).tolist())


STRENGTHS = np.array([0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0])


def simulate(
    seed, *, exponent, floor, scale, sigma, unaided=math.inf, per_strength=5, end=math.inf, strengths=STRENGTHS
):
    """An arm for each strength, from `1/(T − floor) = 1/(unaided − floor) + s^exponent/scale` and lognormal scatter."""
    noise = sigma * np.random.default_rng(seed).standard_normal((len(strengths), per_strength))
    with np.errstate(divide="ignore"):
        law = floor + 1 / (1 / (unaided - floor) + strengths[:, None] ** exponent / scale)
        epochs = law * np.exp(noise)
    return [Times(np.minimum(row, min(end, 1e12)), row <= end) for row in epochs]


def flat(strengths, arms):
    """Strength, epoch and whether it is reached, of each run."""
    s = np.repeat(strengths, [len(arm) for arm in arms])
    return s, np.concatenate([arm.epochs for arm in arms]), np.concatenate([arm.reached for arm in arms])


def minus_log_likelihood(strengths, arms, *, exponent, scale, sigma, level=0.0, excess=math.inf):
    """By scipy's own normal distribution; of many parameters at once. `excess` is that of the unaided time."""
    s, t, reached = flat(strengths, arms)
    exponent, scale, sigma, level, excess = (
        np.asarray(number)[..., None] for number in (exponent, scale, sigma, level, excess)
    )
    law = scipy.stats.norm(np.log(level + 1 / (1 / excess + s**exponent / scale)), sigma)
    return -np.where(reached, law.logpdf(np.log(t)), law.logsf(np.log(t))).sum(axis=-1)


def least_cost(strengths, arms, *, floor=False, unaided=False, **fixed):
    """The least of `minus_log_likelihood`, by differential evolution over all parameters that are not fixed."""
    free = {"scale": (0, 9), "sigma": (-3, 1)}
    free |= ({"level": (-5, 8)} if floor else {}) | ({"excess": (0, 22)} if unaided else {})
    free = {name: bounds for name, bounds in free.items() if name not in fixed}

    def cost(rows):
        given = dict(zip(free, np.exp(rows), strict=False))
        return minus_log_likelihood(strengths, arms, **({"exponent": rows[-1]} | given | fixed))

    bounds = [*free.values(), *([] if "exponent" in fixed else [(0, 4)])]
    options = {"tol": 1e-9, "maxiter": 1000, "popsize": 12, "vectorized": True, "updating": "deferred"}
    return scipy.optimize.differential_evolution(cost, bounds, seed=0, **options).fun


def product_limit(arm):
    """The survival curve as pairs of an epoch and, as an exact fraction, the survival from that epoch on."""
    runs = list(zip(arm.epochs.tolist(), arm.reached.tolist(), strict=True))
    curve, survival = [], Fraction(1)
    for epoch in sorted({epoch for epoch, _ in runs}):
        at_risk = sum(other >= epoch for other, _ in runs)
        grokked = sum(other == epoch and reached for other, reached in runs)
        survival *= 1 - Fraction(grokked, at_risk)
        curve.append((epoch, survival))
    return curve


def median_of(arm):
    """The first epoch at which the survival curve is at most 1/2, or None."""
    return next((epoch for epoch, survival in product_limit(arm) if survival <= Fraction(1, 2)), None)


def contains(interval, value):
    return (interval.low is None or interval.low <= value) and (interval.high is None or value <= interval.high)
