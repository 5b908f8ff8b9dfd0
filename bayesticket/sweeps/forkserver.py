"""The process that workers are forked from, which may be started before anything heavy is imported here.

This module imports nothing heavy either.
"""

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Iterator
from multiprocessing import forkserver

from bayesticket.sweeps.process import PARENT

START_METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
"""How worker processes are started: forked from a process that has imported everything and runs no threads.

A spawned process needs seconds to import torch and TransformerLens; "fork" is not safe in a program with threads.
"""
PRELOADED = ["bayesticket.sweeps.preload"]
"""What the process that workers are forked from imports once."""


def start_early() -> None:
    """Starts the process that workers are forked from, so that it imports at the same time as this one.

    It ends with this process. Without a call it is started with the first worker.
    """
    if START_METHOD != "forkserver":
        return
    multiprocessing.get_context(START_METHOD).set_forkserver_preload(PRELOADED)
    os.environ[PARENT] = str(os.getpid())
    with sigint_blocked():
        forkserver.ensure_running()


@contextlib.contextmanager
def sigint_blocked() -> Iterator[None]:
    """Blocks SIGINT; processes started inside inherit that, and a Ctrl-C here is delivered at the end."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
