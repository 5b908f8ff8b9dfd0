"""⊥Grad: removes from each gradient its part along the weights (Prieto et al. 2025)."""

from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor

from bayesticket.interventions.base import Intervention
from bayesticket.interventions.context import Context
from bayesticket.specs import spec

TINY = 1e-30
"""Added to denominators that may be 0."""


def orthogonal_part(weight: Float[Tensor, "*shape"], gradient: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The part of a gradient orthogonal to the weights, as long as the gradient.

    `g⊥ = g − (w·g / w·w) w`, then `g⊥ ‖g‖ / ‖g⊥‖`.

    >>> import torch
    >>> orthogonal_part(torch.tensor([1.0, 0.0]), torch.tensor([3.0, 4.0]))
    tensor([0., 5.])
    """
    along = (weight * gradient).sum() / (weight.square().sum() + TINY)
    across = gradient - along * weight
    return across * (gradient.norm() / (across.norm() + TINY))


@spec
class OrthoGrad(Intervention):
    """Moves each weight tensor on its sphere only, `g ← g⊥ ‖g‖ / ‖g⊥‖` with `g⊥ = g − (w·g / w·w) w`.

    A scaling of the weights, which a memorising model can lower its loss by, is then out of the gradient's reach. The
    authors use it without weight decay.
    """

    def gradients(self, context: Context, gradients: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The orthogonal part of every gradient."""
        return {name: orthogonal_part(context.parameters[name], gradient) for name, gradient in gradients.items()}
