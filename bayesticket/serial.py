"""Specifications written down as JSON, and read back without executing anything.

`describe` turns a specification into plain JSON, with its tensors set apart under the hash of their content;
`restore` builds it again. Only classes that are already defined are restored: reading a file imports and runs nothing.
"""

import dataclasses
import hashlib
import inspect
from collections.abc import Mapping
from types import CellType, CodeType, FunctionType

import torch
from torch import Tensor
from transformer_lens import HookedTransformer

from bayesticket.errors import BayesticketError, refuse, refuse_name
from bayesticket.model import describe_model, rebuild_model
from bayesticket.spec import Spec, field_names

JSON = None | bool | int | float | str | list["JSON"] | dict[str, "JSON"]


def describe(value: object, tensors: dict[str, Tensor]) -> JSON:
    """Plain JSON for a value; its tensors are put into `tensors` under the hash of their content.

    >>> from bayesticket.symbolic import ModularAddition
    >>> describe(ModularAddition(p=7), {})["p"]
    7
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, Tensor):
        key = tensor_hash(value)
        tensors[key] = value.detach().cpu().contiguous().clone()
        return {"tensor": key}
    if isinstance(value, HookedTransformer):
        weights = {name: describe(p.data, tensors) for name, p in value.named_parameters()}
        return {"type": "HookedTransformer", **describe_model(value), "weights": weights}
    if isinstance(value, Mapping):
        return {str(name): describe(entry, tensors) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [describe(entry, tensors) for entry in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        entries = {f.name: describe(getattr(value, f.name), tensors) for f in dataclasses.fields(value) if f.init}
        return {"type": _type_name(type(value)), **entries}
    raise refuse("specification", value, "numbers, strings, tensors, models and specifications of this library")


def _type_name(kind: type) -> str:
    """The name of a class; of one that is not this library's, with a hash of what its methods do.

    So a class of the user's that was changed between two runs makes them different runs.
    """
    return kind.__name__ + (f"#{code}" if (code := code_hash(kind)) else "")


def restore(data: JSON, tensors: Mapping[str, Tensor]) -> object:
    """The value that `describe` wrote down."""
    if isinstance(data, list):
        return tuple(restore(entry, tensors) for entry in data)
    if not isinstance(data, dict):
        return data
    if set(data) == {"tensor"}:
        return _find_tensor(str(data["tensor"]), tensors)
    if "type" not in data:
        return {name: restore(entry, tensors) for name, entry in data.items()}
    entries = {name: entry for name, entry in data.items() if name != "type"}
    if data["type"] == "HookedTransformer":
        if missing := [name for name in ("config", "architecture", "frozen", "weights") if name not in entries]:
            raise refuse("HookedTransformer", sorted(entries), f"a description with {missing[0]!r}")
        weights = restore(entries.pop("weights"), tensors)
        return rebuild_model(entries, weights)  # type: ignore[arg-type]
    return _restore_spec(str(data["type"]).partition("#")[0], entries, tensors)


def _restore_spec(type_name: str, entries: dict[str, JSON], tensors: Mapping[str, Tensor]) -> object:
    if type_name not in Spec.kinds:
        raise BayesticketError(
            f"type: got {type_name!r}; accepted: a class that is defined; import the module that defines it first"
        )
    kind = Spec.kinds[type_name]
    if not dataclasses.is_dataclass(kind) or inspect.isabstract(kind):
        raise refuse("type", type_name, "a class that is final; this is the base of others")
    known = field_names(kind)
    if unknown := [name for name in entries if name not in known]:
        raise refuse_name(f"{type_name} field", unknown[0], known)
    if missing := [name for name in known if name not in entries and _is_required(kind, name)]:
        raise refuse(f"{type_name} fields", sorted(entries), f"a description with {missing[0]!r}")
    return kind(**{name: restore(entry, tensors) for name, entry in entries.items()})


def _is_required(kind: type[Spec], name: str) -> bool:
    field = {field.name: field for field in dataclasses.fields(kind)}[name]  # type: ignore[arg-type]
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _find_tensor(key: str, tensors: Mapping[str, Tensor]) -> Tensor:
    if key not in tensors:
        raise refuse("tensor", key, "a tensor that is stored beside the description")
    return tensors[key]


def code_hash(kind: type) -> str:
    """A short hash of the methods and constants of a class and its bases, without those of this library.

    Comments and layout do not count; nor does what the methods call elsewhere.
    """
    own = [each for each in kind.__mro__ if each.__module__.partition(".")[0] not in _NOT_OWN]
    written = [(name, _code(member)) for each in own for name, member in sorted(vars(each).items()) if _counts(name)]
    return hashlib.sha256(repr(written).encode()).hexdigest()[:8] if own else ""


_NOT_OWN = (__package__, "abc", "builtins", "typing")


def _counts(name: str) -> bool:
    return not (name.startswith("__") and name.endswith("__")) or name == "__post_init__"


def _code(value: object) -> object:
    """What a function does, or a constant is, as something whose text is the same in every process."""
    value = getattr(value, "__wrapped__", getattr(value, "__func__", getattr(value, "fget", value)))
    if isinstance(value, FunctionType):
        inside = [_code(cell.cell_contents) for cell in value.__closure__ or () if _is_filled(cell)]
        return [_code(value.__code__), inside, _code(value.__defaults__), _code(value.__kwdefaults__)]
    if isinstance(value, CodeType):
        return [value.co_code.hex(), value.co_names, [_code(constant) for constant in value.co_consts]]
    if isinstance(value, set | frozenset):
        return sorted(repr(_code(entry)) for entry in value)
    if isinstance(value, tuple | list):
        return [_code(entry) for entry in value]
    return repr(value) if isinstance(value, bool | int | float | complex | str | bytes) else type(value).__name__


def _is_filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def tensor_hash(tensor: Tensor) -> str:
    """A short hash of a tensor's dtype, shape and content."""
    content = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(f"{tensor.dtype}{tuple(tensor.shape)}".encode() + content).hexdigest()[:16]
