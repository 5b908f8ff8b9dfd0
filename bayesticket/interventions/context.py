"""What an intervention acts on."""

import copy
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from bayesticket.attention import AttentionSite, Target, apart_from, resolve
from bayesticket.errors import BayesticketError
from bayesticket.model import HookedTransformer
from bayesticket.schedules import Schedule, Strength, value_at
from bayesticket.seeding import seeded_generator
from bayesticket.tasks import Examples


@dataclass
class _Moment:
    """How far training has come: the same for all parts of a recipe."""

    batch: Examples
    seed: int | None
    epoch: int | None = None
    step: int = 0
    draws: int = 0
    index: Tensor | None = None


class Context:
    """What an intervention acts on: a batch, the model where there is one, its state, and how far training has come.

    Targets are computed once for the whole batch; `select` then narrows the context to some of its examples. `state`
    holds the tensors of the intervention's `init`, which its ports may replace.
    """

    def __init__(self, batch: Examples, model: HookedTransformer | None = None, *, seed: int | None = None):
        self.model = model
        self.parameters: dict[str, Tensor] = dict(model.named_parameters()) if model is not None else {}
        self.state: dict[str, Tensor] = {}
        self._now = _Moment(batch, seed)
        self._targets: dict[tuple[object, ...], tuple[Target, Tensor]] = {}
        self._own_teachers: dict[int, tuple[Target, Target]] = {}

    def with_own_state(self) -> "Context":
        """The same context for one part of a recipe, with a state of its own."""
        own = copy.copy(self)
        own.state = {}
        return own

    @property
    def batch(self) -> Examples:
        """The examples."""
        return self._now.batch

    @property
    def epoch(self) -> int | None:
        """The epoch that schedules go by; None until it is set."""
        return self._now.epoch

    @epoch.setter
    def epoch(self, epoch: int | None) -> None:
        self._now.epoch = epoch

    @property
    def step(self) -> int:
        """How many optimiser steps have been taken."""
        return self._now.step

    @step.setter
    def step(self, step: int) -> None:
        self._now.step = step

    def begin_penalties(self) -> None:
        """Says that the penalties of a step are computed next, which decides what `generator` draws."""
        self._now.draws = 0

    def select(self, index: Tensor | None) -> None:
        """Narrows the context to some examples of the batch, or widens it again to all of them."""
        self._now.index = index

    def replace(self, batch: Examples) -> None:
        """Puts another batch of the same examples in place of the present one."""
        if batch.tokens is not self.batch.tokens:  # which targets are made of, and not of positions alone
            self._targets.clear()
        self._now.batch = batch

    @property
    def selected(self) -> Tensor | slice:
        """The selected examples, as an index of the batch."""
        return slice(None) if self._now.index is None else self._now.index

    @property
    def n_examples(self) -> int:
        """How many examples the model is to run on."""
        return len(self.batch) if self._now.index is None else len(self._now.index)

    def target(self, target: Target, layer: int, site: AttentionSite) -> Float[Tensor, "n heads T"]:
        """A target's attention weights on the selected examples, for one layer of a site."""
        key = (id(target), layer, site.position, site.head)
        if key not in self._targets:
            found = resolve(self._apart(target), self.batch, layer, query=site.position, heads=site.heads)
            self._targets[key] = (target, found)  # the target beside its weights, so that its id stays its own
        weights = self._targets[key][1]
        return weights if len(weights) == 1 else weights[self.selected]

    def _apart(self, target: Target) -> Target:
        """The target, with a copy of a teacher that is the model itself: as it was when it was first asked for."""
        if self.model is None:
            return target
        if id(target) not in self._own_teachers:
            self._own_teachers[id(target)] = (target, apart_from(self.model, target))
        return self._own_teachers[id(target)][1]

    def value(self, strength: Strength, field: str) -> float:
        """A strength at the current epoch."""
        if not isinstance(strength, Schedule):
            return strength
        if self.epoch is None:
            raise BayesticketError(
                f"{field}: got a schedule, but no epoch; accepted: `live = recipe.attach(…)` with `live.epoch` set in "
                f"every epoch, or a plain number"
            )
        return value_at(strength, self.epoch)

    def generator(self, purpose: str) -> torch.Generator:
        """A new random stream, a function of the seed, the step, and how many streams the step has asked for before."""
        now = self._now
        now.draws += 1
        if now.seed is None:  # in a loop of the user's own, torch's generator decides, as it does for all else there
            now.seed = int(torch.randint(2**62, ()))
        return seeded_generator(now.seed, f"{purpose}, step {now.step}, draw {now.draws}", self.batch.tokens.device)
