"""The circuits of a head by token, as matrices: which tokens it matches, and what moving one adds to the answer."""

from einops import einsum
from jaxtyping import Float
from torch import Tensor
from transformer_lens import HookedTransformer

from bayesticket.model.hooks import require_head, require_layer
from bayesticket.model.one_layer import attention_scale


def qk_by_token(model: HookedTransformer, layer: int = 0, head: int = 0) -> Float[Tensor, "query key"]:
    """The QK circuit, `W_E W_Q W_Kᵀ W_Eᵀ / √d_head`: the score that each token gives each other, positions left out."""
    attention, embedding = _attention(model, layer, head), model.W_E
    scores = einsum(
        embedding, attention.W_Q[head], attention.W_K[head], embedding,
        "query model, model d_head, other d_head, key other -> query key",
    )  # fmt: skip
    return scores.detach() / attention_scale(model, layer)


def ov_by_token(model: HookedTransformer, layer: int = 0, head: int = 0) -> Float[Tensor, "token output"]:
    """The OV circuit, `W_E W_V W_O W_U`: what a token that is attended to adds to each logit, past the MLP."""
    attention = _attention(model, layer, head)
    moved = einsum(
        model.W_E, attention.W_V[head], attention.W_O[head], model.W_U,
        "token model, model d_head, d_head other, other output -> token output",
    )  # fmt: skip
    return moved.detach()


def _attention(model: HookedTransformer, layer: int, head: int):
    require_layer(model, layer, "layer")
    require_head(model, head, "head")
    return model.blocks[layer].attn
