"""Times of two or more actions, taken in turn in one process.

Milliseconds differ between machines and from minute to minute; the ratio of times taken in turn does not.
"""

import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.context import ForkContext, SpawnContext
from statistics import median
from typing import Literal

from bayesticket.model import Architecture
from bayesticket.runs import TrainConfig, Training
from bayesticket.tasks import ModularAddition

RECORD_EVERY = 10
NEVER = 10**9


@dataclass(frozen=True)
class Effort:
    """How long to measure, and with which modulus.

    In each of `rounds`, every side takes `repeats` steps, or `recorded_repeats` where it records, so that each block of
    steps holds one record. An untimed round comes first if `warm_up`. Whole runs take `epochs`.
    """

    rounds: int
    repeats: int
    recorded_repeats: int
    epochs: int
    threads: int
    warm_up: bool = True
    start_method: Literal["spawn", "fork"] = "spawn"
    p: int = 113
    bits: int = 40
    """The bits of a sequence that is asked for each of its tokens."""

    @property
    def context(self) -> SpawnContext | ForkContext:
        """How processes are started."""
        forked = self.start_method == "fork"
        return multiprocessing.get_context("fork") if forked else multiprocessing.get_context("spawn")

    @property
    def bare(self) -> TrainConfig:
        """Training of a standard layer of the paper's size, or smaller as `p` says, without records but at epoch 0."""
        task, layer = ModularAddition(p=self.p), Architecture(residual=True)
        return TrainConfig(task=task, model=layer, record_every=NEVER, epochs=NEVER, warmup=0, device="cpu")

    @property
    def recorded(self) -> TrainConfig:
        """The same with the default records."""
        return replace(self.bare, record_every=RECORD_EVERY)


FULL = Effort(rounds=15, repeats=10, recorded_repeats=RECORD_EVERY, epochs=100, threads=2)
QUICK = Effort(rounds=1, repeats=1, recorded_repeats=1, epochs=4, threads=1, warm_up=False)
"""One step of each side, the first, which records; on one thread, since two are slow on a machine that is busy."""


def alternate(
    actions: Sequence[Callable[[], object]],
    *,
    rounds: int,
    repeats: int,
    warm_up: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Seconds that each action takes, with the actions in turn (A A B B, A A B B, … for two repeats).

    The result is the median over the rounds of the mean over a round's repeats: a disturbance of one round does not
    count, and a drift through all rounds affects every action alike.

    >>> times = iter([0, 6, 6, 8, 10, 16, 16, 20])  # A takes 6 and 6, B takes 2 and 4
    >>> alternate([lambda: None, lambda: None], rounds=2, repeats=2, clock=lambda: next(times))
    [3.0, 1.5]
    """

    def mean_seconds(action: Callable[[], object]) -> float:
        started = clock()
        for _ in range(repeats):
            action()
        return (clock() - started) / repeats

    for action in actions if warm_up else ():
        for _ in range(repeats):
            action()
    measured = [[mean_seconds(action) for action in actions] for _ in range(rounds)]
    return [float(median(of_action)) for of_action in zip(*measured, strict=True)]


def compare_steps(base: Training, varied: Training, effort: Effort) -> tuple[float, float]:
    """Seconds of a step of one training and of another."""
    records = min(base.config.record_every, varied.config.record_every) < NEVER
    repeats = effort.recorded_repeats if records else effort.repeats
    actions = [base.take_epoch, varied.take_epoch]
    before, after = alternate(actions, rounds=effort.rounds, repeats=repeats, warm_up=effort.warm_up)
    return before, after
