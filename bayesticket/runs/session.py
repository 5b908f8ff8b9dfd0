"""A training session: from where a run stands to its end, or to where it is stopped, with checkpoints on the way."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

from bayesticket.errors import BayesticketError, one_line
from bayesticket.files import new_directory
from bayesticket.runs.checkpoint import checkpoint_of
from bayesticket.runs.directory import RunDirectory
from bayesticket.runs.header import Status
from bayesticket.runs.interrupt import ENDING, Interrupted, deferred_interrupt, end_program
from bayesticket.runs.loop import NonFiniteLoss, Training
from bayesticket.runs.prepare import described_hooks
from bayesticket.runs.reporting import ProgressFunction, Requests, reporting
from bayesticket.runs.run import Run
from bayesticket.runs.snapshots import Snapshots
from bayesticket.runs.stopping import StopFunction, says_stop
from bayesticket.runs.tracking import Tracked, Tracking
from bayesticket.specs import is_library_class

log = logging.getLogger("bayesticket")


class NotSaved(BayesticketError):
    """The run was trained but could not be saved, as when the disk is full; `run` holds it."""

    def __init__(self, message: str, run: Run):
        super().__init__(message)
        self.run = run


class Session:
    """Trains a run to its end, with checkpoints in a directory, and leaves a state to resume from when interrupted."""

    def __init__(
        self,
        training: Training,
        directory: RunDirectory | None,
        checkpoint_every: int,
        stop_when: StopFunction | None = None,
        tracker: Tracking | None = None,
    ):
        self.training, self.directory, self.checkpoint_every = training, directory, checkpoint_every
        self.stop_when, self.warned = stop_when, False
        self._kept_once = is_library_class(type(training.config.optimizer))
        self.tracked = Tracked(tracker)
        self.status: Status = "interrupted"
        """How the session ends, as far as is known."""
        plan = training.plan
        self.snapshots_at = frozenset(() if plan is None else plan.epochs_of(training.config.epochs))

    def run_to_end(self, progress: bool | ProgressFunction | None, stop: Callable[[], bool] | None) -> Run:
        """Trains until the run is over; raises `Interrupted`, `NonFiniteLoss` or `NotSaved`, each with the run.

        Where a signal asks the program to end, it ends it, with a line that says what is kept.
        """
        with deferred_interrupt() as requested:
            try:
                return self._run_tracked(Requests(requested), progress, stop)
            except Interrupted as interrupted:
                if requested.signal in ENDING:
                    end_program(requested.signal, str(interrupted))
                raise
            except KeyboardInterrupt:
                raise KeyboardInterrupt(self._broken_off()) from None

    def _run_tracked(
        self, requests: Requests, progress: bool | ProgressFunction | None, stop: Callable[[], bool] | None
    ) -> Run:
        training = self.training
        self.tracked.tell("start", training.config)
        for record in training.records:
            self.tracked.tell("record", record["epoch"], dict(record))
        try:
            return self._run_to_end(requests, progress, stop)
        finally:
            if self.tracked.at_work:
                self.tracked.tell("finish", training.as_run(self.status))

    def _run_to_end(
        self, requests: Requests, progress: bool | ProgressFunction | None, stop: Callable[[], bool] | None
    ) -> Run:
        training = self.training
        try:
            with reporting(progress, training.config, training.epoch, requests) as report:
                self._take_epochs(report, stop, requests)
        except NonFiniteLoss as error:
            self.status = "failed"
            error.run = training.as_run("failed")
            try:
                self._save(error.run)
            except NotSaved as unsaved:
                log.warning("%s", unsaved)
            raise
        self.status = "finished" if training.epoch == training.config.epochs else "stopped"
        run = training.as_run(self.status, cut_short=not training.is_over())
        self._save(run)
        if requests.error is not None:
            raise _with_note(requests.error, f"after the last epoch, {run.epoch:,}: the run is complete")
        if requests.interrupted.is_set():
            raise Interrupted(f"interrupted after the last epoch, {run.epoch:,}: the run is complete", run)
        return run

    def _take_epochs(self, report: ProgressFunction, stop: Callable[[], bool] | None, requests: Requests) -> None:
        training = self.training
        started = time.perf_counter() - training.seconds
        self._ask_to_stop(requests)  # about the last record of a run that goes on
        while not (training.is_over() or requests.stop):
            if training.epoch in self.snapshots_at:
                self._take_snapshot()
            training.take_epoch()
            if not self._kept_once:
                checkpoint_of(training)  # raises where an optimiser of the user's has state that no file can hold
                self._kept_once = True
            training.seconds = time.perf_counter() - started
            if training.records and training.records[-1]["epoch"] == training.epoch - 1:
                self.tracked.tell("record", training.epoch - 1, dict(training.records[-1]))
                report(training.epoch - 1, dict(training.records[-1]))
                self._ask_to_stop(requests)
            if stop is not None and stop():
                requests.interrupted.set()
            if (requests.interrupted.is_set() or requests.error is not None) and not training.is_over():
                self._raise_interrupted(requests)
            if self.directory is not None and training.epoch % self.checkpoint_every == 0:
                self._try_checkpoint(self.directory)
        if self.directory is not None and not training.is_over():
            self._try_checkpoint(self.directory)  # without the record below, which an uninterrupted run does not make
        if training.plan is not None:
            self._take_snapshot()
        if training.records[-1]["epoch"] != training.epoch:
            training.record()
            self.tracked.tell("record", training.epoch, dict(training.records[-1]))
        report(training.epoch, dict(training.records[-1]))

    def _ask_to_stop(self, requests: Requests) -> None:
        """Calls the function `stop_when` with the last record; an error in it is handled like one in `progress`."""
        if self.stop_when is None or not self.training.records:
            return
        try:
            requests.stop |= says_stop(self.stop_when, dict(self.training.records[-1]))
        except Exception as error:
            requests.error = error

    def _try_checkpoint(self, directory: RunDirectory) -> None:
        """Writes a checkpoint; a disk that is full for now is no reason to stop training."""
        tensors, note = checkpoint_of(self.training)
        try:
            directory.write_checkpoint(tensors, note)
        except BayesticketError as error:
            if not self.warned:
                log.warning("%s; training goes on, and the next checkpoint is tried as usual", error)
            self.warned = True

    def _take_snapshot(self) -> None:
        """Keeps a snapshot; where it cannot be written, training goes on without it."""
        try:
            self.training.snapshots.add(self.training.snapshot())
        except BayesticketError as error:
            log.warning("%s; training goes on without the snapshot of epoch %s", error, f"{self.training.epoch:,}")

    def _raise_interrupted(self, requests: Requests) -> None:
        interrupted = self._interrupted()
        if requests.error is not None and not requests.interrupted.is_set():
            raise _with_note(requests.error, str(interrupted))
        raise interrupted

    def _broken_off(self) -> str:
        """What is kept of a run that an interrupt has broken off within a step, in words.

        It comes from a second Ctrl-C, or from a notebook that interrupts a thread. The weights may be between two
        states, so that the last checkpoint is what counts; without one nothing is left behind.
        """
        directory = self.directory
        if directory is None:
            return "interrupted within an epoch, of which nothing is kept"
        if directory.has_ended():
            return f"interrupted after the last epoch: the run is complete in {directory}"
        if directory.checkpoint_path.exists():
            return f"interrupted within an epoch; the same call goes on from the last checkpoint in {directory}"
        directory.abandon()
        return "interrupted before the first checkpoint: nothing is kept"

    def _interrupted(self) -> Interrupted:
        training = self.training
        run, when = training.as_run("interrupted"), f"interrupted after epoch {training.epoch:,}"
        directory = self.directory
        try:
            if directory is None:
                directory = RunDirectory(new_directory(Path("interrupted"), training.id))
                directory.begin(training.as_run("running").header(), training.tensors)
                Snapshots(training.id, directory.snapshots_path).take(training.snapshots)
            directory.write_checkpoint(*checkpoint_of(training))
            directory.write_header(run.header())
        except (BayesticketError, OSError) as error:
            return Interrupted(
                f"{when}; its state could not be kept ({one_line(error)}), only `run` of this error", run
            )
        if described_hooks(training.description):
            return Interrupted(f"{when}; continue with the same call and store={str(directory)!r}", run)
        return Interrupted(f"{when}; continue with bayesticket.resume({str(directory)!r})", run, directory.path)

    def _save(self, run: Run) -> None:
        if self.directory is None:
            return
        try:
            self.directory.save(run.header(), run.tensors, run.curves, run.weights)
            if not run.cut_short:
                self.directory.remove_checkpoint()
        except (BayesticketError, OSError) as error:
            raise NotSaved(f"{one_line(error)}; the trained run is kept as `run` of this error", run) from error


def _with_note(error: Exception, note: str) -> Exception:
    error.add_note(f"bayesticket: {note}")
    return error
