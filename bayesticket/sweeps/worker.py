"""One training run as a job for any executor: what happens in the process that trains it."""

import errno
import pickle
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from bayesticket.errors import BayesticketError, one_line
from bayesticket.files import Unreadable
from bayesticket.runs import (
    Busy,
    NonFiniteLoss,
    NotSaved,
    Run,
    RunDirectory,
    SnapshotPlan,
    Tracking,
    TrainConfig,
    train_config,
)
from bayesticket.sweeps.process import TERMINATING
from bayesticket.sweeps.progress import Progress, remove_progress, write_progress

REPORT_EVERY = 0.5
"""Seconds between two writes of a run's progress file."""
POLL_EVERY = 0.1
"""Seconds between two checks of the alive file, each of which may be a request to a distant file server."""


@dataclass(frozen=True)
class Job:
    """A run to be trained in another process: its name in messages, its configuration, its directory."""

    name: str
    config: TrainConfig
    store: Path
    checkpoint_every: int = 500
    snapshots: SnapshotPlan | None = None
    tracker: Tracking | None = None


@dataclass(frozen=True)
class Outcome:
    """How a job ended; `notes` are messages for the user.

    "complete" and "diverged" runs have ended and are saved; "failed" ones raised an error; "busy" ones are locked by
    another process; "stopped" ones were told to stop and have a checkpoint; "died" ones lost their process.
    """

    kind: Literal["complete", "diverged", "failed", "busy", "stopped", "died"]
    error: str = ""
    traceback: str = ""
    notes: tuple[str, ...] = ()


def train_job(
    job: Job,
    alive_file: Path,
    attempt: str = "",
    *,
    report_every: float = REPORT_EVERY,
    poll_every: float = POLL_EVERY,
) -> Outcome:
    """Trains a run, or resumes it, in its directory, on one torch thread.

    Training goes on as long as the `alive_file` exists; when it is removed, training stops with a checkpoint.
    `attempt` differs in every call, because some executors run a call only once if its arguments are the same.
    """
    try:
        if not alive_file.exists():
            return Outcome("stopped")
        directory = RunDirectory(job.store)
        with directory.locked():
            try:
                reporter = ProgressReporter(job.store, report_every)
                return _train(job, directory, reporter, StopCheck(alive_file, poll_every))
            finally:
                remove_progress(job.store)
    except Busy:
        return Outcome("busy")
    except Exception as error:
        return _failed(error)


def train_pickled(job: bytes, alive_file: Path, attempt: str = "") -> Outcome:
    """`train_job` for a pickled job: one that cannot be unpickled here has failed, and its process goes on.

    An executor that unpickles the job itself would break as a whole.
    """
    try:
        unpickled = pickle.loads(job)
    except Exception as error:
        message = f"{type(error).__name__}: {one_line(error)}"
        return Outcome("failed", f"{message}; classes of yours have to be in a module that other processes can import")
    return train_job(unpickled, alive_file, attempt)


class ProgressReporter:
    """Called with each record of a run; writes the run's progress file every `report_every` seconds."""

    def __init__(self, store: Path, report_every: float):
        self.store, self.report_every = store, report_every
        self.last_report = -report_every

    def __call__(self, epoch: int, record: Mapping[str, float]) -> None:
        """Reports a record, if a report is due."""
        if (now := time.monotonic()) - self.last_report >= self.report_every:
            self.last_report = now
            write_progress(self.store, Progress.of(epoch, record))


class StopCheck:
    """Called after each epoch: True when this process is terminating, or the alive file has been removed."""

    def __init__(self, alive_file: Path, poll_every: float):
        self.alive_file, self.poll_every = alive_file, poll_every
        self.last_poll = -poll_every

    def __call__(self) -> bool:
        """Whether training is to stop."""
        if (now := time.monotonic()) - self.last_poll >= self.poll_every:
            self.last_poll = now
            return TERMINATING.is_set() or not self.alive_file.exists()
        return TERMINATING.is_set()


def _train(job: Job, directory: RunDirectory, reporter: ProgressReporter, stop: StopCheck) -> Outcome:
    notes: list[str] = []
    while True:
        try:
            directory.require_named()
            if directory.has_failed():
                Run.load(job.store)
                return Outcome("diverged", "as it did when it was first trained", notes=tuple(notes))
            train_config(
                job.config,
                store=directory,
                checkpoint_every=job.checkpoint_every,
                snapshots=job.snapshots,
                tracker=job.tracker,
                progress=reporter,
                stop=stop,
            )
            return Outcome("complete", notes=tuple(notes))
        except KeyboardInterrupt:
            return Outcome("stopped", notes=tuple(notes))
        except NonFiniteLoss as error:
            if not directory.has_failed():
                return _failed(BayesticketError(f"{error}, but could not be saved"), notes)
            return Outcome("diverged", str(error), notes=tuple(notes))
        except NotSaved as error:
            return _failed(error.__cause__ or error, notes)
        except Unreadable as error:
            if len(notes) == 3 or not _is_damaged(job.store, error):
                return _failed(error, notes)
            notes.append(f"{error}; set aside as {directory.set_aside()}, and trained again")
        except Exception as error:
            return _failed(error, notes)


def _failed(error: BaseException, notes: list[str] | None = None) -> Outcome:
    message = str(error) if isinstance(error, BayesticketError) else f"{type(error).__name__}: {one_line(error)}"
    return Outcome("failed", message, "".join(traceback.format_exception(error)), tuple(notes or ()))


def _is_damaged(store: Path, error: Unreadable) -> bool:
    """Whether the error comes from a damaged file of this run: not from the system's failure to read, or elsewhere."""
    cause = error.__cause__
    by_system = isinstance(cause, OSError) and cause.errno not in (None, errno.ENOENT, errno.ELOOP)
    out_of_memory = isinstance(cause, MemoryError | torch.OutOfMemoryError)
    return str(store) in str(error) and not by_system and not out_of_memory
