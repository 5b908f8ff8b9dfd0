"""Short hashes of tensors, and of what the classes of users do, by which runs are told apart."""

import dataclasses
import dis
import hashlib
from collections.abc import Mapping
from functools import cached_property, partial, partialmethod
from types import CellType, CodeType, FunctionType

import numpy as np
import torch
from torch import Tensor


def tensor_hash(tensor: Tensor) -> str:
    """A short hash of a tensor's dtype, shape and content."""
    content = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(f"{tensor.dtype}{tuple(tensor.shape)}".encode() + content).hexdigest()[:16]


def is_library_class(kind: type) -> bool:
    """Whether a class is this library's, and not the user's."""
    return kind.__module__.partition(".")[0] == "bayesticket"


def code_hash(kind: type) -> str:
    """A short hash of the methods, constants and defaults of a class and its bases; nothing for one of this library.

    Comments, layout and docstrings do not count; nor does what is not in the class: functions and classes that its
    methods use.
    """
    own = [each for each in kind.__mro__ if each.__module__.partition(".")[0] not in _NOT_OWN]
    members = [(name, member) for each in own for name, member in sorted(vars(each).items()) if _counts(name, member)]
    factories = [
        (field.name, field.default_factory)
        for field in (dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ())
        if field.default_factory is not dataclasses.MISSING
    ]
    written = [(name, _canonical(member, ())) for name, member in [*members, *factories]]
    return hashlib.sha256(repr(written).encode()).hexdigest()[:8] if own else ""


_NOT_OWN = ("bayesticket", "abc", "builtins", "typing")


def _counts(name: str, member: object) -> bool:
    """Whether a member was written by the user, and not by Python or `dataclass`."""
    if not (name.startswith("__") and name.endswith("__")):
        return True
    return isinstance(member, FunctionType) and member.__code__.co_filename != "<string>"


def _canonical(value: object, within: tuple[int, ...]) -> object:
    """A function or a constant in a form whose text is the same in every process."""
    if id(value) in within:  # a function that knows itself
        return "itself"

    def form(part: object) -> object:
        return _canonical(part, (*within, id(value)))

    for attribute in ("__func__", "fget"):  # of static and class methods, and of properties
        if hasattr(value, attribute):
            return form(getattr(value, attribute))
    if isinstance(value, cached_property):
        return form(value.func)
    if isinstance(value, partial | partialmethod):
        return [form(value.func), form(value.args), form(value.keywords)]
    if isinstance(value, FunctionType):
        inside = [form(cell.cell_contents) for cell in value.__closure__ or () if _is_filled(cell)]
        return [form(value.__code__), inside, form((value.__defaults__, value.__kwdefaults__))]
    if isinstance(value, CodeType):  # a docstring is a constant that no instruction loads
        return [(each.opname, form(each.argval)) for each in dis.get_instructions(value)]
    if isinstance(value, Tensor):
        return tensor_hash(value)
    if isinstance(value, np.ndarray) and value.dtype != object:
        return [str(value.dtype), value.shape, hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()]
    if isinstance(value, Mapping):
        return [[form(key), form(entry)] for key, entry in value.items()]
    if isinstance(value, set | frozenset):
        return sorted(repr(form(entry)) for entry in value)
    if isinstance(value, tuple | list):
        return [form(entry) for entry in value]
    if isinstance(value, type):
        return value.__qualname__
    if dataclasses.is_dataclass(value):
        return [type(value).__qualname__, *(form(getattr(value, field.name)) for field in dataclasses.fields(value))]
    shown = repr(value)
    return type(value).__qualname__ if " at 0x" in shown else shown  # an address differs in every process


def _is_filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
