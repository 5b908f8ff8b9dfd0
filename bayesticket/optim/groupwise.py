"""What optimisers of this library's own share: a step is an update of each parameter group."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NotRequired, TypedDict, cast, overload

import torch
from torch import Tensor
from torch.nn import Parameter


class Group(TypedDict):
    """What a step reads of a parameter group."""

    params: list[Parameter]
    lr: float
    weight_decay: float
    betas: tuple[float, float]
    orthogonal: NotRequired[bool]
    fused: NotRequired[bool]


class GroupwiseOptimizer(torch.optim.Optimizer, ABC):
    """A torch optimiser whose step updates one parameter group after another."""

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Takes one step; `closure`, where given, recomputes loss and gradients first."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self.update(cast("Group", group))
        return loss

    @abstractmethod
    def update(self, group: Group) -> None:
        """Updates the parameters of one group that have a gradient."""


def with_gradient(group: Group) -> tuple[list[Tensor], list[Tensor]]:
    """The parameters of a group that have a gradient, and their gradients."""
    pairs = [(parameter, parameter.grad) for parameter in group["params"] if parameter.grad is not None]
    return [parameter for parameter, _ in pairs], [gradient for _, gradient in pairs]
