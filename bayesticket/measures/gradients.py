"""Gradients: how much the task still teaches attention."""

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor

from bayesticket import theory
from bayesticket.errors import refuse, refuse_case
from bayesticket.measures.base import AttentionMeasure, Observation
from bayesticket.model import (
    FAST_HOOKS,
    HookedTransformer,
    attention_scale,
    embed_position,
    embed_tokens,
    is_before_scores,
    mix_embeddings,
    normalize_for_attention,
    residual_name,
    scores_name,
    why_full,
    without_interaction_matrix,
)
from bayesticket.specs import spec
from bayesticket.tasks import Examples


@spec
class AttentionGradient(AttentionMeasure):
    """Gradient of the task loss in the interaction matrix, `‖∂L_CE/∂M‖_F` with `M = W_Q W_Kᵀ` (Fig. 1, right).

    `∂L/∂M = Σ_{n,q,i} (∂L/∂s_{n,q,i}) x_{n,q} x_{n,i}ᵀ / √d_head`, with x augmented by 1 for the biases, over all heads
    together: a number. In the last layer only the last query has a gradient, since the answer is read there; in earlier
    layers every query counts. Large while the task teaches attention; near zero on the explaining-away plateau. Of the
    task alone, without priors. NaN where an intervention edits what the scores are computed from. Costs half a backward
    pass.

    For scores `[x_q, 1]ᵀ M [x_i, 1] / √d_head` of one layer: a model in which a score depends on positions in another
    way, as with rotary embeddings, has no such M, and is refused.
    """

    def __post_init__(self):
        super().__post_init__()
        if self.layer != "each" and len(self.layers) != 1:
            raise refuse("layer", self.layer, "one layer, or 'each'")
        if self.query != -1:
            raise refuse("AttentionGradient.query", self.query, "-1; the gradient in M is over all queries")

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Raises for a layer or a head that the model lacks, and for scores that are not made by one matrix M."""
        super().check(model, batch)
        if (setting := without_interaction_matrix(model, self.layers[0])) is not None:
            raise refuse_case("AttentionGradient", f"a model with {setting}", "scores that are x_q M x_i / √d_head")

    def reads(self, model: HookedTransformer) -> tuple[str, ...]:
        """The stream into attention, unless that is the embedding."""
        return () if self._reads_embedding(model) else (residual_name(self.layers[0]),)

    def differentiates(self, model: HookedTransformer) -> tuple[str, ...]:
        """The scores."""
        return (scores_name(self.layers[0]),)

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The norm."""
        layer, model = self.layers[0], seen.model
        # Scores of keys that a query cannot see are −∞, and get no gradient.
        d_scores = seen.gradients[scores_name(layer)]
        if layer == model.cfg.n_layers - 1:
            d_scores = d_scores[:, :, -1:]
        if self.heads is not None:
            d_scores = d_scores[:, self.heads]
        embedded = residual_name(layer) not in seen.activations  # asked now, hooks of edits would count
        if any(is_before_scores(name, layer) or (embedded and name not in FAST_HOOKS) for name in seen.edited):
            return torch.tensor(torch.nan)  # what the scores are made of is edited, and was not read
        if embedded and model.cfg.normalization_type is None:
            query = embed_position(model, seen.batch.tokens, -1)[:, None]
            source = mix_embeddings(model, seen.batch.tokens, d_scores[:, :, 0])[:, :, None]
        else:
            stream = embed_tokens(model, seen.batch.tokens) if embedded else seen.activations[residual_name(layer)]
            stream = normalize_for_attention(model, stream, layer)
            query = stream[:, -d_scores.shape[2] :]
            source = einsum(d_scores, stream, "n head query key, n key d_model -> n head query d_model")
        query = torch.cat([query, torch.ones_like(query[..., :1])], -1)
        source = torch.cat([source, d_scores.sum(-1, keepdim=True)], -1)
        query = rearrange(query, "n query d_model -> (n query) d_model")
        source = rearrange(source, "n head query d_model -> (n query) head d_model")
        return theory.interaction_gradient(query, source, attention_scale(model, layer)).norm()

    def _reads_embedding(self, model: HookedTransformer) -> bool:
        return self.layers == (0,) and why_full(model) is None
