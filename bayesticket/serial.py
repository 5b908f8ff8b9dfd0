"""Specifications written down as JSON, and read back without executing anything.

`describe` turns a specification into plain JSON, with its tensors set apart under the hash of their content;
`restore` builds it again. Only classes that are already defined are restored: reading a file imports and runs nothing.
"""

import dataclasses
import inspect
from collections.abc import Mapping

import torch
from torch import Tensor
from transformer_lens import HookedTransformer

from bayesticket.errors import BayesticketError, refuse, refuse_name
from bayesticket.hashes import code_hash, tensor_hash
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
