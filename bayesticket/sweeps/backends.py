"""Where jobs are trained: in worker processes of this library's own, or in an executor that the user gives."""

import abc
import contextlib
import copy
import multiprocessing
import os
import pickle
import secrets
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor
from concurrent.futures import wait as wait_for_futures
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for_connections
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import cast

from bayesticket.errors import BayesticketError, one_line
from bayesticket.model import all_held
from bayesticket.notices import notice
from bayesticket.runs import RunDirectory
from bayesticket.sweeps.forkserver import PRELOADED, START_METHOD, sigint_blocked
from bayesticket.sweeps.process import EXIT_TERMINATED, PARENT, READY, Warned, serve
from bayesticket.sweeps.worker import Job, Outcome, train_job, train_pickled

MAX_DEATHS = 25
"""After how many deaths of its process in a row, without progress in between, a job of ours has failed."""
MAX_EXECUTOR_DEATHS = 3
"""The same for a job in a given executor, which may have retried several times before it reports an error."""
LOOK_EVERY = 0.5
"""Seconds between two looks at runs that are to stop."""
WAIT_FOR_LOST = 30.0
"""Seconds in which a run that the executor has given up may still stop; another program may have taken it since."""
MAX_FAILED_STARTS = 3
"""After how many processes in a row that ended before they were ready to train the sweep is given up."""


class Backend(abc.ABC):
    """Trains the jobs that are submitted to it."""

    max_deaths: int
    """After how many deaths in a row, without progress in between, a job has failed."""

    @abc.abstractmethod
    def has_capacity(self) -> bool:
        """Whether another job can be submitted now."""

    @abc.abstractmethod
    def submit(self, job: Job) -> None:
        """Starts training a job, or queues it."""

    @abc.abstractmethod
    def wait(self, timeout: float) -> list[tuple[Job, Outcome]]:
        """Waits for at most `timeout` seconds until a job has ended; returns all that have, with their outcomes."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Cancels the jobs that have not started, and waits until the others have stopped.

        The caller has removed the alive file, so that they stop by themselves.
        """

    @abc.abstractmethod
    def shut_down(self) -> None:
        """Releases what the backend holds, after every job has ended."""


def pickle_job(job: Job) -> bytes:
    """Pickles a job; raises an error that names the job if it cannot be pickled."""
    try:
        with all_held():
            return pickle.dumps(job)
    except Exception as error:
        raise BayesticketError(
            f"{job.name}: got what cannot be sent to another process ({one_line(error)}); accepted: classes and "
            "functions defined at the top of a module"
        ) from error


@dataclass
class WorkerProcess:
    """A process of ours, and the job it trains; `ready` once it has imported everything."""

    process: BaseProcess
    job: Job | None
    ready: bool = False


class ProcessBackend(Backend):
    """Worker processes of our own.

    A process that dies is replaced, and costs the others nothing; a `ProcessPoolExecutor` would break as a whole.
    """

    max_deaths = MAX_DEATHS

    def __init__(self, jobs: Sequence[Job], size: int, alive_file: Path):
        self.size, self.alive_file = size, alive_file
        self.pickled = {job.name: pickle_job(job) for job in jobs}
        self.workers: dict[Connection, WorkerProcess] = {}
        self.failed_starts = 0

    def has_capacity(self) -> bool:
        """Whether fewer than `size` processes are training."""
        return sum(worker.job is not None for worker in self.workers.values()) < self.size

    def submit(self, job: Job) -> None:
        """Sends a job to an idle process, or starts another process for it."""
        for connection, worker in self.workers.items():
            if worker.job is None:
                worker.job = job
                self._send(connection, job)
                return
        self._start(job)

    def _start(self, job: Job) -> None:
        context = cast("SpawnContext", multiprocessing.get_context(START_METHOD))  # or another with the same methods
        context.set_forkserver_preload(PRELOADED)
        os.environ[PARENT] = str(os.getpid())
        try:
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs, dict(os.environ)), daemon=True)
            with sigint_blocked():
                process.start()
                self.workers[ours] = WorkerProcess(process, job)
        except OSError as error:
            raise BayesticketError(f"workers: another process could not be started ({one_line(error)})") from error
        except RuntimeError as error:
            if "bootstrapping" not in str(error):
                raise
            sys.exit(1)  # a process of ours imports a script that calls us unguarded; its parent says so
        theirs.close()

    def _send(self, connection: Connection, job: Job | None) -> None:
        with contextlib.suppress(OSError):  # the process has died, which the next `wait` finds
            connection.send(None if job is None else (self.pickled[job.name], self.alive_file))

    def wait(self, timeout: float) -> list[tuple[Job, Outcome]]:
        """Receives the messages of the processes, and reaps those that have died."""
        outcomes: list[tuple[Job, Outcome]] = []
        for connection in wait_for_connections(list(self.workers), timeout):
            assert isinstance(connection, Connection)
            worker = self.workers[connection]
            try:
                message = connection.recv()
            except (EOFError, OSError):
                message = self._reap(connection)
            if message == READY:
                worker.ready, self.failed_starts = True, 0
                assert worker.job is not None
                self._send(connection, worker.job)
            elif isinstance(message, Warned):
                notice(message.text)
            elif worker.job is not None:
                outcomes.append((worker.job, message))
                worker.job = None
        return outcomes

    def _reap(self, connection: Connection) -> Outcome:
        """Joins a process that has died, and returns how; raises if several in a row could not even start."""
        worker = self.workers.pop(connection)
        connection.close()
        worker.process.join()
        code = worker.process.exitcode or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        if not worker.ready and code > 0 and code != EXIT_TERMINATED:
            self.failed_starts += 1
            if self.failed_starts >= MAX_FAILED_STARTS:
                raise BayesticketError(
                    f"workers: {self.failed_starts} processes in a row {how} before they could train; every process "
                    'imports your script first, so that a script has to call this under `if __name__ == "__main__":`; '
                    "if yours does, the processes have printed what is wrong"
                ) from None
        return Outcome("died", f"its process {how}")

    def stop(self) -> None:
        """Kills the processes that are not ready yet, and waits for the others to write their checkpoints."""
        for worker in self.workers.values():
            if not worker.ready:
                worker.process.kill()
        self.shut_down()

    def shut_down(self) -> None:
        """Tells every process to end, and joins them."""
        for connection in self.workers:
            self._send(connection, None)
            connection.close()
        for worker in self.workers.values():
            worker.process.join()


