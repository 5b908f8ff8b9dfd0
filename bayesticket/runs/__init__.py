"""Runs: one training run from its configuration to its files.

A `TrainConfig` says all that a run computes; `Training` is its state between two epochs; `RunDirectory` is the one
owner of its files; a `Run` is what it leaves. Many runs at once are the business of `sweeps`.
"""

from bayesticket.runs.config import TrainConfig, configure, configure_from, option_names
from bayesticket.runs.description import describe_config, restore_config
from bayesticket.runs.directory import Busy, RunDirectory
from bayesticket.runs.epochs import first_epoch, refuse_unrecorded, require_threshold, settled_epoch
from bayesticket.runs.header import COMPLETE, Header, Status
from bayesticket.runs.interrupt import Ended, Interrupted, end_program, ended_by_signals
from bayesticket.runs.loop import NonFiniteLoss, Training, keep_freed_memory
from bayesticket.runs.options import Options, SharedOptions
from bayesticket.runs.prepare import described_hooks
from bayesticket.runs.reporting import ProgressFunction
from bayesticket.runs.run import MEMORISED, Run
from bayesticket.runs.session import NotSaved
from bayesticket.runs.snapshots import (
    At,
    Every,
    LogSpaced,
    Snapshot,
    SnapshotPlan,
    Snapshots,
    as_plan,
    missing_epochs,
    spread,
)
from bayesticket.runs.stopping import Reaches, Stalls, StopFunction, StopRule, StopTraining
from bayesticket.runs.tracking import TensorBoard, Tracker, Tracking, require_tracker
from bayesticket.runs.train import CHECKPOINT_EVERY, resume, train, train_config
from bayesticket.runs.versions import differences_of, in_words, notice_other_versions

__all__ = [
    "CHECKPOINT_EVERY",
    "COMPLETE",
    "MEMORISED",
    "At",
    "Busy",
    "Ended",
    "Every",
    "Header",
    "Interrupted",
    "LogSpaced",
    "NonFiniteLoss",
    "NotSaved",
    "Options",
    "ProgressFunction",
    "Reaches",
    "Run",
    "RunDirectory",
    "SharedOptions",
    "Snapshot",
    "SnapshotPlan",
    "Snapshots",
    "Stalls",
    "Status",
    "StopFunction",
    "StopRule",
    "StopTraining",
    "TensorBoard",
    "Tracker",
    "Tracking",
    "TrainConfig",
    "Training",
    "as_plan",
    "configure",
    "configure_from",
    "describe_config",
    "described_hooks",
    "differences_of",
    "end_program",
    "ended_by_signals",
    "first_epoch",
    "in_words",
    "keep_freed_memory",
    "missing_epochs",
    "notice_other_versions",
    "option_names",
    "refuse_unrecorded",
    "require_threshold",
    "require_tracker",
    "restore_config",
    "resume",
    "settled_epoch",
    "spread",
    "train",
    "train_config",
]
