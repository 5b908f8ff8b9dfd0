"""Curves in the terminal while runs are trained: a line of test accuracy for each."""

import os
import shutil
import sys
import time
from collections.abc import Callable, Collection, Sequence

from bayesticket.sweeps import Display, Job, Lines

BARS = "▁▂▃▄▅▆▇█"
EVERY = 5.0
"""Seconds between two lines where curves cannot be drawn."""


def live_curves(jobs: Sequence[Job]) -> Display:
    """Curves on a terminal that can move its cursor, plain lines elsewhere."""
    plain = not sys.stderr.isatty() or os.environ.get("TERM", "") in ("", "dumb")
    return Lines(jobs, every=EVERY) if plain or not _can_write_bars() else LiveCurves(jobs)


def _can_write_bars() -> bool:
    try:
        BARS.encode(sys.stderr.encoding or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True


def sparkline(points: Sequence[tuple[int, float]], last: int, width: int) -> str:
    """A curve as one line of characters; it ends where its points do.

    Points are epochs and values from 0 to 1; the line spans the epochs from 0 to `last`.

    >>> sparkline([(0, 0.0), (50, 0.5), (60, 1.0)], last=100, width=10)
    '▁▁▁▁▁▅█   '
    """
    cells = [" "] * width
    reached, value = 0, 0.0
    for epoch, height in points:
        place = min(epoch * width // last, width - 1)
        cells[reached:place] = [_bar(value)] * (place - reached)
        cells[place] = _bar(height)
        reached, value = place, height
    return "".join(cells)


def _bar(value: float) -> str:
    return BARS[round(min(max(value, 0.0), 1.0) * (len(BARS) - 1))] if value == value else BARS[0]


def _common_end(names: Sequence[str]) -> str:
    """The last part of the names, from a comma on, where it is the same for all of several names.

    >>> _common_end(["none, seed 0", "kl, seed 0"]), _common_end(["a, seed 0", "a, seed 1"]), _common_end(["a, seed 0"])
    (', seed 0', '', '')
    """
    ends = {"".join(name.rpartition(", ")[1:]) for name in names}
    end = ends.pop() if len(ends) == 1 and len(names) > 1 else ""
    return end if end.startswith(", ") else ""


class LiveCurves(Display):
    """The test accuracy of each run through its epochs, drawn again in place as training goes on."""

    def __init__(self, jobs: Sequence[Job], clock: Callable[[], float] = time.monotonic):
        super().__init__(jobs)
        self.clock, self.started = clock, clock()
        self.points: dict[str, list[tuple[int, float]]] = {name: [] for name in self.jobs}
        self.shared = _common_end(list(self.jobs))
        """What all names end with, such as ", seed 0", and need not say."""
        self.drawn = 0
        """How many lines stand above the cursor."""

    def update(self, ended: Collection[str]) -> None:
        """Draws the curves again."""
        super().update(ended)
        for name, progress in self.latest.items():
            points = self.points[name]
            if not points or points[-1][0] < progress.epoch:
                points.append((progress.epoch, progress.test_accuracy))
        self._draw(ended)

    def _draw(self, ended: Collection[str]) -> None:
        columns = shutil.get_terminal_size().columns
        most = max(job.config.epochs for job in self.jobs.values())
        reached = max((progress.epoch for progress in self.latest.values()), default=0)
        last = max(reached, most // 2)
        lines = [f"{self.clock() - self.started:4.0f} s · test accuracy, epochs 0 to {last:,}"]
        lines += [self._line(name, ended, last, columns) for name in self.jobs]
        text = "".join(f"\r\x1b[2K{line[: columns - 1]}\n" for line in lines)
        sys.stderr.write((f"\x1b[{self.drawn}A" if self.drawn else "") + text)
        sys.stderr.flush()
        self.drawn = len(lines)

    def _line(self, name: str, ended: Collection[str], last: int, columns: int) -> str:
        widest = max(map(len, self.jobs)) - len(self.shared)
        progress = self.latest.get(name)
        state = "ended" if name in ended else "waiting" if progress is None else f"{progress.epoch:,}"
        said = f"{state:>7}" + ("" if progress is None else f"  {progress.accuracies()}")
        width = max(8, min(60, columns - widest - 45))
        label = name.removesuffix(self.shared).ljust(widest)
        return f"{label} {sparkline(self.points[name], last, width)} {said}"

    def announce(self, message: str) -> None:
        """Prints a message; the curves go on below it."""
        sys.stderr.write(f"bayesticket: {message}\n")
        sys.stderr.flush()
        self.drawn = 0
