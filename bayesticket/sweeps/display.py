"""What many runs are doing, as bars on a terminal and as lines elsewhere."""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from tqdm import tqdm

from bayesticket.sweeps.worker import Job, beside


@dataclass(frozen=True)
class State:
    """How far a run has got, as it says itself."""

    epoch: int = 0
    train_accuracy: float = 0.0
    test_accuracy: float = 0.0

    def __str__(self) -> str:
        """In a few words.

        >>> print(State(1620, 1.0, 0.0134))
        epoch 1,620, train 100%, test 1%
        """
        return f"epoch {self.epoch:,}, {self.accuracies()}"

    def accuracies(self) -> str:
        """The accuracies alone."""
        return f"train {self.train_accuracy:.0%}, test {self.test_accuracy:.0%}"


class Display:
    """Follows runs by what they say beside their stores, and shows nothing; the others show what it knows."""

    def __init__(self, jobs: Sequence[Job]):
        self.jobs = {job.name: job for job in jobs}
        self.at_first = {name: said_of(job) for name, job in self.jobs.items()}
        self.states: dict[str, State] = {}
        """Of the runs that have said something since this display was made, what they said last."""

    def look(self, ended: Collection[str] = ()) -> None:
        """Reads what the runs that have not ended say of themselves."""
        for name, job in self.jobs.items():
            state = None if name in ended else said_of(job)
            if state is not None and (name in self.states or state != self.at_first[name]):
                self.states[name] = state

    def at_work(self, ended: Collection[str]) -> dict[str, State]:
        """The runs that have begun and not ended."""
        return {name: self.states[name] for name in self.jobs if name in self.states and name not in ended}

    def show(self, ended: Collection[str]) -> None:
        """Shows how many runs have ended, and what the others do."""
        self.look(ended)

    def say(self, text: str) -> None:
        """Says something in between."""
        print(f"bayesticket: {text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Puts everything in order."""


def said_of(job: Job) -> State | None:
    """What a run says of itself, if anything."""
    try:
        said = json.loads(beside(job.store, "progress").read_text())
        return State(int(said["epoch"]), float(said["train_accuracy"]), float(said["test_accuracy"]))
    except (OSError, ValueError, KeyError, TypeError):  # not there, or half written
        return None


class Bars(Display):
    """A bar over all runs, and below it one for each that is at work."""

    def __init__(self, jobs: Sequence[Job]):
        super().__init__(jobs)
        self.total = tqdm(total=len(jobs), desc="runs", unit="run", position=0, dynamic_ncols=True)
        self.bars: dict[str, tqdm] = {}

    def show(self, ended: Collection[str]) -> None:
        """Moves the bars, closes those of runs that have ended, and opens others."""
        super().show(ended)
        for name in [name for name in self.bars if name in ended]:
            self.bars.pop(name).close()
        for name, state in self.at_work(ended).items():
            if name not in self.bars:
                self.bars[name] = self._bar(name, state)
            bar = self.bars[name]
            bar.set_postfix_str(state.accuracies(), refresh=False)
            bar.update(max(0, state.epoch - bar.n))
        self.total.update(len(ended) - self.total.n)
        self.total.refresh()

    def _bar(self, name: str, state: State) -> tqdm:
        taken = {-bar.pos for bar in self.bars.values()}
        place = next(place for place in range(1, len(self.jobs) + 2) if place not in taken)
        return tqdm(
            total=self.jobs[name].config.epochs,
            initial=state.epoch,
            desc=name,
            unit="epoch",
            position=place,
            leave=False,
            dynamic_ncols=True,
        )

    def say(self, text: str) -> None:
        """Writes above the bars."""
        tqdm.write(f"bayesticket: {text}", file=sys.stderr)

    def close(self) -> None:
        """Closes the bars, from the last to the first."""
        for bar in [*reversed(self.bars.values()), self.total]:
            bar.close()


class Lines(Display):
    """A plain line every so often, where there is no terminal."""

    def __init__(self, jobs: Sequence[Job], *, every: float = 15.0, clock: Callable[[], float] = time.monotonic):
        super().__init__(jobs)
        self.every, self.clock, self.began = every, clock, clock()
        self.told, self.told_of = self.began, 0
        most = max(job.config.epochs for job in jobs)
        runs = "1 run" if len(jobs) == 1 else f"{len(jobs)} runs"
        print(f"training {runs}, at most {most:,} epochs each", file=sys.stderr, flush=True)

    def show(self, ended: Collection[str]) -> None:
        """Prints where all runs are when it is time to, or when one has ended."""
        super().show(ended)
        now = self.clock()
        if len(ended) == self.told_of and now - self.told < self.every:
            return
        self.told, self.told_of = now, len(ended)
        runs = [f"{name}: {state}" for name, state in self.at_work(ended).items()]
        line = " | ".join([f"{now - self.began:4.0f} s", f"{len(ended)} of {len(self.jobs)} done", *runs])
        print(line, file=sys.stderr, flush=True)


@contextlib.contextmanager
def displaying(jobs: Sequence[Job], progress: bool | None) -> Iterator[Display]:
    """The display that is asked for: none, bars or lines (True), bars on a terminal and else none (None)."""
    on_terminal = sys.stderr.isatty()
    wanted = on_terminal if progress is None else progress
    display = (Bars(jobs) if on_terminal else Lines(jobs)) if wanted else Display(jobs)
    try:
        yield display
    finally:
        display.close()
