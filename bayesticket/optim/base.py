"""The base of all optimisers, and what training does with any of them.

The optimisers of this library obey Definition 3.2, with learning rate η and weight decay λ, in the form of Propositions
B.1 and B.2:

    ‖W'‖² ≤ (1 − ηλ) ‖W‖² + (η/λ) ‖D‖²

where D is the gradient for SGD with L2 decay, and the bounded direction for AdamW, Muon and Lion.
"""

import abc
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import Parameter

from bayesticket.errors import refuse, refuse_case, require_choice, require_integer, require_number
from bayesticket.schedules import Schedule, Strength, largest_of, value_at
from bayesticket.specs import Spec, field_names, is_library_class, spec


@spec
class Optimizer(Spec, abc.ABC):
    """An optimiser as data: its settings, how it is built, and how long its step can be.

    To add one, write `build`. The state of the optimiser that it builds has to be tensors, as that of torch's own is;
    it is then checkpointed and restored to the bit. `lr` and `weight_decay` may be schedules, such as
    `Anneal(1e-3, 0.0, last=10_000)`: `build` then finds the largest value of each, and training sets the value of each
    epoch in the parameter groups.

    >>> @spec
    ... class PlainAdam(Optimizer):
    ...     def build(self, parameters):
    ...         return torch.optim.Adam(parameters.values(), lr=self.lr, weight_decay=self.weight_decay)
    >>> PlainAdam(lr=0.01)
    PlainAdam(lr=0.01)
    """

    lr: Strength = 1e-3
    """Learning rate η, reached after the warm-up; a number or a schedule."""
    weight_decay: Strength = 1.0
    """Weight decay λ, a number or a schedule; it contracts by ηλ a step."""

    def __post_init__(self):
        _require_rate("lr", self.lr, above=0.0)
        _require_rate("weight_decay", self.weight_decay, least=0.0)

    def lr_at(self, epoch: int) -> float:
        """The learning rate of an epoch, without warm-up.

        >>> from bayesticket.optim import SGD
        >>> from bayesticket.schedules import Anneal
        >>> SGD(lr=Anneal(0.5, 0.1, last=100)).lr_at(50), SGD(lr=0.5).lr_at(50)
        (0.3, 0.5)
        """
        return value_at(self.lr, epoch)

    def weight_decay_at(self, epoch: int) -> float:
        """The weight decay of an epoch."""
        return value_at(self.weight_decay, epoch)

    @abc.abstractmethod
    def build(self, parameters: Mapping[str, Parameter]) -> torch.optim.Optimizer:
        """The optimiser over some named parameters."""

    def direction_bound(self, parameters: Mapping[str, Tensor], direction: float) -> float:
        """The largest ‖D‖ that a step can have for some parameters together; NaN where no bound is known.

        `direction` is the norm of the step that was taken, for optimisers whose direction is the gradient itself.
        """
        return math.nan


def _require_rate(field: str, given: object, **bound: float) -> None:
    """Raises unless given a number within a bound, or a schedule whose largest value is."""
    if not isinstance(given, Schedule):
        require_number(field, given, **bound)
        return
    try:
        require_number(field, given.largest, **bound)
    except ValueError as error:
        raise refuse(field, given, f"a number, or a schedule that does not stay at {given.largest:g}") from error


def joint_norm(norms: Iterable[float]) -> float:
    """The norm of several parameters together, from the norm of each."""
    return math.sqrt(sum(norm**2 for norm in norms))


def optimizer_kinds() -> dict[str, type[Optimizer]]:
    """The optimisers that can be named by a word, `"adamw"` for AdamW; those of the user among them.

    A word that names an optimiser of this library always names that one.
    """
    known = [kind for kind in Spec.kinds.values() if issubclass(kind, Optimizer) and kind is not Optimizer]
    known.sort(key=is_library_class)  # later entries replace earlier ones
    return {kind.__name__.lower(): kind for kind in known}


