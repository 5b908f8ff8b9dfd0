"""The worker process of a sweep: it trains one job after another, and ends when its parent process ends.

This module imports nothing heavy, so that a process that was spawned handles signals and watches its parent before it
has imported torch, which takes seconds.
"""

import contextlib
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait

TERMINATING = threading.Event()
"""Set when this process is to stop training and exit; training checks it after every epoch."""
_TRAINING = threading.Event()
CHECKPOINT_GRACE = 5.0
"""Seconds that a process has for a last checkpoint after its parent has died; then it exits in any case."""
EXIT_TERMINATED = 75
"""Exit code of a process that was terminated from outside, and did not fail by itself."""
PARENT = "BAYESTICKET_PARENT"
"""The environment variable by which the process that workers are forked from knows whose it is."""
READY = "ready"
"""The message that a process sends when it has imported everything and can train its first job."""


@dataclass(frozen=True)
class Warned:
    """The message that a process sends for a warning, which its parent logs once for all processes."""

    text: str


def serve(connection: Connection, environment: Mapping[str, str]) -> None:
    """Trains the pickled jobs that arrive on a connection, and sends back their outcomes, until it receives None.

    `environment` is that of the parent process; what this process was forked from may have an older one. Ctrl-C is
    ignored: a terminal sends it to all processes, and the parent decides what to do. On SIGTERM, on SIGHUP, and when
    the parent has died, the process writes a checkpoint and exits.
    """
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), lambda number, frame: _terminate())
    threading.Thread(target=_terminate_with_parent, daemon=True).start()
    from bayesticket.sweeps.worker import train_pickled

    with contextlib.suppress(EOFError, OSError):  # the parent has died or closed the connection
        _send_warnings(connection)
        connection.send(READY)
        while (message := connection.recv()) is not None:
            _TRAINING.set()
            outcome = train_pickled(*message)
            _TRAINING.clear()
            if TERMINATING.is_set():
                os._exit(EXIT_TERMINATED)
            connection.send(outcome)


def _send_warnings(connection: Connection) -> None:
    """Makes what the library warns of in this process a message to its parent."""

    class Send(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            connection.send(Warned(record.getMessage()))

    log = logging.getLogger("bayesticket")
    log.addHandler(Send(logging.WARNING))
    log.propagate = False


def _terminate() -> None:
    """Exits: at once if nothing is being trained, and otherwise once training has stopped."""
    TERMINATING.set()
    if not _TRAINING.is_set():
        os._exit(EXIT_TERMINATED)


def _terminate_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    _terminate()
    time.sleep(CHECKPOINT_GRACE)
    os._exit(EXIT_TERMINATED)
