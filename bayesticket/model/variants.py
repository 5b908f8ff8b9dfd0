"""Architectures that TransformerLens has no option for, as hooks: linear attention, and no residual stream."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens.hook_points import HookPoint

from bayesticket.errors import refuse
from bayesticket.model.hooks import HookFunction, NamedHook, only_permanent, seeing_all_edits
from bayesticket.model.names import (
    attention_out_name,
    final_name,
    middle_name,
    mlp_out_name,
    pattern_name,
    scores_name,
)


def linear_attention(scores: Float[Tensor, "*batch query key"]) -> Float[Tensor, "*batch query key"]:
    """Normalised linear-ReLU attention, `α_i = relu(s_i) / Σ_j relu(s_j)`.

    A row without a positive score attends uniformly to its visible keys (those with scores above −∞) and has no
    gradient.

    >>> linear_attention(torch.tensor([[1.0, 3.0, -2.0], [-1.0, -1.0, -torch.inf]]))
    tensor([[0.2500, 0.7500, 0.0000],
            [0.5000, 0.5000, 0.0000]])
    """
    positive = torch.relu(scores)
    total = positive.sum(-1, keepdim=True)
    visible = (scores > -torch.inf).to(scores.dtype)
    uniform = visible / visible.sum(-1, keepdim=True)
    alive = total > 0
    return torch.where(alive, positive / torch.where(alive, total, 1.0), uniform)


class _Replacement:
    """Keeps the tensor at one hook point, and makes of it what stands in place of the tensor at a later one.

    `make` gets both tensors. Each thread keeps its own, since copies of a model may run in different threads.
    """

    def __init__(self, make: Callable[[Tensor, Tensor], Tensor]):
        self.make, self._kept = make, threading.local()

    def __reduce__(self):
        return type(self), (self.make,)

    @seeing_all_edits
    def keep(self, tensor: Tensor, hook: HookPoint) -> None:
        """Keeps the tensor, as other hooks have left it."""
        self._kept.tensor = tensor

    def replace(self, tensor: Tensor, hook: HookPoint) -> Tensor:
        """What is made of the kept tensor, which is then kept no longer."""
        kept = self._kept.tensor
        del self._kept.tensor
        return self.make(kept, tensor)


def _linear_pattern(scores: Tensor, pattern: Tensor, *, head: Sequence[int] | None) -> Tensor:
    """A softmax pattern with linear attention in place of all heads or of the given ones."""
    linear = linear_attention(scores)
    if head is None:
        return linear
    if max(head) >= pattern.shape[1]:
        raise refuse("LinearAttention.head", max(head), f"a head, 0 to {pattern.shape[1] - 1}")
    pattern = pattern.clone()
    pattern[:, list(head)] = linear[:, list(head)]
    return pattern


def _output_alone(output: Tensor, stream: Tensor) -> Tensor:
    """What a part of a layer gives, without the stream that it is added to."""
    return output


def linear_attention_hooks(layer: int, head: Sequence[int] | None = None) -> list[NamedHook]:
    """Hooks that replace a layer's softmax by `linear_attention`, for all heads or the given ones."""
    linear = _Replacement(partial(_linear_pattern, head=head))
    return [(scores_name(layer), linear.keep), (pattern_name(layer), linear.replace)]


def no_residual_hooks(layer: int, around: Literal["attention", "mlp", "both"] = "both") -> list[NamedHook]:
    """Hooks that remove the residual stream around a layer's attention, its MLP, or both, and keep their outputs."""
    bypasses = {
        "attention": (attention_out_name(layer), middle_name(layer)),
        "mlp": (mlp_out_name(layer), final_name(layer)),
    }
    hooks: list[NamedHook] = []
    for part, (output, stream) in bypasses.items():
        if around in (part, "both"):
            alone = _Replacement(_output_alone)
            hooks += [(output, alone.keep), (stream, alone.replace)]
    return hooks


def has_no_hooks_but_cuts(point: HookPoint) -> bool:
    """Whether a hook point carries no hooks but those by which a model's architecture cuts its residual path."""
    hooks = only_permanent(point)
    return hooks is not None and all(map(_cuts_residual, hooks))


def _cuts_residual(function: HookFunction) -> bool:
    owner = getattr(function, "__self__", None)
    return isinstance(owner, _Replacement) and owner.make is _output_alone
