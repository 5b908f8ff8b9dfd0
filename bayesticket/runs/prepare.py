"""What a run starts from: the model that its configuration asks for, and checks of what goes with it."""

import logging

import torch
from torch import Tensor

from bayesticket.attention import Permuted
from bayesticket.errors import refuse, refuse_case
from bayesticket.interventions import Intervention
from bayesticket.model import Architecture, HookedTransformer, build, copied, move, require_in_memory, unexplained_hooks
from bayesticket.optim import DTYPES
from bayesticket.runs.config import TrainConfig

log = logging.getLogger("bayesticket")


def build_model(config: TrainConfig, device: str) -> HookedTransformer:
    """The model that is trained: built from an architecture, or a copy of the one that was given."""
    if isinstance(config.model, Architecture):
        dtype = getattr(torch, config.dtype or "float32")
        return build(config.model, config.task, seed=config.seed_of("init"), dtype=dtype, device=device)
    require_in_memory("model", config.model)
    own = str(next(config.model.parameters()).dtype).removeprefix("torch.")
    if config.dtype is None and own not in DTYPES:
        raise refuse_case("model", f"parameters of {own}", f"{' or '.join(DTYPES)}, or another together with `dtype`")
    given, task = config.model.cfg, config.task
    needed = {"n_ctx": task.n_positions, "d_vocab": task.d_vocab, "d_vocab_out": task.d_vocab_out}
    for name, least in needed.items():
        if getattr(given, name) < least:
            raise refuse(f"model.cfg.{name}", getattr(given, name), f"at least {least}, which the task needs")
    if names := unexplained_hooks(config.model):
        log.warning("the model's own hooks on %s act in training, but are not saved with the run", ", ".join(names))
    return move(move(copied(config.model), getattr(torch, config.dtype or own)), device)


def require_target_of_both_halves(part: Intervention, n_train: int, n_test: int) -> None:
    """Raises where an edit's target has a row for each training example only: the test half needs rows of its own."""
    target = getattr(part, "target", None)
    while isinstance(target, Permuted):
        target = target.target
    if isinstance(target, Tensor) and target.ndim > 1 and 1 < len(target) != n_train + n_test:
        raise refuse_case(
            f"{type(part).__name__}.target",
            f"a tensor with {len(target)} rows",
            f"{n_train + n_test} rows, one for each of task.examples(seed), since both halves are edited",
        )


def described_hooks(data: object) -> list[str]:
    """Where models in a description carry hooks of their own, teachers among them."""
    if isinstance(data, dict):
        own = data.get("own_hooks") if data.get("type") == "HookedTransformer" else None
        return [*map(str, own or ()), *(name for entry in data.values() for name in described_hooks(entry))]
    return [name for entry in data for name in described_hooks(entry)] if isinstance(data, list) else []
