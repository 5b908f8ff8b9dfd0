"""The base of all specifications, and the decorator that makes a class one."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import ClassVar, TypeVar, dataclass_transform, overload

import torch
from torch import Tensor

from bayesticket.errors import BayesticketError, refuse, require_flag

Kind = TypeVar("Kind", bound=type)


@overload
def spec(kind: Kind, /) -> Kind: ...
@overload
def spec(*, kw_only: bool = False) -> Callable[[Kind], Kind]: ...
@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(dataclasses.field,))
def spec(kind: Kind | None = None, /, *, kw_only: bool = False) -> Kind | Callable[[Kind], Kind]:
    """Makes a class a specification: a frozen dataclass that compares and prints by its fields.

    >>> @spec
    ... class Point(Spec):
    ...     x: float = 0.0
    ...     y: float = 0.0
    >>> Point(y=2.0), Point(y=2) == Point(0.0, 2.0)
    (Point(y=2.0), True)
    """

    require_flag("kw_only", kw_only)

    def decorate(kind: Kind) -> Kind:
        if not isinstance(kind, type) or kind.__module__ == "builtins":
            raise refuse("spec", kind, "a class, above whose definition it stands")
        return dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=kw_only)(kind)

    return decorate if kind is None else decorate(kind)


class Spec:
    """Base of all specifications: frozen data that compare by value, tensors included.

    Every subclass is known by its name, so that what a run wrote down can be read back without registering anything.
    """

    kinds: ClassVar[dict[str, type["Spec"]]] = {}
    """All specifications that have been defined, by name."""
    version: ClassVar[int | None] = None
    """A number to raise when what the class does changes; see `describe`."""

    def __init_subclass__(cls, **options: object):
        super().__init_subclass__(**options)
        known = Spec.kinds.get(cls.__name__)
        if known is not None and known.__module__ != cls.__module__:
            raise BayesticketError(
                f"class: got {cls.__name__} of the module {cls.__module__}, a name that {known.__module__} has taken; "
                "accepted: another name, as runs are read back by it; or a restart of Python, where the class was moved"
            )
        Spec.kinds[cls.__name__] = cls

    def __new__(cls, *given: object, **named: object):  # noqa: D102
        _require_decorated(cls)
        return super().__new__(cls)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(
            same(getattr(self, name), getattr(other, name)) for name in field_names(type(self))
        )

    def __hash__(self) -> int:
        return hash((type(self).__name__, repr(self)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={_short(value)}' for name, value in changed(self))})"


def _require_decorated(kind: type[Spec]) -> None:
    """Raises where a class has fields of its own, or an `__init__`, and is no frozen dataclass."""
    own = vars(kind)
    if "__dataclass_fields__" not in own and not own.get("__annotations__") and "__init__" not in own:
        return  # nothing was added to its base
    if "__dataclass_fields__" not in own or not own["__dataclass_params__"].frozen:
        raise BayesticketError(
            f"{kind.__name__}: got a class that is not a frozen dataclass; accepted: @bayesticket.spec in the line "
            f"above `class {kind.__name__}`, and fields such as `strength: float = 1.0` in place of an `__init__`"
        )


def field_names(kind: type[Spec]) -> list[str]:
    """Names of the fields that a specification is built from."""
    return [field.name for field in _fields(kind) if field.init]


def _fields(kind: type[Spec]) -> tuple[dataclasses.Field, ...]:
    return dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()


def default_values(kind: type[Spec]) -> dict[str, object]:
    """The default of each field; `dataclasses.MISSING` for a field that has none."""
    return {
        field.name: field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        for field in _fields(kind)
    }


def changed(given: Spec) -> list[tuple[str, object]]:
    """The fields of a specification that differ from their defaults."""
    defaults = default_values(type(given))
    fields = [(name, getattr(given, name)) for name in field_names(type(given))]
    return [(name, value) for name, value in fields if not same(value, defaults[name])]


def same(value: object, other: object) -> bool:
    """Equality that also understands tensors and mappings of them; models are the same when they are one object."""
    if isinstance(value, Tensor) or isinstance(other, Tensor):
        if not (isinstance(value, Tensor) and isinstance(other, Tensor)):
            return False
        return value.dtype == other.dtype and torch.equal(value, other.to(value.device))
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        return value.keys() == other.keys() and all(same(value[name], other[name]) for name in value)
    if isinstance(value, Spec):  # a plain dataclass has an equality of its own, which cannot compare tensors
        return Spec.__eq__(value, other)
    return bool(value == other)


def snake_case(name: str) -> str:
    """A class name as the name of a curve or a loss term.

    >>> snake_case("KLToOracle"), snake_case("MLPNorm")
    ('kl_to_oracle', 'mlp_norm')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _short(value: object) -> str:
    if isinstance(value, Tensor):
        return f"tensor{tuple(value.shape)}"
    if isinstance(value, torch.nn.Module):
        return type(value).__name__
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name!r}: {_short(entry)}" for name, entry in value.items()) + "}"
    return repr(value)
