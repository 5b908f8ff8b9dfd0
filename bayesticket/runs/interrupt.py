"""Ctrl-C during training: noted at once, obeyed between two steps."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bayesticket.runs.run import Run


class Interrupted(KeyboardInterrupt):
    """Training was stopped by Ctrl-C; `run` holds what was recorded, and the message says how to continue.

    `store` is the directory to resume from, or None. As a KeyboardInterrupt it passes by `except Exception`, and
    ends a script with a traceback; to go on with what there is, catch it by name:

        try:
            run = bt.train(task)
        except bt.Interrupted as interrupted:
            print(interrupted)
            run = interrupted.run
    """

    def __init__(self, message: str, run: Run, store: Path | None = None):
        super().__init__(message)
        self.run, self.store = run, store


@contextmanager
def deferred_interrupt() -> Iterator[threading.Event]:
    """Notes a first Ctrl-C instead of raising it, so that training can stop between two steps; a second one raises."""
    interrupted = threading.Event()
    ignored = signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None)  # by whoever started this process
    if ignored or threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def note(number: int, frame: object) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()

    previous = signal.signal(signal.SIGINT, note)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, previous)
