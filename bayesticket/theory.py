"""The paper's equations as pure functions, numbered as in the paper.

They know nothing of models or hooks. Attention patterns are tensors over `(…, key)`, rows summing to 1.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def kl_divergence(target: Float[Tensor, "*#batch key"], pattern: Float[Tensor, "*#batch key"]) -> Float[Tensor, "*_"]:
    """Divergence of the attention from a target, `D(α*‖α) = Σ_i α*_i log(α*_i / α_i)` (Eqs. 3, 6).

    An attention weight below the smallest normal number of its dtype counts as that number, so that a weight which
    underflows gives a large finite divergence (about 87 in float32) rather than an infinite one.

    >>> kl_divergence(torch.tensor([0.5, 0.0, 0.5]), torch.tensor([0.25, 0.5, 0.25]))
    tensor(0.6931)
    """
    log_pattern = pattern.clamp_min(torch.finfo(pattern.dtype).tiny).log()
    return torch.xlogy(target, target).sum(-1) - (target * log_pattern).sum(-1)


def attention_entropy(pattern: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch"]:
    """Entropy of attention, `H(α) = −Σ_i α_i log α_i`: 0 when it sits on one key, log T when it is uniform.

    >>> attention_entropy(torch.tensor([0.5, 0.5, 0.0]))
    tensor(0.6931)
    """
    # The floor keeps the gradient of a vanishing weight finite; its product with the weight is 0 all the same.
    return -(pattern * pattern.clamp_min(torch.finfo(pattern.dtype).tiny).log()).sum(-1)


def informative_mass(
    pattern: Float[Tensor, "*#batch key"], informative: Bool[Tensor, "*#batch key"]
) -> Float[Tensor, "*_"]:
    """Attention on all informative positions together, `Σ_{i∈S} α_i`.

    >>> informative_mass(torch.tensor([0.5, 0.3, 0.2]), torch.tensor([True, False, True]))
    tensor(0.7000)
    """
    return (pattern * informative).sum(-1)


def least_informative_mass(
    pattern: Float[Tensor, "*#batch key"], informative: Bool[Tensor, "*#batch key"]
) -> Float[Tensor, "*_"]:
    """Attention on the informative position that has least of it, `min_{i∈S} α_i` (Def. 4.1, Eq. 2).

    >>> least_informative_mass(torch.tensor([0.5, 0.3, 0.2]), torch.tensor([True, False, True]))
    tensor(0.2000)
    """
    return torch.where(informative, pattern, torch.inf).amin(-1)


def interaction_gradient(
    query: Float[Tensor, "n d"], source: Float[Tensor, "n heads d"], scale: float
) -> Float[Tensor, "heads d d"]:
    """Gradient of a loss in the interaction matrix, `∂L/∂M = Σ_n x_q (Σ_i ∂L/∂s_{n,i} x_{n,i})ᵀ / √d_head` (Eq. 38).

    `source[n, h]` is the inner sum `Σ_i ∂L/∂s_{n,h,i} x_{n,i}`.
    """
    return torch.einsum("nd,nhe->hde", query, source) / scale
