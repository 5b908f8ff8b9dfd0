"""Many runs at once, in processes of this library's own or over any executor; what dies is begun again where it was."""

import abc
import contextlib
import copy
import multiprocessing
import os
import pickle
import secrets
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor
from concurrent.futures import wait as wait_for_futures
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for_connections
from multiprocessing.process import BaseProcess
from pathlib import Path

from filelock import FileLock

from bayesticket.errors import BayesticketError, refuse, require_integer
from bayesticket.files import one_line, prepare_directory
from bayesticket.sweeps.display import Display, displaying
from bayesticket.sweeps.process import LEFT, READY, serve
from bayesticket.sweeps.worker import Job, Outcome, train_job, train_pickled

START = "spawn"
"""How processes are started: the one way that is safe whatever threads there are."""
LOOK_EVERY = 0.5
"""Seconds between two looks at how far the runs are."""
BUSY_FOR = 2.0
"""Seconds to wait before a run that somebody else is training is tried again."""
MOST_DEATHS = 25
"""How often in a row a run's process may die without the run getting any further; it takes none of the others along."""
MOST_ERRORS = 3
"""The same for an executor that was given, which may have tried several times for each time that it reports."""
MOST_STILLBORN = 3
"""How many processes in a row may end by themselves before they can train."""


def train_jobs(
    jobs: Sequence[Job],
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    progress: bool | None = None,
) -> dict[str, Outcome]:
    """Trains jobs, begun in their order, and says how each has ended; one that fails does not stop the others.

    By default in processes of their own, one thread each, as many as there are cores. On Ctrl-C every run is
    checkpointed, and KeyboardInterrupt goes on. `progress` shows bars: True, False, on a terminal (None).
    """
    require_manner(executor, workers, progress)
    names = [job.name for job in jobs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise refuse("jobs", twice, "names that differ")
    if not jobs:
        return {}
    going = prepare_directory("store", jobs[0].store.parent) / f".going.{secrets.token_hex(4)}"
    size = min(workers or available_cores(), len(jobs))
    crew = _Processes(jobs, size, going) if executor is None else _Given(executor, jobs, going)
    with _there(going), displaying(jobs, progress) as display:
        return _Work(jobs, crew, display, going).finish()


def require_manner(executor: object, workers: object, progress: object) -> None:
    """Refuses what cannot say where to train, and what to show of it."""
    if executor is not None and not isinstance(executor, Executor):
        accepted = (
            "None, or a concurrent.futures.Executor, such as ProcessPoolExecutor() or dask's client.get_executor()"
        )
        raise refuse("executor", executor, accepted)
    if executor is not None and workers is not None:
        raise refuse("workers", workers, "None with an executor, which has workers of its own")
    if workers is not None:
        require_integer("workers", workers, least=1)
    if progress is not None and not isinstance(progress, bool):
        raise refuse("progress", progress, "True, False or None")


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def _there(going: Path) -> Iterator[None]:
    """A file that says, by being there, that the runs are to go on: to take it away needs no room on any disk.

    It is locked for as long, so that those whose makers have died are known, and taken away: what still trains for
    one of them, on another machine, makes room.
    """
    for other in going.parent.glob(".going.*"):
        with contextlib.suppress(OSError), FileLock(other, timeout=0):
            other.unlink()
    try:
        lock = FileLock(going, timeout=10).acquire()  # others that begin now may try to lock it too
    except OSError as error:
        raise refuse("store", str(going.parent), f"a directory that can be written to ({error.strerror})") from error
    with lock:
        try:
            yield
        finally:
            going.unlink(missing_ok=True)


# Who trains -------------------------------------------------------------------------------------------------------


class _Crew(abc.ABC):
    """Who trains the jobs."""

    most_deaths: int

    @abc.abstractmethod
    def has_room(self) -> bool:
        """Whether another job can be begun."""

    @abc.abstractmethod
    def begin(self, job: Job) -> None:
        """Has a job trained."""

    @abc.abstractmethod
    def ended(self, timeout: float) -> list[tuple[Job, Outcome]]:
        """The jobs that have ended, waiting for one if need be."""

    @abc.abstractmethod
    def stop(self, has_begun: Callable[[Job], bool]) -> None:
        """Ends everything, once the jobs that have begun have stopped; they know that they are to."""

    @abc.abstractmethod
    def dismiss(self) -> None:
        """Ends everything, when there is nothing left to do."""


def _pickled(job: Job) -> bytes:
    try:
        return pickle.dumps(job)
    except Exception as error:
        raise BayesticketError(
            f"{job.name}: got what cannot be sent to another process ({one_line(error)}); accepted: classes and "
            "functions defined at the top of a module"
        ) from error


@dataclass
class _Process:
    """A process of our own, and the job it trains."""

    process: BaseProcess
    job: Job | None
    ready: bool = False


class _Processes(_Crew):
    """Processes of our own, which are replaced when they die; unlike those of an executor, one by one."""

    most_deaths = MOST_DEATHS

    def __init__(self, jobs: Sequence[Job], size: int, going: Path):
        self.size, self.going = size, going
        self.pickled = {job.name: _pickled(job) for job in jobs}
        self.processes: dict[Connection, _Process] = {}
        self.stillborn = 0

    def has_room(self) -> bool:
        return sum(each.job is not None for each in self.processes.values()) < self.size

    def begin(self, job: Job) -> None:
        for connection, each in self.processes.items():
            if each.job is None:
                each.job = job
                self._send(connection, job)
                return
        self._start(job)

    def _start(self, job: Job) -> None:
        context = multiprocessing.get_context(START)
        try:
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs,), daemon=True)
            with _deaf_to_interrupts():
                process.start()
                self.processes[ours] = _Process(process, job)
        except OSError as error:
            raise BayesticketError(f"workers: another process could not be started ({one_line(error)})") from error
        theirs.close()

    def _send(self, connection: Connection, job: Job | None) -> None:
        with contextlib.suppress(OSError):  # it has died, as will be heard
            connection.send(None if job is None else (self.pickled[job.name], self.going))

    def ended(self, timeout: float) -> list[tuple[Job, Outcome]]:
        outcomes: list[tuple[Job, Outcome]] = []
        for connection in wait_for_connections(list(self.processes), timeout):
            assert isinstance(connection, Connection)
            each = self.processes[connection]
            try:
                said = connection.recv()
            except (EOFError, OSError):
                said = self._bury(connection)
            if said == READY:
                each.ready, self.stillborn = True, 0
                assert each.job is not None
                self._send(connection, each.job)
            elif each.job is not None:
                outcomes.append((each.job, said))
                each.job = None
        return outcomes

    def _bury(self, connection: Connection) -> Outcome:
        each = self.processes.pop(connection)
        connection.close()
        each.process.join()
        code = each.process.exitcode or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        if not each.ready and code > 0 and code != LEFT:
            self.stillborn += 1
            if self.stillborn >= MOST_STILLBORN:
                raise BayesticketError(
                    f"workers: {self.stillborn} processes in a row {how} before they could train, and printed why; a "
                    'script that trains in processes has to do so under `if __name__ == "__main__":`'
                )
        return Outcome("died", f"its process {how}")

    def stop(self, has_begun: Callable[[Job], bool]) -> None:
        for each in self.processes.values():
            if not each.ready:
                each.process.kill()
        self.dismiss()

    def dismiss(self) -> None:
        for connection in self.processes:
            self._send(connection, None)
            connection.close()
        for each in self.processes.values():
            each.process.join()


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes started inside never hear of Ctrl-C, which a terminal sends to all; here it is heard afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Given(_Crew):
    """An executor of the user's, who ends it."""

    most_deaths = MOST_ERRORS

    def __init__(self, executor: Executor, jobs: Sequence[Job], going: Path):
        self.executor, self.going = executor, going
        by_pickle = isinstance(executor, ProcessPoolExecutor)
        self.pickled = {job.name: _pickled(job) for job in jobs} if by_pickle else {}
        self.at_work: dict[Future[Outcome], Job] = {}

    def has_room(self) -> bool:
        return True

    def begin(self, job: Job) -> None:
        attempt = secrets.token_hex(4)
        try:
            if self.pickled:
                future = self.executor.submit(train_pickled, self.pickled[job.name], self.going, attempt)
            else:  # a copy, since threads would share what a configuration holds, a teacher's hooks among it
                future = self.executor.submit(train_job, copy.deepcopy(job), self.going, attempt)
        except Exception as error:
            raise self._no_more(error) from error
        self.at_work[future] = job

    def ended(self, timeout: float) -> list[tuple[Job, Outcome]]:
        ended, _ = wait_for_futures(self.at_work, timeout, return_when=FIRST_COMPLETED)
        return [(self.at_work.pop(future), self._outcome(future)) for future in ended]

    def _outcome(self, future: "Future[Outcome]") -> Outcome:
        if future.cancelled():
            return Outcome("died", "the executor has cancelled it")
        error = future.exception()
        if error is None:
            return future.result()
        if isinstance(error, BrokenExecutor):
            raise self._no_more(error) from error
        trace = "".join(traceback.format_exception(error))
        return Outcome("died", f"the executor lost it ({type(error).__name__}: {one_line(error)})", trace)

    def _no_more(self, error: BaseException) -> BayesticketError:
        return BayesticketError(
            f"executor: {type(self.executor).__name__} takes no more runs ({type(error).__name__}: {one_line(error)}); "
            "what was trained is kept, call the same again with a new one to go on"
        )

    def stop(self, has_begun: Callable[[Job], bool]) -> None:
        for future, job in self.at_work.items():
            if not has_begun(job):  # not asked of the future, since some can be cancelled while they are at work
                future.cancel()
        wait_for_futures([future for future in self.at_work if not future.cancelled()])

    def dismiss(self) -> None:
        pass


