"""Optimisers and losses as data.

An optimiser is a specification that builds a `torch.optim.Optimizer` and knows the bound on its own step; a loss is a
specification that is called on logits and targets. To add one, derive a class from `Optimizer` or `LossFunction` in a
file of its own. Nothing else in the library knows their names.
"""

from bayesticket.optim.adamw import AdamW
from bayesticket.optim.base import (
    Optimizer,
    as_optimizer,
    build_optimizer,
    optimizer_kinds,
    scale_learning_rates,
    set_rates,
    warmup_factor,
)
from bayesticket.optim.lion import Lion
from bayesticket.optim.losses import DTYPES, CrossEntropy, LossFunction, StableMax, mean_loss, require_dtype
from bayesticket.optim.muon import Muon, newton_schulz
from bayesticket.optim.sgd import SGD
from bayesticket.optim.state import optimizer_tensors, restore_optimizer

__all__ = [
    "DTYPES",
    "SGD",
    "AdamW",
    "CrossEntropy",
    "Lion",
    "LossFunction",
    "Muon",
    "Optimizer",
    "StableMax",
    "as_optimizer",
    "build_optimizer",
    "mean_loss",
    "newton_schulz",
    "optimizer_kinds",
    "optimizer_tensors",
    "require_dtype",
    "restore_optimizer",
    "scale_learning_rates",
    "set_rates",
    "warmup_factor",
]
