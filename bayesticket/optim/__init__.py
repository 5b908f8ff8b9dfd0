"""Optimisers and losses as data. To add one, write one class."""

from bayesticket.optim.optimizers import (
    ADAM_EPSILON,
    OPTIMIZERS,
    make_optimizer,
    optimizer_tensors,
    restore_optimizer,
    set_learning_rate,
    warmup_factor,
)

__all__ = [
    "ADAM_EPSILON",
    "OPTIMIZERS",
    "make_optimizer",
    "optimizer_tensors",
    "restore_optimizer",
    "set_learning_rate",
    "warmup_factor",
]
