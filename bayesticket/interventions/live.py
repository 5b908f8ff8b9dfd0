"""A recipe at work: bound to one model and one batch, in any training loop."""

from collections.abc import Iterable
from contextlib import ExitStack
from types import TracebackType

import torch
from jaxtyping import Float
from torch import Tensor

from bayesticket.errors import BayesticketError, refuse, require_integer
from bayesticket.interventions.base import Context, Intervention, as_recipe, require_one_replacement
from bayesticket.model import HookedTransformer, HookPoint, NamedHook, mounted, require_firing
from bayesticket.specs import snake_case
from bayesticket.tasks import Examples, require_informative_rows, require_seed


class Live:
    """A recipe bound to a model and a batch; a context manager that mounts its hooks and takes them off again.

    Inside the context the model runs with the recipe's edits. `penalty()` is what to add to the loss after a forward
    pass, `project()` what to call after an optimiser step. Entering for the first time projects the weights once.
    Recipes with schedules need `live.epoch` set in every epoch; with minibatches, `live.select(index)` says on which
    examples of the batch the model runs next.

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
    ...     loss.backward(); optimiser.step(); optimiser.zero_grad(); live.project()
    """

    def __init__(self, recipe: Intervention, model: HookedTransformer, batch: Examples, *, seed: int | None = None):
        require_readable(model, batch)
        if seed is not None:
            require_seed(seed)
        self.parts = as_recipe(recipe).parts
        require_one_replacement(self.parts, batch.n_positions)
        self.model = model
        self.context = Context(batch, model, seed=seed)
        self._names = term_names(self.parts)
        # What is read with gradients on is kept apart, so that a look without them in between takes nothing away.
        self._read: dict[bool, list[dict[str, Tensor]]] = {mode: [{} for _ in self.parts] for mode in (True, False)}
        self._stack: ExitStack | None = None
        self._projected = False
        for part in self.parts:
            part.check(self.context)
        self.edits: list[NamedHook] = []
        self.hooks: list[NamedHook] = []
        for place, part in enumerate(self.parts):
            edits = part.edits(self.context)
            self.edits += edits
            # A part reads what the parts to its left have made of an activation.
            self.hooks += [*edits, *((name, self._reader(place)) for name in part.reads())]
            if names := [*(name for name, _ in edits), *part.reads()]:
                require_firing(model, batch.tokens, names, type(part).__name__)

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

    def _reader(self, place: int):
        def read(tensor: Tensor, hook: HookPoint) -> None:
            self._read[torch.is_grad_enabled()][place][str(hook.name)] = tensor

        return read

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
            stack.enter_context(mounted(self.model, self.hooks))
            for part in self.parts:
                for name, function in part.gradients(self.context).items():
                    if (parameter := self.context.parameters[name]).requires_grad:
                        stack.callback(parameter.register_hook(function).remove)
            if not self._projected:
                self._project()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stack, self._stack = self._stack, None
        for read in (*self._read[True], *self._read[False]):
            read.clear()  # so that no graph outlives the context
        if stack is not None:
            stack.close()

    def penalties(self) -> dict[str, Float[Tensor, ""]]:
        """The terms to add to the loss, by name, from the last forward pass."""
        terms = {}
        self.context.draws = 0
        for name, part, read in zip(self._names, self.parts, self._read[torch.is_grad_enabled()], strict=True):
            ordered = {hook: self._activation(hook, read, part) for hook in part.reads()}
            term = part.penalty(self.context, ordered)
            if term is not None:
                terms[name] = term
        return terms

    def penalty(self) -> Float[Tensor, ""]:
        """The sum of the terms; zero for a recipe without any."""
        terms = self.penalties()
        return torch.stack(list(terms.values())).sum() if terms else next(self.model.parameters()).new_zeros(())

    def project(self) -> None:
        """Applies the recipe's projections; call it after every optimiser step."""
        self._project()
        self.context.step += 1

    def _project(self) -> None:
        self._projected = True
        projecting = [part for part in self.parts if type(part).project is not Intervention.project]
        # A second sweep where there are several: a later one may have undone what an earlier one had set up.
        for part in projecting * (2 if len(projecting) > 1 else 1):
            part.project(self.context)

    def _activation(self, hook: str, read: dict[str, Tensor], part: Intervention) -> Tensor:
        if hook not in read:
            raise BayesticketError(
                f"penalty: {type(part).__name__} reads {hook}, and the model has not run since attach; "
                f"accepted: a forward pass inside the context, before penalty()"
            )
        if len(read[hook]) != self.context.n_examples:
            raise BayesticketError(
                f"penalty: the model ran on {len(read[hook])} sequences; accepted: the {self.context.n_examples} of "
                f"the batch that was attached"
            )
        return read[hook]


def require_readable(model: object, batch: object) -> None:
    """Refuses what is no HookedTransformer, no batch, or does not go together."""
    if not isinstance(model, HookedTransformer):
        raise refuse("model", model, "a HookedTransformer")
    if not isinstance(batch, Examples):
        raise refuse("batch", batch, "half of a split: split.train or split.test")
    if len(batch) == 0:
        raise refuse("batch", batch, "at least one example")
    require_informative_rows(batch.informative)
    if model.cfg.n_ctx < batch.n_positions:
        raise refuse("batch", f"{batch.n_positions} positions", f"at most the model's {model.cfg.n_ctx}")
    if not 0 <= (token := int(batch.tokens.max())) < model.cfg.d_vocab:
        raise refuse("batch", f"token {token}", f"tokens of the model, 0 to {model.cfg.d_vocab - 1}")


def reader(into: dict[str, Tensor]):
    """A hook that keeps the activation it sees, undetached."""

    def read(tensor: Tensor, hook: HookPoint) -> None:
        into[str(hook.name)] = tensor

    return read


def term_names(parts: Iterable[Intervention]) -> list[str]:
    """Names for the parts of a recipe, numbered where a kind occurs twice.

    >>> from bayesticket.interventions import KLPrior, QKPenalty
    >>> term_names([KLPrior(), QKPenalty(), KLPrior("uniform")])
    ['kl_prior', 'qk_penalty', 'kl_prior_2']
    """
    names: list[str] = []
    for part in parts:
        kind = snake_case(type(part).__name__)
        seen = sum(name == kind or name.rsplit("_", 1)[0] == kind for name in names)
        names.append(kind if not seen else f"{kind}_{seen + 1}")
    return names
