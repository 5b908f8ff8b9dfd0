"""A step that is taken and undone, by which mistakes in the user's own interventions are found before training."""

from typing import Literal

import torch

from bayesticket.errors import BayesticketError
from bayesticket.interventions import Live
from bayesticket.measures import run_forward
from bayesticket.model import HookedTransformer
from bayesticket.optim import LossFunction


def rehearse(
    live: Live,
    model: HookedTransformer,
    loss: LossFunction,
    *,
    forward: Literal["fast", "full"],
    batch_size: int | None,
) -> None:
    """Calls the ports that a step calls, up to the optimiser's; the model and the recipe's state are then as before.

    Raises where a penalty or new gradients cannot be used, or where an intervention keeps state on itself. Recipes of
    this library's interventions alone are left out.
    """
    if not live.has_own_parts:
        return
    weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    state, batch = live.state(), live.context.batch
    if batch_size is not None:
        first = torch.arange(min(batch_size, len(batch)), device=batch.tokens.device)
        live.select(first)
        batch = batch.select(first)
    with live:
        total = loss(run_forward(forward, model, batch), batch.targets)
        torch.stack([total, *(term.to(total.dtype) for term in live.penalties().values())]).sum().backward()
        if live.changes_gradients:
            live.gradients()
    live.select(None)
    live.require_no_hidden_state()
    if added := sorted(set(live.state()) ^ set(state)):
        raise BayesticketError(f"state: got ports that add {added}; accepted: all tensors of state from `init`")
    live.restore_state(state)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
            parameter.grad = None
