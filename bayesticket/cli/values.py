"""Values typed as text, on the command line and in TOML files, read by the type of what they are for."""

import types
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Union, get_args, get_origin

from bayesticket.cli.expressions import parse_intervention, parse_optimizer, parse_spec
from bayesticket.errors import refuse, refuse_case, require_choice
from bayesticket.files import require_path
from bayesticket.interventions import Intervention
from bayesticket.optim import Optimizer
from bayesticket.specs import Spec

_PLAIN: dict[object, str] = {int: "a whole number", float: "a number"}


def read_value(field: str, text: str, kind: object) -> object:
    """The value that a text stands for; raises unless it is one of the kind.

    >>> read_value("lr", "1e-3", float | None), read_value("lr", "none", float | None)
    (0.001, None)
    >>> read_value("loss", "StableMax()", Spec)
    StableMax()
    >>> read_value("lr", "Anneal(last=500)", float | Spec), read_value("lr", "0.02", float | Spec)
    (Anneal(last=500), 0.02)
    """
    kinds = alternatives(kind)
    if type(None) in kinds and text.strip().lower() == "none":
        return None
    if (written := _specification(kinds)) is not None:
        if float in kinds and "(" not in text:
            return _number(field, text, f"a number, or a {written.__name__.lower()} written as it prints")
        return _read_specification(field, text, written)
    one = next(each for each in kinds if each is not type(None))
    if get_origin(one) is Literal:
        require_choice(field, text, get_args(one))
        return text
    if one not in _PLAIN:
        return require_path(field, text, "a path") if one is Path else text
    return _number(field, text, _PLAIN[one], int if one is int else float)


def _number(field: str, text: str, accepted: str, kind: type[int] | type[float] = float) -> float:
    try:
        return kind(text)
    except ValueError:
        raise refuse(field, text, accepted) from None


def read_values(field: str, texts: list[str], kind: object) -> object:
    """The value, the tuple of values, or the values by label, that texts stand for."""
    if (entry := labelled(kind)) is not None:
        return _read_labelled(field, texts, entry)
    if (each := several(kind)) is None:
        return read_value(field, texts[0], kind)
    number, entry = each
    if number is not None and len(texts) != number:
        raise refuse_case(field, f"{len(texts)} values", f"{number} of them")
    return tuple(read_value(field, text, entry) for text in texts)


def _read_labelled(field: str, texts: list[str], kind: object) -> dict[str, object] | None:
    """Values by label, each written as `label: value`; "none" stands for none."""
    if [text.strip().lower() for text in texts] == ["none"]:
        return None
    found: dict[str, object] = {}
    for text in texts:
        label, colon, written = (part.strip() for part in text.partition(":"))
        if not (label and colon and written) or label in found:
            raise refuse(field, text, 'different labels, each with a value, as "T=12: ModularAddition(p=113)"')
        found[label] = read_value(f"{field} {label}", written, kind)
    return found


def typed_value(field: str, value: object, kind: object) -> object:
    """A value of a TOML file: specifications are written as text there, and None as "none".

    Everything else stays as it is, and is checked where it is used.
    """
    kinds = alternatives(kind)
    if (entry := labelled(kind)) is not None and not (isinstance(value, str) and value.lower() == "none"):
        if not isinstance(value, dict):
            raise refuse(field, value, "a table of values by label")
        return {label: typed_value(f"{field} {label}", one, entry) for label, one in value.items()}
    each = several(kind)
    if each is not None and each[0] is None and not isinstance(value, list):
        raise refuse(field, value, "a list")
    if each is not None and isinstance(value, list):
        return tuple(typed_value(field, entry, each[1]) for entry in value)
    is_none = isinstance(value, str) and value.lower() == "none" and type(None) in kinds
    if is_none or (_specification(kinds) is not None and not (float in kinds and isinstance(value, int | float))):
        return read_value(field, str(value), kind)
    return value


def alternatives(kind: object) -> tuple[object, ...]:
    """The members of a union, or the one type itself."""
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def several(kind: object) -> tuple[int | None, object] | None:
    """How many values a tuple type takes, None for any number, and the type of each; None for other types.

    >>> several(tuple[float, float]), several(tuple[str, ...] | None), several(int)
    ((2, <class 'float'>), (None, <class 'str'>), None)
    """
    for each in alternatives(kind):
        if get_origin(each) is tuple:
            entries = get_args(each)
            return (None if entries[-1] is Ellipsis else len(entries)), entries[0]
    return None


def labelled(kind: object) -> object | None:
    """The type of each value of a type of values by label; None for other types.

    >>> labelled(Mapping[str, int] | None), labelled(int)
    (<class 'int'>, None)
    """
    return next((get_args(each)[1] for each in alternatives(kind) if get_origin(each) is Mapping), None)


def word_for(kind: object) -> str:
    """What stands for a value in the help: INT, PATH, TASK, or its choices."""
    if (entry := labelled(kind)) is not None:
        return f"LABEL:{word_for(entry)}"
    if (each := several(kind)) is not None:
        return word_for(each[1])
    kinds = alternatives(kind)
    if (written := _specification(kinds)) is not None:
        word = written.__name__.removeprefix("Abstract").removesuffix("Function").upper()
        return f"FLOAT|{word}" if float in kinds else word
    one = next(each for each in kinds if each is not type(None))
    if get_origin(one) is Literal:
        return "{" + ",".join(map(str, get_args(one))) + "}"
    return "TEXT" if one is str else getattr(one, "__name__", str(one)).upper()


def _specification(kinds: tuple[object, ...]) -> type[Spec] | None:
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Spec)), None)


def _read_specification(field: str, text: str, kind: type[Spec]) -> Spec:
    if issubclass(Intervention, kind) and kind is not Spec:
        return parse_intervention(text, field)
    return parse_optimizer(text, field) if kind is Optimizer else parse_spec(text, field, kind)
