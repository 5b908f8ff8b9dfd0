"""A recipe at work: bound to one model and one batch, in any training loop."""

import itertools
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from bayesticket.errors import BayesticketError, refuse, refuse_case, require_integer
from bayesticket.interventions.context import Context
from bayesticket.interventions.ports import (
    Activations,
    edits_of,
    initial_state,
    names_read_by,
    new_gradients,
    require_ports,
    require_term,
)
from bayesticket.interventions.replacement import require_one_replacement
from bayesticket.interventions.watch import Watch
from bayesticket.model import (
    HookedTransformer,
    HookPoint,
    NamedHook,
    attached,
    draws_positions,
    require_firing,
    require_places,
)
from bayesticket.specs import snake_case
from bayesticket.tasks import Examples

if TYPE_CHECKING:
    from bayesticket.interventions.base import Intervention


@dataclass(eq=False)
class _Attached:
    """A part of a recipe at work: its name, its context, and what it has read in the last forward pass."""

    name: str
    part: "Intervention"
    context: Context
    read: dict[bool, dict[str, Tensor]] = field(default_factory=lambda: {True: {}, False: {}})
    """Activations, undetached. What is read without gradients does not replace what was read with them."""

    @property
    def read_now(self) -> dict[str, Tensor]:
        """What was read in the mode that torch is in, with gradients or without."""
        return self.read[torch.is_grad_enabled()]

    def keep(self, tensor: Tensor, hook: HookPoint) -> None:
        """A hook function that keeps the activation it sees."""
        self.read_now[str(hook.name)] = tensor


