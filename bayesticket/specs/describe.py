"""Specifications written as JSON, and read back without executing anything.

`describe` gives plain JSON with what differs from the defaults, and sets tensors apart under the hash of their content;
`restore` builds the specification again. Only classes that are already defined are restored: reading a file imports and
runs nothing.
"""

import dataclasses
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from bayesticket.errors import BayesticketError, refuse, refuse_name
from bayesticket.specs.base import Spec, changed, default_values, field_names
from bayesticket.specs.code import code_hash, is_library_class, tensor_hash

JSON = None | bool | int | float | str | list["JSON"] | dict[str, "JSON"]


@dataclasses.dataclass(frozen=True)
class _Foreign:
    """How objects of a class that is not a specification are described and restored."""

    kind: type
    describe: Callable[..., dict[str, object]]
    restore: Callable[..., object]


_FOREIGN: dict[str, _Foreign] = {}


def describe_as(
    name: str, kind: type, describe: Callable[..., dict[str, object]], restore: Callable[..., object]
) -> None:
    """Registers a class that is not a specification with `describe` and `restore`.

    `describe(value)` gives entries that can be described themselves; `restore(**entries)` gives the value back.
    """
    _FOREIGN[name] = _Foreign(kind, describe, restore)


def describe(value: object, tensors: dict[str, Tensor]) -> JSON:
    """Plain JSON for a value; its tensors are put into `tensors` under the hash of their content.

    Of a specification the class and the fields that differ from their defaults are written. A class of your own is
    written as `Name#hash`, with a hash of what its methods do, so that a run of a changed class is another run. The
    hash is that of Python's bytecode, which a new version of Python may change; a class with a `version` is written as
    `Name@version` instead, and what its methods do is yours to keep.

    >>> from bayesticket.tasks import ModularAddition
    >>> describe(ModularAddition(p=7), {})
    {'type': 'ModularAddition', 'p': 7}
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, Tensor):
        key = tensor_hash(value)
        tensors[key] = value.detach().cpu().contiguous().clone()
        return {"tensor": key}
    if isinstance(value, Mapping):
        return {str(name): describe(entry, tensors) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [describe(entry, tensors) for entry in value]
    if isinstance(value, Spec):
        return {"type": _type_name(type(value))} | {name: describe(entry, tensors) for name, entry in changed(value)}
    for name, foreign in _FOREIGN.items():
        if isinstance(value, foreign.kind):
            entries = foreign.describe(value)
            return {"type": name} | {entry: describe(content, tensors) for entry, content in entries.items()}
    raise refuse("specification", value, "numbers, strings, tensors, models and specifications of this library")


def _type_name(kind: type[Spec]) -> str:
    if (version := vars(kind).get("version")) is not None:  # a subclass has methods that its base's does not speak of
        return f"{kind.__name__}@{version}"
    return kind.__name__ + (f"#{code}" if (code := code_hash(kind)) else "")


def described_kind(data: Mapping[str, JSON]) -> str:
    """The name of the class that a description is of.

    >>> described_kind({"type": "Mine#3f2a9c01"}), described_kind({"type": "Mine@2"}), described_kind({"p": 7})
    ('Mine', 'Mine', '')
    """
    return str(data.get("type", "")).partition("#")[0].partition("@")[0]


def modules_of(data: JSON) -> dict[str, str]:
    """The modules of the classes that a description names, by class; those of this library are left out.

    A class of a script is in the module that the script would be if it were imported; one of a notebook is in none.
    """
    if isinstance(data, list):
        return {name: module for entry in data for name, module in modules_of(entry).items()}
    if not isinstance(data, dict):
        return {}
    found = {name: module for entry in data.values() for name, module in modules_of(entry).items()}
    kind = Spec.kinds.get(described_kind(data))
    if kind is None or is_library_class(kind):
        return found
    module = kind.__module__
    if module == "__main__":
        file = getattr(sys.modules["__main__"], "__file__", None)
        module = Path(file).stem if file else ""
    return {kind.__name__: module, **found} if module else found


def restore(data: JSON, tensors: Mapping[str, Tensor], modules: Mapping[str, str] | None = None) -> object:
    """The value that `describe` wrote down; an error about a class that is not defined names its module from `modules`.

    Nothing is imported.
    """
    if isinstance(data, list):
        return tuple(restore(entry, tensors, modules) for entry in data)
    if not isinstance(data, dict):
        return data
    if set(data) == {"tensor"}:
        return _find_tensor(str(data["tensor"]), tensors)
    entries = {name: restore(entry, tensors, modules) for name, entry in data.items() if name != "type"}
    if "type" not in data:
        return entries
    name = described_kind(data)
    if name in _FOREIGN:
        return _restore_foreign(name, entries)
    if name not in Spec.kinds:
        module = (modules or {}).get(name, "the module that defines it")
        raise BayesticketError(f"type: got {name!r}; accepted: a class that is defined; import {module} first")
    return _restore_spec(name, entries)


def _restore_foreign(name: str, entries: dict[str, object]) -> object:
    foreign = _FOREIGN[name]
    for parameter in inspect.signature(foreign.restore).parameters.values():
        if parameter.default is inspect.Parameter.empty and parameter.name not in entries:
            raise refuse(name, sorted(entries), f"a description with {parameter.name!r}")
    return foreign.restore(**entries)


def _restore_spec(name: str, entries: dict[str, object]) -> Spec:
    kind = Spec.kinds[name]
    if not dataclasses.is_dataclass(kind) or inspect.isabstract(kind):
        raise refuse("type", name, "a class that is final; this is the base of others")
    known = field_names(kind)
    if unknown := [field for field in entries if field not in known]:
        error = refuse_name(f"{name} field", unknown[0], known)
        raise BayesticketError(f"{error}; a newer version of the library may know it")
    defaults = default_values(kind)
    if missing := [name for name in known if name not in entries and defaults[name] is dataclasses.MISSING]:
        raise refuse(f"{name} fields", sorted(entries), f"a description with {missing[0]!r}")
    return kind(**entries)


def _find_tensor(key: str, tensors: Mapping[str, Tensor]) -> Tensor:
    if key not in tensors:
        raise refuse("tensor", key, "a tensor that is stored beside the description")
    return tensors[key]
