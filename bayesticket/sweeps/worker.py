"""One training run as a job for any executor: what happens in the process that trains it.

Beside the run's own directory the job keeps a lock, so that no two processes train the same run at once, and a small
file that says how far it is. Both are gone when the run is complete.
"""

import contextlib
import json
import pickle
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from filelock import FileLock, Timeout

from bayesticket.errors import BayesticketError
from bayesticket.files import Unreadable, new_directory, one_line
from bayesticket.runs import NonFiniteLoss, NotSaved, Run, TrainConfig, read_header, train_config
from bayesticket.sweeps.process import LEAVING

PROGRESS_EVERY = 0.5
"""Seconds between two words on how far a run is."""
LOOK_EVERY = 0.1
"""Seconds between two looks at whether it is to go on, each a question to what may be a distant disk."""


@dataclass(frozen=True)
class Job:
    """A run to be trained somewhere else."""

    name: str
    config: TrainConfig
    store: Path
    checkpoint_every: int = 500


@dataclass(frozen=True)
class Outcome:
    """How a job ended; `notes` are for the user to read."""

    kind: Literal["complete", "diverged", "failed", "busy", "stopped", "died"]
    error: str = ""
    traceback: str = ""
    notes: tuple[str, ...] = ()


def train_job(job: Job, going: Path, attempt: str = "") -> Outcome:
    """Trains a run, or continues it, in its store; it is stopped, with a checkpoint, when the file `going` is gone.

    `attempt` makes each call a call of its own, for executors that take equal arguments for the same work.
    """
    try:
        if not going.exists():
            return Outcome("stopped")
        job.store.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(beside(job.store, "lock"), timeout=0), _ONE_THREAD:
            try:
                outcome = _train(job, going)
            finally:
                beside(job.store, "progress").unlink(missing_ok=True)
            if outcome.kind in ("complete", "diverged"):
                beside(job.store, "lock").unlink(missing_ok=True)
            return outcome
    except Timeout:
        return Outcome("busy")
    except Exception as error:
        return _failed(error)


def train_pickled(job: bytes, going: Path, attempt: str = "") -> Outcome:
    """The same for a pickled job, so that one that cannot be unpickled here fails by itself, and breaks no pool."""
    try:
        unpickled = pickle.loads(job)
    except Exception as error:
        said = f"{type(error).__name__}: {one_line(error)}"
        return Outcome("failed", f"{said}; classes of yours have to be in a module that other processes can import")
    return train_job(unpickled, going, attempt)


def beside(store: Path, kind: Literal["lock", "progress"]) -> Path:
    """The file beside a run's directory that holds its lock, or says how far it is."""
    return store.with_name(f".{store.name}.{kind}")


def _train(job: Job, going: Path) -> Outcome:
    notes: list[str] = []
    while True:
        try:
            if _has_diverged(job.store):
                Run.load(job.store)
                return Outcome("diverged", "so it did when it was first trained", notes=tuple(notes))
            train_config(
                job.config,
                store=job.store,
                checkpoint_every=job.checkpoint_every,
                progress=_Reporter(beside(job.store, "progress")),
                stop=_Listener(going),
            )
            return Outcome("complete", notes=tuple(notes))
        except KeyboardInterrupt:
            return Outcome("stopped", notes=tuple(notes))
        except NonFiniteLoss as error:
            if not _has_diverged(job.store):
                return _failed(BayesticketError(f"{error}, but could not be saved"), notes)
            return Outcome("diverged", str(error), notes=tuple(notes))
        except NotSaved as error:
            return _failed(error.__cause__ or error, notes)
        except Unreadable as error:
            if len(notes) == 3 or not _is_damage(job.store, error):
                return _failed(error, notes)
            notes.append(f"{error}; set aside as {set_aside(job.store)}, and trained again")
        except Exception as error:
            return _failed(error, notes)


def _has_diverged(store: Path) -> bool:
    return (store / "run.json").exists() and read_header(store)["status"] == "failed"


def _failed(error: BaseException, notes: list[str] | None = None) -> Outcome:
    said = str(error) if isinstance(error, BayesticketError) else f"{type(error).__name__}: {one_line(error)}"
    return Outcome("failed", said, "".join(traceback.format_exception(error)), tuple(notes or ()))


def _is_damage(store: Path, error: Unreadable) -> bool:
    """Whether a file of the store is to blame, and not the system that failed to read it, or a file elsewhere."""
    cause = error.__cause__
    by_system = isinstance(cause, OSError) and cause.errno is not None and not isinstance(cause, FileNotFoundError)
    out_of_memory = isinstance(cause, MemoryError | torch.OutOfMemoryError)
    return str(store) in str(error) and not by_system and not out_of_memory


def set_aside(store: Path) -> Path:
    """Moves the directory of a run that cannot be read out of the way; returns where it is now."""
    aside = new_directory(store.parent, f"{store.name}.damaged")
    aside.rmdir()
    return store.rename(aside)


class _Reporter:
    """Says in a file how far the run is."""

    def __init__(self, path: Path):
        self.path, self.told = path, -PROGRESS_EVERY

    def __call__(self, epoch: int, record: Mapping[str, float]) -> None:
        if (now := time.monotonic()) - self.told >= PROGRESS_EVERY:
            self.told = now
            said = {"epoch": epoch, **{name: record[name] for name in ("train_accuracy", "test_accuracy")}}
            with contextlib.suppress(OSError):  # what a full disk cannot hold is not worth stopping for
                self.path.write_text(json.dumps(said))


class _Listener:
    """Whether the run is to stop."""

    def __init__(self, going: Path):
        self.going, self.looked = going, -LOOK_EVERY

    def __call__(self) -> bool:
        if (now := time.monotonic()) - self.looked >= LOOK_EVERY:
            self.looked = now
            return LEAVING.is_set() or not self.going.exists()
        return LEAVING.is_set()


class _OneThread:
    """One thread for torch inside; where several jobs share a process, until the last of them has ended."""

    def __init__(self):
        self.lock, self.inside, self.before = threading.Lock(), 0, 1

    def __enter__(self) -> None:
        with self.lock:
            if self.inside == 0:
                self.before = torch.get_num_threads()
            self.inside += 1
            torch.set_num_threads(1)  # by each, since a part of it holds for the calling thread alone

    def __exit__(self, *raised: object) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                torch.set_num_threads(self.before)


_ONE_THREAD = _OneThread()
