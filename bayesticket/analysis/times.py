"""Grokking times: those of one arm's runs, and their Kaplan–Meier median.

A run that does not reach its threshold within the epochs trained is censored: all that is known of its time is that it
is later than the run's last epoch. To leave such runs out would make a slow arm look faster than it is.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from bayesticket.errors import refuse, require_number, require_several

HALF = 0.5 + 1e-9
"""One half with room for rounding: a product of fractions that equals 1/2 may be computed as slightly more."""


@dataclass(frozen=True)
class Estimate:
    """A number and its interval. An end that the data leave open is None, and so is a value that is not reached.

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
            return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"

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
    """The epoch at which the run grokked; of a run that did not, the last epoch that was trained."""
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
        """From `run.grok_epoch()` of each run, None where it did not grok, and `run.epoch`, the last epoch trained."""
        reached = require_several("reached", reached, "an epoch of each run, or None")
        trained = require_several("trained", trained, "the last epoch of each run")
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

    Let `n(t)` runs have neither grokked nor been censored before `t`, and let `d(t)` of them grok at `t`. Then
    `S(t) = Π_{u ≤ t} (1 − d(u) / n(u))`, and the median is the first `t` with `S(t) ≤ 1/2`. If an even number of runs
    all grok, this is the lower of the middle two. If `S` never falls to 1/2, the median is None.

    The interval consists of the times at which the pointwise log-log band of `S` contains 1/2 (Brookmeyer and Crowley
    1982). Greenwood's variance gives no band where `S` is 1 or 0; there the binomial band is used, `α^(1/n)` and
    `1 − α^(1/m)`, with `n` runs at risk and `m` that grokked. If there are so few runs that the interval is open above
    even when all of them grok, it can miss the median only at its lower end, which then uses all of `1 − confidence`.

    What five runs can show without an assumption on the distribution of times: the range from the first to the last
    of five covers the median with probability 1 − 2/32 = 93.75 %. So at 95 % the upper end is open even if all five
    grok, and the range from the first time upwards has 96.9 %. At a confidence of 0.9 the interval is the range from
    the first to the last time if all five grok, and open above if one does not. Six runs that all grok give the range
    from first to last at 95 %. Four or fewer give no bound at 95 %. For five to fifteen runs that all grok, intervals
    of nominally 95 % cover between 93 and 98 %.

    >>> print(median_time(Times.of([1300, 1200, 1440, 1280, None], trained=[10_000] * 5)))
    1,300 [1,200, open]
    >>> print(median_time(Times.of([1300, 1200, 1440, 1280, 1310], trained=[10_000] * 5), confidence=0.9))
    1,300 [1,200, 1,440]
    >>> print(median_time(Times.of([None] * 5, trained=[10_000] * 5)))
    not reached [10,000, open]
    """
    require_times("times", times)
    require_number("confidence", confidence, above=0, below=1)
    from scipy.stats import CensoredData, ecdf

    sample = CensoredData(uncensored=times.epochs[times.reached], right=times.epochs[~times.reached])
    curve = ecdf(sample).sf
    # The curve and its band are constant between neighbouring borders.
    borders, survival = np.append(0.0, curve.quantiles), np.append(1.0, curve.probabilities)
    at_risk = np.append((times.epochs >= curve.quantiles[:, None]).sum(axis=1), 0)

    def band(confidence: float) -> tuple[np.ndarray, np.ndarray]:
        with warnings.catch_warnings():  # about the ends of the curve, where the binomial band is used instead
            warnings.filterwarnings("ignore", "The confidence interval is undefined", RuntimeWarning)
            low, high = curve.confidence_interval(confidence, method="log-log")
        return np.append(np.nan, low.probabilities), np.append(np.nan, high.probabilities)

    miss = 1 - confidence
    ends = [1.0, 1 - (miss / 2) ** (1 / max(times.reached.sum(), 1))]
    high = _first_border(borders, np.select([survival == 1, survival == 0], ends, band(confidence)[1]) <= HALF)
    below = miss if 1 - (miss / 2) ** (1 / len(times)) > HALF else miss / 2
    untouched = below ** (1 / np.maximum(at_risk, 1))
    lower = np.select([at_risk == 0, survival == 1], [0.0, untouched], band(max(1 - 2 * below, 0.0))[0])
    median = finite_or_none(kaplan_meier_medians(times.epochs, times.reached).item())
    return Estimate(median, _first_border(borders, lower <= HALF), high)


def kaplan_meier_medians(
    epochs: Float[np.ndarray, "*arms runs"], reached: Bool[np.ndarray, "*arms runs"]
) -> Float[np.ndarray, "*arms"]:
    """The Kaplan–Meier median over the last axis, infinite where it is not reached."""
    # Among equal epochs those that grok come first: a run that is censored then was still at risk.
    order = np.lexsort((~reached, epochs), axis=-1)
    epochs, reached = np.take_along_axis(epochs, order, -1), np.take_along_axis(reached, order, -1)
    survival = np.cumprod(1 - reached / np.arange(epochs.shape[-1], 0, -1), axis=-1)
    found = survival <= HALF
    at = np.take_along_axis(epochs, found.argmax(axis=-1)[..., None], -1)[..., 0]
    return np.where(found.any(axis=-1), at, np.inf)


def _first_border(borders: np.ndarray, holds: np.ndarray) -> float | None:
    """The first border at which a condition holds."""
    return float(borders[holds.argmax()]) if holds.any() else None


def finite_or_none(number: float) -> float | None:
    """The number, or None for an infinity."""
    return float(number) if math.isfinite(number) else None


def require_times(field: str, given: object) -> None:
    """Raises unless given the grokking times of an arm."""
    if not isinstance(given, Times):
        raise refuse(field, given, 'Times, such as runs.times("kl")')


def require_positive(field: str, times: Times) -> None:
    """Raises unless every epoch is above 0."""
    if not (times.epochs > 0).all():
        raise refuse(field, times.epochs.tolist(), "epochs above 0, as their ratios and logarithms are taken")
