"""Arms of grokking times, written out or drawn, and their survival curve by hand."""

from fractions import Fraction

import numpy as np

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
