"""Mount, run, observe: what measures see of one forward pass, in training and outside it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from bayesticket.attention import AttentionSite
from bayesticket.errors import refuse, require_integer
from bayesticket.interventions import Intervention, Live, as_recipe, require_readable
from bayesticket.measures.base import Measure, Observation, OptimizerStep
from bayesticket.measures.bound import BoundMeasure
from bayesticket.measures.columns import Half, Measured
from bayesticket.model import (
    HookedTransformer,
    NamedHook,
    TokenRows,
    choose_forward,
    full_forward,
    held,
    keep_in,
    mounted,
    pattern_name,
    query_forward,
    require_firing,
    require_layer,
    require_weights,
    why_full_for,
)
from bayesticket.optim import CrossEntropy, mean_loss
from bayesticket.tasks import Examples
from bayesticket.threads import require_full_precision


class Observer:
    """Several measures on one model: the hooks that read for them, and their values after a forward pass.

    In training `half` is the half of the split that is observed: measures that are not recorded on it, or on a part of
    it, are left out. Elsewhere it is None, and every measure is taken on the whole batch; or "any", and those that
    training records on unseen examples are also taken on these, where the batch says which they are. `reads` are hook
    points to read besides those of the measures.
    """

    def __init__(
        self,
        model: HookedTransformer,
        measures: Iterable[Measure],
        batch: Examples,
        half: Literal["train", "test", "any"] | None = None,
        *,
        reads: Iterable[str] = (),
    ):
        require_readable(model, batch)
        self.model, self.n_positions, self.queries = model, batch.n_positions, batch.queries
        parts: list[Half | None] = [part for part in _PARTS[half] if part != "unseen" or batch.unseen is not None]
        names = list(reads)
        if names:
            require_firing(model, batch.tokens, names, "Observer")
        self.bound: dict[str, BoundMeasure] = {}
        """The measures, by the names of their curves."""
        for measure in measures:
            if not isinstance(measure, Measure):
                raise refuse("measures", measure, "Measure objects, such as KLToOracle()")
            recorded_on = {None, *measure.recorded_on}  # raises unless these are parts of the split
            for part in filter(recorded_on.__contains__, parts):
                bound = BoundMeasure.bind(measure, part, model, batch)
                if bound.name in self.bound:
                    raise refuse("measures", bound.name, "measures with different names")
                if new := [name for name in bound.hook_names if name not in names]:
                    require_firing(model, batch.tokens, new, type(measure).__name__)
                self.bound[bound.name] = bound
                names += new
        self.hook_names = list(dict.fromkeys(names))
        self._measures = [measure for bound in self.bound.values() for measure in bound.places.values()]
        wanted = [each for bound in self.bound.values() for each in bound.gradients_wanted()]
        self.differentiated = list(dict.fromkeys(name for query, name in wanted if query is None))
        """The hook points in whose activations the whole loss is differentiated."""
        self.differentiated_at: dict[int, list[str]] = {}
        """Those in whose activations the loss at one query is, where a task asks at several positions."""
        for query, name in dict.fromkeys(wanted):
            if query is not None:
                self.differentiated_at.setdefault(query, []).append(name)
        self.activations: dict[str, Tensor] = {}
        """What the hooks have read in the forward pass that is being observed, undetached."""
        self.hooks: list[NamedHook] = [(name, keep_in(self.activations)) for name in self.hook_names]

    @property
    def columns(self) -> list[str]:
        """The names of the curves as far as they are known before anything is measured."""
        return [name for bound in self.bound.values() for name in bound.columns]

    def reasons(self) -> list[str]:
        """Why the query-only forward cannot serve the measures, apart from the hook points they read."""
        of_measures = (measure.why_full(self.n_positions) for measure in self._measures)
        given = (why_full_for(self.queries, self.n_positions), *of_measures)
        return [reason for reason in given if reason is not None]

    @property
    def follows_steps(self) -> bool:
        """Whether any of the measures does."""
        return any(measure.follows_steps for measure in self._measures)

    def values(
        self,
        batch: Examples,
        logits: Tensor,
        loss: Tensor,
        gradients: Mapping[str, Tensor],
        *,
        edited: tuple[str, ...] = (),
        step: OptimizerStep | None = None,
        loss_of: Callable[[Tensor, Tensor], Float[Tensor, ""]] | None = None,
        gradients_at: Mapping[int, Mapping[str, Tensor]] | None = None,
    ) -> dict[str, Tensor]:
        """The measures' values on the last forward pass, by name; what was read is then forgotten.

        On test examples of unseen orbits alone, values are NaN where there are none.
        """
        with torch.no_grad():
            seen = Observation(
                self.model, batch, logits, loss, dict(self.activations), gradients, loss_of or CrossEntropy(), edited,
                step, gradients_at or {},
            )  # fmt: skip
            parts = {None: seen, "train": seen, "test": seen, "unseen": _unseen_part(seen)}
            values = {name: bound.value(parts[bound.part], seen) for name, bound in self.bound.items()}
        self.activations.clear()
        return values

    def numbers(self, values: Mapping[str, Tensor]) -> dict[str, float]:
        """Values as plain numbers, by the names of their columns."""
        numbers: dict[str, float] = {}
        for name, bound in self.bound.items():
            numbers |= bound.numbers(values[name])
        return numbers

    def gradients(self, loss: Tensor) -> dict[str, Tensor]:
        """The gradients that measures ask for, by a backward pass of their own; the graph is kept."""
        return self._gradients(loss, self.differentiated)

    def gradients_at(
        self, logits: Tensor, batch: Examples, loss_of: Callable[[Tensor, Tensor], Float[Tensor, ""]]
    ) -> dict[int, dict[str, Tensor]]:
        """The gradients of the loss at single queries, by a backward pass for each; the graph is kept."""
        found = {}
        for query, names in self.differentiated_at.items():
            assert batch.queries is not None
            at_query = loss_of(logits[:, batch.queries.index(query)], batch.at(query).targets)
            found[query] = self._gradients(at_query, names)
        return found

    def gradients_of_backward(self) -> dict[str, Tensor]:
        """The same gradients, filled in by the coming `loss.backward()` at no cost of their own."""
        gradients = self._zeros(self.differentiated)
        for name in gradients:
            if self.activations[name].requires_grad:
                self.activations[name].register_hook(partial(gradients.__setitem__, name))
        return gradients

    def _gradients(self, loss: Tensor, names: Iterable[str]) -> dict[str, Tensor]:
        gradients = self._zeros(names)
        inputs = {name: self.activations[name] for name in gradients if self.activations[name].requires_grad}
        if inputs:
            found = torch.autograd.grad(loss, list(inputs.values()), retain_graph=True, materialize_grads=True)
            gradients |= dict(zip(inputs, found, strict=True))
        return gradients

    def _zeros(self, names: Iterable[str]) -> dict[str, Tensor]:
        return {name: torch.zeros_like(self.activations[name]) for name in names}

    @property
    def needs_graph(self) -> bool:
        """Whether any measure asks for gradients."""
        return bool(self.differentiated or self.differentiated_at)


_PARTS: dict[str | None, tuple[Half | None, ...]] = {
    None: (None,),
    "any": (None, "unseen"),
    "train": ("train",),
    "test": ("test", "unseen"),
}
"""The parts of the split that are observed with each half; None is the whole batch."""


def _unseen_part(seen: Observation) -> Observation | None:
    """The test examples whose orbit training has not seen; None where there are none."""
    unseen = seen.batch.unseen
    if unseen is None or bool(unseen.all()):
        return seen
    return seen.select(unseen) if bool(unseen.any()) else None


@dataclass(frozen=True)
class Observed:
    """What one forward pass gave: see `observe`."""

    logits: Float[Tensor, "n *q outputs"]
    loss: Float[Tensor, ""]
    activations: Mapping[str, Tensor]
    """What was read, by hook point."""
    gradients: Mapping[str, Tensor]
    """The gradient of the loss in the activations that measures differentiate."""
    values: Mapping[str, Tensor]
    """The measures' values, by name."""


