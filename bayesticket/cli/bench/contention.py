"""One torch thread against two, on a quiet machine and on one where another process computes.

Two threads wait for each other after every small product. When another program holds a core, one of them waits for as
long as the system keeps the other from running. These rows are why a run trains on one thread unless told otherwise.
"""

import contextlib
from dataclasses import replace

from bayesticket.cli.bench.load import busy_machine
from bayesticket.cli.bench.table import Measurement, against
from bayesticket.cli.bench.timing import Effort, alternate
from bayesticket.runs import Training
from bayesticket.tasks import ModularAddition
from bayesticket.threads import torch_threads


def two_threads(effort: Effort, p: int, *, busy: bool) -> Measurement:
    """A bare step on two torch threads against one, without or with another process that keeps two cores busy."""
    config = replace(effort.bare, task=ModularAddition(p=p))
    one, two = Training(config), Training(config)

    def step(training: Training, n_threads: int) -> None:
        with torch_threads(n_threads):
            training.take_epoch()

    # On a busy machine a step on two threads can take a second, a hundred times as long as one on one.
    most = 3 if busy else effort.rounds
    with busy_machine(2) if busy else contextlib.nullcontext():
        before, after = alternate(
            [lambda: step(one, 1), lambda: step(two, 2)],
            rounds=min(effort.rounds, most),
            repeats=min(effort.repeats, most),
            warm_up=effort.warm_up,
        )
    where = "busy machine" if busy else "quiet machine"
    return Measurement(f"two threads against one, p = {p}, {where}", against(before, after), after / before)
