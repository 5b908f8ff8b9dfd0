"""Small jobs for the tests of sweeps, the same runs without interruption, and interventions that go wrong."""

import functools
import math
import os
import signal
import time
from pathlib import Path

import pandas as pd
import torch

import bayesticket as bt
from bayesticket.interventions import as_recipe
from bayesticket.runs import TrainConfig, configure, describe_config, train_config
from bayesticket.specs import spec_id
from bayesticket.sweeps import Job

TASK = bt.ModularAddition(p=5)
SMALL = bt.Architecture(d_model=8, d_mlp=8)


def configured(intervention: bt.Intervention | None = None, **options) -> TrainConfig:
    given = {"task": TASK, "model": SMALL, "epochs": 20, "record_every": 5, "lr": 3e-3} | options
    return configure(intervention=as_recipe(intervention), **given)


def small_job(
    store: Path,
    name: str = "none",
    intervention: bt.Intervention | None = None,
    *,
    checkpoint_every: int = 10,
    **options,
) -> Job:
    config = configured(intervention, **options)
    return Job(name, config, store / spec_id(config), checkpoint_every)


_WHOLE: dict[str, bt.Run] = {}


def uninterrupted(config: TrainConfig) -> bt.Run:
    """The run as `train` makes it, in this process, without a store."""
    key = spec_id(config)
    if key not in _WHOLE:
        try:
            _WHOLE[key] = train_config(config, progress=False)
        except bt.NonFiniteLoss as error:
            _WHOLE[key] = error.run  # type: ignore[assignment]
    return _WHOLE[key]


def assert_same(run: bt.Run, other: bt.Run) -> None:
    """That two runs are equal bit for bit, except in how long they took."""
    pd.testing.assert_frame_equal(run.curves, other.curves, check_exact=True)
    assert run.weights.keys() == other.weights.keys()
    for name, weight in run.weights.items():
        assert torch.equal(weight.view(torch.uint8), other.weights[name].view(torch.uint8)), name  # NaN too
    assert (run.epoch, run.status, run.description) == (other.epoch, other.status, other.description)
    assert run.made_with is not None
    assert run.made_with["threads"] == "1"


def assert_as_uninterrupted(job: Job) -> None:
    """That a job's store holds the complete run, equal to the one that `train` makes."""
    run = bt.Run.load(job.store)
    assert run.description == describe_config(job.config)[0]
    assert_same(run, uninterrupted(job.config))


def leftovers(store: Path) -> list[str]:
    """Files in a store beside the runs' directories, and files in these that a complete run does not have."""
    kept = {"run.json", "curves.parquet", "weights.safetensors", "tensors.safetensors"}
    files = [path for path in store.rglob("*") if path.is_file()]
    return sorted(path.name for path in files if path.parent == store or path.name not in kept)


class Noting:
    """A tracker that writes what it is told into a file for each run."""

    def __init__(self, directory: Path):
        self.directory = directory

    def start(self, config):
        self.path = self.directory / spec_id(config)
        self.note("start")

    def record(self, epoch, values):
        self.note(f"{epoch} {values['train_loss']}")

    def finish(self, run):
        self.note(run.status)

    def note(self, line):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(f"{line}\n")


# Interventions that wait or go wrong at some epoch -----------------------------------------------------------------


@bt.spec
class Held(bt.Intervention):
    """Holds a run back until a test has acted on it: after an epoch, every step waits for the file `HELD_UNTIL` names.

    It waits for at most a fifth of a second in each step, so that the run can still stop. The file's path is in the
    environment, which all processes inherit, and not a field: the run is then the same one in every test.
    """

    after: int = 12

    def project(self, context):
        gate, end = os.environ.get("HELD_UNTIL"), time.monotonic() + 0.2
        if gate is not None and context.epoch >= self.after:
            while not os.path.exists(gate) and time.monotonic() < end:
                time.sleep(0.002)


@bt.spec
class Spoiling(bt.Intervention):
    """Makes the loss undefined."""

    at: int = 10

    def project(self, context):
        if context.epoch == self.at:
            context.parameters["unembed.b_U"].data.fill_(math.nan)


@bt.spec
class Raising(bt.Intervention):
    """Raises an error, as a user's mistake would."""

    at: int = 10

    def project(self, context):
        if context.epoch == self.at:
            mistake()


def mistake() -> None:
    raise ZeroDivisionError("a mistake\nin two lines")


@bt.spec
class Deadly(bt.Intervention):
    """Kills the process that trains it, as a machine without memory does."""

    at: int = 10

    def project(self, context):
        if context.epoch == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


@bt.spec
class Refusing(bt.Intervention):
    """Accepts no model."""

    def check(self, context):
        raise bt.BayesticketError("colour: got 'red'; accepted: 'blue'")


@functools.cache
def teacher():
    return bt.build_model(TASK, seed=9, d_model=8, d_mlp=8)
