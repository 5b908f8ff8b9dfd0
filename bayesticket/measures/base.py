"""Measures: what can be read off a model and a batch, during training or alone.

A measure is a frozen dataclass: it says what it reads, and returns one number or one vector. To add one, derive a class
from `Measure` under `@spec` and write `value`; nothing is registered by hand.
"""

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bayesticket.attention import AttentionSite
from bayesticket.errors import refuse, refuse_case
from bayesticket.measures.columns import Column, Half, changed_fields
from bayesticket.model import HookedTransformer
from bayesticket.optim import Optimizer
from bayesticket.specs import Spec, snake_case, spec
from bayesticket.tasks import Examples


@dataclass(frozen=True)
class OptimizerStep:
    """The optimiser step that led to what is observed."""

    before: Mapping[str, Tensor]
    """The parameters before it, by name."""
    after: Mapping[str, Tensor]
    """The parameters after it, before any projection."""
    optimizer: Optimizer
    lr: float
    """The learning rate in force at that step."""
    weight_decay: float
    """The weight decay in force at that step."""


@dataclass(frozen=True)
class Observation:
    """One forward pass of a model on a batch, as measures see it."""

    model: HookedTransformer
    batch: Examples
    logits: Float[Tensor, "n d_vocab_out"]
    loss: Float[Tensor, ""]
    """The task loss alone, without penalties."""
    activations: Mapping[str, Tensor]
    """What the measure reads, by hook point."""
    gradients: Mapping[str, Tensor]
    """The gradient of the task loss in the activations that the measure differentiates, by hook point."""
    loss_of: Callable[[Tensor, Tensor], Float[Tensor, ""]]
    """The task loss as a function of logits and targets."""
    edited: tuple[str, ...] = ()
    """The hook points that an intervention edits."""
    step: OptimizerStep | None = None
    """The optimiser step before, for measures that follow steps; None at the start, and outside training."""

    def select(self, index: Bool[Tensor, "n"]) -> "Observation":
        """The same for some of the examples: what the forward pass would have shown on these alone.

        Losses are means, so that a gradient in an example's activations grows as the other examples leave.
        """
        n, m = len(self.batch), int(index.sum())
        batch, logits = self.batch.select(index), self.logits[index]
        activations = {name: tensor[index] for name, tensor in self.activations.items()}
        gradients = {name: tensor[index] * (n / m) for name, tensor in self.gradients.items()}
        loss = self.loss_of(logits, batch.targets)
        return replace(self, batch=batch, logits=logits, loss=loss, activations=activations, gradients=gradients)


@spec(kw_only=True)
class Measure(Spec, abc.ABC):
    """One number, or a vector, read off a model on a batch."""

    half: Half | tuple[Half, ...] | None = None
    """The parts of the split on which training records it: "train", "test", "unseen"; those of its kind by default."""

    halves: ClassVar[tuple[Half, ...]] = ("train",)
    """The parts of the split on which training records this kind unless told otherwise."""
    follows_steps: ClassVar[bool] = False
    """Whether it needs the optimiser step that led to what it measures."""

    @abc.abstractmethod
    def value(self, seen: Observation) -> Float[Tensor, "*entries"]:
        """The measured value: a scalar, or a vector of entries."""

    def reads(self, model: HookedTransformer) -> tuple[str, ...]:
        """Hook points whose activations are read, after all edits."""
        return ()

    def differentiates(self, model: HookedTransformer) -> tuple[str, ...]:
        """Hook points in whose activations the task loss is differentiated."""
        return ()

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Raises where the model or the batch cannot be measured; called before anything is computed."""

    def why_full(self, n_positions: int) -> str | None:
        """Why the query-only forward does not show what is measured, apart from the hook points read; or None."""
        return None

    def labels(self, model: HookedTransformer) -> tuple[str, ...]:
        """What the entries of a vector are called in curves, as `name[label]`; without labels they are numbered."""
        return ()

    def places(self, model: HookedTransformer) -> Mapping[str, "Measure"]:
        """The measure at each place of the model that it is taken at, by the place's label: by default itself alone."""
        return {"": self}

    @property
    def recorded_on(self) -> tuple[Half, ...]:
        """The parts of the split on which training records it."""
        chosen = self.halves if self.half is None else self.half
        chosen = (chosen,) if isinstance(chosen, str) else chosen
        if not isinstance(chosen, tuple | list) or not chosen or not set(chosen) <= set(get_args(Half)):
            raise refuse(f"{type(self).__name__}.half", self.half, "'train', 'test', 'unseen', or several of them")
        return tuple(dict.fromkeys(chosen))

    @property
    def name(self) -> str:
        """The name of its curve: the class's, with the fields that differ from their defaults."""
        return str(Column(snake_case(type(self).__name__), changed_fields(self, without=("half",))))

    def named(self, half: Half | None) -> str:
        """The name of its curve on a part of the split.

        The name leaves out the training half for measures that are recorded there alone, unless told otherwise.
        """
        named_half = None if half == "train" and self.halves == ("train",) else half
        return str(replace(Column.parse(self.name), half=named_half))


@spec(kw_only=True)
class AttentionMeasure(AttentionSite, Measure):
    """Base of the measures that look at attention patterns.

    `layer="each"` and `head="each"` give a curve of each layer and each head, with entries `L1`, `H0`, `L1H0`.
    """

    def places(self, model: HookedTransformer) -> Mapping[str, Measure]:
        """The measure at each layer and head that "each" stands for."""
        return self.at_each_place(model)

    def reads(self, model: HookedTransformer) -> tuple[str, ...]:
        """The pattern of every layer."""
        return self.pattern_names()

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Raises where the model lacks the layers, the heads or the query."""
        self.require_place(model, batch.n_positions)

    def patterns(self, seen: Observation) -> Float[Tensor, "n places key"]:
        """The attention at the site, layers and heads on one axis."""
        return torch.cat([self.rows(seen.activations[name]) for name in self.pattern_names()], 1)


def require_unedited(seen: Observation, field: str) -> None:
    """Raises where an intervention edits activations: the weights then do not say what the model computes."""
    if seen.edited:
        raise refuse_case(field, f"an intervention that edits {seen.edited[0]}", "priors and projections only")
