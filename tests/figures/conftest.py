"""A run with every measure, and two runs to compare."""

import pytest
from figure_cases import MEASURES

import bayesticket as bt
from bayesticket.interventions import KLPrior
from bayesticket.runs import Run, train
from bayesticket.tasks import ModularAddition


@pytest.fixture(scope="session")
def run() -> bt.Run:
    return bt.train(bt.ModularAddition(p=7), measures=MEASURES, epochs=60, progress=False)


@pytest.fixture(scope="session")
def runs() -> dict[str, Run]:
    task = ModularAddition(p=7)
    return {
        "none": train(task, epochs=30, progress=False),
        "kl": train(task, KLPrior(strength=1.0), epochs=20, progress=False),
    }
