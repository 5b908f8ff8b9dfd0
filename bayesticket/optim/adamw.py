"""AdamW: Adam with decoupled weight decay (Loshchilov & Hutter 2019), torch's own."""

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor
from torch.nn import Parameter

from bayesticket.optim.base import Optimizer, joint_norm
from bayesticket.specs import spec
from bayesticket.theory import adam_step_bound, require_betas

ADAM_EPSILON = 1e-8
_FUSED_DEVICES = frozenset({"cpu", "cuda", "mps", "xpu"})


@spec
class AdamW(Optimizer):
    """AdamW, the paper's optimiser: `W' = (1 − ηλ) W − η m̂ / (√v̂ + ε)`.

    >>> AdamW(weight_decay=0.1)
    AdamW(weight_decay=0.1)
    """

    betas: tuple[float, float] = (0.9, 0.999)
    """Averaging of the gradient and of its square."""

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "betas", require_betas(self.betas))

    def build(self, parameters: Mapping[str, Parameter]) -> torch.optim.AdamW:
        """torch's AdamW, fused where the device has it, with its state there from the start."""
        fused = can_fuse(parameters.values())
        optimizer = torch.optim.AdamW(
            parameters.items(),
            lr=self.lr_at(0),
            betas=self.betas,
            eps=ADAM_EPSILON,
            weight_decay=self.weight_decay_at(0),
            fused=fused or None,
        )
        # torch would do this at the first gradient; done now, the names of the state are known from the start.
        for parameter in parameters.values():
            optimizer.state[parameter] = adam_state(parameter, fused=fused)
        return optimizer

    def direction_bound(self, parameters: Mapping[str, Tensor], direction: float) -> float:
        """`D̄ = c √n` for n weights, with the c of `theory.adam_ratio_bound`; NaN where β₁² ≥ β₂."""
        return joint_norm(adam_bound(self.betas, parameter) for parameter in parameters.values())


def adam_bound(betas: tuple[float, float], parameter: Tensor) -> float:
    """The largest direction of an Adam step for one parameter; NaN where there is none."""
    bound = adam_step_bound(parameter.shape, betas)
    return bound if math.isfinite(bound) else math.nan


def adam_state(parameter: Parameter, *, fused: bool) -> dict[str, Tensor]:
    """The state of AdamW before its first step."""
    # The fused kernel counts steps beside the parameter, the others on the host.
    return {
        "step": torch.zeros((), dtype=torch.float32, device=parameter.device if fused else "cpu"),
        "exp_avg": torch.zeros_like(parameter),
        "exp_avg_sq": torch.zeros_like(parameter),
    }


def can_fuse(parameters: Iterable[Tensor]) -> bool:
    """Whether torch has a fused kernel for all of these parameters."""
    return all(value.device.type in _FUSED_DEVICES and value.is_floating_point() for value in parameters)
