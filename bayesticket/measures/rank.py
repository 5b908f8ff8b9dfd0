"""In how many directions the representations of a batch vary."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from bayesticket.measures.base import Measure, Observation
from bayesticket.model import (
    HookedTransformer,
    final_name,
)
from bayesticket.specs import spec


def effective_rank(matrix: Float[Tensor, "n d"]) -> Float[Tensor, ""]:
    """Effective number of directions in which rows vary: `exp(−Σ p_i log p_i)`, `p_i = σ_i / Σ σ`.

    The `σ_i` are the singular values of the matrix less the mean of its rows (Roy & Vetterli 2007; some take `σ²`,
    which gives less). 1 when all rows are on one line, the rank when they vary as much in every direction, and 0 when
    all rows are equal.

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
    Between 1 and d_model: large while a model represents its examples one by one, small once it represents them by a
    few features, such as two for each key frequency of modular addition. Of several queries it is the
    mean. Costs about a millisecond at 3,830 examples and d_model = 64.
    """

    def pooling(self) -> Literal["mean"]:
        """The mean over queries."""
        return "mean"

    def reads(self, model: HookedTransformer) -> tuple[str, ...]:
        """The stream after the last layer."""
        return (_last_stream(model),)

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The effective rank."""
        return effective_rank(seen.activations[_last_stream(seen.model)][:, -1].detach())


def _last_stream(model: HookedTransformer) -> str:
    return final_name(model.cfg.n_layers - 1)
