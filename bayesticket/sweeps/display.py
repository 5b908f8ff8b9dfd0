"""The display of a sweep's progress: bars on a terminal, plain lines elsewhere."""

import contextlib
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence

from tqdm import tqdm

from bayesticket.sweeps.progress import Progress, read_progress
from bayesticket.sweeps.worker import Job


class Display:
    """Reads the progress files of runs. This class prints only messages; `Bars` and `Lines` show the progress too."""

    def __init__(self, jobs: Sequence[Job]):
        self.jobs = {job.name: job for job in jobs}
        self.initial = {name: read_progress(job.store) for name, job in self.jobs.items()}
        """Progress files that an earlier sweep left; a run has started here once its file differs."""
        self.latest: dict[str, Progress] = {}
        """The latest progress of each run that has started."""

    def refresh(self, ended: Collection[str] = ()) -> None:
        """Reads the progress files of the runs that have not ended."""
        for name, job in self.jobs.items():
            progress = None if name in ended else read_progress(job.store)
            if progress is not None and (name in self.latest or progress != self.initial[name]):
                self.latest[name] = progress

    def running(self, ended: Collection[str]) -> dict[str, Progress]:
        """The progress of the runs that have started and not ended."""
        return {name: self.latest[name] for name in self.jobs if name in self.latest and name not in ended}

    def update(self, ended: Collection[str]) -> None:
        """Shows how many runs have ended, and how far the others are."""
        self.refresh(ended)

    def announce(self, message: str) -> None:
        """Prints a message for the user."""
        print(f"bayesticket: {message}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Ends the display."""


class Bars(Display):
    """A bar for all runs together, and below it a bar for each run that is being trained."""

    def __init__(self, jobs: Sequence[Job]):
        super().__init__(jobs)
        self.total = tqdm(total=len(jobs), desc="runs", unit="run", position=0, dynamic_ncols=True)
        self.bars: dict[str, tqdm] = {}

    def update(self, ended: Collection[str]) -> None:
        """Moves the bars, closes those of runs that have ended, and opens those of runs that have started."""
        super().update(ended)
        for name in [name for name in self.bars if name in ended]:
            self.bars.pop(name).close()
        for name, progress in self.running(ended).items():
            if name not in self.bars:
                self.bars[name] = self._bar(name, progress)
            bar = self.bars[name]
            bar.set_postfix_str(progress.accuracies(), refresh=False)
            bar.update(max(0, progress.epoch - bar.n))
        self.total.update(len(ended) - self.total.n)
        self.total.refresh()

    def _bar(self, name: str, progress: Progress) -> tqdm:
        taken = {-bar.pos for bar in self.bars.values()}
        position = next(position for position in range(1, len(self.jobs) + 2) if position not in taken)
        return tqdm(
            total=self.jobs[name].config.epochs,
            initial=progress.epoch,
            desc=name,
            unit="epoch",
            position=position,
            leave=False,
            dynamic_ncols=True,
        )

    def announce(self, message: str) -> None:
        """Prints a message above the bars."""
        tqdm.write(f"bayesticket: {message}", file=sys.stderr)

    def close(self) -> None:
        """Closes the bars, the lowest first."""
        for bar in [*reversed(self.bars.values()), self.total]:
            bar.close()


class Lines(Display):
    """A line every `every` seconds, and whenever a run has ended; for log files and notebooks without a terminal."""

    def __init__(self, jobs: Sequence[Job], *, every: float = 15.0, clock: Callable[[], float] = time.monotonic):
        super().__init__(jobs)
        self.every, self.clock, self.started = every, clock, clock()
        self.last_line, self.ended_then = self.started, 0
        """When the last line was printed, and how many runs had ended then."""
        most = max(job.config.epochs for job in jobs)
        runs = "1 run" if len(jobs) == 1 else f"{len(jobs)} runs"
        print(f"training {runs}, at most {most:,} epochs each", file=sys.stderr, flush=True)

    def update(self, ended: Collection[str]) -> None:
        """Prints a line if it is due."""
        super().update(ended)
        now = self.clock()
        if len(ended) == self.ended_then and now - self.last_line < self.every:
            return
        self.last_line, self.ended_then = now, len(ended)
        runs = [f"{name}: {progress}" for name, progress in self.running(ended).items()]
        line = " | ".join([f"{now - self.started:4.0f} s", f"{len(ended)} of {len(self.jobs)} done", *runs])
        print(line, file=sys.stderr, flush=True)


ShowJobs = Callable[[Sequence[Job]], Display]
"""Gives the display of jobs that are about to be trained."""


@contextlib.contextmanager
def displaying(jobs: Sequence[Job], progress: bool | None, own: ShowJobs | None = None) -> Iterator[Display]:
    """The display to use: with `progress` True bars, or lines without a terminal; False none; None bars or none.

    `own` gives another display, whatever `progress` is.
    """
    on_terminal = sys.stderr.isatty()
    shown = on_terminal if progress is None else progress
    usual = (Bars if on_terminal else Lines) if shown else Display
    display = (own or usual)(jobs)
    try:
        yield display
    finally:
        display.close()
