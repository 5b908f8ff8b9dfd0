"""Edits: interventions that change what attention does, in the forward pass."""

import abc
from collections.abc import Sequence
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from bayesticket.attention import AttentionSite, Target, as_target, require_visible
from bayesticket.errors import BayesticketError, refuse, refuse_case, require_choice, require_integer
from bayesticket.interventions.base import AttentionIntervention, Intervention, check_target
from bayesticket.interventions.context import Context
from bayesticket.model import (
    HookPoint,
    NamedHook,
    linear_attention_hooks,
    no_residual_hooks,
    pattern_name,
    require_layer,
)
from bayesticket.schedules import Strength, require_strength
from bayesticket.specs import spec


def freeze_attention(
    pattern: Float[Tensor, "n H query key"],
    target: Float[Tensor, "n_or_1 heads key"],
    *,
    query: int = -1,
    heads: Sequence[int] | None = None,
) -> Float[Tensor, "n H query key"]:
    """The pattern with its row at `query` replaced by a target, `α ← α*`.

    >>> import torch
    >>> freeze_attention(torch.full((1, 1, 1, 2), 0.5), torch.tensor([[[1.0, 0.0]]]))
    tensor([[[[1., 0.]]]])
    """
    return mix_attention(pattern, target, 1.0, query=query, heads=heads)


def mix_attention(
    pattern: Float[Tensor, "n H query key"],
    target: Float[Tensor, "n_or_1 heads key"],
    weight: float,
    *,
    query: int = -1,
    heads: Sequence[int] | None = None,
) -> Float[Tensor, "n H query key"]:
    """The pattern with its row at `query` moved toward a target, `α ← (1 − w) α + w α*`.

    >>> import torch
    >>> mix_attention(torch.full((1, 1, 1, 2), 0.5), torch.tensor([[[1.0, 0.0]]]), 0.5)
    tensor([[[[0.7500, 0.2500]]]])
    """
    which = slice(None) if heads is None else list(heads)
    mixed = pattern.clone()
    row = target.to(pattern)
    # At full weight the model's own attention leaves the computation, and gets no gradient.
    mixed[:, which, query] = row if weight == 1.0 else (1 - weight) * pattern[:, which, query] + weight * row
    return mixed


@spec
class AttentionEdit(AttentionIntervention):
    """Base of the interventions that move attention to a target in the forward pass."""

    target: Target = "oracle"

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "target", as_target("target", self.target))

    @abc.abstractmethod
    def edited(
        self,
        context: Context,
        pattern: Float[Tensor, "n H query key"],
        target: Float[Tensor, "n_or_1 heads key"],
        query: int,
    ) -> Float[Tensor, "n H query key"]:
        """The pattern, edited at a query of this site."""

    def edits(self, context: Context) -> list[NamedHook]:
        """One hook on the pattern of every layer."""
        return [(pattern_name(layer), self._hook(context, layer)) for layer in self.layers]

    def check(self, context: Context) -> None:
        """Raises unless the target fits."""
        super().check(context)
        check_target(self, self.target, context)

    def _hook(self, context: Context, layer: int):
        sites = self.at_queries(context.batch)
        for site in sites:
            context.target(self.target, layer, site)  # raises where it does not fit

        def edit(pattern: Tensor, hook: HookPoint) -> Tensor:
            for site in sites:
                target = _fitting(self, context, layer, pattern, site)
                pattern = self.edited(context, pattern, target, site.row(pattern))
            return pattern

        return edit


@spec
class MixedAttention(AttentionEdit):
    """Moves attention part of the way to a target, `α ← (1 − w) α + w α*`, with `w` between 0 and 1.

    >>> MixedAttention("oracle", weight=0.3)
    MixedAttention(weight=0.3)
    """

    weight: Strength = 0.5

    @property
    def replaces(self) -> Literal["nothing", "row"]:  # type: ignore[override]
        """At a constant weight of 1 nothing of the model's own attention is left."""
        return "row" if self.weight == 1 else "nothing"

    def __post_init__(self):
        super().__post_init__()
        require_strength("weight", self.weight, most=1.0)

    def edited(
        self,
        context: Context,
        pattern: Float[Tensor, "n H query key"],
        target: Float[Tensor, "n_or_1 heads key"],
        query: int,
    ) -> Float[Tensor, "n H query key"]:
        """The pattern, moved toward the target by the weight of the epoch."""
        weight = context.value(self.weight, "MixedAttention.weight")
        return mix_attention(pattern, target, weight, query=query, heads=self.heads)


