"""The one-layer model, and the one file that knows TransformerLens.

Everything the library needs of TransformerLens passes through here: how a model is built and described, what its
hook points are called, how hooks are mounted and taken off again.
"""

import threading
import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformer_lens import HookedTransformer, HookedTransformerConfig
from transformer_lens.hook_points import HookPoint

from bayesticket.errors import BayesticketError, refuse, refuse_name, require_integer, require_number
from bayesticket.spec import Spec
from bayesticket.tasks import AbstractTask, require_seed

HookFunction = Callable[..., Tensor | None]
"""A function `(tensor, hook)` that returns the edited tensor, or None to leave it."""
NamedHook = tuple[str, HookFunction]
"""A hook point's name and the function to mount there, as `HookedTransformer.hooks(fwd_hooks=…)` takes them."""

NORMALIZATIONS = (None, "LN", "LNPre", "RMS", "RMSPre")
ATTENTIONS = ("softmax", "linear")


# Names ------------------------------------------------------------------------------------------------------------


def scores_name(layer: int) -> str:
    """Where a layer's attention scores pass, before the softmax: `(batch, head, query, key)`."""
    return f"blocks.{layer}.attn.hook_attn_scores"


def pattern_name(layer: int) -> str:
    """Where a layer's attention pattern passes: `(batch, head, query, key)`."""
    return f"blocks.{layer}.attn.hook_pattern"


def residual_name(layer: int) -> str:
    """Where the residual stream enters a layer: `(batch, position, d_model)`."""
    return f"blocks.{layer}.hook_resid_pre"


def mlp_pre_name(layer: int) -> str:
    """Where what the MLP's ReLU is given passes: `(batch, position, d_mlp)`."""
    return f"blocks.{layer}.mlp.hook_pre"


def existing_parameters(parameters: Iterable[str], layer: int, names: Iterable[str]) -> list[str]:
    """Full names of a layer's attention parameters, those of grouped queries where the model has them (`_W_K`)."""
    known = set(parameters)
    pairs = ((attention_parameter(layer, name), attention_parameter(layer, f"_{name}")) for name in names)
    return [grouped if plain not in known and grouped in known else plain for plain, grouped in pairs]


def attention_parameter(layer: int, name: str) -> str:
    """The full name of an attention parameter, as `blocks.0.attn.W_Q`."""
    return f"blocks.{layer}.attn.{name}"


# Building ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Architecture(Spec):
    """The shape of a one-layer model; the paper's by default.

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
    residual: bool = True
    """Whether the residual stream bypasses attention and MLP; the paper's minimal model has no such path."""
    biases: bool = True
    """Whether biases are trained; without, they stay at zero."""
    normalization_type: Literal["LN", "LNPre", "RMS", "RMSPre"] | None = None
    """TransformerLens' normalisation before attention, MLP and unembedding."""
    init_scale: float = 1.0
    """Factor on every weight matrix at initialisation."""

    def __post_init__(self):
        for name in ("d_model", "n_heads", "d_mlp"):
            require_integer(name, getattr(self, name), least=1)
        if self.d_model % self.n_heads:
            raise refuse("n_heads", self.n_heads, f"a divisor of d_model = {self.d_model}")
        if self.attention not in ATTENTIONS:
            raise refuse_name("attention", self.attention, ATTENTIONS)
        if self.normalization_type not in NORMALIZATIONS:
            raise refuse("normalization_type", self.normalization_type, f"one of {NORMALIZATIONS}")
        require_number("init_scale", self.init_scale, above=0)
        for name in ("residual", "biases"):
            if not isinstance(getattr(self, name), bool):
                raise refuse(name, getattr(self, name), "True or False")

    @property
    def d_head(self) -> int:
        """Width of one head."""
        return self.d_model // self.n_heads