class Live:
    """A recipe bound to a model and a batch; a context manager that mounts its hooks and takes them off again.

    Inside the context the model runs with the recipe's edits. Add `penalty()` to the loss after a forward pass; call
    `gradients()` after `backward()`, which only recipes that change gradients need; and call `project()` after an
    optimiser step. Entering for the first time projects the weights once. Recipes with schedules need `live.epoch` set
    in every epoch; with minibatches, `live.select(index)` says on which examples the model runs next.

    >>> import torch.nn.functional as F
    >>> from bayesticket.interventions import KLPrior, NormMatch
    >>> from bayesticket.model import build_model
    >>> from bayesticket.tasks import ModularAddition
    >>> task = ModularAddition(p=7)
    >>> model, train = build_model(task, d_model=8), task.split().train
    >>> optimiser = torch.optim.AdamW(model.parameters())
    >>> recipe = KLPrior(strength=1.0) + NormMatch(radius=3.0)
    >>> with recipe.attach(model, train) as live:
    ...     loss = F.cross_entropy(model(train.tokens)[:, -1], train.targets) + live.penalty()
    ...     loss.backward(); live.gradients(); optimiser.step(); optimiser.zero_grad(); live.project()
    """

    def __init__(
        self,
        recipe: "Intervention",
        model: HookedTransformer,
        batch: Examples,
        *,
        seed: int | None = None,
        state_of: "Live | None" = None,
    ):
        if not hasattr(recipe, "parts"):
            raise refuse("recipe", recipe, "an Intervention, or several joined by +")
        require_readable(model, batch)
        if seed is not None:
            require_integer("seed", seed, least=0)
        self.parts = recipe.parts
        require_ports(self.parts)
        require_one_replacement(self.parts, batch)
        self.model = model
        self.context = Context(batch, model, seed=seed)
        self.changes_gradients = any(part.fills("gradients") for part in self.parts)
        named = zip(term_names(self.parts), self.parts, strict=True)
        self._attached = [_Attached(name, part, self.context.with_own_state()) for name, part in named]
        self._stack: ExitStack | None = None
        self._projected = self._gradients_changed = False
        for each in self._attached:
            each.part.check(each.context)
            each.context.state = (
                initial_state(each.part, each.context) if state_of is None else state_of._state_of(each.part)
            )
        self.edits: list[NamedHook] = []
        self.hooks: list[NamedHook] = []
        for each in self._attached:
            edits, reads = edits_of(each.part, each.context), names_read_by(each.part)
            self.edits += edits
            # A part reads what the parts to its left have made of an activation.
            self.hooks += [*edits, *((name, each.keep) for name in reads)]
            if used := [*(name for name, _ in edits), *reads]:
                require_firing(model, batch.tokens, used, type(each.part).__name__)
        self._watch = Watch(self.parts, model)

    @property
    def contexts(self) -> list[Context]:
        """The context of each part, from left to right."""
        return [each.context for each in self._attached]

    @property
    def hook_names(self) -> list[str]:
        """The hook points that the recipe uses."""
        return [name for name, _ in self.hooks]

    def reasons(self) -> list[str]:
        """Why the query-only forward cannot serve the recipe, beside the hook points it uses."""
        given = (part.why_full(self.context.batch.n_positions) for part in self.parts)
        return [reason for reason in given if reason is not None]

    def select(self, index: Tensor | None) -> None:
        """Says that the model runs on these examples of the batch next; None is all of them."""
        self.context.select(index)

    @property
    def epoch(self) -> int | None:
        """The epoch that schedules go by."""
        return self.context.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        require_integer("epoch", epoch, least=0)
        self.context.epoch = epoch

    def __enter__(self) -> "Live":
        if self._stack is not None:
            raise BayesticketError("attach: this recipe is already at work; leave its context first")
        with ExitStack() as stack:
            stack.enter_context(attached(self.model, self.hooks))
            if not self._projected:
                self._project()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stack, self._stack = self._stack, None
        for each in self._attached:
            each.read = {True: {}, False: {}}  # so that no graph outlives the context
        if stack is not None:
            stack.close()

    def penalties(self) -> dict[str, Float[Tensor, ""]]:
        """The terms to add to the loss, by name, from the last forward pass."""
        terms = {}
        self.context.begin_penalties()
        for each in self._attached:
            read = {hook: self._activation(hook, each) for hook in each.part.reads()}
            term = require_term(each.part, each.part.penalty(each.context, Activations(each.part, read)))
            if term is not None:
                terms[each.name] = term
        return terms

    def penalty(self) -> Float[Tensor, ""]:
        """The sum of the terms; zero for a recipe without any."""
        terms = self.penalties()
        return torch.stack(list(terms.values())).sum() if terms else next(self.model.parameters()).new_zeros(())

    def gradients(self) -> None:
        """Lets the recipe change the gradients; call it after `backward()`, before clipping and the optimiser step."""
        self._gradients_changed = True
        parameters = self.context.parameters
        with torch.no_grad():
            for each in self._attached:
                if each.part.fills("gradients"):
                    before = {name: p.grad for name, p in parameters.items() if p.grad is not None}
                    changed = new_gradients(each.part, each.context, before)
                    kept = {tensor.untyped_storage().data_ptr() for tensor in each.context.state.values()}
                    for name, gradient in changed.items():
                        # What is state must not be clipped in place, as gradients are.
                        is_state = gradient.untyped_storage().data_ptr() in kept
                        parameters[name].grad = gradient.clone() if is_state else gradient

    def project(self) -> None:
        """Applies the recipe's projections; call it after every optimiser step."""
        if self.changes_gradients and not self._gradients_changed:
            part = next(part for part in self.parts if part.fills("gradients"))
            raise BayesticketError(
                f"project: {type(part).__name__} changes gradients, and live.gradients() was not called in this step; "
                "accepted: live.gradients() between backward() and the optimiser step"
            )
        self._gradients_changed = False
        self._project()
        self.context.step += 1
        if self.context.step & (self.context.step - 1) == 0:  # seldom, and soon: after 1, 2, 4, 8, … steps
            self.require_no_hidden_state()

    def _project(self) -> None:
        self._projected = True
        projecting = [each for each in self._attached if each.part.fills("project")]
        # A second pass where there are several: a later one may have undone what an earlier one had set up.
        for each in projecting * (2 if len(projecting) > 1 else 1):
            each.part.project(each.context)

    @property
    def has_own_parts(self) -> bool:
        """Whether the recipe has interventions of classes that are not this library's."""
        return bool(self._watch)

    def require_no_hidden_state(self) -> None:
        """Raises where an intervention of the user's has changed itself, instead of the state that `init` gives."""
        self._watch.require_unchanged()

    def state(self) -> dict[str, Tensor]:
        """Copies the state of all parts, as tensors named `<part>/<name>`."""
        return {
            f"{each.name}/{name}": tensor.detach().clone()
            for each in self._attached
            for name, tensor in each.context.state.items()
        }

    def restore_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Puts back what `state` copied."""
        if difference := sorted(set(self.state()) ^ set(tensors)):
            raise refuse("state", difference, "exactly the tensors of the recipe's state")
        for each in self._attached:
            state = each.context.state
            for name, tensor in state.items():
                stored = tensors[f"{each.name}/{name}"]
                if (stored.shape, stored.dtype) == (tensor.shape, tensor.dtype):
                    tensor.copy_(stored)  # in place: a hook may hold the tensor
                else:
                    state[name] = stored.to(tensor.device, copy=True)

    def _state_of(self, part: "Intervention") -> dict[str, Tensor]:
        """The state of one of the parts, for another recipe at work that shares it."""
        return next(each.context.state for each in self._attached if each.part is part)

    def _activation(self, hook: str, reading: _Attached) -> Tensor:
        """What a part has read at a hook point; raises unless the model has run on the selected examples."""
        if (activation := reading.read_now.get(hook)) is None:
            raise BayesticketError(
                f"penalty: {type(reading.part).__name__} reads {hook}, and the model has not run since attach; "
                f"accepted: a forward pass inside the context, before penalty()"
            )
        if len(activation) != self.context.n_examples:
            raise BayesticketError(
                f"penalty: the model ran on {len(activation)} sequences; accepted: the {self.context.n_examples} of "
                f"the batch that was attached"
            )
        return activation


def require_readable(model: object, batch: object) -> None:
    """Raises unless given a HookedTransformer, and a batch that it can read."""
    if not isinstance(model, HookedTransformer):
        raise refuse("model", model, "a HookedTransformer")
    if not isinstance(batch, Examples):
        raise refuse("batch", batch, "half of a split: split.train or split.test")
    if model.cfg.n_ctx < batch.n_positions:
        raise refuse_case("batch", f"{batch.n_positions} positions", f"at most the model's {model.cfg.n_ctx}")
    if (largest := int(batch.tokens.max())) >= model.cfg.d_vocab:
        raise refuse_case("batch", f"token {largest}", f"tokens of the model, 0 to {model.cfg.d_vocab - 1}")
    require_places(model, batch.position_ids)
    if not batch.asks_last_alone:
        _require_causal(model, batch)


def _require_causal(model: HookedTransformer, batch: Examples) -> None:
    """Raises unless a query sees what it would see at the end of a shorter sequence."""
    reason = f"as the task asks at the positions {batch.queries}"
    if model.cfg.attention_dir != "causal":
        raise refuse_case("model", f"attention_dir={model.cfg.attention_dir!r}", f"'causal', {reason}")
    if draws_positions(model):
        raise refuse_case(
            "model", "positions='drawn'", f"'learned', 'none' or 'rotary', {reason}, and draws end at one"
        )


def term_names(parts: Iterable["Intervention"]) -> list[str]:
    """Names for the parts of a recipe, numbered where a kind occurs twice.

    >>> from bayesticket.interventions import KLPrior, QKPenalty
    >>> term_names([KLPrior(), QKPenalty(), KLPrior("uniform")])
    ['kl_prior', 'qk_penalty', 'kl_prior_2']
    """
    names: list[str] = []
    for part in parts:
        kind = snake_case(type(part).__name__)
        candidates = itertools.chain([kind], (f"{kind}_{number}" for number in itertools.count(2)))
        names.append(next(name for name in candidates if name not in names))
    return names
