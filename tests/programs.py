"""Programs in processes of their own, which the tests kill and interrupt.

They are forked from the process of the tests, which has imported everything, so that they start at once. So do the
worker processes of their sweeps where a test sets `backends.START_METHOD` to "fork".
"""

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from bayesticket.runs import RunDirectory

PATIENCE = 60.0


class Program:
    """A function in a process of its own, which leads a session as a program started by a terminal does."""

    def __init__(self, function: Callable[..., object], *given: object):
        self.process = multiprocessing.get_context("fork").Process(target=_lead, args=(function, *given))
        self.process.start()
        assert self.process.pid is not None
        self.pid = self.process.pid

    def workers(self) -> list[psutil.Process]:
        """The processes that it has started and that are alive."""
        try:
            started = psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return [each for each in started if alive(each)]

    def kill_all(self) -> None:
        """Kills it, and what it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.join()

    def wait(self) -> int:
        """Waits for its end; returns its exit code."""
        self.process.join(PATIENCE)
        assert self.process.exitcode is not None, "it has not ended"
        return self.process.exitcode


def _lead(function: Callable[..., object], *given: object) -> None:
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    function(*given)


@contextlib.contextmanager
def running(function: Callable[..., object], *given: object) -> Iterator[Program]:
    """Runs a program, and kills it with all its processes at the end of the test."""
    program = Program(function, *given)
    try:
        yield program
    finally:
        started = program.workers()
        program.kill_all()
        for each in started:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until(condition: Callable[[], object], patience: float = PATIENCE) -> None:
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, "the condition has not come true"
        time.sleep(0.005)


def is_under_way(store: Path) -> bool:
    """Whether a run has a checkpoint and is being trained."""
    return (store / "checkpoint.safetensors").exists() and RunDirectory(store).progress_path.exists()
