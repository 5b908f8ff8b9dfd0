"""Contraction: what an optimiser step did to the weights, against what Definition 3.2 promises."""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from bayesticket import theory
from bayesticket.errors import require_choice
from bayesticket.measures.base import Measure, Observation, OptimizerStep
from bayesticket.model import HookedTransformer, is_mlp
from bayesticket.specs import spec


@spec
class Contraction(Measure):
    """The last optimiser step against `‖θ'‖² ≤ (1 − λ_eff) ‖θ‖² + ρ²` (Def. 3.2, Props. B.1, B.2): a vector.

    `observed` is `1 − ‖θ'‖²/‖θ‖²`, the share of the squared norm that the step took; `rate` is λ_eff = ηλ, what
    decay alone promises; `direction` is ‖D‖, the step without its decay, `D = ((1 − ηλ) θ − θ') / η`; `bound` is the
    largest ‖D‖ that the optimiser allows (for sgd, whose direction is the gradient, ‖D‖ itself); `slack` is the
    inequality's right side over its left, at least 1. Pure decay gives an `observed` of 2 λ_eff − λ_eff²; less means
    that the step works against it, and below 0 that the weights grow. A large slack means that the inequality, though
    it holds, is far from saying what happens. Costs two copies of the weights at a recorded step, and their norms.

    For the MLP's weights together (`scope="mlp"`) or all weights. In training only: NaN at epoch 0, and elsewhere.
    Learning rate and weight decay are those in force at the step: after warm-up, and of schedules. `bound` and `slack`
    are NaN where nothing is promised: without weight decay, where lr · weight_decay reaches 1, and with an optimiser
    that knows no bound on its step (`Optimizer.direction_bound`), such as SGD with momentum, AdamW with β₁² ≥ β₂, or
    one of your own that does not say.
    """

    scope: Literal["mlp", "all"] = "mlp"
    follows_steps = True
    takes_all_queries = True

    def __post_init__(self):
        require_choice("scope", self.scope, ("mlp", "all"))

    def labels(self, model: HookedTransformer) -> tuple[str, ...]:
        """What the entries are."""
        return ("observed", "rate", "direction", "bound", "slack")

    def value(self, seen: Observation) -> Float[Tensor, "5"]:
        """The step, and its bound."""
        if seen.step is None:
            return torch.full((5,), math.nan)
        return torch.tensor(contraction_of(seen.step, self.scope), dtype=torch.float64)


def contraction_of(step: OptimizerStep, scope: Literal["mlp", "all"]) -> list[float]:
    """Observed contraction, λ_eff, ‖D‖, its bound, and the slack of the inequality, for one step."""
    names = [name for name in step.before if scope == "all" or is_mlp(name)]
    before = [step.before[name].double() for name in names]
    after = [step.after[name].double() for name in names]
    square, new_square = (sum(t.square().sum().item() for t in tensors) for tensors in (before, after))
    rate = step.lr * step.weight_decay
    pairs = zip(before, after, strict=True)
    direction = math.nan  # where the learning rate is 0 there is no step
    if step.lr > 0:
        direction = math.sqrt(sum((((1 - rate) * b - a) / step.lr).square().sum().item() for b, a in pairs))
    bound = math.nan
    if 0 < rate < 1:
        bound = step.optimizer.direction_bound({name: step.before[name] for name in names}, direction)
    slack = math.nan
    if math.isfinite(bound):
        promised = theory.contraction(step.lr, step.weight_decay, bound)
        slack = theory.contracted_square(torch.tensor(square).sqrt(), promised).item() / new_square
    return [1 - new_square / square, rate, direction, bound, slack]