def observe(
    model: HookedTransformer,
    batch: Examples,
    observer: Observer,
    *,
    edits: Iterable[NamedHook] = (),
    forward: Literal["fast", "full"] = "full",
    rows: TokenRows | None = None,
    loss: Callable[[Tensor, Tensor], Float[Tensor, ""]] | None = None,
    step: OptimizerStep | None = None,
) -> Observed:
    """Mounts edits and the observer's hooks, runs the model on a batch, and takes the measures' values.

    Measures read activations after all edits. A graph is kept only where some measure needs gradients. `rows` are those
    of the query-only forward, found anew where none are given; `step` is the optimiser step before, in training.

    >>> from bayesticket.measures import Accuracy, Loss
    >>> from bayesticket.model import build_model
    >>> from bayesticket.tasks import ModularAddition
    >>> task = ModularAddition(p=7)
    >>> model, batch = build_model(task), task.split().test
    >>> list(observe(model, batch, Observer(model, [Loss(), Accuracy()], batch)).values)
    ['loss', 'accuracy']
    """
    edits, loss_of = list(edits), loss or CrossEntropy()
    with mounted(model, [*edits, *observer.hooks]), torch.set_grad_enabled(observer.needs_graph):
        logits = run_forward(forward, model, batch, rows)
        task = mean_loss(loss_of, logits, batch.targets)
        activations, gradients = dict(observer.activations), observer.gradients(task)
        edited, at = tuple(name for name, _ in edits), observer.gradients_at(logits, batch, loss_of)
        values = observer.values(
            batch, logits, task, gradients, edited=edited, step=step, loss_of=loss, gradients_at=at
        )
    return Observed(logits, task, activations, gradients, values)


