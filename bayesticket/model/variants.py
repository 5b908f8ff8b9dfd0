"""Architectures that TransformerLens has no option for, as hooks: linear attention, and no residual stream."""

import threading
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens.hook_points import HookPoint

from bayesticket.errors import refuse
from bayesticket.model.hooks import NamedHook, seeing_all_edits
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


class _Kept:
    """A tensor that is kept at one hook point for a later one, in each thread its own; copies begin without one."""

    def __init__(self):
        self._local = threading.local()

    def __reduce__(self):
        return type(self), ()

    @seeing_all_edits
    def keep(self, tensor: Tensor, hook: HookPoint) -> None:
        """Keeps the tensor, as other hooks have left it."""
        self._local.tensor = tensor

    def take(self) -> Tensor:
        """The tensor, which is then kept no longer."""
        tensor = self._local.tensor
        del self._local.tensor
        return tensor

    def replace(self, tensor: Tensor, hook: HookPoint) -> Tensor:
        """The kept tensor in place of another."""
        return self.take()


class _KeptScores(_Kept):
    """The scores, for linear attention of some heads."""

    def __init__(self, head: Sequence[int] | None = None):
        super().__init__()
        self.head = head

    def __reduce__(self):
        return type(self), (self.head,)

    def replace(self, tensor: Tensor, hook: HookPoint) -> Tensor:
        """Linear attention in place of a softmax pattern."""
        linear = linear_attention(self.take())
        if self.head is None:
            return linear
        if max(self.head) >= tensor.shape[1]:
            raise refuse("LinearAttention.head", max(self.head), f"a head, 0 to {tensor.shape[1] - 1}")
        pattern = tensor.clone()
        pattern[:, list(self.head)] = linear[:, list(self.head)]
        return pattern


def linear_attention_hooks(layer: int, head: Sequence[int] | None = None) -> list[NamedHook]:
    """Hooks that replace a layer's softmax by `linear_attention`, for all heads or the given ones."""
    kept = _KeptScores(head)
    return [(scores_name(layer), kept.keep), (pattern_name(layer), kept.replace)]


def no_residual_hooks(layer: int, around: Literal["attention", "mlp", "both"] = "both") -> list[NamedHook]:
    """Hooks that remove the residual stream around a layer's attention, its MLP, or both, and keep their outputs."""
    bypasses = {
        "attention": (attention_out_name(layer), middle_name(layer)),
        "mlp": (mlp_out_name(layer), final_name(layer)),
    }
    hooks: list[NamedHook] = []
    for part, (output, stream) in bypasses.items():
        if around in (part, "both"):
            kept = _Kept()
            hooks += [(output, kept.keep), (stream, kept.replace)]
    return hooks
