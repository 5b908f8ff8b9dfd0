"""Small runs of one task, and what is asked of them."""

import functools
import os
import signal
import time

import pandas as pd
import torch

import bayesticket as bt

TASK = bt.ModularAddition(p=7)
SMALL = bt.Architecture(d_model=16, d_mlp=32)
TOKENS = torch.randint(0, 5, (200, 3), generator=torch.Generator().manual_seed(0))
COPYING = bt.Task(tokens=TOKENS, targets=TOKENS[:, 0], informative=torch.tensor([True, False, False]))
"""A task that is learned in a hundred epochs."""
QUICK = {"model": SMALL, "lr": 1e-2, "record_every": 5, "seed": 1}


def small_run(**options):
    return bt.train(TASK, **{"model": SMALL, "epochs": 40, "lr": 3e-3} | options)


@functools.cache
def plain() -> bt.Run:
    """The small run without options, from its first epoch to its last; no test changes it."""
    return small_run()


def own_model(**options):
    return bt.build_model(TASK, d_model=16, d_mlp=32, **options)


def assert_same(run, other):
    pd.testing.assert_frame_equal(run.curves, other.curves, check_exact=True)
    assert run.weights.keys() == other.weights.keys()
    for name, weight in run.weights.items():
        assert torch.equal(weight, other.weights[name]), name
    assert (run.epoch, run.status) == (other.epoch, other.status)


def interrupt_at(epoch):
    """A progress function that presses Ctrl-C after an epoch."""

    def progress(reached, record):
        if reached == epoch:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0)

    return progress
