"""State that an intervention keeps on itself is lost with every checkpoint: it is noticed, and refused."""

import functools
import hashlib
import logging
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from bayesticket.errors import BayesticketError
from bayesticket.specs import Spec, field_names, is_library_class, tensor_hash


class Watch:
    """Notices where interventions of the user's have changed since the watch began.

    Looked at are an object's attributes and what these hold, and the constants of its class. A `cached_property` may
    appear, as it is computed from the fields; from then on it must not change either. State in a global variable, or in
    a function inside `edits`, is not seen.
    """

    def __init__(self, interventions: Iterable[Spec], model: nn.Module):
        self._watched = [own for given in interventions for own in _written_by_users(given)]
        self._model = model
        self._before = [self._look(own) for own in self._watched]

    def __bool__(self) -> bool:
        return bool(self._watched)

    def require_unchanged(self) -> None:
        """Raises where an intervention has changed."""
        for place, own in enumerate(self._watched):
            now = self._look(own)
            if (path := now.first_difference(self._before[place])) is not None:
                raise BayesticketError(
                    f"{type(own).__name__}: got state on itself ({path} has changed since the first step), which no "
                    "checkpoint holds; accepted: `init`, whose tensors every port finds in context.state"
                )
            self._before[place] = now

    def _look(self, own: Spec) -> "_Contents":
        contents = _Contents(self._model)
        contents.add_attributes("self", own)
        for kind in type(own).__mro__:
            if not is_library_class(kind) and issubclass(kind, Spec):
                contents.add_constants(kind)
        return contents


def _written_by_users(given: object) -> Iterator[Spec]:
    """The specifications of users' classes: the one given, or those in the fields of one of the library's."""
    if isinstance(given, Spec) and is_library_class(type(given)):
        for name in field_names(type(given)):
            yield from _written_by_users(getattr(given, name))
    elif isinstance(given, Spec):
        yield given
    elif isinstance(given, tuple):
        for entry in given:
            yield from _written_by_users(entry)


class _Contents:
    """What an object holds, as short texts by the path to it."""

    def __init__(self, model: nn.Module):
        self.texts: dict[str, str] = {}
        self.cached: set[str] = set()
        """Paths of cached properties."""
        self._model, self._parameters = model, {id(parameter) for parameter in model.parameters()}
        self._open: set[int] = set()

    def first_difference(self, before: "_Contents") -> str | None:
        """A path at which something has changed, apart from cached properties that have been computed since."""
        new = tuple(self.cached - before.cached)
        for path, text in self.texts.items():
            if before.texts.get(path) != text and not any(_is_within(path, each) for each in new):
                return path
        return next((path for path in before.texts if path not in self.texts), None)

    def add_attributes(self, path: str, value: object) -> None:
        """Adds the attributes of an object."""
        for name, entry in vars(value).items():
            inner = f"{path}.{name}"
            if isinstance(getattr(type(value), name, None), functools.cached_property):
                self.cached.add(inner)
            self._add(inner, entry)

    def add_constants(self, kind: type) -> None:
        """Adds the constants of a class, which are no methods or properties."""
        for name, member in vars(kind).items():
            if not (name.startswith("__") or name == "_abc_impl" or hasattr(type(member), "__get__")):
                self._add(f"{kind.__name__}.{name}", member)

    def _add(self, path: str, value: object) -> None:
        if id(value) in self._open:  # it holds itself
            return
        self._open.add(id(value))
        self.texts[path] = type(value).__name__
        if isinstance(value, Tensor | np.ndarray | torch.Generator | _PLAIN):
            self.texts[path] = self._text(value)
        elif isinstance(value, nn.Module):
            self._add_all(path, () if value is self._model else value.state_dict(keep_vars=True).items())
        elif isinstance(value, Mapping):
            self._add_all(path, value.items())
        elif isinstance(value, list | tuple | deque):
            self._add_all(path, enumerate(value))
        elif isinstance(value, set | frozenset):
            self.texts[path] = str(sorted(map(repr, value)))
        elif hasattr(value, "__dict__") and not isinstance(value, _OPAQUE) and not is_library_class(type(value)):
            self.add_attributes(path, value)
        elif isinstance(value, Spec):
            for place, own in enumerate(_written_by_users(value)):
                self._add(f"{path}.{type(own).__name__}[{place}]", own)
        else:
            self.texts[path] = str(id(value))
        self._open.remove(id(value))

    def _add_all(self, path: str, entries: Iterable[tuple[object, object]]) -> None:
        for name, entry in entries:
            self._add(f"{path}[{name!r}]", entry)

    def _text(self, value: object) -> str:
        if id(value) in self._parameters:
            return "a parameter of the model"
        if isinstance(value, Tensor):
            return tensor_hash(value)
        if isinstance(value, torch.Generator):
            return tensor_hash(value.get_state())
        if isinstance(value, np.ndarray):
            content = repr(value.tolist()).encode() if value.dtype.hasobject else value.tobytes()
            return f"{value.dtype}{value.shape}{hashlib.sha256(content).hexdigest()}"
        return repr(value)


_PLAIN = bool | int | float | complex | str | bytes | None
_OPAQUE = type | types.ModuleType | types.FunctionType | types.MethodType | logging.Logger


def _is_within(path: str, root: str) -> bool:
    return path == root or path.startswith((f"{root}.", f"{root}["))
