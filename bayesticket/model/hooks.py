"""Hooks: mounted and removed, checked, and listed."""

import copy
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformer_lens import HookedTransformer
from transformer_lens.hook_points import HookPoint

from bayesticket.errors import BayesticketError, refuse, require_choice

HookFunction = Callable[..., Tensor | None]
"""A function `(tensor, hook)` that returns the edited tensor, or None to leave it unchanged."""


NamedHook = tuple[str, HookFunction]
"""A hook point's name and the function to mount there, as `HookedTransformer.hooks(fwd_hooks=…)` takes them."""


@contextmanager
def mounted(model: HookedTransformer, hooks: Iterable[NamedHook]) -> Iterator[None]:
    """Mounts hooks in order, and on exit removes exactly these, also after an exception.

    Unlike `HookedTransformer.hooks` it leaves the user's own hooks in place, raises if a hook changes a shape, and has
    other threads wait until the model is without these hooks again.
    """
    with held(model), _with_hooks(model, hooks):
        yield


@contextmanager
def attached(model: HookedTransformer, hooks: Iterable[NamedHook]) -> Iterator[None]:
    """The same for as long as a user likes: meanwhile other threads wait for this model alone."""
    with nullcontext() if model in _UNSHARED else _sharing.attaching(model), _with_hooks(model, hooks):
        yield


@contextmanager
def _with_hooks(model: HookedTransformer, hooks: Iterable[NamedHook]) -> Iterator[None]:
    handles, orders = [], []
    try:
        for name, function in hooks:
            point = hook_point(model, name)
            point.add_hook(partial(_call_checked, function))
            handles.append((point, point.fwd_hooks[-1]))
            if sees_all_edits(function):
                orders.append(_call_last(point, point.fwd_hooks[-1].hook))
        yield
    finally:
        for point, handle in handles:
            handle.hook.remove()
            if handle in point.fwd_hooks:
                point.fwd_hooks.remove(handle)
        for order in orders:
            order.remove()


class _Sharing:
    """Which thread may use the models that threads share: any of them for a while, and one to which it has attached.

    One lock serves all models, since a measure may run a teacher; it is held as long as one call takes. A recipe stays
    attached for as long as the user likes, so that its model alone is kept for its thread until then.
    """

    def __init__(self):
        self.lock = threading.RLock()
        self.freed = threading.Condition(self.lock)
        self.depth = 0
        """How often the thread that holds the lock has taken it."""
        self.attached: WeakKeyDictionary[HookedTransformer, list[int]] = WeakKeyDictionary()
        """The threads that have attached to a model, once for each recipe."""

    @contextmanager
    def held(self, model: HookedTransformer | None = None) -> Iterator[None]:
        """Holds the lock, and waits until no other thread has attached to the model; without one, to any model."""
        with self.lock:
            while self._is_taken(model):
                if self.depth:
                    raise BayesticketError(
                        "model: got one to which another thread has attached a recipe, while this thread uses a second "
                        "model; accepted: a copy of it (copy.deepcopy), or the same call after that"
                    )
                self.freed.wait()
            self.depth += 1
            try:
                yield
            finally:
                self.depth -= 1

    def _is_taken(self, model: HookedTransformer | None) -> bool:
        owners = self.attached.values() if model is None else [self.attached.get(model, [])]
        return any(owner != threading.get_ident() for threads in owners for owner in threads)

    @contextmanager
    def attaching(self, model: HookedTransformer) -> Iterator[None]:
        """Keeps a model for this thread without holding the lock."""
        with self.held(model):
            self.attached.setdefault(model, []).append(threading.get_ident())
        try:
            yield
        finally:
            with self.lock:
                self.attached[model].pop()
                self.freed.notify_all()


_sharing = _Sharing()
_UNSHARED: "WeakSet[HookedTransformer]" = WeakSet()


def _share_anew() -> None:
    """In a process that was forked no other thread goes on, whatever it held."""
    global _sharing
    _sharing = _Sharing()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_share_anew)


@contextmanager
def held(model: HookedTransformer) -> Iterator[None]:
    """Keeps a model for this thread: others wait before they mount hooks on it, read its weights or copy it.

    Two threads that compute with the same parameters at once may wait for each other for ever, inside torch: one holds
    the lock of a parameter's gradient and wants the interpreter's, the other holds that and wants the first.
    """
    with nullcontext() if model in _UNSHARED else _sharing.held(model):
        yield


@contextmanager
def all_held() -> Iterator[None]:
    """Keeps every model that threads share for this one, while what may contain some is copied or pickled."""
    with _sharing.held():
        yield


def not_shared(model: HookedTransformer) -> HookedTransformer:
    """Declares that one thread alone uses a model, such as the copy that it trains, and returns it."""
    _UNSHARED.add(model)
    return model


def keep_in(activations: dict[str, Tensor]) -> HookFunction:
    """A hook function that keeps the activation it sees, undetached, under the name of its hook point."""

    def keep(tensor: Tensor, hook: HookPoint) -> None:
        activations[str(hook.name)] = tensor

    return keep


