"""The names that TransformerLens gives to hook points and parameters, and every rule about them."""

from collections.abc import Iterable, Sequence

from torch import Tensor

# Hook points ------------------------------------------------------------------------------------------------------


def scores_name(layer: int) -> str:
    """A layer's attention scores, before the softmax: `(batch, head, query, key)`."""
    return f"blocks.{layer}.attn.hook_attn_scores"


def pattern_name(layer: int) -> str:
    """A layer's attention pattern: `(batch, head, query, key)`."""
    return f"blocks.{layer}.attn.hook_pattern"


def residual_name(layer: int) -> str:
    """The residual stream into a layer: `(batch, position, d_model)`."""
    return f"blocks.{layer}.hook_resid_pre"


def mlp_pre_name(layer: int) -> str:
    """A layer's MLP before its activation function: `(batch, position, d_mlp)`."""
    return f"blocks.{layer}.mlp.hook_pre"


def middle_name(layer: int) -> str:
    """The residual stream between a layer's attention and its MLP: `(batch, position, d_model)`."""
    return f"blocks.{layer}.hook_resid_mid"


def final_name(layer: int) -> str:
    """The residual stream out of a layer: `(batch, position, d_model)`."""
    return f"blocks.{layer}.hook_resid_post"


def z_name(layer: int) -> str:
    """A layer's mixed values, by head: `(batch, position, head, d_head)`."""
    return f"blocks.{layer}.attn.hook_z"


def attention_out_name(layer: int) -> str:
    """The output of a layer's attention: `(batch, position, d_model)`."""
    return f"blocks.{layer}.hook_attn_out"


def mlp_post_name(layer: int) -> str:
    """A layer's MLP after its activation function: `(batch, position, d_mlp)`."""
    return f"blocks.{layer}.mlp.hook_post"


def mlp_out_name(layer: int) -> str:
    """The output of a layer's MLP: `(batch, position, d_model)`."""
    return f"blocks.{layer}.hook_mlp_out"


POSITION_EMBEDDING = "hook_pos_embed"
"""What learned positions add to the embeddings of tokens: `(batch, position, d_model)`."""
UNEMBED_IN = "unembed.hook_in"
"""What the unembedding reads: `(batch, position, d_model)`."""
UNEMBED_OUT = "unembed.hook_out"
"""The logits: `(batch, position, d_vocab_out)`."""


def is_before_values(name: str) -> bool:
    """Whether an edit at a hook point changes the values that attention mixes, or what they are computed from."""
    return name.endswith(("hook_v", "hook_v_input", "hook_embed", "hook_pos_embed", "hook_resid_pre", "hook_attn_in"))


def is_before_scores(name: str, layer: int) -> bool:
    """Whether an edit at a hook point changes a layer's scores without changing the stream into the layer."""
    block = f"blocks.{layer}."
    inner = ("hook_attn_in", "hook_q_input", "hook_k_input", "attn.hook_q", "attn.hook_k")
    return name in [f"{block}{each}" for each in inner] or name.startswith(f"{block}ln1.")


def is_between_positions(name: str) -> bool:
    """Whether a hook point holds something for each query and key, `(batch, head, query, key)`: scores or a pattern."""
    return name.endswith(("hook_attn_scores", "hook_pattern"))


# Parameters -------------------------------------------------------------------------------------------------------


def parameter_kind(name: str) -> str:
    """A parameter's name without its module; TransformerLens writes `_W_K` for the W_K of grouped-query attention.

    >>> parameter_kind("blocks.0.attn.W_Q"), parameter_kind("blocks.1.attn._b_K")
    ('W_Q', 'b_K')
    """
    return name.rsplit(".", 1)[-1].removeprefix("_")


def layer_of(name: str) -> int | None:
    """The layer that a parameter belongs to; None for the embeddings, the unembedding and the last normalisation.

    >>> layer_of("blocks.1.attn.W_Q"), layer_of("embed.W_E")
    (1, None)
    """
    module, _, rest = name.partition(".")
    return int(rest.partition(".")[0]) if module == "blocks" else None


def is_bias(name: str) -> bool:
    """Whether a parameter is a bias."""
    return parameter_kind(name).startswith("b")


def is_matrix(name: str) -> bool:
    """Whether a parameter is a weight matrix, an embedding, or a matrix for each head."""
    return parameter_kind(name).startswith("W_")


def is_mlp(name: str) -> bool:
    """Whether a parameter is a matrix or a bias of an MLP."""
    return ".mlp." in name


def is_position_embedding(name: str) -> bool:
    """Whether a parameter is the matrix of learned positions."""
    return parameter_kind(name) == "W_pos"


def is_routing(name: str) -> bool:
    """Whether a parameter is a W_Q or a W_K, which determine the attention."""
    return parameter_kind(name) in ("W_Q", "W_K")


def is_hidden_matrix(name: str, parameter: Tensor) -> bool:
    """Whether a parameter is a matrix between the embeddings and the unembedding; Muon orthogonalises these."""
    # A bias can have two axes: b_Q has the shape (n_heads, d_head).
    return parameter.ndim >= 2 and not is_bias(name) and "embed" not in name


def routing_parameters(parameters: Iterable[str], layers: int | Sequence[int], *, biases: bool = True) -> list[str]:
    """Full names of the parameters that determine the attention of some layers, by default with the biases."""
    known, kinds = set(parameters), ("W_Q", "b_Q", "W_K", "b_K") if biases else ("W_Q", "W_K")
    names = []
    for layer in (layers,) if isinstance(layers, int) else layers:
        for kind in kinds:
            plain, grouped = f"blocks.{layer}.attn.{kind}", f"blocks.{layer}.attn._{kind}"
            names.append(grouped if plain not in known and grouped in known else plain)
    return names
