"""Architectures that TransformerLens has no option for, as hooks: linear attention, and no residual stream."""

import threading
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens.hook_points import HookPoint

from bayesticket.errors import refuse
from bayesticket.model.hooks import NamedHook
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


def linear_attention_hooks(layer: int, head: Sequence[int] | None = None) -> list[NamedHook]:
    """Hooks that replace a layer's softmax by `linear_attention`, for all heads or the given ones."""
    kept = threading.local()  # copies of a model share these hooks, and may run in different threads

    def keep_scores(scores: Tensor, hook: HookPoint) -> None:
        kept.scores = scores

    def replace_pattern(pattern: Tensor, hook: HookPoint) -> Tensor:
        linear = linear_attention(kept.scores)
        del kept.scores
        if head is None:
            return linear
        if max(head) >= pattern.shape[1]:
            raise refuse("LinearAttention.head", max(head), f"a head, 0 to {pattern.shape[1] - 1}")
        pattern = pattern.clone()
        pattern[:, list(head)] = linear[:, list(head)]
        return pattern

    return [(scores_name(layer), keep_scores), (pattern_name(layer), replace_pattern)]


def no_residual_hooks(layer: int, around: Literal["attention", "mlp", "both"] = "both") -> list[NamedHook]:
    """Hooks that remove the residual stream around a layer's attention, its MLP, or both, and keep their outputs."""
    bypasses = {
        "attention": (attention_out_name(layer), middle_name(layer)),
        "mlp": (mlp_out_name(layer), final_name(layer)),
    }
    hooks: list[NamedHook] = []
    for part, (output, stream) in bypasses.items():
        if around in (part, "both"):
            hooks += _replace_by(output, stream)
    return hooks


def _replace_by(source: str, destination: str) -> list[NamedHook]:
    """Hooks that replace the tensor at one hook point by that at an earlier one."""
    kept = threading.local()

    def keep(tensor: Tensor, hook: HookPoint) -> None:
        kept.output = tensor

    def replace(tensor: Tensor, hook: HookPoint) -> Tensor:
        output = kept.output
        del kept.output
        return output

    return [(source, keep), (destination, replace)]