def as_optimizer(given: object, **settings: object) -> Optimizer:
    """An optimiser from itself or from a word, with some settings replaced; a setting of None is left as it is.

    >>> from bayesticket.optim import AdamW
    >>> as_optimizer("muon", lr=0.02), as_optimizer(AdamW(lr=0.01), weight_decay=None)
    (Muon(lr=0.02), AdamW(lr=0.01))
    """
    if isinstance(given, str):
        require_choice("optimizer", given, kinds := optimizer_kinds())
        given = kinds[given]()
    if not isinstance(given, Optimizer):
        raise refuse("optimizer", given, "an optimiser, such as AdamW(lr=1e-3), or a word, such as 'adamw'")
    wanted = {name: value for name, value in settings.items() if value is not None}
    for name in wanted:
        if name not in (known := field_names(type(given))):
            kind = type(given).__name__
            raise refuse(name, wanted[name], f"no {name} with {kind}, which has {', '.join(known)}")
    return replace(given, **wanted) if wanted else given


def build_optimizer(optimizer: Optimizer, parameters: Mapping[str, Parameter]) -> torch.optim.Optimizer:
    """Builds an optimiser over those of the named parameters that require a gradient.

    >>> from bayesticket.optim import SGD
    >>> weights = {"W": Parameter(torch.ones(2, 3))}
    >>> built = build_optimizer(SGD(lr=0.1, weight_decay=1.0), weights)
    >>> weights["W"].grad = torch.zeros(2, 3)
    >>> built.step()
    >>> weights["W"].tolist()[0]
    [0.8999999761581421, 0.8999999761581421, 0.8999999761581421]
    """
    trained = {name: value for name, value in parameters.items() if value.requires_grad}
    if not trained:
        raise refuse("parameters", list(parameters), "at least one parameter that requires a gradient")
    largest = {"lr": largest_of(optimizer.lr), "weight_decay": largest_of(optimizer.weight_decay)}
    built = replace(optimizer, **largest).build(trained)
    if not isinstance(built, torch.optim.Optimizer):
        raise refuse(f"{type(optimizer).__name__}.build", built, "a torch.optim.Optimizer")
    if isinstance(built, torch.optim.LBFGS):
        raise refuse_case(
            f"{type(optimizer).__name__}.build", "LBFGS, whose step needs a closure", "one whose does not"
        )
    return built


def set_rates(built: torch.optim.Optimizer, optimizer: Optimizer, epoch: int, warmup: int) -> None:
    """Sets the learning rate and the weight decay of an epoch in every parameter group.

    A group that was built with a share of the optimiser's rates keeps that share.

    >>> from bayesticket.optim import SGD
    >>> from bayesticket.schedules import Anneal
    >>> sgd = SGD(lr=0.1, weight_decay=Anneal(1.0, 0.0, last=100))
    >>> built = build_optimizer(sgd, {"W": Parameter(torch.ones(2, 3))})
    >>> set_rates(built, sgd, epoch=75, warmup=0)
    >>> built.param_groups[0]["lr"], built.param_groups[0]["weight_decay"]
    (0.1, 0.25)
    """
    scale_learning_rates(built, warmup_factor(epoch, warmup) * _share(optimizer.lr, epoch))
    if isinstance(optimizer.weight_decay, Schedule):
        share = _share(optimizer.weight_decay, epoch)
        for group in built.param_groups:
            if "weight_decay" not in group:
                accepted = "a number, since its torch optimiser has no weight decay in its parameter groups"
                raise refuse(f"{type(optimizer).__name__}.weight_decay", optimizer.weight_decay, accepted)
            group["weight_decay"] = group.setdefault("initial_weight_decay", group["weight_decay"]) * share


def _share(strength: Strength, epoch: int) -> float:
    """The value of an epoch as a share of the largest; 1 for a constant."""
    largest = largest_of(strength)
    return value_at(strength, epoch) / largest if isinstance(strength, Schedule) and largest else 1.0


def warmup_factor(step: int, warmup: int) -> float:
    """What the learning rate is multiplied by at `step` (from 0): `min(1, (step + 1) / warmup)`.

    >>> [warmup_factor(step, 4) for step in range(5)]
    [0.25, 0.5, 0.75, 1.0, 1.0]
    >>> warmup_factor(0, 0)
    1.0
    """
    require_integer("step", step, least=0)
    require_integer("warmup", warmup, least=0)
    return 1.0 if step + 1 >= warmup else (step + 1) / warmup


def scale_learning_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Sets the learning rate of every parameter group to a multiple of what it was built with."""
    require_number("factor", factor, least=0.0)
    for group in optimizer.param_groups:
        group["lr"] = group.setdefault("initial_lr", group["lr"]) * factor
