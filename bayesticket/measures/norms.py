"""How large the weights are."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor

from bayesticket import theory
from bayesticket.attention import AttentionSite, place_label
from bayesticket.errors import refuse_case, require_number
from bayesticket.measures.base import Measure, Observation
from bayesticket.model import HookedTransformer, is_mlp, require_interaction_matrix
from bayesticket.specs import spec
from bayesticket.tasks import Examples


@spec
class MLPNorm(Measure):
    """Frobenius norm of the MLP's matrices and biases together, `‖θ_MLP‖_F` (Def. 4.2): a number.

    Memorising makes it grow, and weight decay makes it fall again. It bounds how steep the MLP can be,
    `L ≤ ‖θ_MLP‖²/2` (Eq. 23). Costs a small part of a millisecond.
    """

    takes_all_queries = True

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The norm."""
        return torch.nn.utils.get_total_norm([p.detach() for name, p in seen.model.named_parameters() if is_mlp(name)])


@spec
class WeightNorms(Measure):
    """Frobenius norm of every parameter, `‖W‖_F`, matrices and biases: a vector.

    Its entries are labelled by the parameters' names, in the order of `model.named_parameters()`:
    `weight_norms[blocks.0.mlp.W_in]`. The squares sum to the squared norm of all parameters; the heads of a matrix
    count together. Costs a small part of a millisecond.

    >>> from bayesticket.model import build_model
    >>> from bayesticket.tasks import ModularAddition
    >>> WeightNorms().labels(build_model(ModularAddition(p=7)))[:3]
    ('embed.W_E', 'pos_embed.W_pos', 'blocks.0.attn.W_Q')
    """

    takes_all_queries = True

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

    takes_all_queries = True

    def __post_init__(self):
        require_number("r_min", self.r_min, least=0)
        require_number("r_max", self.r_max, least=self.r_min)

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Raises for a model without an MLP."""
        if not any(is_mlp(name) for name, _ in model.named_parameters()):
            raise refuse_case("model", "a model without an MLP", "a model with one, whose norm can be in N")

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """Whether the norm is within the bounds."""
        norm = MLPNorm().value(seen)
        return theory.norm_condition(norm, self.r_min, self.r_max).to(norm.dtype)


@spec(kw_only=True)
class InteractionNorm(AttentionSite, Measure):
    """Frobenius norm of the interaction matrix, `‖M‖_F` with `M = W_Q W_Kᵀ` (App. E.1): a vector, one entry a head.

    Biases count: `M = [W_Q; b_Q] [W_K; b_K]ᵀ` is (d_model + 1) × (d_model + 1), so that the scores are `[x_q, 1]ᵀ M
    [x_i, 1] / √d_head`. Heads are in order, those of the first layer first, labelled `L0H0`. The norm bounds how far
    scores can differ, and so how sharply a head can attend; a small one means nearly uniform attention. Costs a small
    part of a millisecond.
    """

    takes_all_queries = True

    def places(self, model: HookedTransformer) -> Mapping[str, Measure]:
        """All at once, since every head has an entry in any case."""
        layer = tuple(range(model.cfg.n_layers)) if self.layer == "each" else self.layer
        return {"": replace(self, layer=layer, head=None if self.head == "each" else self.head, query=-1)}

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Raises where the model lacks the layers, the heads or the query, or has scores that no M makes."""
        self.require_place(model, batch.n_positions)
        for layer in self.layers:
            require_interaction_matrix(model, layer, "InteractionNorm")

    def labels(self, model: HookedTransformer) -> tuple[str, ...]:
        """The heads that the entries are the norms of."""
        heads = range(model.cfg.n_heads) if self.heads is None else self.heads
        return tuple(place_label(layer, head) for layer in self.layers for head in heads)

    def value(self, seen: Observation) -> Float[Tensor, "places"]:
        """The norms."""
        norms = []
        for layer in self.layers:
            attention = seen.model.blocks[layer].attn
            query = torch.cat([attention.W_Q, attention.b_Q[:, None]], 1).detach()
            key = torch.cat([attention.W_K, attention.b_K[:, None]], 1).detach()
            interaction = einsum(query, key, "head x d_head, head y d_head -> head x y")
            heads = rearrange(interaction, "head x y -> head (x y)").norm(dim=1)
            norms.append(heads if self.heads is None else heads[self.heads])
        return torch.cat(norms)