def build_model(
    task: AbstractTask,
    *,
    seed: int = 0,
    d_model: int = 64,
    n_heads: int = 1,
    d_mlp: int = 256,
    attention: Literal["softmax", "linear"] = "softmax",
    residual: bool = True,
    biases: bool = True,
    normalization_type: Literal["LN", "LNPre", "RMS", "RMSPre"] | None = None,
    init_scale: float = 1.0,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
) -> HookedTransformer:
    """Builds the paper's model for a task: one layer, ReLU, learned positions, no LayerNorm.

    The options are those of `Architecture`. What TransformerLens has no switch for (`attention="linear"`,
    `residual=False`) is mounted as permanent hooks, so the model can be used like any other.

    >>> from bayesticket.symbolic import ModularAddition
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
    require_seed(seed)
    config = {
        "n_layers": 1,
        "d_model": architecture.d_model,
        "n_heads": architecture.n_heads,
        "d_head": architecture.d_head,
        "d_mlp": architecture.d_mlp,
        "n_ctx": task.n_positions,
        "d_vocab": task.d_vocab,
        "d_vocab_out": task.d_vocab_out,
        "act_fn": "relu",
        "normalization_type": architecture.normalization_type,
        "attention_dir": "causal",
    }
    # Drawn in float32 whatever the dtype, so that one seed means one initialisation.
    model = hooked_transformer(config, seed=seed, device="cpu")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "W_" in name:
                parameter.mul_(architecture.init_scale)
    move(model, dtype)
    _equip(model, architecture)
    return move(model, device)


def require_device(field: str, device: object) -> None:
    """Refuses what torch does not take for a device here."""
    try:
        torch.empty(0, device=device)  # type: ignore[arg-type]
    except (RuntimeError, AssertionError, TypeError) as error:
        raise refuse(field, device, "a device that torch can use here") from error


def move(model: HookedTransformer, place: str | torch.device | torch.dtype) -> HookedTransformer:
    """Moves a model to a device or a dtype, in place, without TransformerLens' printed notice."""
    model.to(place, print_details=False)
    return model


_BUILDING = threading.Lock()


def hooked_transformer(config: dict, *, seed: int, device: str = "cpu") -> HookedTransformer:
    """A HookedTransformer from the fields of its config, its weights drawn from the seed alone."""
    # The state of both is the whole process's, whose threads may be building models of their own.
    with _BUILDING, warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        # Known and pinned below 4.0 on purpose; users of this library can do nothing about it.
        warnings.filterwarnings("ignore", message="HookedTransformer is deprecated", category=DeprecationWarning)
        torch.manual_seed(seed)
        return HookedTransformer(HookedTransformerConfig(**config, device=device))


def _equip(model: HookedTransformer, architecture: Architecture) -> None:
    """Adds to a bare model what TransformerLens has no switch for."""
    model.architecture = architecture  # type: ignore[assignment]
    if architecture.attention == "linear":
        _mount_permanently(model, linear_attention_hooks(0))
    if not architecture.residual:
        _mount_permanently(model, no_residual_hooks(0))
    if not architecture.biases:
        for name, parameter in model.named_parameters():
            if is_bias(name):
                parameter.requires_grad_(False)


def is_bias(name: str) -> bool:
    """Whether a parameter's full name is that of a bias."""
    return name.rsplit(".", 1)[-1].startswith("b")


# What TransformerLens has no switch for ---------------------------------------------------------------------------


def linear_attention(scores: Float[Tensor, "*batch query key"]) -> Float[Tensor, "*batch query key"]:
    """Normalised linear-ReLU attention, `α_i = relu(s_i) / Σ_j relu(s_j)`.

    A row without a positive score attends uniformly over the keys it may see (those above −∞) and passes no gradient.

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
    kept = threading.local()  # copies of a model share its hooks, and may run in different threads

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
    """Hooks that cut the residual stream around a layer's attention, its MLP, or both: only their outputs go on."""
    bypasses = {"attention": ("hook_attn_out", "hook_resid_mid"), "mlp": ("hook_mlp_out", "hook_resid_post")}
    hooks: list[NamedHook] = []
    for part, (output, stream) in bypasses.items():
        if around in (part, "both"):
            hooks += _pass_only(f"blocks.{layer}.{output}", f"blocks.{layer}.{stream}")
    return hooks


def _pass_only(source: str, destination: str) -> list[NamedHook]:
    kept = threading.local()

    def keep(tensor: Tensor, hook: HookPoint) -> None:
        kept.output = tensor

    def replace(tensor: Tensor, hook: HookPoint) -> Tensor:
        output = kept.output
        del kept.output
        return output

    return [(source, keep), (destination, replace)]


# Mounting ---------------------------------------------------------------------------------------------------------


