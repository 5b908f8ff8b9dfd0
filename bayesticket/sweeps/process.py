"""A process that trains one job after another, and does not outlive its parent.

Nothing heavy is imported above, so that it looks after itself long before it can train.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from multiprocessing.connection import Connection, wait

LEAVING, _AT_WORK = threading.Event(), threading.Event()
LEAVE_WITHIN = 5.0
"""Seconds that a process whose parent has died has for a last checkpoint."""
LEFT = 75
"""Exit code of a process that was told to leave."""
READY = "ready"
"""What a process says before its first job."""


def serve(connection: Connection) -> None:
    """Trains the pickled jobs that it is sent, and answers with what came of them, until it is sent None.

    Ctrl-C, which a terminal sends to all, is its parent's to decide about. On SIGTERM, and when its parent has died,
    it leaves, with a checkpoint.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: _leave())
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    from bayesticket.sweeps.worker import train_pickled

    with contextlib.suppress(EOFError, OSError):
        connection.send(READY)
        while (sent := connection.recv()) is not None:
            _AT_WORK.set()
            outcome = train_pickled(*sent)
            _AT_WORK.clear()
            if LEAVING.is_set():
                os._exit(LEFT)
            connection.send(outcome)


def _leave() -> None:
    LEAVING.set()
    if not _AT_WORK.is_set():
        os._exit(LEFT)


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    _leave()
    time.sleep(LEAVE_WITHIN)
    os._exit(LEFT)
