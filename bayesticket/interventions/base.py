"""The algebra of interventions.

An intervention is data: a frozen dataclass with ports, each of which does nothing by default.

* `edits` change activations, as hooks of TransformerLens;
* `penalty` adds a term to the loss, reading activations, parameters, or a teacher;
* `gradients` changes the gradient of a parameter, before it is clipped and used;
* `project` changes the parameters after every optimiser step, and once before the first.

`a + b` composes from left to right and never reorders; the empty `Recipe()` is its unit. To add an intervention,
derive a frozen dataclass from `Intervention` and fill the ports it needs; nothing is registered by hand.
"""

import abc
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from bayesticket.attention import AttentionSite, Target, require_visible, resolve
from bayesticket.errors import BayesticketError, refuse
from bayesticket.interventions.schedule import Schedule, Strength
from bayesticket.model import HookedTransformer, NamedHook, visible_from
from bayesticket.seeding import seeded_generator
from bayesticket.specs import Spec, spec
from bayesticket.tasks import AbstractTask, Examples

if TYPE_CHECKING:
    from bayesticket.interventions.live import Live

GradientFunction = Callable[[Tensor], Tensor]


class Context:
    """What a recipe acts on: a batch, the model where there is one, and how far training has come.

    Targets are worked out once for the whole batch; `select` then narrows the context to some of its examples.
    """

    def __init__(self, batch: Examples, model: HookedTransformer | None = None, *, seed: int | None = None):
        self.batch, self.model, self.seed = batch, model, seed
        self.parameters: dict[str, Tensor] = dict(model.named_parameters()) if model is not None else {}
        self.epoch: int | None = None
        self.step = 0
        self.draws = 0
        self._index: Tensor | None = None
        self._targets: dict[tuple[object, ...], tuple[Target, Tensor]] = {}

    def select(self, index: Tensor | None) -> None:
        """Narrows the context to some examples of the batch, or widens it again to all of them."""
        self._index = index

    def replace(self, batch: Examples) -> None:
        """Puts another batch of the same examples in place of the present one."""
        self.batch = batch
        self._targets.clear()

    @property
    def n_examples(self) -> int:
        """How many examples the model is to run on."""
        return len(self.batch) if self._index is None else len(self._index)

    def target(self, target: Target, layer: int, site: AttentionSite) -> Float[Tensor, "n heads T"]:
        """A target's attention weights on the selected examples, for one layer of a site."""
        key = (id(target), layer, site.query, site.head)
        if key not in self._targets:
            # The target is kept beside its weights, so that its id stays its own.
            self._targets[key] = (target, resolve(target, self.batch, layer, query=site.query, heads=site.heads))
        weights = self._targets[key][1]
        return weights if self._index is None or len(weights) == 1 else weights[self._index]

    def value(self, strength: Strength, field: str) -> float:
        """A strength at the current epoch."""
        if not isinstance(strength, Schedule):
            return strength
        if self.epoch is None:
            raise BayesticketError(
                f"{field}: got a schedule, but no epoch; accepted: `live = recipe.attach(…)` with `live.epoch` set in "
                f"every epoch, or a plain number"
            )
        return strength.at(self.epoch)

    def generator(self, purpose: str) -> torch.Generator:
        """A new random stream, a function of the seed, the step, and how many the step's penalty has asked for."""
        self.draws += 1
        if self.seed is None:  # in a loop of the user's own, torch's generator decides, as it does for all else there
            self.seed = int(torch.randint(2**62, ()))
        return seeded_generator(self.seed, f"{purpose}, step {self.step}, draw {self.draws}", self.batch.tokens.device)


class Intervention(Spec, abc.ABC):
    """One thing done to a model or its training; see the module for the ports."""

    replaces: Literal["nothing", "row", "pattern"] = "nothing"
    """Whether the edits replace an attention pattern, at their query or at every one; two cannot replace the same."""

    def edits(self, context: Context) -> list[NamedHook]:
        """Hooks that change activations."""
        return []

    def reads(self) -> tuple[str, ...]:
        """Hook points whose activations the penalty reads, after all edits that stand to the left of it."""
        return ()

    def penalty(self, context: Context, activations: Mapping[str, Tensor]) -> Float[Tensor, ""] | None:
        """A term to add to the loss."""
        return None

    def gradients(self, context: Context) -> Mapping[str, GradientFunction]:
        """Functions to apply to the gradients of parameters, by name."""
        return {}

    def project(self, context: Context) -> None:
        """Changes `context.parameters` in place."""

    def check(self, context: Context) -> None:
        """Refuses a model or a batch that the intervention cannot act on; called before anything is computed."""

    def why_full(self, n_positions: int) -> str | None:
        """Why the query-only forward cannot serve it, beside the hook points it uses; None where it can."""
        return None

    @property
    def parts(self) -> tuple["Intervention", ...]:
        """The interventions this one consists of."""
        return (self,)

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
        require_one_replacement(self.parts, context.batch.n_positions)
        return [hook for part in self.parts for hook in part.edits(context)]

    def attach(self, model: HookedTransformer, batch: Examples, *, seed: int | None = None) -> "Live":
        """Puts the intervention to work in a training loop of one's own; see `Live`.

        `seed` decides the noise of interventions that draw any; without one, torch's own generator does.
        """
        from bayesticket.interventions.live import Live

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

    def check(self, context: Context) -> None:
        """Refuses layers, heads and a query that the model lacks."""
        assert context.model is not None
        self.require_place(context.model, context.batch.n_positions)


def check_target(intervention: AttentionIntervention, target: Target, context: Context) -> None:
    """Refuses a target that does not fit the batch, or that causal attention cannot reach."""
    assert context.model is not None
    field = f"{type(intervention).__name__}.target"
    n_heads = context.model.cfg.n_heads if intervention.heads is None else len(intervention.heads)
    for layer in intervention.layers:
        weights = context.target(target, layer, intervention)
        if weights.shape[1] not in (1, n_heads):
            raise refuse(field, f"{weights.shape[1]} heads", f"1 or {n_heads} heads")
        require_visible(
            weights, visible_from(context.model, layer, context.batch.n_positions, intervention.query), field
        )


def require_one_replacement(parts: tuple[Intervention, ...], n_positions: int | None = None) -> None:
    """Refuses parts that replace the same attention; only with the sequences' length are 4 and −1 known to be one."""
    replaced: list[tuple[str, int, int | None, int | None]] = []
    for part in parts:
        if part.replaces == "nothing" or not isinstance(part, AttentionIntervention):
            continue
        query = None if part.replaces == "pattern" else part.query if n_positions is None else part.query % n_positions
        heads = [None] if part.heads is None else part.heads
        places = [(type(part).__name__, layer, query, head) for layer in part.layers for head in heads]
        for name, layer, query, head in places:
            for other, *place in replaced:
                if all(None in pair or len(set(pair)) == 1 for pair in zip(place, (layer, query, head), strict=True)):
                    raise BayesticketError(
                        f"intervention: got {other} and {name}, which both replace the pattern of layer {layer}; "
                        f"accepted: one of them for each head"
                    )
        replaced += places