@spec
class FrozenAttention(AttentionEdit):
    """Replaces attention by a fixed target, `α ← α*`; W_Q and W_K then get no gradient from the task.

    >>> FrozenAttention("uniform", head=0)
    FrozenAttention(head=0, target='uniform')
    """

    replaces = "row"

    def edited(
        self,
        context: Context,
        pattern: Float[Tensor, "n H query key"],
        target: Float[Tensor, "n_or_1 heads key"],
        query: int,
    ) -> Float[Tensor, "n H query key"]:
        """The pattern, with the target in its place."""
        return freeze_attention(pattern, target, query=query, heads=self.heads)


def _fitting(intervention: AttentionEdit, context: Context, layer: int, pattern: Tensor, site: AttentionSite) -> Tensor:
    """The target at one query; raises unless it fits what the model has run on."""
    target = context.target(intervention.target, layer, site)
    if pattern.shape[-1] != target.shape[-1] or len(target) not in (1, len(pattern)):
        raise BayesticketError(
            f"{type(intervention).__name__}: got a run on {len(pattern)} sequences of {pattern.shape[-1]} positions; "
            f"accepted: the {context.n_examples} sequences of {target.shape[-1]} positions that its hooks were made for"
        )
    _, n_heads, n_queries, _ = pattern.shape
    if intervention.heads is not None and max(intervention.heads) >= n_heads:
        raise refuse(
            f"{type(intervention).__name__}.head", intervention.head, f"a head of the model, 0 to {n_heads - 1}"
        )
    query = site.row(pattern)
    if not -n_queries <= query < n_queries:
        raise refuse(f"{type(intervention).__name__}.query", query, f"a position, 0 to {n_queries - 1}")
    if target.shape[1] not in (1, n_heads if intervention.heads is None else len(intervention.heads)):
        raise refuse_case(
            f"{type(intervention).__name__}.target", f"{target.shape[1]} heads", "1, or as many as it edits"
        )
    if query % n_queries < n_queries - 1:  # causal attention is 0 beyond its query
        seen = int((pattern[:, :, query] != 0).any(0).any(0).nonzero().max()) + 1
        require_visible(target, slice(0, seen), f"{type(intervention).__name__}.target")
    return target


@spec
class LinearAttention(AttentionIntervention):
    """Normalised linear-ReLU attention in place of softmax, `α_i = relu(s_i) / Σ_j relu(s_j)`, at every query."""

    replaces = "pattern"

    def __post_init__(self):
        super().__post_init__()
        if self.query != -1:
            raise refuse("query", self.query, "nothing: linear attention is for all queries alike")

    def edits(self, context: Context) -> list[NamedHook]:
        """Hooks that keep the scores and replace the pattern."""
        return [hook for layer in self.layers for hook in linear_attention_hooks(layer, self.heads)]


@spec
class NoResidual(Intervention):
    """Cuts the residual stream around attention, MLP or both: `r = attn_out`, `logits = MLP(r) W_U + b_U`."""

    around: Literal["attention", "mlp", "both"] = "both"
    layer: int = 0

    def __post_init__(self):
        require_choice("around", self.around, ("attention", "mlp", "both"))
        require_integer("layer", self.layer, least=0)

    def edits(self, context: Context) -> list[NamedHook]:
        """Hooks that let only the outputs of attention and MLP pass."""
        return no_residual_hooks(self.layer, self.around)

    def check(self, context: Context) -> None:
        """Raises unless the model has the layer."""
        assert context.model is not None
        require_layer(context.model, self.layer, "NoResidual.layer")