def mount_permanently(model: HookedTransformer, hooks: Iterable[NamedHook]) -> None:
    """Mounts hooks that belong to the model, are not removed, and are copied and pickled with it."""
    for name, function in hooks:
        point = hook_point(model, name)
        handle = point.register_forward_hook(_Permanent(function))
        if sees_all_edits(function):
            _call_last(point, handle)


@dataclass(frozen=True)
class _Permanent:
    """A hook as PyTorch calls it; TransformerLens' own wrapping cannot be pickled."""

    function: HookFunction

    def __call__(self, point: HookPoint, inputs: object, output: Tensor) -> Tensor | None:
        return self.function(output, hook=point)


def only_permanent(point: HookPoint) -> list[HookFunction] | None:
    """The hooks that belong to the model on a point, or None if it carries any other."""
    hooks, first = list(point._forward_hooks.values()), list(point._forward_pre_hooks.values())
    ours = all(isinstance(hook, _Permanent) for hook in hooks)
    ours &= all(isinstance(hook, partial) and hook.func is _move_last for hook in first)
    if not ours or point._backward_hooks or point._backward_pre_hooks:
        return None
    return [hook.function for hook in hooks if isinstance(hook, _Permanent)]


def seeing_all_edits(function: HookFunction) -> HookFunction:
    """A hook that is called after all others on its point, those that are mounted later included."""
    function.sees_all_edits = True  # type: ignore[attr-defined]
    return function


def sees_all_edits(function: HookFunction) -> bool:
    """Whether a hook is called after all others on its point, for which it has a second one before each call."""
    return getattr(function, "sees_all_edits", False)


def _call_last(point: HookPoint, handle: RemovableHandle) -> RemovableHandle:
    """Moves a hook behind the others of its point, before each of their calls."""
    return point.register_forward_pre_hook(partial(_move_last, handle.id))


def _move_last(id: int, point: HookPoint, inputs: object) -> None:
    if id in point._forward_hooks:
        point._forward_hooks[id] = point._forward_hooks.pop(id)


def _call_checked(function: HookFunction, tensor: Tensor, hook: HookPoint) -> Tensor | None:
    """Calls a hook function, and raises if it returns another shape."""
    edited = function(tensor, hook)
    if edited is not None and edited.shape != tensor.shape:
        raise BayesticketError(
            f"hook on {hook.name}: returned shape {tuple(edited.shape)}; accepted: {tuple(tensor.shape)}"
        )
    return edited


def hook_point(model: HookedTransformer, name: str) -> HookPoint:
    """The hook point of that name; raises, with the closest name, if there is none."""
    require_choice("hook", name, model.hook_dict)
    return model.hook_dict[name]


def require_firing(model: HookedTransformer, tokens: Tensor, names: Iterable[str], reader: str) -> None:
    """Raises if a hook point does not exist, or does not fire in a forward pass.

    Some hook points of TransformerLens, such as `hook_result`, fire only if the model's cfg says so; a hook on one that
    does not would never run, without an error.
    """
    names = list(dict.fromkeys(names))
    for name in names:
        require_choice(f"{reader} reads a hook", name, model.hook_dict)
    fired: set[str] = set()
    probes = [(name, lambda tensor, hook: fired.add(str(hook.name))) for name in names]
    with _bare(model), mounted(model, probes), torch.no_grad():
        model(tokens[:1])
    if silent := [name for name in names if name not in fired]:
        raise refuse(
            f"{reader} reads a hook",
            silent[0],
            "a hook point that fires; this one is switched off in the model's cfg",
        )


@contextmanager
def _bare(model: HookedTransformer) -> Iterator[None]:
    """Removes all hooks during a trial forward pass, so that none of them runs in it, and restores them."""
    with held(model):
        kept = {point: point._forward_hooks for point in model.hook_dict.values()}
        try:
            for point in kept:
                point._forward_hooks = OrderedDict()
            yield
        finally:
            for point, hooks in kept.items():
                point._forward_hooks = hooks


def require_layer(model: HookedTransformer, layer: int, field: str) -> None:
    """Raises unless the model has this layer."""
    if layer >= model.cfg.n_layers:
        raise refuse(field, layer, f"a layer of the model, 0 to {model.cfg.n_layers - 1}")


def require_head(model: HookedTransformer, head: int, field: str) -> None:
    """Raises unless the model has this head."""
    if head >= model.cfg.n_heads:
        raise refuse(field, head, f"a head of the model, 0 to {model.cfg.n_heads - 1}")


def copied(model: HookedTransformer) -> HookedTransformer:
    """A copy of a model with the hooks that are its own, without those that another thread has mounted for a while."""
    with held(model):
        return copy.deepcopy(model)


def own_hooks(model: HookedTransformer) -> list[str]:
    """Names of the hook points that carry a hook of any kind, permanent or not."""
    with held(model):
        return [name for name, point in model.hook_dict.items() if has_hooks(point)]


def has_hooks(module: nn.Module) -> bool:
    """Whether a module carries a hook, TransformerLens' or PyTorch's own, forward or backward."""
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


def foreign_hooks(model: HookedTransformer) -> str | None:
    """The name of a module other than a hook point that carries a PyTorch hook, or None."""
    with held(model):
        modules = [
            name for name, module in model.named_modules() if not isinstance(module, HookPoint) and has_hooks(module)
        ]
    return modules[0] if modules else None
