"""Measures: what can be read off a model and a batch, during training or alone.

A measure is a frozen dataclass: what it reads, and one number or vector. To add one, derive a frozen dataclass from
`Measure` and write `value`; nothing is registered by hand.
"""

import abc
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from bayesticket.attention import AttentionSite
from bayesticket.errors import refuse
from bayesticket.interventions import Intervention, Live, as_recipe, reader, require_readable
from bayesticket.model import (
    HookedTransformer,
    NamedHook,
    RowLayout,
    choose_forward,
    full_forward,
    mounted,
    query_forward,
    require_firing,
    task_loss,
)
from bayesticket.optim import Optimizer
from bayesticket.specs import Spec, changed, snake_case, spec
from bayesticket.tasks import Examples

Half = Literal["train", "test"]


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
    edited: tuple[str, ...] = ()
    """The hook points that an intervention edits."""
    step: OptimizerStep | None = None
    """In training, for measures that follow steps: the one before; None at the start, and outside training."""


class Measure(Spec, abc.ABC):
    """One number, or a vector, read off a model on a batch."""

    halves: ClassVar[tuple[Half, ...]] = ("train",)
    """The halves of the split on which training records it."""
    follows_steps: ClassVar[bool] = False
    """Whether it needs the optimiser step that led to what it measures."""

    @abc.abstractmethod
    def value(self, seen: Observation) -> Float[Tensor, "*entries"]:
        """The measured value, of no or one axis."""

    def reads(self, model: HookedTransformer) -> tuple[str, ...]:
        """Hook points whose activations are read, after all edits."""
        return ()

    def differentiates(self, model: HookedTransformer) -> tuple[str, ...]:
        """Hook points in whose activations the task loss is differentiated."""
        return ()

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Refuses a model that it cannot measure; called before anything is computed."""

    def why_full(self, n_positions: int) -> str | None:
        """Why the query-only forward does not show what it measures, beside the hook points it reads; or None."""
        return None

    def labels(self, model: HookedTransformer) -> tuple[str, ...]:
        """What the entries of a vector are called in curves, as `name[label]`; numbered where there are none."""
        return ()

    @property
    def name(self) -> str:
        """The name of its curve: that of the class, with the fields that differ from their defaults."""
        fields = ",".join(f"{name}={value}" for name, value in changed(self))
        return snake_case(type(self).__name__) + (f"[{fields}]" if fields else "")


@spec(kw_only=True)
class AttentionMeasure(AttentionSite, Measure):
    """Base of the measures that look at attention patterns."""

    def reads(self, model: HookedTransformer) -> tuple[str, ...]:
        """The pattern of every layer."""
        return self.pattern_names()

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Refuses layers, heads and a query that the model lacks."""
        self.require_place(model, batch.n_positions)

    def patterns(self, seen: Observation) -> Float[Tensor, "n places key"]:
        """The attention at the site, layers and heads on one axis."""
        return torch.cat([self.rows(seen.activations[name]) for name in self.pattern_names()], 1)


