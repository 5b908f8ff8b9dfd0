"""SGD: stochastic gradient descent with L2 decay and momentum, torch's own."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import Parameter

from bayesticket.errors import require_number
from bayesticket.optim.base import Optimizer
from bayesticket.specs import spec


@spec
class SGD(Optimizer):
    """SGD: `W' = (1 − ηλ) W − η G`; with `momentum`, `G + λW` is accumulated.

    >>> SGD(lr=0.5, momentum=0.9)
    SGD(lr=0.5, momentum=0.9)
    """

    momentum: float = 0.0
    """Share of the last direction that is kept."""

    def __post_init__(self):
        super().__post_init__()
        require_number("momentum", self.momentum, least=0.0, below=1.0)

    def build(self, parameters: Mapping[str, Parameter]) -> torch.optim.SGD:
        """torch's SGD, with its momentum there from the start."""
        optimizer = torch.optim.SGD(
            parameters.items(), lr=self.lr_at(0), weight_decay=self.weight_decay_at(0), momentum=self.momentum
        )
        if self.momentum > 0:
            for parameter in parameters.values():
                optimizer.state[parameter] = {"momentum_buffer": torch.zeros_like(parameter)}
        return optimizer

    def direction_bound(self, parameters: Mapping[str, Tensor], direction: float) -> float:
        """The direction itself, which is the gradient (Prop. B.1); NaN with momentum, whose decay overshoots."""
        return math.nan if self.momentum else direction