class ExecutorBackend(Backend):
    """An executor that the user has given, and shuts down."""

    max_deaths = MAX_EXECUTOR_DEATHS

    def __init__(self, executor: Executor, jobs: Sequence[Job], alive_file: Path):
        self.executor, self.alive_file = executor, alive_file
        by_pickle = isinstance(executor, ProcessPoolExecutor)
        self.pickled = {job.name: pickle_job(job) for job in jobs} if by_pickle else {}
        self.futures: dict[Future[Outcome], Job] = {}
        self.lost: list[Job] = []

    def has_capacity(self) -> bool:
        """True: the executor has a queue of its own."""
        return True

    def submit(self, job: Job) -> None:
        """Submits a call of `train_job` to the executor."""
        attempt = secrets.token_hex(4)
        try:
            if self.pickled:
                future = self.executor.submit(train_pickled, self.pickled[job.name], self.alive_file, attempt)
            else:  # a copy, since threads would share the objects in a configuration, such as a teacher and its hooks
                with all_held():
                    own = copy.deepcopy(job)
                future = self.executor.submit(train_job, own, self.alive_file, attempt)
        except Exception as error:
            raise self._unusable(error) from error
        self.futures[future] = job

    def wait(self, timeout: float) -> list[tuple[Job, Outcome]]:
        """Waits for the first of the futures."""
        ended, _ = wait_for_futures(self.futures, timeout, return_when=FIRST_COMPLETED)
        # The futures of dask.distributed never end once their client has given its scheduler up.
        client = getattr(self.executor, "_client", None)
        if not ended and getattr(client, "status", None) == "closed":
            raise self._unusable(ConnectionError("its client is closed, as when the scheduler is gone"))
        outcomes = [(self.futures.pop(future), self._outcome(future)) for future in ended]
        self.lost += [job for job, outcome in outcomes if outcome.kind == "died"]
        return outcomes

    def _outcome(self, future: "Future[Outcome]") -> Outcome:
        if future.cancelled():
            return Outcome("died", "the executor has cancelled it")
        error = future.exception()
        if error is None:
            return future.result()
        if isinstance(error, BrokenExecutor):
            raise self._unusable(error) from error
        trace = "".join(traceback.format_exception(error))
        return Outcome("died", f"the executor lost it ({type(error).__name__}: {one_line(error)})", trace)

    def _unusable(self, error: BaseException) -> BayesticketError:
        return BayesticketError(
            f"executor: {type(self.executor).__name__} takes no more runs ({type(error).__name__}: {one_line(error)}); "
            "what was trained is kept, call the same again with a new one to go on"
        )

    def stop(self) -> None:
        """Cancels the futures of runs that nobody trains, and waits for the others as long as somebody does.

        That is asked of the lock of a run, and not of its future: some executors cancel futures that are running, and
        a cluster that has lost its scheduler has futures that never end, and workers that still train.
        """

        def is_trained(future: Future[Outcome]) -> bool:
            return _is_trained(self.futures[future])

        def is_cancelled(future: Future[Outcome]) -> bool:
            try:
                return future.cancel()
            except Exception:  # the executor is gone, and its futures with it
                return True

        waiting = [future for future in self.futures if is_trained(future) or not is_cancelled(future)]
        while waiting:
            wait_for_futures(waiting, LOOK_EVERY)
            waiting = [future for future in waiting if not future.done() and is_trained(future)]
        give_up = time.monotonic() + WAIT_FOR_LOST
        while any(map(_is_trained, self.lost)) and time.monotonic() < give_up:
            time.sleep(LOOK_EVERY)

    def shut_down(self) -> None:
        """Does nothing: the executor is the user's."""


def _is_trained(job: Job) -> bool:
    return RunDirectory(job.store).is_trained_now()
