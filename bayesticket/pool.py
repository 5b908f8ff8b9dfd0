"""Training runs in processes of their own, one thread each, with their progress shown in the parent."""

import contextlib
import multiprocessing
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Literal

import torch
from tqdm import tqdm

from bayesticket.config import TrainConfig
from bayesticket.errors import BayesticketError
from bayesticket.train import train_config


@dataclass(frozen=True)
class Job:
    """A run to be trained in another process."""

    name: str
    config: TrainConfig
    store: Path


@dataclass(frozen=True)
class Message:
    """What a worker says: that it is ready, how far its run is, or how that ended."""

    kind: Literal["ready", "progress", "done", "stopped", "failed"]
    job: str = ""
    epoch: int = 0
    train_accuracy: float = 0.0
    test_accuracy: float = 0.0
    error: str = ""
    traceback: str = ""


class Bars:
    """A bar for each run, one below the other."""

    def __init__(self, jobs: Sequence[Job]):
        width = max(len(job.name) for job in jobs)
        self.bars = {
            job.name: tqdm(
                total=job.config.epochs,
                desc=job.name.ljust(width),
                position=place,
                unit="epoch",
                dynamic_ncols=True,
            )
            for place, job in enumerate(jobs)
        }
        self.begun: set[str] = set()

    def show(self, message: Message) -> None:
        """Moves the run's bar."""
        if message.kind == "ready":
            return
        bar = self.bars[message.job]
        if message.job not in self.begun:
            self.begun.add(message.job)
            bar.reset()
            # Where it goes on, so that the pace is that of this time.
            bar.initial = bar.n = bar.last_print_n = message.epoch
        if message.kind == "done":
            bar.total = message.epoch
        bar.set_postfix_str(f"train {message.train_accuracy:.0%}, test {message.test_accuracy:.0%}", refresh=False)
        bar.update(message.epoch - bar.n)
        if message.kind == "done":
            bar.refresh()

    def close(self) -> None:
        """Closes the bars, from the last to the first."""
        for bar in reversed(self.bars.values()):
            bar.close()


