"""Lion: every weight moves by the same amount, along the sign of a momentum (Chen et al. 2023)."""

from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor
from torch.nn import Parameter

from bayesticket.optim.base import Optimizer, joint_norm
from bayesticket.optim.groupwise import Group, GroupwiseOptimizer, with_gradient
from bayesticket.specs import spec
from bayesticket.theory import require_betas, sign_step_bound


@spec
class Lion(Optimizer):
    """Lion: `W ← (1 − ηλ) W − η sign(β₁ m + (1 − β₁) G)`, then `m ← β₂ m + (1 − β₂) G`.

    >>> Lion(lr=1e-4)
    Lion(lr=0.0001)
    """

    betas: tuple[float, float] = (0.9, 0.999)
    """Averaging for the direction, and of the momentum."""

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "betas", require_betas(self.betas))

    def build(self, parameters: Mapping[str, Parameter]) -> "LionOptimizer":
        """The optimiser, with its momentum there from the start."""
        return LionOptimizer(parameters, lr=self.lr_at(0), weight_decay=self.weight_decay_at(0), betas=self.betas)

    def direction_bound(self, parameters: Mapping[str, Tensor], direction: float) -> float:
        """`D̄ = √n` for n weights (Prop. B.2)."""
        return joint_norm(sign_step_bound(parameter.shape) for parameter in parameters.values())


@final
class LionOptimizer(GroupwiseOptimizer):
    """Lion as a torch optimiser.

    >>> weight = Parameter(torch.zeros(3))
    >>> weight.grad = torch.tensor([5.0, -0.1, 0.0])
    >>> LionOptimizer({"W": weight}, lr=0.5, weight_decay=0.0, betas=(0.9, 0.99)).step()
    >>> weight.tolist()
    [-0.5, 0.5, 0.0]
    """

    def __init__(
        self, parameters: Mapping[str, Parameter], *, lr: float, weight_decay: float, betas: tuple[float, float]
    ) -> None:
        super().__init__(parameters.items(), {"lr": lr, "weight_decay": weight_decay, "betas": betas})
        for parameter in parameters.values():
            self.state[parameter] = {"exp_avg": torch.zeros_like(parameter)}

    def update(self, group: Group) -> None:
        """Moves the parameters along the sign of the averaged gradient, then averages."""
        decay, (beta1, beta2) = 1 - group["lr"] * group["weight_decay"], group["betas"]
        for parameter, gradient in zip(*with_gradient(group), strict=True):
            momentum = self.state[parameter]["exp_avg"]
            direction = gradient.lerp(momentum, beta1).sign_()  # x.lerp(y, w) = x + w (y − x)
            parameter.mul_(decay).add_(direction, alpha=-group["lr"])
            momentum.lerp_(gradient, 1 - beta2)
