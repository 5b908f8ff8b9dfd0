"""A step that is taken and undone, by which mistakes in the user's own interventions are found before training."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor

from bayesticket.errors import refuse_case
from bayesticket.interventions import Live
from bayesticket.measures import run_forward
from bayesticket.model import HookedTransformer
from bayesticket.optim import LossFunction, mean_loss
from bayesticket.specs import is_library_class


def rehearse_loss(loss: LossFunction, n_outputs: int, targets: Tensor) -> None:
    """Raises unless a loss of the user's gives one number that can be differentiated, here of even logits."""
    if is_library_class(type(loss)):
        return
    logits = torch.zeros(len(targets), n_outputs, device=targets.device, requires_grad=True)
    value: object = loss(logits, targets)
    if not isinstance(value, Tensor) or value.ndim or not value.requires_grad:
        given = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) and value.ndim else repr(value)
        raise refuse_case(type(loss).__name__, given, "a tensor of one number, differentiable in the logits")


def rehearse(
    live: Live,
    model: HookedTransformer,
    loss: LossFunction,
    *,
    forward: Literal["fast", "full"],
    batch_size: int | None,
) -> None:
    """Calls the ports that a step calls, up to the optimiser's; weights and state are then as before.

    Raises where a penalty or new gradients cannot be used, or where an intervention keeps state on itself. Recipes of
    this library's interventions alone are left out.
    """
    if not live.has_own_parts:
        return
    batch = live.context.batch
    if batch_size is not None:
        first = torch.arange(min(batch_size, len(batch)), device=batch.tokens.device)
        live.select(first)
        batch = batch.select(first)
    names = set(live.state())
    with _undone(live, model), live:
        total = mean_loss(loss, run_forward(forward, model, batch), batch.targets)
        torch.stack([total, *(term.to(total.dtype) for term in live.penalties().values())]).sum().backward()
        if live.changes_gradients:
            live.gradients()
        live.require_no_hidden_state()
        if added := sorted(set(live.state()) ^ names):
            raise refuse_case("state", f"ports that add or remove {added}", "all tensors of state from `init`")
    live.select(None)


@contextmanager
def _undone(live: Live, model: HookedTransformer) -> Iterator[None]:
    """Puts weights and state back, into the same tensors, since hooks may hold them."""
    weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    states = [(context, dict(context.state)) for context in live.contexts]
    values = [{name: tensor.detach().clone() for name, tensor in held.items()} for _, held in states]
    yield
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
            parameter.grad = None
        for (context, held), kept in zip(states, values, strict=True):
            context.state.clear()
            for name, tensor in held.items():
                context.state[name] = tensor.copy_(kept[name])
