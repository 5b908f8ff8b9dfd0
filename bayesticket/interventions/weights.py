"""Projections: interventions that hold the weights to a set, from before the first step on."""

from collections.abc import Iterable, Mapping
from typing import Literal

import torch
from torch import Tensor

from bayesticket.errors import BayesticketError, refuse, refuse_case, require_choice, require_number
from bayesticket.interventions.base import Intervention
from bayesticket.interventions.context import Context
from bayesticket.model import is_mlp
from bayesticket.specs import spec


def match_norm(tensors: Iterable[Tensor], radius: float) -> None:
    """Scales tensors, in place and all by one factor, to a joint Frobenius norm, `θ ← radius · θ / ‖θ‖`.

    >>> weights = [torch.tensor([3.0]), torch.tensor([4.0])]
    >>> match_norm(weights, 10.0); weights
    [tensor([6.]), tensor([8.])]
    """
    tensors = list(tensors)
    with torch.no_grad():
        norm = torch.nn.utils.get_total_norm(tensors)
        if not norm > 0:
            raise refuse("radius", radius, "weights that are not all zero")
        factor = radius / norm
        for tensor in tensors:
            tensor.mul_(factor)


@spec
class NormMatch(Intervention):
    """Holds the weights on a sphere, `‖θ‖_F = radius`, from before the first step and after every one.

    `scope="mlp"` means the MLP's matrices and biases (θ_MLP of Def. 4.2, what the `MLPNorm` measure shows);
    `scope="all"` every parameter, as in Omnigrok. All of them are scaled by one factor; the optimiser's moments are
    left as they are.
    """

    radius: float
    scope: Literal["mlp", "all"] = "mlp"

    def __post_init__(self):
        require_number("radius", self.radius, above=0)
        require_choice("scope", self.scope, ("mlp", "all"))

    def project(self, context: Context) -> None:
        """Scales the parameters to the radius."""
        match_norm(self._held(context), self.radius)

    def check(self, context: Context) -> None:
        """Raises where the model lacks such parameters, or all of them are zero."""
        if not (held := self._held(context)):
            raise refuse("NormMatch.scope", self.scope, "'all', since the model has no MLP")
        if not any(tensor.any() for tensor in held):
            raise BayesticketError(
                f"NormMatch.radius: got {self.radius}; accepted: nothing, all {self.scope} weights are 0"
            )

    def _held(self, context: Context) -> list[Tensor]:
        return [p for name, p in context.parameters.items() if self.scope == "all" or is_mlp(name)]


def apply_masks(parameters: Mapping[str, Tensor], masks: Mapping[str, Tensor]) -> None:
    """Sets pruned weights to zero, in place, `θ ← mask ⊙ θ`.

    >>> weights = {"W": torch.tensor([1.0, 2.0])}
    >>> apply_masks(weights, {"W": torch.tensor([True, False])}); weights
    {'W': tensor([1., 0.])}
    """
    with torch.no_grad():
        for name, mask in masks.items():
            parameters[name].mul_(mask.to(parameters[name].device))


@spec
class TicketMask(Intervention):
    """Holds pruned weights at zero: `θ ← mask ⊙ θ` before the first step and after every one.

    `masks` maps parameter names (`"blocks.0.mlp.W_in"`) to boolean tensors, True where a weight is kept. Parameters
    without a mask, among them biases unless named, are free. The gradients of pruned weights are masked as well,
    before they count in gradient clipping or reach the optimiser's moments, so that training is that of the pruned
    network itself.
    """

    masks: Mapping[str, Tensor]

    def __post_init__(self):
        if not isinstance(self.masks, Mapping) or not self.masks:
            raise refuse("masks", self.masks, "a mapping from parameter names to boolean tensors")
        for name, mask in self.masks.items():
            if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
                raise refuse(
                    f"masks[{name!r}]",
                    getattr(mask, "dtype", mask),
                    "a boolean tensor, True for kept weights",
                )
        object.__setattr__(self, "masks", {name: mask.clone() for name, mask in self.masks.items()})

    def gradients(self, context: Context, gradients: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The gradients of pruned weights set to zero."""
        known = [name for name in self.masks if name in gradients]
        return {name: gradients[name] * self.masks[name].to(gradients[name].device) for name in known}

    def project(self, context: Context) -> None:
        """Sets the pruned weights to zero."""
        apply_masks(context.parameters, self.masks)

    def check(self, context: Context) -> None:
        """Raises unless each mask is of a parameter of the model, and has its shape."""
        for name, mask in self.masks.items():
            require_choice("masks", name, context.parameters)
            if mask.shape != (shape := context.parameters[name].shape):
                raise refuse_case(f"masks[{name!r}]", f"shape {tuple(mask.shape)}", f"shape {tuple(shape)}")