# What there is to do ----------------------------------------------------------------------------------------------


class _Work:
    """What there is to do, what is being done, and what has come of it."""

    def __init__(self, jobs: Sequence[Job], crew: _Crew, display: Display, going: Path):
        self.jobs, self.crew, self.display, self.going = jobs, crew, display, going
        self.waiting = deque(jobs)
        self.at_work: set[str] = set()
        self.later: dict[str, tuple[Job, float]] = {}
        """Jobs that cannot be trained now, and when to try again."""
        self.outcomes: dict[str, Outcome] = {}
        self.deaths: dict[str, tuple[int, int]] = {}
        """How often in a row a job has died, and the furthest epoch it has reached."""
        self.told_of_others = False

    def finish(self) -> dict[str, Outcome]:
        """Goes on until every job has ended."""
        try:
            while len(self.outcomes) < len(self.jobs):
                self._look()
        except BaseException:
            self.going.unlink(missing_ok=True)
            self.display.look()
            self.crew.stop(lambda job: job.name in self.display.states)
            raise
        self.crew.dismiss()
        return {job.name: self.outcomes[job.name] for job in self.jobs}

    def _look(self) -> None:
        for name, (job, when) in list(self.later.items()):
            if time.monotonic() >= when:
                del self.later[name]
                self.waiting.append(job)
        while self.waiting and self.crew.has_room():
            job = self.waiting.popleft()
            self.at_work.add(job.name)
            self.crew.begin(job)
        if not self.at_work:
            time.sleep(LOOK_EVERY)
        for job, outcome in self.crew.ended(LOOK_EVERY):
            self.at_work.discard(job.name)
            self._take(job, outcome)
        self.display.show(self.outcomes)

    def _take(self, job: Job, outcome: Outcome) -> None:
        for note in outcome.notes:
            self.display.say(f"{job.name}: {note}")
        if outcome.kind == "busy":
            self._try_later(job)
            if not self.told_of_others and not self.waiting and not self.at_work:
                self.told_of_others = True
                n_runs = len(self.jobs) - len(self.outcomes)
                self.display.say(
                    f"waiting for {'a run' if n_runs == 1 else f'{n_runs} runs'} that somebody else trains"
                )
        elif outcome.kind == "stopped" and not self.going.exists():  # taken away, and not from here
            self.going.touch()
            self.waiting.appendleft(job)
        elif outcome.kind == "stopped":
            blind = f"it stopped since {self.going} is not there; its process has to see the store under the same path"
            self._try_again(job, Outcome("died", blind))
        elif outcome.kind == "died":
            self._try_again(job, outcome)
        else:
            self.outcomes[job.name] = outcome

    def _try_later(self, job: Job) -> None:
        self.later[job.name] = (job, time.monotonic() + BUSY_FOR)

    def _try_again(self, job: Job, death: Outcome) -> None:
        self.display.look()
        state = self.display.states.get(job.name)
        reached = -1 if state is None else state.epoch
        deaths, furthest = self.deaths.get(job.name, (0, -1))
        deaths = 1 if reached > furthest else deaths + 1
        self.deaths[job.name] = deaths, max(reached, furthest)
        if deaths >= self.crew.most_deaths:
            error = f"{death.error}, as it did {deaths} times in a row without getting any further"
            self.outcomes[job.name] = Outcome("failed", error, death.traceback)
            return
        self.display.say(f"{job.name}: {death.error}; it goes on from its last checkpoint")
        self.waiting.appendleft(job)


def failures(outcomes: Mapping[str, Outcome]) -> BayesticketError | None:
    """The error to raise for jobs that have failed, if any has."""
    failed = {name: outcome for name, outcome in outcomes.items() if outcome.kind == "failed"}
    if not failed:
        return None
    name, first = next(iter(failed.items()))
    others = f" (and {len(failed) - 1} more of {len(outcomes)} runs)" if len(failed) > 1 else ""
    error = BayesticketError(f"{name}: {first.error}{others}; what was saved is kept, call the same again to go on")
    if first.traceback:
        error.add_note(first.traceback)
    return error
