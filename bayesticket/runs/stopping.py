"""When training stops before its last epoch: rules as data, which are part of what a run is."""

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, get_args

from bayesticket.errors import refuse, refuse_name, require_choice, require_integer, require_number
from bayesticket.measures import Column
from bayesticket.runs.epochs import require_threshold
from bayesticket.specs import Spec, spec

Record = Mapping[str, float]
"""What was recorded at one epoch, by the names of the curves; the epoch is among them."""
StopFunction = Callable[[Record], bool]
"""A function of a record that says whether to stop."""
Direction = Literal["up", "down"]


class StopTraining(Exception):
    """Raised by a `progress` function to end training; the run has the status "stopped"."""


class StopRule(Spec, abc.ABC):
    """A rule about the recorded curves; to add one, write `stop_epoch`.

    It is asked at every record, and has to depend on the records alone, so that a resumed run stops where an
    uninterrupted one does.
    """

    curve: str
    """The curve that it looks at."""

    @abc.abstractmethod
    def stop_epoch(self, records: Sequence[Record]) -> float:
        """The epoch at which to stop as the last record says, given those before it; infinite where it does not."""


@spec
class Reaches(StopRule):
    """Stops `patience` epochs after a curve has first reached a threshold, from below or (`"down"`) from above.

    >>> rule = Reaches("test_accuracy", 0.9, patience=100)
    >>> [rule.stop_epoch([{"epoch": 50, "test_accuracy": value}]) for value in (0.5, 0.9)]
    [inf, 150]
    """

    curve: str = "test_accuracy"
    threshold: float = 0.99
    patience: int = 0
    direction: Direction = "up"

    def __post_init__(self):
        _require_curve(self.curve, self.direction)
        require_threshold("threshold", self.threshold, self.curve)
        require_integer("patience", self.patience, least=0)

    def stop_epoch(self, records: Sequence[Record]) -> float:
        """The epoch of the last record plus the patience, if the curve is there."""
        last = records[-1]
        sign = 1 if self.direction == "up" else -1
        return last["epoch"] + self.patience if sign * (last[self.curve] - self.threshold) >= 0 else math.inf


@spec
class Stalls(StopRule):
    """Stops a run that has memorised, and whose curve has not improved by more than `by` in the last `over` epochs.

    It has not improved where the best value of the last `over` epochs is not more than `by` better than the best one
    before them. It has memorised where training accuracy, at the last record, is at least `memorised`; 0 counts always.

    >>> rule = Stalls("test_accuracy", over=20)
    >>> records = [{"epoch": 10 * i, "train_accuracy": 1.0, "test_accuracy": 0.2} for i in range(3)]
    >>> rule.stop_epoch(records[:2]), rule.stop_epoch(records)
    (inf, 20)
    """

    curve: str = "test_accuracy"
    over: int = 1000
    by: float = 0.0
    direction: Direction = "up"
    memorised: float = 0.99

    def __post_init__(self):
        _require_curve(self.curve, self.direction)
        require_integer("over", self.over, least=1)
        require_threshold("by", self.by, self.curve, least=0.0)
        require_number("memorised", self.memorised, least=0.0, most=1.0)

    def stop_epoch(self, records: Sequence[Record]) -> float:
        """The epoch of the last record, if the curve has stalled there."""
        last = records[-1]
        if not last["train_accuracy"] >= self.memorised:
            return math.inf
        border, sign = last["epoch"] - self.over, 1 if self.direction == "up" else -1
        known = [(record["epoch"], sign * record[self.curve]) for record in records]
        known = [(epoch, value) for epoch, value in known if not math.isnan(value)]
        before = [value for epoch, value in known if epoch <= border]
        since = [value for epoch, value in known if epoch > border]
        if not before:
            return math.inf
        return last["epoch"] if max(since, default=-math.inf) - max(before) <= self.by else math.inf


def _require_curve(curve: object, direction: object) -> None:
    if not isinstance(curve, str):
        raise refuse("curve", curve, "the name of a curve, such as 'unseen_accuracy'")
    require_choice("direction", direction, get_args(Direction))


def require_stop_rule(given: object) -> None:
    """Raises unless given a rule, or None."""
    if given is not None and not isinstance(given, StopRule):
        raise refuse(
            "stop_when", given, "a rule, such as Reaches('test_accuracy', 0.99), or None; a function in train alone"
        )


def require_recorded(rule: StopRule | None, curves: Sequence[str]) -> None:
    """Raises where a rule is about a curve that is not recorded; of vectors without labels only the name is given."""
    if rule is not None:
        column = Column.parse(rule.curve)
        vector = str(replace(column, entry=column.entry.rstrip("0123456789").rstrip(".")))
        if not {rule.curve, vector} & set(curves):
            raise refuse_name("stop_when.curve", rule.curve, curves)


def split_stop(given: StopRule | StopFunction | None) -> tuple[StopRule | None, StopFunction | None]:
    """A rule, which is part of a configuration, or a function, which is not."""
    if callable(given) and not isinstance(given, StopRule | type):
        return None, given
    return given, None  # type: ignore[return-value]


def says_stop(function: StopFunction, record: Record) -> bool:
    """What a function says of a record; raises unless it is True or False."""
    answer: object = function(record)
    if type(answer).__name__ not in ("bool", "bool_"):  # NumPy's too
        raise refuse("stop_when", answer, "a function that returns True or False")
    return bool(answer)
