"""Epochs of records: checked, the first at which a condition holds, and the one from which on it always holds."""

import math
from itertools import pairwise

import numpy as np
import pandas as pd
from jaxtyping import Bool

from bayesticket.errors import BayesticketError, refuse, refuse_case, require_number
from bayesticket.measures import Accuracy, Column


def require_epochs(field: str, epochs: object, *, last: int) -> None:
    """Raises unless given the epochs of records, each once and in order."""
    listed = epochs if isinstance(epochs, list) else [-1]
    whole = [epoch for epoch in listed if isinstance(epoch, int) and not isinstance(epoch, bool)]
    if len(whole) < len(listed) or any(one >= other for one, other in pairwise([-1, *whole, last + 1])):
        raise refuse(field, epochs, f"epochs from 0 to {last:,}, each once and in order")


def first_epoch(holds: pd.Series) -> int | None:
    """The first recorded epoch at which a condition holds, or None if it never does.

    The condition is a series of booleans labelled by epoch, such as a curve compared with a threshold. A curve that is
    NaN fails every comparison, and so never reaches a threshold.

    >>> accuracy = pd.Series([0.2, 0.99, float("nan"), 1.0], index=[0, 10, 20, 30])
    >>> first_epoch(accuracy >= 0.99), first_epoch(accuracy >= 1.1)
    (10, None)
    """
    return _first_label(holds, _booleans(holds))


def settled_epoch(holds: pd.Series) -> int | None:
    """The first recorded epoch such that a condition holds at this and all later records.

    None if it does not hold at the last record.

    >>> accuracy = pd.Series([0.99, 0.2, 0.99, 1.0], index=[0, 10, 20, 30])
    >>> settled_epoch(accuracy >= 0.99), settled_epoch(accuracy >= 1.1)
    (20, None)
    """
    from_here_on = np.logical_and.accumulate(_booleans(holds)[::-1])[::-1]
    return _first_label(holds, from_here_on)


def refuse_unrecorded(curve: str, run: str) -> BayesticketError:
    """Builds the error for a curve without a value, of which nobody can say whether it reached a threshold.

    >>> refuse_unrecorded("unseen_accuracy", "this run")
    BayesticketError("curve: got 'unseen_accuracy', which is NaN throughout in this run; accepted: a curve with values")
    """
    return refuse_case("curve", f"{curve!r}, which is NaN throughout in {run}", "a curve with values")


def require_threshold(
    field: str, given: object, curve: object, *, above: float = -math.inf, least: float = -math.inf
) -> None:
    """Raises unless given a finite number within its bounds, and from 0 to 1 where the curve is an accuracy."""
    of_accuracy = isinstance(curve, str) and Column.parse(curve).measure == Accuracy().name
    if of_accuracy and above < 0:
        least = max(least, 0.0)
    require_number(field, given, above=above, least=least, most=1.0 if of_accuracy else math.inf)


def _first_label(series: pd.Series, holds: Bool[np.ndarray, " records"]) -> int | None:
    return int(series.index.to_numpy()[holds.argmax()]) if holds.any() else None


def _booleans(holds: pd.Series) -> Bool[np.ndarray, " records"]:
    if not isinstance(holds, pd.Series) or not pd.api.types.is_bool_dtype(holds):
        given = f"a series of {holds.dtype}" if isinstance(holds, pd.Series) else f"a {type(holds).__name__}"
        raise refuse_case("holds", given, "a pandas Series of booleans, such as curves['test_accuracy'] >= 0.99")
    return holds.to_numpy(dtype=bool, na_value=False)
