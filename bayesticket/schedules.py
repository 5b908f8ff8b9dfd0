"""Numbers that change over training: strengths of interventions, learning rates, weight decays.

A plain number is a constant; a `Schedule` is a function of the epoch, and data like all else. Interventions and
optimisers take either.
"""

import abc
import math

from bayesticket.errors import refuse, require_integer, require_number
from bayesticket.specs import Spec, spec


class Schedule(Spec, abc.ABC):
    """A number as a function of the epoch."""

    @abc.abstractmethod
    def at(self, epoch: int) -> float:
        """The value at an epoch."""

    @property
    @abc.abstractmethod
    def largest(self) -> float:
        """The largest value it ever takes."""


@spec
class Anneal(Schedule):
    """Moves in a straight line from `start` at epoch `first` to `end` at epoch `last`, constant before and after.

    >>> [Anneal(1.0, 0.0, last=100).at(epoch) for epoch in (0, 25, 200)]
    [1.0, 0.75, 0.0]
    """

    start: float = 1.0
    end: float = 0.0
    first: int = 0
    last: int = 1000

    def __post_init__(self):
        require_number("start", self.start, least=0)
        require_number("end", self.end, least=0)
        require_integer("first", self.first, least=0)
        require_integer("last", self.last, least=self.first + 1)

    def at(self, epoch: int) -> float:
        """The value at an epoch."""
        done = min(1.0, max(0.0, (epoch - self.first) / (self.last - self.first)))
        return self.start + done * (self.end - self.start)

    @property
    def largest(self) -> float:
        """The larger end."""
        return max(self.start, self.end)


@spec
class Window(Schedule):
    """`value` from epoch `start` up to but without epoch `stop`, zero elsewhere: a late start, an early stop.

    >>> [Window(2.0, start=10, stop=20).at(epoch) for epoch in (9, 10, 19, 20)]
    [0.0, 2.0, 2.0, 0.0]
    """

    value: float = 1.0
    start: int = 0
    stop: int | None = None

    def __post_init__(self):
        require_number("value", self.value, least=0)
        require_integer("start", self.start, least=0)
        if self.stop is not None:
            require_integer("stop", self.stop, least=self.start + 1)

    def at(self, epoch: int) -> float:
        """The value at an epoch."""
        return self.value if self.start <= epoch < (math.inf if self.stop is None else self.stop) else 0.0

    @property
    def largest(self) -> float:
        """The value."""
        return self.value


Strength = float | Schedule
"""A number, constant or on a schedule."""


def value_at(strength: Strength, epoch: int) -> float:
    """The value of a number or a schedule at an epoch.

    >>> value_at(0.5, 10), value_at(Anneal(1.0, 0.0, last=20), 10)
    (0.5, 0.5)
    """
    return strength.at(epoch) if isinstance(strength, Schedule) else strength


def largest_of(strength: Strength) -> float:
    """The largest value that a number or a schedule ever takes."""
    return strength.largest if isinstance(strength, Schedule) else strength


def require_strength(field: str, given: object, *, most: float = math.inf) -> None:
    """Raises unless given a number from 0 to `most`, or a schedule of such numbers."""
    accepted = "a finite number >= 0" + ("" if most == math.inf else f" and <= {most:g}")
    largest = given.largest if isinstance(given, Schedule) else given
    try:
        require_number(field, largest, least=0)
    except ValueError as error:
        raise refuse(field, given, f"{accepted}, or a Schedule (Anneal, Window) of such") from error
    if float(largest) > most:  # type: ignore[arg-type]
        raise refuse(field, given, f"{accepted}, or a Schedule (Anneal, Window) of such")
