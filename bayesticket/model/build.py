"""How a model is built: the paper's one-layer transformer, as a HookedTransformer."""

import threading
import warnings
from collections.abc import Mapping
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from transformer_lens import HookedTransformer, HookedTransformerConfig

from bayesticket.errors import refuse, refuse_case, require_choice, require_flag, require_integer, require_number
from bayesticket.model.hooks import NamedHook, mount_permanently, sees_all_edits
from bayesticket.model.names import POSITION_EMBEDDING, is_bias, is_matrix
from bayesticket.model.positions import Placement, Positions
from bayesticket.model.variants import linear_attention_hooks, no_residual_hooks
from bayesticket.model.vocabulary import made_for
from bayesticket.specs import Spec, spec
from bayesticket.tasks import AbstractTask

MOST_PARAMETERS = 10**9
"""No model of more is built: a slip in a size would fill the memory."""
MOST_POSITIONS = 2**14
"""TransformerLens masks attention by a square of this side."""
NORMALIZATIONS = (None, "LN", "LNPre", "RMS", "RMSPre")


@spec(kw_only=True)
class Architecture(Spec):
    """The shape of a model; the paper's, of one layer, by default.

    Deeper ones train by TransformerLens' full forward, and measures read layer 0 unless told `layer=`.

    >>> Architecture(n_heads=4).d_head
    16
    """

    d_model: int = 64
    """Width of the residual stream."""
    n_heads: int = 1
    """Number of attention heads; each is d_model / n_heads wide."""
    d_mlp: int = 256
    """Hidden units of the ReLU MLP."""
    attention: Literal["softmax", "linear"] = "softmax"
    """Softmax attention, or normalised linear-ReLU attention relu(s) / Σ relu(s)."""
    residual: bool | None = None
    """Whether the residual stream bypasses attention and MLP; None is no path in one layer, the paper's minimal model,
    and a path where there are more layers."""
    biases: bool = True
    """Whether biases are trained; without, they stay at zero."""
    normalization_type: Literal["LN", "LNPre", "RMS", "RMSPre"] | None = None
    """TransformerLens' normalisation before attention, MLP and unembedding."""
    init_scale: float = 1.0
    """Factor on every weight matrix at initialisation."""
    n_layers: int = 1
    """Number of layers, all alike."""
    n_ctx: int | None = None
    """How many positions there are; None for as many as the task's sequences have, more for longer sequences too."""
    positions: Positions = "learned"
    """What tells where a token stands: "learned" embeddings of positions 0, 1, …; "drawn", the same, but in training at
    random positions in order, the query last; "none"; or "rotary", by which scores depend on distances."""

    def __post_init__(self):
        for name in ("d_model", "n_heads", "d_mlp", "n_layers"):
            require_integer(name, getattr(self, name), least=1)
        if self.d_model % self.n_heads:
            raise refuse("n_heads", self.n_heads, f"a divisor of d_model = {self.d_model}")
        require_choice("attention", self.attention, ("softmax", "linear"))
        if self.normalization_type not in NORMALIZATIONS:
            raise refuse("normalization_type", self.normalization_type, f"one of {NORMALIZATIONS}")
        require_number("init_scale", self.init_scale, above=0)
        if self.residual is not None:
            require_flag("residual", self.residual)
        require_flag("biases", self.biases)
        if self.n_ctx is not None:
            require_integer("n_ctx", self.n_ctx, least=1, most=MOST_POSITIONS)
        require_choice("positions", self.positions, get_args(Positions))
        if self.positions == "drawn" and self.n_ctx is None:
            raise refuse("n_ctx", None, "a number of positions larger than the task's, as they are drawn from all")
        if self.positions == "rotary" and self.d_head % 2:
            situation = f"heads of odd width {self.d_head} with positions='rotary'"
            raise refuse_case("n_heads", situation, "heads of even width d_model / n_heads")

    @property
    def d_head(self) -> int:
        """Width of one head."""
        return self.d_model // self.n_heads

    @property
    def has_residual(self) -> bool:
        """Whether the residual stream bypasses attention and MLP.

        >>> Architecture().has_residual, Architecture(n_layers=2).has_residual, Architecture(residual=True).has_residual
        (False, True, True)
        """
        return self.n_layers > 1 if self.residual is None else self.residual

    def settings(self, task: AbstractTask) -> dict[str, object]:
        """What TransformerLens is told to build this shape for a task; raises where its sequences are too long."""
        if self.n_ctx is not None and self.n_ctx < task.n_positions:
            raise refuse("n_ctx", self.n_ctx, f"at least {task.n_positions}, the length of the task's sequences")
        return {
            "n_layers": self.n_layers,
            "d_model": self.d_model,
            "n_heads": self.n_heads,
            "d_head": self.d_head,
            "d_mlp": self.d_mlp,
            "n_ctx": task.n_positions if self.n_ctx is None else self.n_ctx,
            "d_vocab": task.d_vocab,
            "d_vocab_out": task.d_vocab_out,
            "act_fn": "relu",
            "normalization_type": self.normalization_type,
            "attention_dir": "causal",
            **({"positional_embedding_type": "rotary"} if self.positions == "rotary" else {}),
        }


