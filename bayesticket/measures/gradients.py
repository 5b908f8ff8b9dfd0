"""Gradients: how much the task still teaches attention."""

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor

from bayesticket import theory
from bayesticket.attention import Target, as_target, require_visible, resolve
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
    own_hooks,
    pattern_name,
    require_interaction_matrix,
    residual_name,
    scores_name,
    visible_from,
    why_full,
)
from bayesticket.specs import spec
from bayesticket.tasks import Examples


@spec
class AttentionGradient(AttentionMeasure):
    """Gradient of the task loss in the interaction matrix, `‖∂L_CE/∂M‖_F` with `M = W_Q W_Kᵀ` (Fig. 1, right).

    `∂L/∂M = Σ_{n,q,i} (∂L/∂s_{n,q,i}) x_{n,q} x_{n,i}ᵀ / √d_head`, with x augmented by 1 for the biases, over all heads
    together: a number. In the last layer only queries at which answers are read have a gradient, the last position
    unless the task asks at several; in earlier layers every query counts. Large while the task teaches attention; near
    zero on the explaining-away plateau. Of the task alone, without priors. NaN where an intervention edits what the
    scores are computed from. Costs half a backward pass.

    For scores `[x_q, 1]ᵀ M [x_i, 1] / √d_head` of one layer: a model in which a score depends on positions in another
    way, as with rotary embeddings, has no such M, and is refused.
    """

    takes_all_queries = True

    def __post_init__(self):
        super().__post_init__()
        _require_one_matrix(self)
        if self.query != -1:
            raise refuse("AttentionGradient.query", self.query, "-1; the gradient in M is over all queries")

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Raises for a layer or a head that the model lacks, and for scores that are not made by one matrix M."""
        super().check(model, batch)
        require_interaction_matrix(model, self.layers[0], "AttentionGradient")

    def reads(self, model: HookedTransformer) -> tuple[str, ...]:
        """The stream into attention, unless that is the embedding."""
        return _stream_names(self, model)

    def differentiates(self, model: HookedTransformer) -> tuple[str, ...]:
        """The scores."""
        return (scores_name(self.layers[0]),)

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The norm."""
        layer = self.layers[0]
        # Scores of keys that a query cannot see are −∞, and get no gradient.
        d_scores = seen.gradients[scores_name(layer)]
        if layer == seen.model.cfg.n_layers - 1 and seen.batch.asks_last_alone:
            d_scores = d_scores[:, :, -1:]
        if self.heads is not None:
            d_scores = d_scores[:, self.heads]
        return _norm_in_interaction(seen, layer, d_scores)


