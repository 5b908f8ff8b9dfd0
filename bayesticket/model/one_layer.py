"""The parts of a plain one-layer model: its embeddings, its values, and the keys that a query may attend to."""

from collections.abc import Collection
from typing import cast

import torch
import torch.nn.functional as F
from einops import einsum, rearrange, repeat
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens import HookedTransformer, HookedTransformerConfig

from bayesticket.errors import refuse_case
from bayesticket.model.hooks import own_hooks
from bayesticket.model.names import is_before_scores
from bayesticket.model.positions import draws_positions, position_embeddings


def visible_from(model: HookedTransformer, layer: int, n_positions: int, query: int) -> slice:
    """The key positions that a query may attend to: with causal attention none after it, with local none far before."""
    query = query % n_positions
    causal = model.cfg.attention_dir == "causal"
    first = 0
    if model.cfg.use_local_attn and model.cfg.attn_types and model.cfg.attn_types[layer] == "local":
        first = max(0, query + 1 - (model.cfg.window_size or n_positions))
    return slice(first, query + 1 if causal else n_positions)


def embed_tokens(
    model: HookedTransformer, tokens: Int[Tensor, "n T"], position_ids: Int[Tensor, "n T"] | None = None
) -> Float[Tensor, "n T d_model"]:
    """The residual stream into the first layer of a plain model: token plus position embeddings."""
    return model.embed.W_E[tokens] + position_embeddings(model, tokens.shape[1], position_ids)


def embed_position(
    model: HookedTransformer,
    tokens: Int[Tensor, "n T"],
    position: int,
    position_ids: Int[Tensor, "n T"] | None = None,
) -> Float[Tensor, "n d_model"]:
    """The residual stream into the first layer of a plain model at one position."""
    of_positions = position_embeddings(model, tokens.shape[1], position_ids)
    return model.embed.W_E[tokens[:, position]] + of_positions[..., position, :]


def mix_embeddings(
    model: HookedTransformer,
    tokens: Int[Tensor, "n T"],
    weights: Float[Tensor, "n heads T"],
    position_ids: Int[Tensor, "n T"] | None = None,
) -> Float[Tensor, "n heads d_model"]:
    """Weighted sums of the residual stream into the first layer of a plain model, `Σ_t weights[n, h, t] x[n, t]`."""
    of_tokens = _mix(model.embed.W_E, tokens, weights)
    if position_ids is not None:
        return of_tokens + _mix(model.pos_embed.W_pos, position_ids, weights)
    return of_tokens + weights @ position_embeddings(model, tokens.shape[1])


def _mix(
    table: Float[Tensor, "rows d_model"], index: Int[Tensor, "n T"], weights: Float[Tensor, "n heads T"]
) -> Float[Tensor, "n heads d_model"]:
    heads = weights.shape[1]
    bags = repeat(index, "n T -> (n heads) T", heads=heads)
    bag_weights = rearrange(weights, "n heads T -> (n heads) T")
    mixed = F.embedding_bag(bags, table, per_sample_weights=bag_weights, mode="sum")
    return rearrange(mixed, "(n heads) d_model -> n heads d_model", heads=heads)


def normalize_for_attention(
    model: HookedTransformer, stream: Float[Tensor, "n T d_model"], layer: int
) -> Float[Tensor, "n T d_model"]:
    """What a layer's attention computes its queries, keys and values from: the normalised residual stream."""
    return model.blocks[layer].ln1(stream)


def attention_scale(model: HookedTransformer, layer: int) -> float:
    """The divisor of a layer's attention scores, √d_head."""
    return float(model.blocks[layer].attn.attn_scale)


def without_interaction_matrix(model: HookedTransformer, layer: int) -> str | None:
    """A setting by which a layer's scores are not `[x_q, 1]ᵀ M [x_i, 1] / √d_head` of the stream x; or None."""
    cfg = model.cfg
    if cfg.positional_embedding_type not in ("standard", "alibi"):
        return f"positional_embedding_type={cfg.positional_embedding_type!r}"
    if cfg.use_qk_norm:
        return "use_qk_norm=True"
    if cfg.attn_scores_soft_cap > 0:
        return f"attn_scores_soft_cap={cfg.attn_scores_soft_cap!r}"
    own = next((name for name in own_hooks(model) if is_before_scores(name, layer)), None)
    return None if own is None else f"hooks of its own on {own}"


def require_interaction_matrix(model: HookedTransformer, layer: int, field: str) -> None:
    """Raises for scores that are not made by one matrix M."""
    if (setting := without_interaction_matrix(model, layer)) is not None:
        raise refuse_case(field, f"a model with {setting}", "scores that are x_q M x_i / √d_head")


_PLAIN = HookedTransformerConfig(
    n_layers=1,
    d_model=2,
    d_head=2,
    n_heads=1,
    n_ctx=2,
    d_vocab=2,
    act_fn="relu",
    normalization_type=None,
    device="cpu",
)

_FREE = {
    *("d_model", "d_head", "n_heads", "n_ctx", "d_vocab", "d_vocab_out", "d_mlp", "act_fn"),
    *("normalization_type", "eps", "final_rms", "uses_rms_norm", "layer_norm_folding"),
    *("attention_dir", "attn_scale", "use_attn_scale", "use_hook_tokens"),
    *("seed", "device", "dtype", "init_mode", "initializer_range", "init_weights", "n_params", "model_name"),
    *("from_checkpoint", "checkpoint_index", "checkpoint_label_type", "checkpoint_value"),
    *("default_prepend_bos", "tokenizer_prepends_bos"),
}
"""The settings in which a plain model may differ from `_PLAIN`: sizes, normalisation, attention, and how it is made."""


