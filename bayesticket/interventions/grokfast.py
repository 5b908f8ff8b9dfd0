"""Grokfast: amplifies the slow part of the gradients (Lee et al. 2024)."""

from collections.abc import Mapping

import torch
from torch import Tensor

from bayesticket.errors import require_integer, require_number
from bayesticket.interventions.base import Intervention
from bayesticket.interventions.context import Context
from bayesticket.schedules import Strength, require_strength
from bayesticket.specs import spec


@spec
class Grokfast(Intervention):
    """Adds an average of past gradients to each gradient, `g ← g + gain · h`.

    By default h is the exponential moving average `h ← alpha · h + (1 − alpha) · g`, which starts as the first
    gradient. With a `window` it is the mean of so many last gradients, the present one among them, and nothing is added
    until there are as many; that takes as much memory as `window` copies of the weights (the authors use 100, with a
    gain of 5). Under Adam a common factor on all gradients has no effect, so that a fair comparison needs an arm that
    only rescales.

    >>> Grokfast(alpha=0.98, gain=2.0), Grokfast(window=100, gain=5.0)
    (Grokfast(), Grokfast(gain=5.0, window=100))
    """

    alpha: float = 0.98
    """Share of the exponential average that stays at each step."""
    gain: Strength = 2.0
    """What the average is multiplied by."""
    window: int | None = None
    """Number of gradients in a plain moving average, in place of the exponential one."""

    def __post_init__(self):
        require_number("alpha", self.alpha, least=0.0, below=1.0)
        require_strength("gain", self.gain)
        if self.window is not None:
            require_integer("window", self.window, least=1)

    def init(self, context: Context) -> Mapping[str, Tensor]:
        """The average of every trained parameter's gradients, or its last gradients; and how many steps there were."""
        copies = () if self.window is None else (self.window,)
        trained = {name: p for name, p in context.parameters.items() if p.requires_grad}
        slow = {name: torch.zeros(*copies, *p.shape, dtype=p.dtype, device=p.device) for name, p in trained.items()}
        return {"steps": torch.zeros((), dtype=torch.int64), **slow}

    def gradients(self, context: Context, gradients: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The gradients with their slow part amplified."""
        gain = context.value(self.gain, "Grokfast.gain")
        steps = int(context.state["steps"])
        context.state["steps"] = context.state["steps"] + 1
        averages = {name: self._average(context.state[name], gradient, steps) for name, gradient in gradients.items()}
        if self.window is not None and steps + 1 < self.window:
            return {}
        return {name: gradients[name] + gain * average for name, average in averages.items()}

    def _average(self, slow: Tensor, gradient: Tensor, steps: int) -> Tensor:
        """Takes a gradient into its average, in place, and returns the average."""
        if self.window is not None:
            slow[steps % self.window] = gradient
            return slow.mean(0)
        if steps == 0:
            return slow.copy_(gradient)
        return slow.mul_(self.alpha).add_(gradient, alpha=1 - self.alpha)
