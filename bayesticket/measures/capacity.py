"""Capacity: how large the weights are, and how much of it the model uses."""

import math
from typing import Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from bayesticket import theory
from bayesticket.attention import AttentionSite
from bayesticket.errors import BayesticketError, refuse, refuse_name, require_number
from bayesticket.measures.base import AttentionMeasure, Measure, Observation
from bayesticket.model import (
    HookedTransformer,
    final_name,
    is_mlp,
    middle_name,
    scores_name,
    unusual_setting,
    visible_from,
)
from bayesticket.specs import spec
from bayesticket.tasks import Examples


@spec
class MLPNorm(Measure):
    """Frobenius norm of the MLP's matrices and biases together, `‖θ_MLP‖_F` (Def. 4.2): a number.

    Large where memorising has made the weights grow; falls as weight decay takes them back. It caps how steep the MLP
    can be, `L ≤ ‖θ_MLP‖²/2` (Eq. 23). Costs a small part of a millisecond.
    """

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The norm."""
        return torch.nn.utils.get_total_norm([p.detach() for name, p in seen.model.named_parameters() if is_mlp(name)])


@spec
class WeightNorms(Measure):
    """Frobenius norm of every parameter, `‖W‖_F`, matrices and biases: a vector.

    Its entries are in the order of `model.named_parameters()`; `labels` lists their names, and the curves are
    called by them: `weight_norms[blocks.0.mlp.W_in]`. The squares sum to the squared norm of all parameters; heads
    count together. Large where weights grow unopposed, falling under weight decay. Costs a small part of a
    millisecond.

    >>> from bayesticket.model import build_model
    >>> from bayesticket.tasks import ModularAddition
    >>> WeightNorms().labels(build_model(ModularAddition(p=7)))[:3]
    ('embed.W_E', 'pos_embed.W_pos', 'blocks.0.attn.W_Q')
    """

    def value(self, seen: Observation) -> Float[Tensor, "parameters"]:
        """The norms."""
        return torch.stack([p.detach().norm() for p in seen.model.parameters()])

    def labels(self, model: HookedTransformer) -> tuple[str, ...]:
        """The parameters that the entries are the norms of."""
        return tuple(name for name, _ in model.named_parameters())


@spec
class NormCondition(Measure):
    """Whether the MLP is in the set N, `r_min ≤ ‖θ_MLP‖_F ≤ r_max` (Def. 4.2): a number, 1 or 0.

    The norm is that of `MLPNorm`. 1 means that the MLP is neither too small to compute the task nor so large that it
    can memorise instead. Costs a small part of a millisecond.
    """

    r_min: float
    r_max: float

    def __post_init__(self):
        require_number("r_min", self.r_min, least=0)
        require_number("r_max", self.r_max, least=self.r_min)

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Refuses a model without an MLP."""
        if not any(is_mlp(name) for name, _ in model.named_parameters()):
            raise refuse("model", "a model without an MLP", "a model with one, whose norm can be in N")

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """Whether the norm is within the bounds."""
        norm = MLPNorm().value(seen)
        return theory.norm_condition(norm, self.r_min, self.r_max).to(norm.dtype)


def class_margins(logits: Float[Tensor, "n outputs"], targets: Int[Tensor, "n"]) -> Float[Tensor, "n"]:
    """How far every target's logit is above the largest other one: `logit_y − max_{c≠y} logit_c`.

    >>> class_margins(torch.tensor([[1.0, 5.0, 2.0], [1.0, 5.0, 2.0]]), torch.tensor([1, 2]))
    tensor([ 3., -3.])
    """
    target = targets[:, None]
    others = logits.scatter(1, target, -torch.inf)
    return logits.gather(1, target)[:, 0] - others.amax(1)


