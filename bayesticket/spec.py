"""Specifications: tasks, interventions, measures and schedules as plain, comparable data."""

import dataclasses
import re
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from bayesticket.errors import BayesticketError


class Spec:
    """Base of all specifications, frozen dataclasses that compare by value, tensors included.

    Every subclass is remembered by its name, so that what a run wrote down can be read back without anybody
    registering anything.
    """

    kinds: ClassVar[dict[str, type["Spec"]]] = {}

    def __init_subclass__(cls, **options: object):
        super().__init_subclass__(**options)
        known = Spec.kinds.get(cls.__name__)
        if known is not None and known.__module__.startswith("bayesticket.") and known.__module__ != cls.__module__:
            raise BayesticketError(
                f"class: got the name {cls.__name__!r}; accepted: one that the library has not taken"
            )
        Spec.kinds[cls.__name__] = cls

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(
            same(getattr(self, name), getattr(other, name)) for name in field_names(type(self))
        )

    def __hash__(self) -> int:
        return hash((type(self).__name__, repr(self)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={_brief(value)}' for name, value in changed(self))})"


def field_names(kind: type[Spec]) -> list[str]:
    """Names of the fields that a specification is built from."""
    return [field.name for field in dataclasses.fields(kind) if field.init]  # type: ignore[arg-type]


def changed(spec: Spec) -> list[tuple[str, object]]:
    """The fields of a specification that differ from their defaults."""
    defaults = {
        field.name: field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        for field in dataclasses.fields(spec)  # type: ignore[arg-type]
    }
    fields = [(name, getattr(spec, name)) for name in field_names(type(spec))]
    return [(name, value) for name, value in fields if not same(value, defaults[name])]


def same(value: object, other: object) -> bool:
    """Equality that also understands tensors and mappings of them; models are the same when they are one object."""
    if isinstance(value, Tensor) or isinstance(other, Tensor):
        if not (isinstance(value, Tensor) and isinstance(other, Tensor)):
            return False
        return value.dtype == other.dtype and torch.equal(value, other.to(value.device))
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        return value.keys() == other.keys() and all(same(value[name], other[name]) for name in value)
    return bool(value == other)


def snake_case(name: str) -> str:
    """A class name as the name of a curve or a loss term.

    >>> snake_case("KLToOracle"), snake_case("MLPNorm")
    ('kl_to_oracle', 'mlp_norm')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _brief(value: object) -> str:
    if isinstance(value, Tensor):
        return f"tensor{tuple(value.shape)}"
    if isinstance(value, torch.nn.Module):
        return type(value).__name__
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name!r}: {_brief(entry)}" for name, entry in value.items()) + "}"
    return repr(value)
