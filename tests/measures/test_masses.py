"""Attention on informative positions by counting."""

import pytest
import torch
from catalog import TASKS, model_of
from helpers import attention_and_values, informative_places, value_of

import bayesticket as bt
from bayesticket.measures import DistributedMass, InformativeMass, InformativeMassByPosition, StructuralCondition


@pytest.mark.parametrize("name", TASKS)
def test_the_structural_condition_and_masses_by_counting(name):
    task = TASKS[name]
    model, batch = model_of(task), task.split().test
    alpha, _ = attention_and_values(model, batch)
    k = len(informative_places(batch, 0))
    tau = 0.6 / batch.n_positions
    holds = [
        all(alpha[n, h, i] >= tau for i in informative_places(batch, n)) for n in range(len(batch)) for h in range(2)
    ]
    assert value_of(StructuralCondition(tau=tau), model, batch) == pytest.approx(sum(holds) / len(holds))
    by_place = [
        sum(alpha[n, h, informative_places(batch, n)[j]].item() for n in range(len(batch)) for h in range(2))
        for j in range(k)
    ]
    expected = [total / len(batch) / 2 for total in by_place]
    assert value_of(InformativeMassByPosition(), model, batch) == pytest.approx(expected, rel=1e-9)
    pooled = [
        [sum(alpha[n, h, i].item() for h in range(2)) for i in informative_places(batch, n)] for n in range(len(batch))
    ]
    shares = torch.tensor(
        [sum(alpha[n, h, i].item() for n in range(len(batch)) for i in informative_places(batch, n)) for h in range(2)]
    )
    distributed = value_of(DistributedMass(), model, batch)
    assert distributed[:k] == pytest.approx([2 * mass for mass in expected], rel=1e-9)
    assert distributed[k] == pytest.approx(min(map(min, pooled)), rel=1e-9)
    assert distributed[k + 1] == pytest.approx(
        sum(shares.tolist()) ** 2 / sum(s * s for s in shares.tolist()), rel=1e-5
    )
    assert 1 <= distributed[k + 1] <= 2


def test_one_head_carries_everything():
    task = TASKS["addition"]
    model, batch = model_of(task), task.split().train
    oracle_and_none = torch.zeros(len(batch), 2, 5, dtype=torch.float64)
    oracle_and_none[:, 0, [0, 2]] = 0.5
    oracle_and_none[:, 1, 3] = 1.0
    masses = value_of(DistributedMass(), model, batch, intervention=bt.FrozenAttention(oracle_and_none))
    assert masses == pytest.approx([0.5, 0.5, 0.5, 1.0])


@pytest.mark.parametrize(
    ("measure", "name"),
    [
        (InformativeMass(), "informative_mass_mean"),
        (InformativeMass("least"), "informative_mass_least"),
        (InformativeMass("least", head=0), "informative_mass_least[head=0]"),
    ],
)
def test_the_curve_of_informative_mass_says_which_and_where(measure, name):
    assert measure.name == name