@spec
class ClassMargin(Measure):
    """How far the target's logit is above all others, `γ(x) = logit_y − max_{c≠y} logit_c`: a number.

    `of="least"` is the least over the examples, from which Cor. 4.5 has its γ (`theory.output_separation`);
    `of="median"` the median, on which single examples have no hold. Positive where an example (half of them) is
    answered rightly; large when it is so with room to spare.
    Costs a few passes over the logits, under half a millisecond at p = 113 on 3,830 examples.
    """

    of: Literal["least", "median"] = "least"

    def __post_init__(self):
        if self.of not in ("least", "median"):
            raise refuse_name("of", self.of, ("least", "median"))

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The least or the median margin."""
        margins = class_margins(seen.logits, seen.batch.targets)
        return margins.min() if self.of == "least" else margins.quantile(0.5)


def effective_rank(matrix: Float[Tensor, "n d"]) -> Float[Tensor, ""]:
    """Effective number of directions in which rows vary: `exp(−Σ p_i log p_i)`, `p_i = σ_i / Σ σ`.

    The `σ_i` are the singular values of the matrix less the mean of its rows (Roy & Vetterli 2007; some take `σ²`,
    which gives less). From 1, all rows on one line, to the rank, all directions alike; 0 when all rows are one.

    >>> effective_rank(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]))
    tensor(2.)
    """
    centred = matrix.double() - matrix.double().mean(0)
    # A d × d problem in place of an n × d one; float64 leaves singular values good to 1e-8 of the largest.
    gram = centred.T @ centred if len(centred) >= centred.shape[1] else centred @ centred.T
    squares = torch.linalg.eigvalsh(gram)
    floor = squares.amax() * len(gram) * torch.finfo(squares.dtype).eps  # what is below is rounding
    values = torch.where(squares > floor, squares.clamp_min(0).sqrt(), 0.0)
    total = values.sum()
    shares = values / torch.where(total > 0, total, 1.0)
    return torch.where(total > 0, torch.special.entr(shares).sum().exp(), 0.0).to(matrix.dtype)


@spec
class EffectiveRank(Measure):
    """Effective rank of the representation before the unembedding: a number.

    `exp(H(p))`, `p_i = σ_i / Σ σ`, with `σ` the singular values of the (n, d_model) matrix of the residual stream after
    the last layer at the last position, less its mean over the examples (before the final normalisation, if any).
    Between 1 and d_model: large while a model tells its examples apart one by one, small once it represents them by
    a few features, such as two for each key frequency of modular addition. Costs about a millisecond at 3,830
    examples and d_model = 64.
    """

    def reads(self, model: HookedTransformer) -> tuple[str, ...]:
        """The stream after the last layer."""
        return (_last_stream(model),)

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The effective rank."""
        return effective_rank(seen.activations[_last_stream(seen.model)][:, -1].detach())


def _last_stream(model: HookedTransformer) -> str:
    return final_name(model.cfg.n_layers - 1)


MIDDLE = middle_name(0)


@spec
class NormalizedMLPLoss(Measure):
    """Task loss of the model with its MLP's matrices scaled to a fixed norm: a number.

    `W_in ← radius · W_in / ‖W_in‖_F` and `W_out ← radius · W_out / ‖W_out‖_F`; biases, attention, embeddings and
    unembedding stay as they are. `radius=None` is the norm that TransformerLens draws both with,
    `init_scale · initializer_range · √(d_model · d_mlp)`, 12.8 for the paper's model. A loss that falls by growing
    weights falls less here, or rises; large against the train loss means that the MLP's size carries the fit, not its
    direction.

    Computed from the stream after attention (`hook_resid_mid`) by MLP and unembedding once more, at the last position:
    a third to a half of a training epoch. That presumes the plain model of one layer without normalisation, whose
    logits are `r + MLP(r)` unembedded; a deeper one would have to be run again from its first MLP on, and is refused,
    as are edits between there and the logits.
    """

    radius: float | None = None

    def __post_init__(self):
        if self.radius is not None:
            require_number("radius", self.radius, above=0)

    def reads(self, model: HookedTransformer) -> tuple[str, ...]:
        """The stream between attention and MLP."""
        return (MIDDLE,)

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Refuses all but a plain model of one layer."""
        setting = unusual_setting(model)
        if setting is None and model.cfg.normalization_type is not None:
            setting = f"normalization_type={model.cfg.normalization_type!r}"
        if setting is not None:
            raise refuse(
                "NormalizedMLPLoss: model",
                setting,
                "a plain model of one layer without normalisation, whose logits are those of r + MLP(r)",
            )
        if self.radius is None and model.cfg.init_mode != "gpt2":
            raise refuse(
                "NormalizedMLPLoss.radius", None, f"a number, as the model's init_mode is {model.cfg.init_mode!r}"
            )

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The loss."""
        model, middle = seen.model, seen.activations[MIDDLE][:, -1].detach()
        # An edit after this point shows on the first few examples, and would make the loss that of another model.
        few = slice(0, 4)
        error = (_logits_of(model, middle[few]) - seen.logits[few]).abs().max()
        if error > 1e-3 * (1 + seen.logits[few].abs().max()):
            raise BayesticketError(
                f"NormalizedMLPLoss: got a model with edits between {MIDDLE} and its logits; accepted: "
                "edits of the embedding and the attention only, since the MLP is run again without them"
            )
        mlp, radius = model.blocks[0].mlp, self._radius(model)
        logits = _logits_of(model, middle, radius / mlp.W_in.norm(), radius / mlp.W_out.norm())
        return F.cross_entropy(logits, seen.batch.targets)

    def _radius(self, model: HookedTransformer) -> float:
        if self.radius is not None:
            return self.radius
        scale = getattr(getattr(model, "architecture", None), "init_scale", 1.0)
        return scale * model.cfg.initializer_range * math.sqrt(model.blocks[0].mlp.W_in.numel())