@spec
class PriorGradient(AttentionMeasure):
    """Gradient of the divergence from a target in the interaction matrix, `‖∂D_KL/∂M‖_F` (Eq. 45): a number.

    `∂D_KL/∂M = Σ_{n,i} (α_{n,i} − α*_{n,i}) x_{n,q} x_{n,i}ᵀ / √d_head`, averaged over examples, heads and queries
    as in `KLPrior`, with x augmented by 1 for the biases. It is what `KLPrior(target, strength=1.0)` pulls M with,
    whether training has such a prior or not, beside `AttentionGradient`, what the task pulls it with. Large while
    attention is far from the target, and 0 at the target, whatever the task's loss. NaN where an intervention edits the
    pattern, or what the scores are computed from. Costs a pass over the pattern and a sum over the embeddings, a tenth
    of a training epoch; with a teacher for target also one forward pass of the teacher.

    For softmax attention whose scores are `[x_q, 1]ᵀ M [x_i, 1] / √d_head`; other models are refused.
    """

    target: Target = "oracle"

    takes_all_queries = True

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "target", as_target("target", self.target))
        _require_one_matrix(self)
        if self.query not in (-1, "each"):
            raise refuse("PriorGradient.query", self.query, "-1, where answers are read, or 'each'")

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Raises for scores that are not made by one matrix M, for another pattern than their softmax, and a target
        that the query cannot see.
        """
        super().check(model, batch)
        require_interaction_matrix(model, layer := self.layers[0], "PriorGradient")
        if pattern_name(layer) in own_hooks(model):
            raise refuse_case(
                "PriorGradient", f"a model with hooks of its own on {pattern_name(layer)}", "softmax attention"
            )
        for query in batch.answerable:
            visible = visible_from(model, layer, batch.n_positions, query)
            require_visible(self._target(batch, layer, query), visible, "PriorGradient.target")

    def reads(self, model: HookedTransformer) -> tuple[str, ...]:
        """The pattern, and the stream into attention unless that is the embedding."""
        return (*self.pattern_names(), *_stream_names(self, model))

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The norm."""
        if pattern_name(layer := self.layers[0]) in seen.edited:
            return torch.tensor(torch.nan)
        patterns = seen.activations[pattern_name(layer)]
        patterns = patterns if self.heads is None else patterns[:, self.heads]
        if seen.batch.asks_last_alone:
            return _norm_in_interaction(seen, layer, self._in_scores(seen.batch, layer, -1, patterns)[:, :, None])
        d_scores, queries = torch.zeros_like(patterns), seen.batch.answerable
        for query in queries:
            d_scores[:, :, query] = self._in_scores(seen.batch, layer, query, patterns) / len(queries)
        return _norm_in_interaction(seen, layer, d_scores)

    def _in_scores(
        self, batch: Examples, layer: int, query: int, patterns: Float[Tensor, "n head query key"]
    ) -> Float[Tensor, "n head key"]:
        """The gradient in the scores at one query."""
        rows = patterns[:, :, query]
        return theory.kl_logit_gradient(self._target(batch, layer, query).to(rows), rows) / rows[..., 0].numel()

    def _target(self, batch: Examples, layer: int, query: int) -> Float[Tensor, "n_or_1 heads key"]:
        return resolve(self.target, batch, layer, query=query, heads=self.heads)


def _require_one_matrix(measure: AttentionMeasure) -> None:
    """Raises for several layers together."""
    if measure.layer != "each" and len(measure.layers) != 1:
        raise refuse("layer", measure.layer, "one layer, or 'each'")


def _stream_names(measure: AttentionMeasure, model: HookedTransformer) -> tuple[str, ...]:
    """The hook point of the stream into attention; none where that is the embedding."""
    if measure.layers == (0,) and why_full(model) is None:
        return ()
    return (residual_name(measure.layers[0]),)


def _norm_in_interaction(
    seen: Observation, layer: int, d_scores: Float[Tensor, "n head query key"]
) -> Float[Tensor, ""]:
    """The norm of a gradient in M, from that in the scores; NaN where what these are computed from is edited."""
    model = seen.model
    embedded = residual_name(layer) not in seen.activations  # asked now, hooks of edits would count
    if any(is_before_scores(name, layer) or (embedded and name not in FAST_HOOKS) for name in seen.edited):
        return torch.tensor(torch.nan)  # what the scores are made of is edited, and was not read
    tokens, position_ids = seen.batch.tokens, seen.batch.position_ids
    if embedded and model.cfg.normalization_type is None and d_scores.shape[2] == 1:
        query = embed_position(model, tokens, -1, position_ids)[:, None]
        source = mix_embeddings(model, tokens, d_scores[:, :, 0], position_ids)[:, :, None]
    else:
        stream = embed_tokens(model, tokens, position_ids) if embedded else seen.activations[residual_name(layer)]
        stream = normalize_for_attention(model, stream, layer)
        query = stream[:, -d_scores.shape[2] :]
        source = einsum(d_scores, stream, "n head query key, n key d_model -> n head query d_model")
    query = torch.cat([query, torch.ones_like(query[..., :1])], -1)
    source = torch.cat([source, d_scores.sum(-1, keepdim=True)], -1)
    query = rearrange(query, "n query d_model -> (n query) d_model")
    source = rearrange(source, "n head query d_model -> (n query) head d_model")
    return theory.interaction_gradient(query, source, attention_scale(model, layer)).norm()
