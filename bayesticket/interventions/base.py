"""The algebra of interventions.

An intervention is data: a specification with ports, each of which does nothing by default.

* `init` gives tensors of state, which all other ports find in `context.state` and may replace; state that an
  intervention keeps on itself is in no checkpoint, and raises;
* `edits` change activations, as hooks of TransformerLens;
* `penalty` adds a term to the loss, reading activations, parameters, or a teacher;
* `gradients` changes the gradients of all parameters, before they are clipped and used;
* `project` changes the parameters after every optimiser step, and once before the first.

`a + b` composes from left to right and never reorders; the empty `Recipe()` is its unit. To add an intervention, derive
a class from `Intervention`, put `@spec` above it, and fill the ports it needs; nothing is registered by hand.
"""

import abc
import itertools
from collections.abc import Mapping
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from bayesticket.attention import AttentionSite, Target, require_visible
from bayesticket.errors import refuse, refuse_case
from bayesticket.interventions.context import Context
from bayesticket.interventions.live import Live
from bayesticket.interventions.ports import Port, edits_of, initial_state
from bayesticket.interventions.replacement import require_one_replacement
from bayesticket.model import HookedTransformer, NamedHook, visible_from
from bayesticket.notices import notice
from bayesticket.specs import Spec, spec
from bayesticket.tasks import AbstractTask, Examples


class Intervention(Spec, abc.ABC):
    """One thing done to a model or its training; see the module for the ports."""

    replaces: Literal["nothing", "row", "pattern"] = "nothing"
    """Whether the edits replace an attention pattern, at their query or at every one; two cannot replace the same."""

    def init(self, context: Context) -> Mapping[str, Tensor]:
        """Tensors of state, by name; `context.state` holds them from then on, and checkpoints keep them to the bit."""
        return {}

    def edits(self, context: Context) -> list[NamedHook]:
        """Hooks that change activations."""
        return []

    def reads(self) -> tuple[str, ...]:
        """Hook points whose activations the penalty reads, after all edits that stand to the left of it."""
        return ()

    def penalty(self, context: Context, activations: Mapping[str, Tensor]) -> Float[Tensor, ""] | None:
        """A term to add to the loss."""
        return None

    def gradients(self, context: Context, gradients: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """New gradients by parameter name, from those of all parameters; what is left out stays as it is."""
        return {}

    def project(self, context: Context) -> None:
        """Changes `context.parameters` in place."""

    def check(self, context: Context) -> None:
        """Raises where the intervention cannot act on the model or the batch; called before anything is computed."""

    def why_full(self, n_positions: int) -> str | None:
        """Why the query-only forward cannot serve it, beside the hook points it uses; None where it can."""
        return None

    @property
    def parts(self) -> tuple["Intervention", ...]:
        """The interventions this one consists of."""
        return (self,)

    def fills(self, port: Port) -> bool:
        """Whether the intervention does anything at a port."""
        return getattr(type(self), port) is not getattr(Intervention, port)

    def __add__(self, other: "Intervention | None") -> "Recipe":
        return Recipe((*self.parts, *as_recipe(other).parts))

    def __radd__(self, other: object) -> "Recipe":
        # sum([...]) starts from 0
        return Recipe((*as_recipe(None if other == 0 else other).parts, *self.parts))

    def hooks(self, batch: Examples | AbstractTask) -> list[NamedHook]:
        """The edits as hooks for `HookedTransformer.hooks(fwd_hooks=…)`.

        `batch` is the half of a split that the model will run on; a task will do where its positions are fixed.
        """
        context = Context(as_examples(batch))
        require_one_replacement(self.parts, context.batch)
        hooks = []
        for part in self.parts:
            own = context.with_own_state()
            own.state = initial_state(part, own)
            hooks += edits_of(part, own)
        return hooks

    def attach(self, model: HookedTransformer, batch: Examples, *, seed: int | None = None) -> "Live":
        """Puts the intervention to work in a training loop of one's own; see `Live`.

        `seed` decides the noise of interventions that draw any; without one, torch's own generator does.
        """
        return Live(self, model, batch, seed=seed)


@spec
class Recipe(Intervention):
    """Interventions composed from left to right; `Recipe()` is the empty one.

    >>> from bayesticket.interventions import KLPrior, NormMatch
    >>> KLPrior(strength=0.5) + NormMatch(radius=30.0)
    KLPrior(strength=0.5) + NormMatch(radius=30.0)
    """

    interventions: tuple[Intervention, ...] = ()

    def __post_init__(self):
        if not isinstance(self.interventions, tuple | list):
            raise refuse("interventions", self.interventions, "a tuple of interventions; or join them by +")
        for part in self.interventions:
            if not isinstance(part, Intervention):
                raise refuse("intervention", part, "an Intervention, or several joined by +")
        flat = tuple(part for whole in self.interventions for part in whole.parts)
        object.__setattr__(self, "interventions", flat)
        require_one_replacement(flat)

    @property
    def parts(self) -> tuple[Intervention, ...]:
        """The interventions, left to right."""
        return self.interventions

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.interventions)) or "Recipe()"


