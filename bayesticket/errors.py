"""What the library says when it is given something it cannot use."""

import difflib
import itertools
import math
from collections.abc import Iterable


class BayesticketError(ValueError):
    """A refused input or a stopped run; the message names the field, what was given and what is accepted."""


def refuse(field: str, given: object, accepted: str) -> BayesticketError:
    """Builds the error for one field.

    >>> refuse("train_fraction", 1.5, "a number between 0 and 1, both excluded")
    BayesticketError('train_fraction: got 1.5; accepted: a number between 0 and 1, both excluded')
    """
    return BayesticketError(f"{field}: got {shown(given)}; accepted: {accepted}")


def refuse_case(field: str, situation: str, accepted: str) -> BayesticketError:
    """Builds the error for a situation, described in words, where no single value is at fault.

    >>> refuse_case("teacher", "a model of 2 layers", "one with a layer 3")
    BayesticketError('teacher: got a model of 2 layers; accepted: one with a layer 3')
    """
    return BayesticketError(f"{field}: got {situation}; accepted: {accepted}")


MOST_VALUES = 1_000_000
"""The most values that are taken one by one where several may be given, such as seeds."""
LARGEST = 2**63 - 1
"""The largest whole number that torch takes."""


def shown(given: object, width: int = 160) -> str:
    """What was given, as an error shows it: on one line of a readable length.

    >>> shown("x"), len(shown(list(range(1000))))
    ("'x'", 160)
    """
    if isinstance(given, int) and abs(given) > 10**100:  # Python writes none of more than 4,300 digits
        return f"a whole number of {given.bit_length():,} bits"
    text = " ".join(repr(given).split())
    return text if len(text) <= width else f"{text[: width - 1]}…"


def one_line(error: BaseException) -> str:
    """The message of an error on one line; the name of its class if it has no message.

    >>> one_line(ValueError("two\\nlines")), one_line(ValueError())
    ('two lines', 'ValueError')
    """
    return " ".join(str(error).split()) or type(error).__name__


def refuse_name(field: str, given: object, names: Iterable[str]) -> BayesticketError:
    """Builds the error for a name that is not among `names`, with the closest of them.

    >>> refuse_name("optimizer", "adam", ["adamw", "sgd"])
    BayesticketError("optimizer: got 'adam'; accepted: 'adamw', 'sgd'. Closest: 'adamw'")
    """
    names = list(names)
    closest = difflib.get_close_matches(str(given), names, n=1, cutoff=0.5)
    hint = f". Closest: {closest[0]!r}" if closest else ""
    accepted = ", ".join(repr(name) for name in names[:12]) + (", …" if len(names) > 12 else "")
    return BayesticketError(f"{field}: got {shown(given)}; accepted: {accepted}{hint}")


def require_choice(field: str, given: object, choices: Iterable[str]) -> None:
    """Raises unless given one of the choices, by its name.

    >>> require_choice("scope", "mlp", ("mlp", "all"))
    """
    choices = tuple(choices)
    if not isinstance(given, str) or given not in choices:
        raise refuse_name(field, given, choices)


def require_several(field: str, given: object, accepted: str) -> list:
    """What is given, as a list; raises unless it is several values, not a text, and not more than anybody means."""
    if not isinstance(given, Iterable) or isinstance(given, str | bytes) or getattr(given, "ndim", 1) == 0:
        raise refuse(field, given, accepted)
    if len(getattr(given, "shape", ())) and given.shape[0] > MOST_VALUES:  # type: ignore[attr-defined]
        raise refuse_case(field, f"{given.shape[0]:,} values", f"at most {MOST_VALUES:,}")  # type: ignore[attr-defined]
    listed = list(itertools.islice(given, MOST_VALUES + 1))
    if len(listed) > MOST_VALUES:
        raise refuse_case(field, f"more than {MOST_VALUES:,} values", f"at most {MOST_VALUES:,}")
    return listed


def require_epochs(given: object) -> list:
    """Epochs, as a list; raises unless there is one at least."""
    accepted = "epochs, such as [0, 500]"
    if not (epochs := require_several("epochs", given, accepted)):
        raise refuse_case("epochs", "none", accepted)
    return epochs


def require_flag(field: str, given: object) -> None:
    """Raises unless given True or False."""
    if not isinstance(given, bool):
        raise refuse(field, given, "True or False")


def require_number(
    field: str,
    given: object,
    *,
    above: float = -math.inf,
    below: float = math.inf,
    least: float = -math.inf,
    most: float = math.inf,
) -> None:
    """Raises unless given a finite number with `above < given < below` and `least <= given <= most`."""
    limits = ((">", above), (">=", least), ("<", below), ("<=", most))
    bounds = " and ".join(f"{sign} {bound:g}" for sign, bound in limits if math.isfinite(bound))
    accepted = f"a finite number {bounds}".strip()
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise refuse(field, given, accepted)
    if isinstance(given, int) and abs(given) > LARGEST:
        raise refuse(field, given, f"{accepted}, if whole then below 2^63")
    if not math.isfinite(given):
        raise refuse(field, given, accepted)
    if not (above < given < below and least <= given <= most):
        raise refuse(field, given, accepted)


def require_integer(field: str, given: object, *, least: int, most: int = LARGEST) -> None:
    """Raises unless given a whole number from `least` to `most`, by default the largest that torch takes."""
    if isinstance(given, bool) or not isinstance(given, int) or not least <= given <= most:
        limit = "below 2^63" if most == LARGEST else f"at most {most:,}"
        large = isinstance(given, int) and given > most
        raise refuse(field, given, f"a whole number {limit if large else f'of at least {least}'}")