@contextmanager
def mounted(model: HookedTransformer, hooks: Iterable[NamedHook]) -> Iterator[None]:
    """Mounts hooks, in order, and takes exactly those off again, also after an exception.

    Unlike `HookedTransformer.hooks` it leaves the user's own hooks in place, and refuses a hook that changes a shape.
    """
    handles = []
    try:
        for name, function in hooks:
            point = hook_point(model, name)
            point.add_hook(_shape_checked(function))
            handles.append((point, point.fwd_hooks[-1]))
        yield
    finally:
        for point, handle in handles:
            handle.hook.remove()
            if handle in point.fwd_hooks:
                point.fwd_hooks.remove(handle)


def _mount_permanently(model: HookedTransformer, hooks: Iterable[NamedHook]) -> None:
    for name, function in hooks:
        model.add_perma_hook(name, function)


def _shape_checked(function: HookFunction) -> HookFunction:
    def checked(tensor: Tensor, hook: HookPoint) -> Tensor | None:
        edited = function(tensor, hook)
        if edited is not None and edited.shape != tensor.shape:
            raise BayesticketError(
                f"hook on {hook.name}: returned shape {tuple(edited.shape)}; accepted: {tuple(tensor.shape)}"
            )
        return edited

    return checked


def hook_point(model: HookedTransformer, name: str) -> HookPoint:
    """The hook point of that name, or an error with the closest one."""
    if name not in model.hook_dict:
        raise refuse_name("hook", name, model.hook_dict)
    return model.hook_dict[name]


def require_firing(model: HookedTransformer, tokens: Tensor, names: Iterable[str], reader: str) -> None:
    """Refuses names of hook points that do not exist, or that a forward pass never reaches.

    TransformerLens has gated hook points (such as `hook_result`) on which a hook sits in silence and never runs.
    """
    names = list(dict.fromkeys(names))
    for name in names:
        if name not in model.hook_dict:
            raise refuse_name(f"{reader} reads a hook", name, model.hook_dict)
    fired: set[str] = set()
    probes = [(name, lambda tensor, hook: fired.add(str(hook.name))) for name in names]
    with _bare(model), mounted(model, probes), torch.no_grad():
        model(tokens[:1])
    if silent := [name for name in names if name not in fired]:
        raise refuse(
            f"{reader} reads a hook",
            silent[0],
            "a hook point that fires; this one is switched off in the model's cfg",
        )


@contextmanager
def _bare(model: HookedTransformer) -> Iterator[None]:
    """Takes all hooks off the hook points, so that a trial run means nothing to them, and puts them back."""
    kept = {point: point._forward_hooks for point in model.hook_dict.values()}
    try:
        for point in kept:
            point._forward_hooks = OrderedDict()
        yield
    finally:
        for point, hooks in kept.items():
            point._forward_hooks = hooks


def require_layer(model: HookedTransformer, layer: int, field: str) -> None:
    """Refuses a layer that the model lacks."""
    if layer >= model.cfg.n_layers:
        raise refuse(field, layer, f"a layer of the model, 0 to {model.cfg.n_layers - 1}")


def require_head(model: HookedTransformer, head: int, field: str) -> None:
    """Refuses a head that the model lacks."""
    if head >= model.cfg.n_heads:
        raise refuse(field, head, f"a head of the model, 0 to {model.cfg.n_heads - 1}")


def visible_from(model: HookedTransformer, layer: int, n_positions: int, query: int) -> slice:
    """The key positions that a query may attend to: causal attention sees none after it, local none far before."""
    query = query % n_positions
    causal = model.cfg.attention_dir == "causal"
    first = 0
    if model.cfg.use_local_attn and model.cfg.attn_types and model.cfg.attn_types[layer] == "local":
        first = max(0, query + 1 - (model.cfg.window_size or n_positions))
    return slice(first, query + 1 if causal else n_positions)


def embed_tokens(model: HookedTransformer, tokens: Int[Tensor, "n T"]) -> Float[Tensor, "n T d_model"]:
    """The stream into a plain model's first layer: token plus position embeddings."""
    return model.embed.W_E[tokens] + model.pos_embed.W_pos[: tokens.shape[1]]