class Lines:
    """A plain line every so often, where there is no terminal."""

    def __init__(self, jobs: Sequence[Job], *, every: float = 15.0):
        self.every, self.began = every, time.monotonic()
        self.shown = self.began
        self.state = {job.name: f"{job.name}: waiting" for job in jobs}
        names = ", ".join(job.name for job in jobs)
        print(f"training, at most {jobs[0].config.epochs:,} epochs: {names}", file=sys.stderr, flush=True)

    def show(self, message: Message) -> None:
        """Prints where all runs are when it is time to, or when one has ended."""
        if message.kind == "ready":
            return
        self.state[message.job] = (
            f"{message.job}: epoch {message.epoch:,}{', done' if message.kind == 'done' else ''}, "
            f"train {message.train_accuracy:.0%}, test {message.test_accuracy:.0%}"
        )
        now = time.monotonic()
        if message.kind == "done" or now - self.shown >= self.every:
            self.shown = now
            print(f"{now - self.began:4.0f} s | {' | '.join(self.state.values())}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Nothing to put in order."""


def _display(jobs: Sequence[Job]) -> Bars | Lines:
    return Bars(jobs) if sys.stderr.isatty() else Lines(jobs)


# Training in processes --------------------------------------------------------------------------------------------


def train_in_processes(jobs: Sequence[Job], *, workers: int) -> None:
    """Trains the jobs, begun in their order, in processes of one thread each.

    On Ctrl-C every run is checkpointed, and KeyboardInterrupt goes on. When one run fails the others are checkpointed
    too, and its error is raised here.
    """
    display = _display(jobs)
    team = Team(min(workers, len(jobs)))
    try:
        team.work(jobs, display)
    finally:
        display.close()
        team.dismiss()


class Team:
    """Worker processes, a pipe to each. What is sent to a worker that trains makes it stop, with a checkpoint."""

    def __init__(self, size: int):
        context = multiprocessing.get_context("spawn")
        self.workers: dict[Connection, BaseProcess] = {}
        self.busy: set[Connection] = set()
        self.leaving: set[Connection] = set()
        with _ignoring_interrupts():
            for _ in range(size):
                ours, theirs = context.Pipe()
                process = context.Process(target=work, args=(theirs,), daemon=True)
                process.start()
                theirs.close()
                self.workers[ours] = process

    def work(self, jobs: Sequence[Job], display: Bars | Lines) -> None:
        """Hands out the jobs as workers become ready, until all are done."""
        pending = list(jobs)
        while pending or self.busy:
            for connection in wait([each for each in self.workers if each not in self.leaving]):
                assert isinstance(connection, Connection)
                message = self._hear(connection)
                if message.kind == "progress":
                    display.show(message)
                    continue
                self.busy.discard(connection)
                if message.kind == "failed":
                    error = BayesticketError(message.error)
                    error.add_note(message.traceback)
                    raise error
                if message.kind == "stopped":  # not by us: somebody sent the worker a signal
                    raise KeyboardInterrupt
                display.show(message)
                connection.send(pending[0] if pending else None)
                (self.busy if pending else self.leaving).add(connection)
                pending = pending[1:]

    def _hear(self, connection: Connection) -> Message:
        try:
            return connection.recv()
        except (EOFError, ConnectionError):
            self.busy.discard(connection)
            process = self.workers.pop(connection)
            process.join()
            raise BayesticketError(
                f"a training process ended by itself (exit code {process.exitcode}); "
                "what was trained is kept, run the same again to continue"
            ) from None

    def dismiss(self) -> None:
        """Ends all workers; those that train write a checkpoint first, unless Ctrl-C is pressed once more."""
        try:
            for connection, process in self.workers.items():
                if connection in self.busy:
                    with contextlib.suppress(OSError):
                        connection.send(None)
                elif connection not in self.leaving:  # still starting
                    process.terminate()
            for process in self.workers.values():
                process.join()
        finally:
            for process in self.workers.values():
                process.terminate()


@contextlib.contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Lets processes started inside ignore Ctrl-C, which a terminal sends to all: the parent alone decides."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def work(connection: Connection) -> None:
    """What a worker does: trains what it is sent, run after run, until it is sent None or its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, OSError):
        connection.send(Message("ready"))
        while (job := connection.recv()) is not None:
            outcome = _train(job, connection)
            connection.send(outcome)
            if outcome.kind != "done":
                return


def _train(job: Job, connection: Connection) -> Message:
    try:
        job.store.parent.mkdir(parents=True, exist_ok=True)
        run = train_config(job.config, store=job.store, progress=_Reporter(job.name, connection))
    except KeyboardInterrupt:
        return Message("stopped", job.name)
    except Exception as error:
        said = str(error) if isinstance(error, BayesticketError) else f"{type(error).__name__}: {error}"
        return Message("failed", job.name, error=f"{job.name}: {said}", traceback=traceback.format_exc())
    return Message(
        "done", job.name, run.epoch, *(run.curves[f"{half}_accuracy"].iloc[-1] for half in ("train", "test"))
    )


class _Reporter:
    """Tells the parent how far a run is, and stops the run when the parent says so or is gone.

    A worker ignores SIGINT: only the parent stops it, so that a Ctrl-C that reaches parent and worker counts once.
    """

    def __init__(self, job: str, connection: Connection):
        self.job, self.connection = job, connection

    def __call__(self, epoch: int, record: Mapping[str, float]) -> None:
        try:
            self.connection.send(
                Message("progress", self.job, epoch, record["train_accuracy"], record["test_accuracy"])
            )
            stop = self.connection.poll()
        except OSError:
            stop = True
        if stop:
            raise KeyboardInterrupt
