"""Gradients: how much the task still teaches attention."""

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from bayesticket import theory
from bayesticket.errors import refuse
from bayesticket.measures.base import AttentionMeasure, Observation
from bayesticket.model import (
    FAST_HOOKS,
    HookedTransformer,
    attention_scale,
    embed_position,
    embed_tokens,
    mix_embeddings,
    normalize_for_attention,
    residual_name,
    scores_name,
    why_full,
)
from bayesticket.specs import spec


@spec
class AttentionGradient(AttentionMeasure):
    """Gradient of the task loss in the interaction matrix, `‖∂L_CE/∂M‖_F` with `M = W_Q W_Kᵀ` (Fig. 1, right).

    `∂L/∂M = Σ_{n,i} (∂L/∂s_{n,i}) x_q x_{n,i}ᵀ / √d_head`, with x augmented by 1 for the biases, over all heads
    together: a number. Large while the task teaches attention; near zero on the explaining-away plateau. Of the task
    alone, without priors. NaN where an intervention edits the stream before attention. Costs half a backward pass.
    """

    def __post_init__(self):
        super().__post_init__()
        if len(self.layers) != 1:
            raise refuse("layer", self.layer, "one layer")

    def reads(self, model: HookedTransformer) -> tuple[str, ...]:
        """The stream into attention, unless that is the embedding."""
        return () if self._reads_embedding(model) else (residual_name(self.layers[0]),)

    def differentiates(self, model: HookedTransformer) -> tuple[str, ...]:
        """The scores."""
        return (scores_name(self.layers[0]),)

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The norm."""
        layer, model = self.layers[0], seen.model
        # Scores of keys that the query cannot see are −∞, and get no gradient.
        d_scores = self.rows(seen.gradients[scores_name(layer)])
        embedded = residual_name(layer) not in seen.activations
        if embedded and any(name not in FAST_HOOKS for name in seen.edited):
            return torch.tensor(torch.nan)  # the stream into attention is edited, and was not read
        if embedded and model.cfg.normalization_type is None:
            query = embed_position(model, seen.batch.tokens, self.query)
            source = mix_embeddings(model, seen.batch.tokens, d_scores)
        else:
            stream = embed_tokens(model, seen.batch.tokens) if embedded else seen.activations[residual_name(layer)]
            stream = normalize_for_attention(model, stream, layer)
            query = stream[:, self.query]
            source = einsum(d_scores, stream, "n head key, n key d_model -> n head d_model")
        query = torch.cat([query, torch.ones_like(query[..., :1])], -1)
        source = torch.cat([source, d_scores.sum(-1, keepdim=True)], -1)
        return theory.interaction_gradient(query, source, attention_scale(model, layer)).norm()

    def _reads_embedding(self, model: HookedTransformer) -> bool:
        return self.layers == (0,) and why_full(model) is None
