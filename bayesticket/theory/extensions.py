"""Beyond one head of linear attention: the variance of the scores and mass over several heads (Appendix E)."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def score_variance(scores: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch"]:
    """Variance of the scores over keys, `(1/T) Σ_i (s_i − s̄)²`: blind to what the softmax is blind to (Conj. E.1).

    >>> score_variance(torch.tensor([1.0, 3.0]))
    tensor(1.)
    """
    return scores.var(-1, correction=0)


def score_variance_bound(
    interaction: Float[Tensor, "*#batch d d"],
    query: Float[Tensor, "*#batch d"],
    tokens: Float[Tensor, "*#batch key d"],
    scale: float,
) -> Float[Tensor, "*_"]:
    """What bounds that variance, `‖M‖²_F ‖x_q‖² · (1/T) Σ_i ‖x_i − x̄‖² / d_head` (Conj. E.1, with its constant).

    As `s_i − s̄ = x_qᵀ M (x_i − x̄) / √d_head`; `scale` is `√d_head`. Attained by an M of rank one.

    >>> score_variance_bound(torch.eye(2), torch.ones(2), torch.tensor([[1.0, 0.0], [0.0, 1.0]]), scale=1.0)
    tensor(2.)
    """
    spread = (tokens - tokens.mean(-2, keepdim=True)).square().sum(-1).mean(-1)
    return interaction.square().sum((-2, -1)) * query.square().sum(-1) * spread / scale**2


def score_variance_bound_paper(interaction: Float[Tensor, "*batch d d"], scale: float) -> Float[Tensor, "*batch"]:
    """The same where query and tokens have at most unit norm, as the paper presumes: `‖M‖²_F / d_head` (Conj. E.1).

    >>> score_variance_bound_paper(torch.eye(2), scale=1.0)
    tensor(2.)
    """
    return interaction.square().sum((-2, -1)) / scale**2


def distributed_mass(pattern: Float[Tensor, "*batch head key"]) -> Float[Tensor, "*batch key"]:
    """Attention on each position by all heads together, `Σ_h α_i^(h)` (Eq. 55).

    >>> distributed_mass(torch.tensor([[0.75, 0.25], [0.5, 0.5]]))
    tensor([1.2500, 0.7500])
    """
    return pattern.sum(-2)


def distributed_condition(
    pattern: Float[Tensor, "*#batch head key"],
    informative: Bool[Tensor, "*#batch key"],
    threshold: Float[Tensor, "*#batch"] | float,
) -> Bool[Tensor, "*_"]:
    """Whether the heads satisfy the condition together, `Σ_h α_i^(h) ≥ τ_H` for every `i ∈ S` (Conj. E.2, Eq. 55).

    >>> pattern = torch.tensor([[0.9, 0.1, 0.0], [0.0, 0.9, 0.1]])
    >>> distributed_condition(pattern, torch.tensor([True, True, False]), 0.9)
    tensor(True)
    """
    return torch.where(informative, distributed_mass(pattern), torch.inf).amin(-1) >= threshold


def effective_heads(mass: Float[Tensor, "*batch head"]) -> Float[Tensor, "*batch"]:
    """Over how many heads a mass is spread, `(Σ_h m_h)² / Σ_h m_h²`: 1 when one has it all, H when all have the same.

    No mass at all is spread over no head.

    >>> effective_heads(torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 0.0]]))
    tensor([1., 2., 0.])
    """
    squares = mass.square().sum(-1)
    return mass.sum(-1).square() / torch.where(squares > 0, squares, 1.0)