def measure(
    model: HookedTransformer,
    batch: Examples,
    *measures: Measure,
    intervention: Intervention | None = None,
    epoch: int | None = None,
    forward: Literal["auto", "fast", "full"] = "auto",
) -> Measured:
    """Measures any HookedTransformer on a batch, under the edits of an intervention if one is given.

    Returns numbers by the names that curves have; every entry of a vector has its own. Where an edit's weight is a
    schedule, `epoch` says at which epoch.

    >>> from bayesticket.measures import AttentionEntropy, InformativeMassByPosition
    >>> from bayesticket.model import build_model
    >>> from bayesticket.tasks import ModularAddition
    >>> task = ModularAddition(p=7)
    >>> seen = measure(build_model(task), task.split().test, AttentionEntropy(), InformativeMassByPosition())
    >>> list(seen)
    ['attention_entropy', 'informative_mass_by_position[0]', 'informative_mass_by_position[1]']
    """
    require_full_precision("measure")
    require_readable(model, batch)
    with held(model):
        require_weights("model", model)
        observer, live = Observer(model, measures, batch), _live(model, batch, intervention, epoch)
        names, reasons = [*live.hook_names, *observer.hook_names], [*live.reasons(), *observer.reasons()]
        chosen = choose_forward(forward, model, names, reasons)
        return Measured(observer.numbers(observe(model, batch, observer, edits=live.edits, forward=chosen).values))


def attention_of(
    model: HookedTransformer,
    batch: Examples,
    *,
    layer: int = 0,
    query: int = -1,
    intervention: Intervention | None = None,
    epoch: int | None = None,
) -> Float[Tensor, "n heads T"]:
    """The attention pattern of every example and head at one query, under the edits of an intervention.

    Of a task that asks at several positions, `query` has to be one of them, unless a single answer can be known.

    >>> from bayesticket.model import build_model
    >>> from bayesticket.tasks import ModularAddition
    >>> task = ModularAddition(p=7)
    >>> attention_of(build_model(task), task.split().test).shape
    torch.Size([35, 1, 5])
    """
    require_readable(model, batch)
    require_integer("layer", layer, least=0)
    site, name = AttentionSite(layer=layer, query=query), pattern_name(layer)
    require_layer(model, layer, "layer")
    site.require_place(model, batch.n_positions)
    if batch.queries is not None and query == -1:
        site = AttentionSite(layer=layer, query=batch.position_of(query))
    return site.rows(activations_of(model, batch, name, intervention=intervention, epoch=epoch)[name])


def activations_of(
    model: HookedTransformer,
    batch: Examples,
    *names: str,
    intervention: Intervention | None = None,
    epoch: int | None = None,
) -> Mapping[str, Tensor]:
    """What hook points hold when the model runs on a batch, under the edits of an intervention."""
    require_readable(model, batch)
    with held(model):
        require_weights("model", model)
        observer, live = Observer(model, (), batch, reads=names), _live(model, batch, intervention, epoch)
        return observe(model, batch, observer, edits=live.edits).activations


def _live(model: HookedTransformer, batch: Examples, intervention: Intervention | None, epoch: int | None) -> Live:
    live = Live(as_recipe(intervention), model, batch)
    if epoch is not None:
        live.epoch = epoch
    return live


def run_forward(
    forward: Literal["fast", "full"],
    model: HookedTransformer,
    batch: Examples,
    rows: TokenRows | None = None,
) -> Float[Tensor, "n *q d_vocab_out"]:
    """The logits at the last position, or at the batch's queries, by the chosen forward."""
    if forward == "full":
        return full_forward(model, batch.tokens, batch.position_ids, batch.queries)
    logits = query_forward(model, rows or TokenRows(batch.tokens, model.cfg.n_heads, batch.position_ids))
    return logits if batch.queries is None else logits[:, None]
