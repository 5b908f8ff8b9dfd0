"""Capacity: how large the weights are."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from bayesticket.interventions.weights import is_mlp
from bayesticket.measures.base import Measure, Observation


@dataclass(frozen=True, eq=False, repr=False)
class MLPNorm(Measure):
    """Frobenius norm of the MLP's matrices and biases together, `‖θ_MLP‖_F` (Def. 4.2): a number."""

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The norm."""
        return torch.nn.utils.get_total_norm([p.detach() for name, p in seen.model.named_parameters() if is_mlp(name)])
