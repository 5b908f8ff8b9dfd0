"""Model: the transformer. This is the only room that imports TransformerLens.

It builds and describes models, mounts hooks, and computes the query-only forward. Every rule about the names of hook
points and parameters is in `names`.
"""

from transformer_lens import HookedTransformer
from transformer_lens.hook_points import HookPoint

from bayesticket.model.build import Architecture, build, build_model, move, require_device
from bayesticket.model.describe import describe_model, load_parameters, rebuild_model, unexplained_hooks
from bayesticket.model.forward import (
    FAST_HOOKS,
    FORWARDS,
    RowLayout,
    choose_forward,
    full_forward,
    query_forward,
    why_full,
)
from bayesticket.model.hooks import NamedHook, mounted, own_hooks, require_firing, require_head, require_layer
from bayesticket.model.names import (
    final_name,
    is_before_scores,
    is_before_values,
    is_bias,
    is_hidden_matrix,
    is_matrix,
    is_mlp,
    is_routing,
    middle_name,
    mlp_pre_name,
    parameter_kind,
    pattern_name,
    residual_name,
    routing_parameters,
    scores_name,
)
from bayesticket.model.one_layer import (
    attention_scale,
    bypasses_mlp,
    embed_position,
    embed_tokens,
    mix_embeddings,
    normalize_for_attention,
    readout_matrices,
    require_relu_layer,
    require_single_layer,
    unusual_setting,
    value_table,
    values_of,
    visible_from,
    without_interaction_matrix,
)
from bayesticket.model.variants import linear_attention, linear_attention_hooks, no_residual_hooks

__all__ = [
    "FAST_HOOKS",
    "FORWARDS",
    "Architecture",
    "HookPoint",
    "HookedTransformer",
    "NamedHook",
    "RowLayout",
    "attention_scale",
    "build",
    "build_model",
    "bypasses_mlp",
    "choose_forward",
    "describe_model",
    "embed_position",
    "embed_tokens",
    "final_name",
    "full_forward",
    "is_before_scores",
    "is_before_values",
    "is_bias",
    "is_hidden_matrix",
    "is_matrix",
    "is_mlp",
    "is_routing",
    "linear_attention",
    "linear_attention_hooks",
    "load_parameters",
    "middle_name",
    "mix_embeddings",
    "mlp_pre_name",
    "mounted",
    "move",
    "no_residual_hooks",
    "normalize_for_attention",
    "own_hooks",
    "parameter_kind",
    "pattern_name",
    "query_forward",
    "readout_matrices",
    "rebuild_model",
    "require_device",
    "require_firing",
    "require_head",
    "require_layer",
    "require_relu_layer",
    "require_single_layer",
    "residual_name",
    "routing_parameters",
    "scores_name",
    "unexplained_hooks",
    "unusual_setting",
    "value_table",
    "values_of",
    "visible_from",
    "why_full",
    "without_interaction_matrix",
]
