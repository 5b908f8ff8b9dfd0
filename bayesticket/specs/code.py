"""Short hashes of tensors, and of what the classes of users do, by which runs are told apart."""

import hashlib
from collections.abc import Mapping
from functools import cached_property, partial, partialmethod
from types import CellType, CodeType, FunctionType

import torch
from torch import Tensor


def tensor_hash(tensor: Tensor) -> str:
    """A short hash of a tensor's dtype, shape and content."""
    content = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(f"{tensor.dtype}{tuple(tensor.shape)}".encode() + content).hexdigest()[:16]


def code_hash(kind: type) -> str:
    """A short hash of the methods and constants of a class and its bases; nothing for a class of this library.

    Comments, layout and what docstrings say do not count; nor does what is not in the class: functions and classes
    that its methods use.
    """
    own = [each for each in kind.__mro__ if each.__module__.partition(".")[0] not in _NOT_OWN]
    members = [(name, member) for each in own for name, member in sorted(vars(each).items()) if _counts(name, member)]
    written = [(name, _told(member, ())) for name, member in members]
    return hashlib.sha256(repr(written).encode()).hexdigest()[:8] if own else ""


_NOT_OWN = ("bayesticket", "abc", "builtins", "typing")


def _counts(name: str, member: object) -> bool:
    """Whether a member was written by the user, and not by Python or `dataclass`."""
    if not (name.startswith("__") and name.endswith("__")):
        return True
    return isinstance(member, FunctionType) and member.__code__.co_filename != "<string>"


def _told(value: object, within: tuple[int, ...]) -> object:
    """What a function does, or a constant is, as something whose text is the same in every process."""
    if id(value) in within:  # a function that knows itself
        return "itself"

    def told(part: object) -> object:
        return _told(part, (*within, id(value)))

    for attribute in ("__func__", "fget"):  # of static and class methods, and of properties
        if hasattr(value, attribute):
            return told(getattr(value, attribute))
    if isinstance(value, cached_property):
        return told(value.func)
    if isinstance(value, partial | partialmethod):
        return [told(value.func), told(value.args), told(value.keywords)]
    if isinstance(value, FunctionType):
        inside = [told(cell.cell_contents) for cell in value.__closure__ or () if _is_filled(cell)]
        constants = [constant for constant in value.__code__.co_consts if constant != value.__doc__]
        given = (value.__defaults__, value.__kwdefaults__)
        return [value.__code__.co_code.hex(), value.__code__.co_names, told(constants), inside, told(given)]
    if isinstance(value, CodeType):  # of a function inside another
        return [value.co_code.hex(), value.co_names, told(value.co_consts)]
    if isinstance(value, Tensor):
        return tensor_hash(value)
    if isinstance(value, Mapping):
        return [[told(key), told(entry)] for key, entry in value.items()]
    if isinstance(value, set | frozenset):
        return sorted(repr(told(entry)) for entry in value)
    if isinstance(value, tuple | list):
        return [told(entry) for entry in value]
    if isinstance(value, type):
        return value.__qualname__
    plain = isinstance(value, bool | int | float | complex | str | bytes | torch.dtype | torch.device)
    return repr(value) if plain else type(value).__name__


def _is_filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