def as_recipe(intervention: object) -> Recipe:
    """A recipe from an intervention, or the empty one from None."""
    if intervention is None:
        return Recipe()
    if not isinstance(intervention, Intervention):
        raise refuse("intervention", intervention, "an Intervention, several joined by +, or None")
    return Recipe(intervention.parts)


def as_examples(batch: object) -> Examples:
    """The examples that hooks are made for."""
    if isinstance(batch, Examples):
        return batch
    if isinstance(batch, AbstractTask):
        examples = batch.examples(0)
        if not (examples.informative == examples.informative[:1]).all():
            raise refuse("batch", batch, "half of a split, since this task's informative positions differ by sequence")
        return examples
    raise refuse("batch", batch, "half of a split (split.train, split.test), or a task with fixed positions")


# Interventions on attention ---------------------------------------------------------------------------------------


@spec(kw_only=True)
class AttentionIntervention(AttentionSite, Intervention):
    """Base of the interventions on attention."""

    layer: int | tuple[int, ...] = 0
    """Layer or layers: by default the first alone, also in a deeper model, where a notice says so."""
    head: int | tuple[int, ...] | None = None
    """Head or heads; None for all."""
    query: int = -1
    """Position of the query: by default the last, where the tasks read the answer; of a task that asks at several
    positions, by default all of those whose answers can be known."""

    def __post_init__(self):
        super().__post_init__()
        several = (("layer", "one or several layers, such as (0, 1)"), ("head", "heads, or None for all"))
        for name, accepted in (*several, ("query", "a position, or -1 for where answers are read")):
            if getattr(self, name) == "each":
                raise refuse(f"{type(self).__name__}.{name}", "each", f"{accepted}; only measures have 'each'")

    def check(self, context: Context) -> None:
        """Raises unless the model has the layers, the heads and the query."""
        assert context.model is not None
        self.require_place(context.model, context.batch.n_positions)
        notice_of_first_layer(self, self.layer, context.model)


def notice_of_first_layer(intervention: Intervention, layer: object, model: HookedTransformer) -> None:
    """Says once that an intervention acts on the first layer of a deeper model alone, as it does by default."""
    if layer == 0 and (n := model.cfg.n_layers) > 1:
        kind, every = type(intervention).__name__, tuple(range(n))
        notice(f"{kind} acts on layer 0 alone, of {n} layers; layer={every} would be all of them")


def check_target(intervention: AttentionIntervention, target: Target, context: Context) -> None:
    """Raises unless a target fits the batch, and causal attention can reach it."""
    assert context.model is not None
    field = f"{type(intervention).__name__}.target"
    n_heads = context.model.cfg.n_heads if intervention.heads is None else len(intervention.heads)
    for layer, site in itertools.product(intervention.layers, intervention.at_queries(context.batch)):
        weights = context.target(target, layer, site)
        if weights.shape[1] not in (1, n_heads):
            raise refuse_case(field, f"{weights.shape[1]} heads", f"1 or {n_heads} heads")
        require_visible(weights, visible_from(context.model, layer, context.batch.n_positions, site.position), field)