def _logits_of(
    model: HookedTransformer,
    middle: Float[Tensor, "n d_model"],
    scale_in: float | Float[Tensor, ""] = 1.0,
    scale_out: float | Float[Tensor, ""] = 1.0,
) -> Float[Tensor, "n d_vocab_out"]:
    """Logits of a plain model of one layer from the stream after attention, its MLP's matrices scaled."""
    mlp, unembed = model.blocks[0].mlp, model.unembed
    b_in, b_out, b_U = cast(Tensor, mlp.b_in), cast(Tensor, mlp.b_out), cast(Tensor, unembed.b_U)
    hidden = mlp.act_fn(middle @ (scale_in * mlp.W_in) + b_in)
    return (middle + hidden @ (scale_out * mlp.W_out) + b_out) @ unembed.W_U + b_U


@spec(kw_only=True)
class ScoreVariance(AttentionMeasure):
    """Variance of the attention scores over the keys (App. E.1): a number, averaged over examples and heads.

    `E[(1/T) Σ_i (s_i − s̄)²]` of the scores before the softmax, over the keys that the query may attend to. 0 means
    uniform attention; it is bounded through ‖M‖_F, and contracts under weight decay. Large scores are what a sharp
    pattern is made of. Costs a small part of a millisecond.
    """

    def reads(self, model: HookedTransformer) -> tuple[str, ...]:
        """The scores of every layer."""
        return tuple(scores_name(layer) for layer in self.layers)

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The mean variance."""
        variances = []
        for layer in self.layers:  # the scores of keys that the query cannot see are −∞
            visible = visible_from(seen.model, layer, seen.batch.n_positions, self.query)
            variances.append(theory.score_variance(self.rows(seen.activations[scores_name(layer)])[..., visible]))
        return torch.cat(variances, 1).mean()


@spec(kw_only=True)
class InteractionNorm(AttentionSite, Measure):
    """Frobenius norm of the interaction matrix, `‖M‖_F` with `M = W_Q W_Kᵀ` (App. E.1): a vector, one entry a head.

    Biases count: `M = [W_Q; b_Q] [W_K; b_K]ᵀ` is (d_model + 1) × (d_model + 1), so that the scores are `[x_q, 1]ᵀ M
    [x_i, 1] / √d_head`. Heads are in order, those of the first layer first, labelled `L0H0`. It bounds how far
    scores can differ, and so how sharply a head can attend; small means nearly uniform attention. Costs a small
    part of a millisecond.
    """

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Refuses layers, heads and a query that the model lacks."""
        self.require_place(model, batch.n_positions)

    def labels(self, model: HookedTransformer) -> tuple[str, ...]:
        """The heads that the entries are the norms of."""
        heads = range(model.cfg.n_heads) if self.heads is None else self.heads
        return tuple(f"L{layer}H{head}" for layer in self.layers for head in heads)

    def value(self, seen: Observation) -> Float[Tensor, "places"]:
        """The norms."""
        norms = []
        for layer in self.layers:
            attention = seen.model.blocks[layer].attn
            query = torch.cat([attention.W_Q, attention.b_Q[:, None]], 1).detach()
            key = torch.cat([attention.W_K, attention.b_K[:, None]], 1).detach()
            heads = (query @ key.mT).flatten(1).norm(dim=1)
            norms.append(heads if self.heads is None else heads[self.heads])
        return torch.cat(norms)