def embed_position(model: HookedTransformer, tokens: Int[Tensor, "n T"], position: int) -> Float[Tensor, "n d_model"]:
    """The stream into a plain model's first layer at one position: token plus position embedding."""
    return model.embed.W_E[tokens[:, position]] + model.pos_embed.W_pos[position % tokens.shape[1]]


def mix_embeddings(
    model: HookedTransformer, tokens: Int[Tensor, "n T"], weights: Float[Tensor, "n heads T"]
) -> Float[Tensor, "n heads d_model"]:
    """Weighted sums of the stream into a plain model's first layer, `Σ_t weights[n, h, t] x[n, t]`."""
    n, heads, n_positions = weights.shape
    bags = tokens[:, None].expand(n, heads, n_positions).flatten(0, 1)
    tokens_mixed = F.embedding_bag(bags, model.embed.W_E, per_sample_weights=weights.flatten(0, 1), mode="sum")
    return tokens_mixed.view(n, heads, -1) + weights @ model.pos_embed.W_pos[:n_positions]


def normalize_for_attention(
    model: HookedTransformer, stream: Float[Tensor, "n T d_model"], layer: int
) -> Float[Tensor, "n T d_model"]:
    """What a layer's attention makes its queries and keys from."""
    return model.blocks[layer].ln1(stream)


def attention_scale(model: HookedTransformer, layer: int) -> float:
    """What a layer divides its attention scores by, √d_head."""
    return float(model.blocks[layer].attn.attn_scale)


def own_hooks(model: HookedTransformer) -> list[str]:
    """Names of the hook points that carry hooks of any kind, permanent or not."""
    return [name for name, point in model.hook_dict.items() if has_hooks(point)]


def has_hooks(module: nn.Module) -> bool:
    """Whether a module carries a hook, TransformerLens' or PyTorch's own, forward or backward."""
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


def architecture_hooks(architecture: Architecture) -> list[str]:
    """Names of the hook points on which an architecture's permanent hooks sit."""
    linear = [] if architecture.attention == "softmax" else linear_attention_hooks(0)
    return [name for name, _ in [*linear, *([] if architecture.residual else no_residual_hooks(0))]]


def foreign_hooks(model: HookedTransformer) -> str | None:
    """A module other than a hook point that carries a PyTorch hook, or None."""
    for name, module in model.named_modules():
        if not isinstance(module, HookPoint) and has_hooks(module):
            return name
    return None


# Describing -------------------------------------------------------------------------------------------------------

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
    *(
        "d_model",
        "d_head",
        "n_heads",
        "n_ctx",
        "d_vocab",
        "d_vocab_out",
        "d_mlp",
        "act_fn",
        "seed",
        "device",
        "dtype",
    ),
    *(
        "init_mode",
        "initializer_range",
        "init_weights",
        "n_params",
        "model_name",
        "attn_scale",
        "use_attn_scale",
    ),
    *(
        "normalization_type",
        "eps",
        "final_rms",
        "attention_dir",
        "default_prepend_bos",
        "tokenizer_prepends_bos",
    ),
    *("use_hook_tokens", "from_checkpoint", "checkpoint_index", "checkpoint_label_type", "checkpoint_value"),
    *("uses_rms_norm", "layer_norm_folding"),
}


_NOT_DESCRIBED = {
    *("device", "n_devices", "n_params", "seed", "init_weights"),  # how a model was made, not what it is
    "dtype",  # the weights have it
    *("from_checkpoint", "checkpoint_index", "checkpoint_label_type", "checkpoint_value"),
    # What could make reading a file fetch or run something; the models here read tokens, not text.
    *("tokenizer_name", "tokenizer_prepends_bos", "default_prepend_bos", "trust_remote_code"),
    *("load_in_4bit", "quantization_method"),
}


def unusual_setting(model: HookedTransformer) -> str | None:
    """A setting by which a model differs from the plain one-layer transformer in more than its sizes, or None."""
    given, plain = model.cfg.to_dict(), _PLAIN.to_dict()
    for name in given:
        if name not in _FREE and given[name] != plain.get(name):
            return f"{name}={given[name]!r}"
    if model.cfg.act_fn.endswith("_ln"):
        return f"act_fn={model.cfg.act_fn!r}"
    return None


