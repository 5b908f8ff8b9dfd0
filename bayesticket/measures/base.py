"""Measures: what can be read off a model and a batch, during training or alone.

A measure is a frozen dataclass: it says what it reads, and returns one number or one vector. To add one, derive a class
from `Measure` under `@spec` and write `value`; nothing is registered by hand.
"""

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bayesticket.attention import AttentionSite, require_query
from bayesticket.errors import refuse, refuse_case
from bayesticket.measures.columns import Column, Half, changed_fields
from bayesticket.model import HookedTransformer, is_between_positions
from bayesticket.optim import Optimizer, mean_loss
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
    logits: Float[Tensor, "n *q d_vocab_out"]
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
    gradients_at: Mapping[int, Mapping[str, Tensor]] = field(default_factory=dict)
    """The same gradients as `gradients`, of the loss at one query alone, where measures of single queries need them."""

    def select(self, index: Bool[Tensor, "n"]) -> "Observation":
        """The same for some of the examples: what the forward pass would have shown on these alone.

        Losses are means, so that a gradient in an example's activations grows as the other examples leave.
        """
        n, m = len(self.batch), int(index.sum())
        batch, logits = self.batch.select(index), self.logits[index]
        activations = {name: tensor[index] for name, tensor in self.activations.items()}

        def of_part(gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {name: tensor[index] * (n / m) for name, tensor in gradients.items()}

        return replace(
            self,
            batch=batch,
            logits=logits,
            loss=mean_loss(self.loss_of, logits, batch.targets),
            activations=activations,
            gradients=of_part(self.gradients),
            gradients_at={query: of_part(gradients) for query, gradients in self.gradients_at.items()},
        )

    def at(self, query: int) -> "Observation":
        """The same as one answerable query sees it: what the forward pass would show on sequences that end there."""
        if self.batch.queries is None:
            return self
        position = self.batch.position_of(query)
        batch, logits = self.batch.at(position), self.logits[:, self.batch.queries.index(position)]
        gradients = self.gradients_at.get(position, {})
        return replace(
            self,
            batch=batch,
            logits=logits,
            loss=self.loss_of(logits, batch.targets),
            activations={name: _until(position, name, tensor) for name, tensor in self.activations.items()},
            gradients={name: _until(position, name, tensor) for name, tensor in gradients.items()},
            gradients_at={},
        )


def _until(query: int, name: str, activation: Tensor) -> Tensor:
    """An activation up to a query; where the query-only forward has computed it, the query is all that there is."""
    until = slice(query + 1)
    return activation[:, :, until, until] if is_between_positions(name) else activation[:, until]


@spec(kw_only=True)
class Measure(Spec, abc.ABC):
    """One number, or a vector, read off a model on a batch."""

    half: Half | tuple[Half, ...] | None = None
    """The parts of the split on which training records it: "train", "test", "unseen"; those of its kind by default."""

    halves: ClassVar[tuple[Half, ...]] = ("train",)
    """The parts of the split on which training records this kind unless told otherwise."""
    follows_steps: ClassVar[bool] = False
    """Whether it needs the optimiser step that led to what it measures."""
    takes_all_queries: ClassVar[bool] = False
    """Whether `value` is given all queries of a task that asks at several positions. By default it is given one at a
    time, as `Observation.at` shows it: then `seen` looks as if the sequence ended there."""

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

    def pooling(self) -> Literal["mean", "least"] | None:
        """How the values at several queries make one; None where they make none, and a query has to be chosen."""
        return None

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

    `layer="each"` and `head="each"` give a curve of each layer and each head, with entries `L1`, `H0`, `L1H0`; and
    `query="each"` one of each query of a task that asks at several positions, with entries such as `Q12`.
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


@spec(kw_only=True)
class AnswerMeasure(Measure):
    """Base of the measures of all answers, or of those at one query."""

    query: int | Literal["each"] = -1
    """The query whose answers are measured: -1 for all queries, "each" for a curve of each that can be answered."""

    takes_all_queries = True

    def __post_init__(self):
        require_query("query", self.query)


def require_unedited(seen: Observation, field: str) -> None:
    """Raises where an intervention edits activations: the weights then do not say what the model computes."""
    if seen.edited:
        raise refuse_case(field, f"an intervention that edits {seen.edited[0]}", "priors and projections only")