def unusual_setting(model: HookedTransformer, *, allowed: Collection[str] = ()) -> str | None:
    """A setting, other than a size, in which a model differs from the plain one-layer transformer; or None."""
    given, plain = model.cfg.to_dict(), _PLAIN.to_dict()
    for name in given:
        if name not in _FREE and name not in allowed and given[name] != plain.get(name):
            return f"{name}={given[name]!r}"
    if model.cfg.act_fn.endswith("_ln"):
        return f"act_fn={model.cfg.act_fn!r}"
    return None


def require_single_layer(model: HookedTransformer, field: str) -> None:
    """Raises if the value of a position depends on more than its own token."""
    if (setting := unusual_setting(model)) is not None:
        raise refuse_case(
            field,
            f"a model with {setting}",
            "a plain one-layer model, in which a value depends on its own token alone and the MLP on one z",
        )
    if draws_positions(model):
        raise refuse_case(
            field, "a model with positions='drawn'", "a model whose values at a position of the sequence are a table"
        )


def bypasses_mlp(model: HookedTransformer) -> bool:
    """Whether the residual stream leads around the MLP."""
    architecture = getattr(model, "architecture", None)
    return architecture is None or architecture.has_residual


def require_relu_layer(model: HookedTransformer, field: str) -> None:
    """Raises unless a model is one plain layer: softmax attention, a ReLU MLP, no normalisation, no hooks of its own.

    Of such a model `readout_matrices` say what becomes of the pooled value. A missing residual stream is allowed.
    """
    require_single_layer(model, field)
    architecture = getattr(model, "architecture", None)
    accepted = "one layer with softmax attention, ReLU and no normalisation, which Lemma 5.1 is about"
    for name, expected in (("normalization_type", None), ("act_fn", "relu")):
        if (given := getattr(model.cfg, name)) != expected:
            raise refuse_case(field, f"a model with {name}={given!r}", accepted)
    if architecture is not None and architecture.attention != "softmax":
        raise refuse_case(field, f"a model with attention={architecture.attention!r}", accepted)
    if own_hooks(model) and (architecture is None or architecture.has_residual):
        raise refuse_case(field, f"a model with hooks of its own on {own_hooks(model)[0]}", accepted)


def readout_matrices(model: HookedTransformer, heads: list[int] | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The matrices between pooled values and logits in a one-layer model: W_O of some heads, W_in, W_out, W_U."""
    block = model.blocks[0]
    W_O = block.attn.W_O if heads is None else block.attn.W_O[heads]
    return W_O, block.mlp.W_in, block.mlp.W_out, model.unembed.W_U


def value_table(model: HookedTransformer, n_positions: int) -> Float[Tensor, "T vocab heads d_head"]:
    """The value vector `v = x W_V + b_V` of every token at every position of a one-layer model."""
    return _table(model, n_positions, model.blocks[0].attn.W_V, model.blocks[0].attn.b_V)


def _table(
    model: HookedTransformer,
    n_positions: int,
    weight: Float[Tensor, "heads d_model d_head"],
    bias: Float[Tensor, "heads d_head"],
) -> Float[Tensor, "T vocab heads d_head"]:
    """An affine map of the normalised stream, for every token at every position of a one-layer model."""
    stream = model.embed.W_E[None] + position_embeddings(model, n_positions)[:, None]
    stream = normalize_for_attention(model, stream, 0)
    return einsum(stream, weight, "T vocab d_model, heads d_model d_head -> T vocab heads d_head") + bias


def score_table(model: HookedTransformer, tokens: Int[Tensor, "n T"]) -> Float[Tensor, "n heads T vocab"]:
    """The scores at the last query of each sequence, for every token at every position, in a one-layer model."""
    attention = model.blocks[0].attn
    keys = _table(model, tokens.shape[1], attention.W_K, attention.b_K)
    stream = normalize_for_attention(model, embed_position(model, tokens, -1)[:, None], 0)[:, 0]
    query = einsum(stream, attention.W_Q, "n d_model, heads d_model d_head -> n heads d_head") + attention.b_Q
    scores = einsum(query, keys, "n heads d_head, T vocab heads d_head -> n heads T vocab")
    return scores / attention_scale(model, 0)


def logits_of_pooled(
    model: HookedTransformer, tokens: Int[Tensor, "n T"], pooled: Float[Tensor, "n heads d_head"]
) -> Float[Tensor, "n d_vocab_out"]:
    """The logits of a one-layer model without normalisation whose heads pool these values at the last position."""
    block, unembed = model.blocks[0], model.unembed
    b_in, b_out, b_U = (cast(Tensor, bias) for bias in (block.mlp.b_in, block.mlp.b_out, unembed.b_U))
    middle = einsum(pooled, block.attn.W_O, "n heads d_head, heads d_head d_model -> n d_model") + block.attn.b_O
    if residual := bypasses_mlp(model):
        middle = middle + embed_position(model, tokens, -1)
    final = block.mlp.act_fn(middle @ block.mlp.W_in + b_in) @ block.mlp.W_out + b_out
    return (middle + final if residual else final) @ unembed.W_U + b_U


def values_of(model: HookedTransformer, tokens: Int[Tensor, "n T"]) -> Float[Tensor, "n heads T d_head"]:
    """The value vectors of a batch in a one-layer model."""
    table = value_table(model, tokens.shape[1])
    values = table[torch.arange(tokens.shape[1], device=tokens.device), tokens]
    return rearrange(values, "n T heads d_head -> n heads T d_head")