def build_model(
    task: AbstractTask,
    *,
    seed: int = 0,
    d_model: int = 64,
    n_heads: int = 1,
    d_mlp: int = 256,
    attention: Literal["softmax", "linear"] = "softmax",
    residual: bool | None = None,
    biases: bool = True,
    normalization_type: Literal["LN", "LNPre", "RMS", "RMSPre"] | None = None,
    init_scale: float = 1.0,
    n_layers: int = 1,
    n_ctx: int | None = None,
    positions: Positions = "learned",
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
) -> HookedTransformer:
    """Builds the paper's model for a task: one layer unless told otherwise, ReLU, learned positions, no LayerNorm.

    The options are those of `Architecture`. A single layer has no residual path, as the paper's minimal model has none;
    `residual=True` makes it a standard transformer layer. What TransformerLens has no switch for (`attention="linear"`,
    a missing residual path, `positions="drawn"`) is mounted as permanent hooks, so the model can be used like any
    other. `n_ctx` makes room for longer sequences than the task's.

    >>> from bayesticket.tasks import ModularAddition
    >>> model = build_model(ModularAddition(p=7), d_model=8, d_mlp=16)
    >>> model.cfg.n_layers, model.cfg.d_vocab, model.cfg.n_ctx
    (1, 9, 5)
    """
    architecture = Architecture(
        d_model=d_model,
        n_heads=n_heads,
        d_mlp=d_mlp,
        attention=attention,
        residual=residual,
        biases=biases,
        normalization_type=normalization_type,
        init_scale=init_scale,
        n_layers=n_layers,
        n_ctx=n_ctx,
        positions=positions,
    )
    return build(architecture, task, seed=seed, dtype=dtype, device=device)


def build(
    architecture: Architecture,
    task: AbstractTask,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
) -> HookedTransformer:
    """Builds the model of an `Architecture`; the weights depend on the seed alone, and on nothing global."""
    if not isinstance(task, AbstractTask):
        raise refuse("task", task, "a task, such as ModularAddition(p=113)")
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise refuse("dtype", dtype, "a floating-point dtype, such as torch.float32")
    require_device("device", device)
    require_integer("seed", seed, least=0)
    settings = architecture.settings(task)
    if (count := n_parameters(settings)) > MOST_PARAMETERS:
        raise refuse_case("model", f"{count:,} parameters", f"at most {MOST_PARAMETERS:,}")
    # Drawn in float32 whatever the dtype, so that one seed means one initialisation.
    model = hooked_transformer(settings, seed=seed, device="cpu")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if is_matrix(name):
                parameter.mul_(architecture.init_scale)
    if dtype != torch.float32:
        move(model, dtype)
    equip(model, architecture)
    return made_for(model if str(device) == "cpu" else move(model, device), task)


def n_parameters(settings: Mapping[str, Any]) -> int:
    """How many weights a model of these settings has about, from the sizes alone."""
    d_model, heads = settings["d_model"], settings["n_heads"] * settings["d_head"]
    layer = 4 * heads + (0 if settings.get("attn_only") else 2 * (settings.get("d_mlp") or 0))
    learned = settings.get("positional_embedding_type", "standard") != "rotary"
    outside = learned * settings["n_ctx"] + settings["d_vocab"] + max(settings.get("d_vocab_out", 0), 0)
    return d_model * (settings["n_layers"] * layer + outside)


