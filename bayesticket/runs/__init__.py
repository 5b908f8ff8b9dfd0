"""Runs: what is trained, the loop that trains it, and the one owner of the files that it leaves."""

from bayesticket.runs.config import (
    TrainConfig,
)
from bayesticket.runs.epochs import first_epoch, settled_epoch
from bayesticket.runs.run import (
    COMPLETE,
    Run,
    describe_config,
    read_header,
    require_header,
    require_same_run,
)
from bayesticket.runs.train import (
    Interrupted,
    NonFiniteLoss,
    NotSaved,
    Progress,
    Training,
    described_hooks,
    keep_freed_memory,
    resume,
    train,
    train_config,
)

__all__ = [
    "COMPLETE",
    "Interrupted",
    "NonFiniteLoss",
    "NotSaved",
    "Progress",
    "Run",
    "TrainConfig",
    "Training",
    "describe_config",
    "described_hooks",
    "first_epoch",
    "keep_freed_memory",
    "read_header",
    "require_header",
    "require_same_run",
    "resume",
    "settled_epoch",
    "train",
    "train_config",
]
