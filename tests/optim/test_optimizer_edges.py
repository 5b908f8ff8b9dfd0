"""Optimisers at their edges: state that is there only where it is needed, settings as given, bad checkpoints."""

import pytest
import torch
from torch.nn import Parameter

import bayesticket as bt
from bayesticket.optim import build_optimizer, optimizer_tensors, restore_optimizer


def weights():
    return {"W": Parameter(torch.ones(2, 3))}


def test_sgd_has_state_with_momentum_alone():
    for momentum, names in ((0.0, []), (0.5, ["W/momentum_buffer"])):
        given = weights()
        built = build_optimizer(bt.SGD(momentum=momentum), given)
        assert list(optimizer_tensors(built, given)) == names
        given["W"].grad = torch.ones(2, 3)
        built.step()
        assert list(optimizer_tensors(built, given)) == names


@pytest.mark.parametrize("kind", [bt.AdamW, bt.Muon, bt.Lion])
def test_betas_may_be_a_list(kind):
    assert kind(betas=[0.8, 0.99]) == kind(betas=(0.8, 0.99))
    assert kind(betas=[0.8, 0.99]).betas == (0.8, 0.99)


@pytest.mark.parametrize("kind", [bt.AdamW, bt.Muon, bt.Lion, bt.SGD])
def test_rates_are_those_that_are_given(kind):
    built = build_optimizer(kind(lr=bt.Anneal(0.5, 0.1, last=10), weight_decay=bt.Anneal(0.1, 0.3, last=10)), weights())
    assert {(group["lr"], group["weight_decay"]) for group in built.param_groups} == {(0.5, 0.3)}
    alone = kind(lr=0.25, weight_decay=0.0).build(weights())
    assert {(group["lr"], group["weight_decay"]) for group in alone.param_groups} == {(0.25, 0.0)}


@pytest.mark.parametrize("name", ["group 1/k", "group x/k", "group -1/k", "group /k"])
def test_a_number_of_no_group_is_refused(name):
    given = weights()
    built = build_optimizer(bt.SGD(), given)
    with pytest.raises(bt.BayesticketError, match=r"^optimizer tensors: got 'group .*accepted: numbers of the"):
        restore_optimizer(built, given, {name: torch.tensor(3)})
    with pytest.raises(bt.BayesticketError, match=r"^optimizer tensors: got 'group 0/k'"):
        restore_optimizer(built, given, {"group 0/k": torch.tensor([3, 4])})
    restore_optimizer(built, given, {"group 0/k": torch.tensor(3)})
    assert built.param_groups[0]["k"] == 3