def require_parameters(settings: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
    """Raises, before anything is built, where sizes and weights are far from each other."""
    given = sum(weight.numel() for weight in weights.values())
    sizes = [settings[name] for name in ("d_model", "n_heads", "d_head", "n_layers", "n_ctx", "d_vocab")]
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        raise refuse("sizes", sizes, "positive whole numbers")
    if settings["n_ctx"] > MOST_POSITIONS:
        raise refuse("n_ctx", settings["n_ctx"], f"at most {MOST_POSITIONS:,}")
    if (needed := n_parameters(settings)) > 4 * given or settings["n_layers"] > len(weights):
        raise refuse_case("weights", f"{given:,} numbers", f"about {needed:,}, as a model of these sizes has")


def require_device(field: str, device: object) -> None:
    """Raises unless torch can use the device here."""
    try:
        torch.empty(0, device=device)  # type: ignore[arg-type]
    except (RuntimeError, AssertionError, TypeError, ValueError) as error:
        raise refuse(field, device, "a device that torch can use here") from error


def move(model: HookedTransformer, place: str | torch.device | torch.dtype) -> HookedTransformer:
    """Moves a model to a device or a dtype, in place, without TransformerLens' printed notice."""
    model.to(place, print_details=False)
    return model


def require_weights(field: str, model: HookedTransformer) -> None:
    """Raises unless a model's weights are in memory, finite, and float32 or float64 throughout."""
    dtypes = {str(parameter.dtype).removeprefix("torch.") for parameter in model.parameters()}
    if len(dtypes) > 1 or not dtypes <= {"float32", "float64"}:
        accepted = "float32 or float64 throughout; model.float() converts it"
        raise refuse_case(field, f"parameters of {' and '.join(sorted(dtypes))}", accepted)
    require_in_memory(field, model)
    require_finite(field, model)


def require_finite(field: str, model: HookedTransformer) -> None:
    """Raises unless a model's weights are finite; TransformerLens turns undefined attention into zeros."""
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            raise refuse_case(field, f"a model whose {name} is not finite", "one with finite weights")


def require_in_memory(field: str, model: HookedTransformer) -> None:
    """Raises for a model on the meta device, whose weights have no values."""
    if any(parameter.is_meta for parameter in model.parameters()):
        raise refuse_case(field, "a model on the meta device", "one whose weights have values")


_BUILDING = threading.Lock()


def hooked_transformer(config: dict, *, seed: int, device: str = "cpu") -> HookedTransformer:
    """A HookedTransformer from the fields of its config, its weights drawn from the seed alone."""
    # The state of both is the whole process's, whose threads may be building models of their own.
    with _BUILDING, warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        # Known and pinned below 4.0 on purpose; users of this library can do nothing about it.
        warnings.filterwarnings("ignore", message="HookedTransformer is deprecated", category=DeprecationWarning)
        torch.manual_seed(seed)
        return HookedTransformer(HookedTransformerConfig(**config, device=device))


def equip(model: HookedTransformer, architecture: Architecture) -> None:
    """Adds to a bare model what TransformerLens has no switch for."""
    model.architecture = architecture  # type: ignore[assignment]
    mount_permanently(model, _permanent_hooks(architecture))
    if architecture.positions == "drawn":
        mount_permanently(model, [(POSITION_EMBEDDING, Placement(model.pos_embed).place)])
    if architecture.positions == "none":
        with torch.no_grad():
            model.pos_embed.W_pos.zero_().requires_grad_(False)
    if architecture.positions == "rotary":
        _compute_rotations(model)
    if not architecture.biases:
        for name, parameter in model.named_parameters():
            if is_bias(name):
                parameter.requires_grad_(False)


def _compute_rotations(model: HookedTransformer) -> None:
    """Computes the sines and cosines of rotary positions for all positions, and in the precision of the weights.

    TransformerLens computes those of many positions when they are needed, and leaves a conversion without precision.
    """
    cfg, dtype = model.cfg, next(model.parameters()).dtype
    assert cfg.rotary_dim is not None
    for attention in (block.attn for block in model.blocks):
        attention.rotary_sin, attention.rotary_cos = attention.calculate_sin_cos_rotary(
            cfg.rotary_dim, cfg.n_ctx, base=cfg.rotary_base, dtype=dtype
        )


def architecture_hooks(architecture: Architecture) -> list[str]:
    """Names of the hook points on which an architecture's permanent hooks sit, once for each of them."""
    placement = [POSITION_EMBEDDING] if architecture.positions == "drawn" else []
    hooks = _permanent_hooks(architecture)
    return placement + [name for name, function in hooks for _ in range(1 + sees_all_edits(function))]


def _permanent_hooks(architecture: Architecture) -> list[NamedHook]:
    hooks: list[NamedHook] = []
    for layer in range(architecture.n_layers):
        hooks += [] if architecture.attention == "softmax" else linear_attention_hooks(layer)
        hooks += [] if architecture.has_residual else no_residual_hooks(layer)
    return hooks