def describe_model(model: HookedTransformer) -> dict:
    """What is needed beside the weights to build a model again, as plain JSON data.

    >>> from bayesticket.symbolic import ModularAddition
    >>> model = build_model(ModularAddition(p=7), d_model=8, residual=False)
    >>> sorted(describe_model(model))
    ['architecture', 'config', 'frozen', 'own_hooks']
    """
    config = {}
    for name, value in model.cfg.to_dict().items():
        if isinstance(value, torch.dtype):
            value = str(value).removeprefix("torch.")
        elif hasattr(value, "item"):  # numpy scalars
            value = value.item()
        if name not in _NOT_DESCRIBED:
            config[name] = value
    architecture = getattr(model, "architecture", None)
    frozen = sorted(name for name, parameter in model.named_parameters() if not parameter.requires_grad)
    return {
        "config": config,
        "architecture": asdict(architecture) if architecture else None,
        "frozen": frozen,
        "own_hooks": unexplained_hooks(model),
    }


def unexplained_hooks(model: HookedTransformer) -> list[str]:
    """Names of the modules that carry more hooks than the model's architecture has put there; no file holds those."""
    architecture = getattr(model, "architecture", None)
    explained = Counter(architecture_hooks(architecture) if architecture else ())
    return sorted(name for name, module in model.named_modules() if _count_hooks(module) > explained[name])


def _count_hooks(module: nn.Module) -> int:
    forward = len(module._forward_hooks) + len(module._forward_pre_hooks)
    return forward + len(module._backward_hooks) + len(module._backward_pre_hooks)


def rebuild_model(
    description: dict, weights: dict[str, Tensor], device: str | torch.device = "cpu"
) -> HookedTransformer:
    """Builds the model of `describe_model` and gives it its weights; hooks of its own cannot be rebuilt."""
    config, dtype = dict(description["config"]), next(iter(weights.values())).dtype
    known = {field.name for field in fields(HookedTransformerConfig)} - _NOT_DESCRIBED
    if unknown := sorted(set(config) - known):
        raise refuse_name("model.config", unknown[0], sorted(known))
    model = hooked_transformer(config | {"dtype": dtype, "seed": None, "init_weights": False}, seed=0, device="cpu")
    if description["architecture"] is not None:
        _equip(model, Architecture(**description["architecture"]))
    load_parameters(model, weights)
    parameters = dict(model.named_parameters())
    if unknown := sorted(set(description["frozen"]) - set(parameters)):
        raise refuse_name("model.frozen", unknown[0], parameters)
    for name, parameter in parameters.items():
        parameter.requires_grad_(name not in description["frozen"])
    return move(model, device)


def load_parameters(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Copies weights into a model's parameters; names and shapes must agree."""
    parameters = dict(model.named_parameters())
    if difference := sorted(set(parameters) ^ set(weights)):
        raise refuse("weights", difference, "exactly the names of the model's parameters")
    with torch.no_grad():
        for name, parameter in parameters.items():
            if parameter.shape != weights[name].shape:
                raise refuse(f"weights[{name!r}]", tuple(weights[name].shape), f"shape {tuple(parameter.shape)}")
            parameter.copy_(weights[name])


# One-layer algebra ------------------------------------------------------------------------------------------------


def require_single_layer(model: HookedTransformer, field: str) -> None:
    """Refuses a model in which a position's value depends on more than its own token."""
    if (setting := unusual_setting(model)) is not None:
        raise refuse(
            field,
            f"a model with {setting}",
            "a plain one-layer model: only there does a value depend on its own token alone, and the MLP on one z",
        )


def value_table(model: HookedTransformer, n_positions: int) -> Float[Tensor, "T vocab heads d_head"]:
    """The value vector `v = x W_V + b_V` of every token at every position of a one-layer model."""
    attention = model.blocks[0].attn
    stream = model.embed.W_E[None] + model.pos_embed.W_pos[:n_positions, None]
    stream = normalize_for_attention(model, stream, 0)
    return torch.einsum("tvd,hde->tvhe", stream, attention.W_V) + attention.b_V


def values_of(model: HookedTransformer, tokens: Int[Tensor, "n T"]) -> Float[Tensor, "n heads T d_head"]:
    """The value vectors of a batch in a one-layer model."""
    table = value_table(model, tokens.shape[1])
    return table[torch.arange(tokens.shape[1], device=tokens.device), tokens].transpose(1, 2)
