"""Ctrl-C, SIGTERM and SIGHUP during training: noted at once, obeyed between two steps."""

import logging
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from bayesticket.runs.run import Run

log = logging.getLogger("bayesticket")
ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""The signals by which a program is asked to end: by `timeout`, a batch system, or a terminal that is closed."""


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


class Requested:
    """Whether training was asked to stop, and by which signal: SIGINT unless another one came."""

    def __init__(self):
        self._event, self.signal = threading.Event(), signal.SIGINT

    def set(self, number: int = signal.SIGINT) -> None:
        """Asks training to stop."""
        self.signal = signal.Signals(number)
        self._event.set()

    def is_set(self) -> bool:
        """Whether training was asked to stop."""
        return self._event.is_set()


@contextmanager
def deferred_interrupt() -> Iterator[Requested]:
    """Notes a first Ctrl-C, SIGTERM or SIGHUP, so that training can stop between two steps; a second one acts at once.

    A signal that the program ignores, or that it handles by itself, is left to it.
    """
    requested = Requested()

    def note(number: int, frame: object) -> None:
        if requested.is_set():
            _obey(number, frame)
        requested.set(number)

    ignored = signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None)  # by whoever started this process
    with handled(note, [] if ignored else [signal.SIGINT]):
        yield requested


@contextmanager
def handled(handle: Callable[[int, object], object], others: Iterable[int] = ()) -> Iterator[None]:
    """Has a function handle SIGTERM and SIGHUP, unless the program handles or ignores them, and other signals too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    unhandled = [number for number in ENDING if signal.getsignal(number) is signal.SIG_DFL]
    replaced = {number: signal.getsignal(number) for number in [*unhandled, *others]}
    try:
        for number in replaced:
            signal.signal(number, handle)
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)


class Ended(SystemExit):
    """SIGTERM or SIGHUP asked the program to end; it does so with the exit code that shells expect."""

    def __init__(self, number: int):
        super().__init__(128 + number)
        self.signal = number


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raises `Ended` on SIGTERM and SIGHUP, as KeyboardInterrupt is raised on Ctrl-C."""
    with handled(_obey):
        yield


def _obey(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt if number == signal.SIGINT else Ended(number)


def end_program(number: int, message: str) -> NoReturn:
    """Ends the program as a signal asked, with one line that says what was kept."""
    log.warning("%s: %s", signal.Signals(number).name, message)
    raise Ended(number)