class Observer:
    """Several measures on one model: mounts what they read, and works out their values after a forward pass."""

    def __init__(self, model: HookedTransformer, measures: Iterable[Measure], batch: Examples):
        require_readable(model, batch)
        self.model, self.measures, self.n_positions = model, tuple(measures), batch.n_positions
        names: list[str] = []
        for measure in self.measures:
            if not isinstance(measure, Measure):
                raise refuse("measures", measure, "Measure objects, such as KLToOracle()")
            measure.check(model, batch)
            own = (*measure.reads(model), *measure.differentiates(model))
            if own:
                require_firing(model, batch.tokens, own, type(measure).__name__)
            names += own
        known = [measure.name for measure in self.measures]
        if repeated := [name for name in known if known.count(name) > 1]:
            raise refuse("measures", repeated[0], "measures with different names")
        self.hook_names = list(dict.fromkeys(names))
        self.differentiated = list(dict.fromkeys(n for m in self.measures for n in m.differentiates(model)))
        self._read: dict[str, Tensor] = {}
        self.hooks: list[NamedHook] = [(name, reader(self._read)) for name in self.hook_names]

    def reasons(self) -> list[str]:
        """Why the query-only forward cannot serve the measures, beside the hook points they read."""
        given = (measure.why_full(self.n_positions) for measure in self.measures)
        return [reason for reason in given if reason is not None]

    def numbers(self, values: Mapping[str, Tensor], half: Half) -> dict[str, float]:
        """Values as plain numbers, by the names of their curves."""
        numbers: dict[str, float] = {}
        for measure in self.measures:
            value = values[measure.name]
            name = f"{half}_{measure.name}" if len(measure.halves) > 1 or half == "test" else measure.name
            if value.ndim == 0:
                numbers[name] = value.item()
                continue
            entries = value.tolist()
            labels = measure.labels(self.model) or range(len(entries))
            numbers |= {f"{name}[{label}]": entry for label, entry in zip(labels, entries, strict=True)}
        return numbers

    @property
    def follows_steps(self) -> bool:
        """Whether any of the measures does."""
        return any(measure.follows_steps for measure in self.measures)

    def values(
        self,
        batch: Examples,
        logits: Tensor,
        loss: Tensor,
        gradients: Mapping[str, Tensor],
        *,
        edited: tuple[str, ...] = (),
        step: OptimizerStep | None = None,
    ) -> dict[str, Tensor]:
        """The measures' values on the last forward pass, by name."""
        with torch.no_grad():
            seen = Observation(self.model, batch, logits, loss, dict(self._read), gradients, edited, step)
            values = {measure.name: measure.value(seen) for measure in self.measures}
        self._read.clear()
        return values

    def gradients(self, loss: Tensor) -> dict[str, Tensor]:
        """The gradients that measures ask for, by a backward pass of their own; the graph is kept."""
        gradients = self._zeros()
        inputs = {name: self._read[name] for name in gradients if self._read[name].requires_grad}
        if inputs:
            found = torch.autograd.grad(loss, list(inputs.values()), retain_graph=True, materialize_grads=True)
            gradients |= dict(zip(inputs, found, strict=True))
        return gradients

    def gradients_of_backward(self) -> dict[str, Tensor]:
        """The same gradients, filled in by the coming `loss.backward()` at no cost of their own."""
        gradients = self._zeros()
        for name in gradients:
            if self._read[name].requires_grad:
                self._read[name].register_hook(partial(gradients.__setitem__, name))
        return gradients

    def _zeros(self) -> dict[str, Tensor]:
        return {name: torch.zeros_like(self._read[name]) for name in self.differentiated}


def measure(
    model: HookedTransformer,
    batch: Examples,
    *measures: Measure,
    intervention: Intervention | None = None,
    forward: Literal["auto", "fast", "full"] = "auto",
) -> dict[str, float | Tensor]:
    """Measures any HookedTransformer on a batch, under the edits of an intervention if one is given.

    Returns the values by name, numbers as floats and vectors as tensors.

    >>> from bayesticket.measures import AttentionEntropy, KLToOracle
    >>> from bayesticket.model import build_model
    >>> from bayesticket.tasks import ModularAddition
    >>> task = ModularAddition(p=7)
    >>> sorted(measure(build_model(task), task.split().test, KLToOracle(), AttentionEntropy()))
    ['attention_entropy', 'kl_to_oracle']
    """
    observer = Observer(model, measures, batch)
    live = Live(as_recipe(intervention), model, batch)
    names, reasons = [*live.hook_names, *observer.hook_names], [*live.reasons(), *observer.reasons()]
    chosen = choose_forward(forward, model, names, reasons)
    with mounted(model, [*live.edits, *observer.hooks]), torch.set_grad_enabled(bool(observer.differentiated)):
        logits = run_forward(chosen, model, batch)
        loss = task_loss(logits, batch.targets)
        edited = tuple(name for name, _ in live.edits)
        values = observer.values(batch, logits, loss, observer.gradients(loss), edited=edited)
    return {name: value.item() if value.ndim == 0 else value for name, value in values.items()}


def run_forward(
    forward: Literal["fast", "full"],
    model: HookedTransformer,
    batch: Examples,
    layout: RowLayout | None = None,
) -> Float[Tensor, "n d_vocab_out"]:
    """The logits at the last position, by the chosen forward."""
    if forward == "full":
        return full_forward(model, batch.tokens)
    return query_forward(model, layout or RowLayout(batch.tokens, model.cfg.n_heads))
