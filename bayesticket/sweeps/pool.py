"""Trains many runs at once, in worker processes or in an executor; a run whose process dies is resumed."""

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path

from filelock import FileLock

from bayesticket.errors import BayesticketError, refuse, require_integer
from bayesticket.files import prepare_directory
from bayesticket.sweeps.backends import ExecutorBackend, ProcessBackend
from bayesticket.sweeps.display import ShowJobs, displaying
from bayesticket.sweeps.job_queue import JobQueue
from bayesticket.sweeps.worker import Job, Outcome


def train_jobs(
    jobs: Sequence[Job],
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    progress: bool | None = None,
    display: ShowJobs | None = None,
) -> dict[str, Outcome]:
    """Trains jobs, started in the given order, and returns the outcome of each; a failed job does not stop the others.

    By default they are trained in processes, each on one torch thread, and as many as there are cores. On Ctrl-C every
    run writes a checkpoint, then KeyboardInterrupt is raised. `progress` shows bars: True, False, or only on a terminal
    (None); `display` gives something else that shows it.
    """
    require_execution(executor, workers, progress)
    names = [job.name for job in jobs]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise refuse("jobs", repeated, "names that differ")
    if not jobs:
        return {}
    alive_file = prepare_directory("store", jobs[0].store.parent) / f".alive.{secrets.token_hex(4)}"
    size = min(workers or available_cores(), len(jobs))
    if executor is None:
        backend = ProcessBackend(jobs, size, alive_file)
    else:
        backend = ExecutorBackend(executor, jobs, alive_file)
    with held_alive_file(alive_file), displaying(jobs, progress, display) as shown:
        return JobQueue(jobs, backend, shown, alive_file).run()


def require_execution(executor: object, workers: object, progress: object) -> None:
    """Raises unless executor, workers and progress can be used, and go together."""
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
def held_alive_file(path: Path) -> Iterator[None]:
    """Creates the alive file of a sweep, locks it, and removes it at the end.

    The runs of the sweep are trained as long as the file exists. Its removal is the signal to stop, and not the
    creation of a stop file, because removing a file works on a full disk too, and every machine that sees the store
    notices it. The lock tells the files of sweeps that are running from those of sweeps that were killed: alive files
    that nobody holds are removed here, so that processes that still train for a killed sweep, perhaps on another
    machine, stop.
    """
    for other in path.parent.glob(".alive.*"):
        with contextlib.suppress(OSError), FileLock(other, timeout=0):
            other.unlink()
    try:
        lock = FileLock(path, timeout=10).acquire()  # another sweep that starts now may hold it for a moment
    except OSError as error:
        raise refuse("store", str(path.parent), f"a directory that can be written to ({error.strerror})") from error
    with lock:
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def failures(outcomes: Mapping[str, Outcome]) -> BayesticketError | None:
    """The error to raise for the jobs that have failed; None if none has."""
    failed = {name: outcome for name, outcome in outcomes.items() if outcome.kind == "failed"}
    if not failed:
        return None
    name, first = next(iter(failed.items()))
    others = f" (and {len(failed) - 1} more of {len(outcomes)} runs)" if len(failed) > 1 else ""
    error = BayesticketError(f"{name}: {first.error}{others}; what was saved is kept, call the same again to go on")
    if first.traceback:
        error.add_note(first.traceback)
    return error
