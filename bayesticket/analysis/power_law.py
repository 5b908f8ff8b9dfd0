"""Grokking time as a law of a strength, fitted by maximum likelihood with censored runs: `power_law`, `added_rates`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from bayesticket.analysis.likelihood import EXPONENT, FLOOR, HEIGHT, LOG_SIGMA, RATE, Likelihood
from bayesticket.analysis.times import Estimate, Times, require_positive, require_times
from bayesticket.errors import refuse, refuse_case, require_flag, require_number, require_several

NEVER = 1e6
"""An unaided time this many times as long as the shortest time is called infinite."""


@dataclass(frozen=True)
class PowerLaw:
    """Grokking time against strength, `T = floor + scale · s^(−exponent)`, with lognormal scatter `sigma`.

    With an unaided time `T₀`, that at strength 0, it is `1/(T − floor) = 1/(T₀ − floor) + s^exponent / scale`.

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
    """The median time at strength 1, minus the floor; with an unaided time, what it would be without it."""
    sigma: float
    """The standard deviation of the logarithm of a time about the law."""
    n: int
    """The number of runs."""
    n_censored: int
    """How many of them did not grok."""
    unaided: float | None = None
    """The median time at strength 0, which may be infinite; None for a law that does not have it as a parameter."""

    def __str__(self) -> str:
        floor = "" if self.floor is None else f"floor {self.floor}, "
        unaided = "" if self.unaided is None else f"unaided {_in_epochs(self.unaided)}, "
        runs = f"{self.n} runs of which {self.n_censored} censored"
        return f"exponent {self.exponent}, {floor}{unaided}scatter {self.sigma:.2g}, {runs}"

    def at(self, strengths: Float[np.ndarray, " strengths"]) -> Float[np.ndarray, " strengths"]:
        """The median time at each strength, according to the law."""
        assert self.exponent.value is not None
        floor = 0.0 if self.floor is None or self.floor.value is None else self.floor.value
        unaided = 0.0 if self.unaided is None else 1 / (self.unaided - floor)
        with np.errstate(divide="ignore"):  # at strength 0, without an unaided time, the time is infinite
            return floor + 1 / (unaided + strengths**self.exponent.value / self.scale)


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
    given = _floats("strengths", strengths)
    if not (given > 0).all():
        raise refuse("strengths", strengths, "numbers above 0")
    return _fit(given, times_by_strength, floor=floor, unaided=False, confidence=confidence)


def added_rates(
    strengths: Sequence[float] | Float[np.ndarray, " strengths"],
    times_by_strength: Sequence[Times],
    *,
    floor: bool,
    confidence: float = 0.95,
) -> PowerLaw:
    """How grokking time falls with a strength `s` when runs also grok without it, at strength 0.

    If two causes add their rates, the median `T` satisfies `1/(T − floor) = 1/(T₀ − floor) + s^exponent / scale`, with
    `T₀` the median at strength 0. At exponent 1 the rate is linear in the strength. A power law is infinite at strength
    0; where the baseline groks, times level off at `T₀` instead. If `T₀` is infinite, the law is that of `power_law`.

    One of the strengths has to be 0. Its runs are data like all others. If none of them groks, they only say that `T₀`
    is not much shorter than their training, and the likelihood decides whether it is infinite. Likelihood and intervals
    are those of `power_law` with one parameter more (`q` is 4 with a floor, 3 without). The exponent is at least 0,
    with or without a floor.

    >>> strengths = [0.0, 0.01, 0.1, 1.0, 10.0]
    >>> epochs = [5200, 4900, 5000], [4050, 4100, 4300], [1700, 1650, 1750], [680, 660, 700], [540, 530, 560]
    >>> print(added_rates(strengths, [Times.of(each, [9000] * 3) for each in epochs], floor=True))
    exponent 1.04 [0.959, 1.13], floor 533 [510, 555], unaided 5,056, scatter 0.025, 15 runs of which 0 censored
    """
    given = _floats("strengths", strengths)
    if not (given >= 0).all() or (given > 0).all():
        raise refuse("strengths", strengths, "numbers of at least 0, one of which is 0")
    return _fit(given, times_by_strength, floor=floor, unaided=True, confidence=confidence)


def _fit(
    strengths: Float[np.ndarray, " strengths"],
    times_by_strength: Sequence[Times],
    *,
    floor: bool,
    unaided: bool,
    confidence: float,
) -> PowerLaw:
    require_number("confidence", confidence, above=0, below=1)
    require_flag("floor", floor)
    times_by_strength = require_several("times_by_strength", times_by_strength, "Times at each strength")
    if len(strengths) != len(times_by_strength):
        raise refuse("times_by_strength", len(times_by_strength), f"times at each of the {len(strengths)} strengths")
    for times in times_by_strength:
        require_times("times_by_strength", times)
        require_positive("times_by_strength", times)
    s = np.repeat(strengths, [len(times) for times in times_by_strength])
    t = np.concatenate([times.epochs for times in times_by_strength])
    reached = np.concatenate([times.reached for times in times_by_strength])
    aided, m = reached & (s > 0), int(reached.sum())
    parameters, least = 2 + floor + unaided, 2 + floor
    if len(np.unique(s[aided])) < least or m <= parameters:
        counts = [int(times.reached.sum()) for times in times_by_strength]
        accepted = f"more than {parameters} in all, at {least} strengths or more{' above 0' if unaided else ''}"
        raise refuse_case("times_by_strength", f"runs that grokked at each strength {counts}", accepted)

    from scipy.stats import t as student

    unit, weakest = t[reached].min(), s[aided].min()
    with np.errstate(divide="ignore"):
        likelihood = Likelihood(np.log(s / weakest), np.log(t / unit), reached, floor, unaided)
    (best,), (cost,) = likelihood.maximise()
    if unaided and best[EXPONENT] < 1e-6:
        raise refuse_case("times_by_strength", "times that do not fall with strength", "times that do")
    if floor and best[EXPONENT] < 1e-6:
        raise refuse("floor", floor, "False, because these times do not fall with strength")
    if floor and likelihood.maximise([(EXPONENT, likelihood.steepest)])[1] < cost + 1e-3:
        where = "between the floor and the unaided time" if unaided else "above the floor, at two strengths or more"
        raise refuse("floor", floor, f"runs that grok clearly {where}")
    quantile = float(student.ppf((1 + confidence) / 2, m - parameters))
    allowed = cost + m * math.log1p(quantile**2 / (m - parameters)) / 2
    ends = likelihood.intervals([EXPONENT, FLOOR] if floor else [EXPONENT], best, float(cost), allowed)
    at_floor = [float(best[FLOOR]), *ends[-1]]
    alone = float(unit * (best[FLOOR] + 1 / best[RATE])) if unaided else None
    return PowerLaw(
        exponent=Estimate(float(best[EXPONENT]), *ends[0]),
        floor=Estimate(*(None if end is None else float(unit * end) for end in at_floor)) if floor else None,
        scale=float(unit * np.exp(best[HEIGHT] + best[EXPONENT] * np.log(weakest))),
        sigma=float(np.exp(best[LOG_SIGMA])),
        n=len(t),
        n_censored=len(t) - m,
        unaided=math.inf if alone is not None and alone > NEVER * unit else alone,
    )


def _in_epochs(time: float) -> str:
    return f"{time:,.0f}" if math.isfinite(time) else "never"


def _floats(field: str, given: Sequence[float] | np.ndarray) -> np.ndarray:
    given = require_several(field, given, "numbers")
    for number in given or [None]:
        require_number(field, float(number) if isinstance(number, np.number) else number)
    return np.asarray(given, dtype=float)
