"""The cyclic groups that batches compute in, and measures of waves in them against direct computations."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from catalog import TASKS, model_of
from helpers import logits_of, value_of
from hypothesis import given
from hypothesis import strategies as st

import bayesticket as bt
from bayesticket.measures import ExcludedLoss, FourierGini, FrequencyShares, RestrictedLoss, key_frequencies
from bayesticket.measures.groups import group_of, nonlinear_example, powers_of_root


@given(
    p=st.integers(5, 30), multiples=st.lists(st.integers(0, 29), min_size=1, max_size=3), seed=st.integers(0, 99),
    wrong=st.booleans(),
)  # fmt: skip
def test_whole_multiples_of_the_operands_are_recognised_and_one_wrong_target_is_found(p, multiples, seed, wrong):
    generator = torch.Generator().manual_seed(seed)
    operands = torch.randint(p, (60, len(multiples)), generator=generator)
    targets = (operands @ torch.tensor(multiples) + seed) % p
    if wrong:
        targets[50] = (targets[50] + 1) % p
    assert (nonlinear_example(operands, targets, p) is None) == (not wrong)


@pytest.mark.parametrize("p", [5, 7, 13, 31])
def test_logarithms_turn_products_into_sums(p):
    powers = powers_of_root(p)
    assert sorted(powers) == list(range(1, p))
    for a in range(p - 1):
        for b in range(p - 1):
            assert powers[a] * powers[b] % p == powers[(a + b) % (p - 1)]


def own_task(p, function, **options):
    a, b = torch.arange(p).repeat_interleave(p), torch.arange(p).repeat(p)
    tokens = torch.stack([a, torch.full_like(a, p), b, torch.full_like(a, p + 1)], 1)
    return bt.Task(tokens=tokens, targets=function(a, b) % p, informative=[True, False, True, False], d_vocab_out=p)


@pytest.mark.parametrize("function", [lambda a, b: a - b, lambda a, b: 2 * a + 3 * b + 4], ids=["a-b", "2a+3b+4"])
def test_waves_are_those_of_the_target_for_any_sum_of_multiples(function):
    p = 7
    task = own_task(p, function)
    model, batch = model_of(task), task.split().test
    logits = logits_of(model, batch)
    angle = 2 * math.pi * 2 * batch.targets.double() / p
    design = torch.stack([torch.ones_like(angle), angle.cos(), angle.sin()], 1)
    kept = design @ torch.linalg.lstsq(design, logits).solution
    expected = F.cross_entropy(kept, batch.targets).item()
    assert value_of(RestrictedLoss(keys=(2,)), model, batch) == pytest.approx(expected, rel=1e-9)


def test_neither_a_square_nor_a_product_plus_one_is_a_group():
    for function in (lambda a, b: a * a + b, lambda a, b: a * b + 1):
        task = own_task(7, function)
        with pytest.raises(bt.BayesticketError, match=r"FourierGini: got an example with \d and \d and target \d"):
            bt.measure(model_of(task), task.split().test, FourierGini())


def test_drawn_positions_change_nothing_that_does_not_depend_on_them():
    drawn, fixed = TASKS["addition, drawn positions"], TASKS["addition"]
    groups = [group_of("it", task.examples(0), 7) for task in (drawn, fixed)]
    assert torch.equal(groups[0].operands, groups[1].operands)
    assert torch.equal(groups[0].results, groups[1].results)


def test_multiplication_is_measured_by_the_characters_of_the_nonzero_numbers():
    p = 7
    task = TASKS["multiplication"]
    model, batch = model_of(task), task.split(0.2).test
    logarithm = {3**x % p: x for x in range(p - 1)}  # 3 is the smallest primitive root of 7
    numbers = np.array([3**x % p for x in range(p - 1)])
    table = model.embed.W_E.detach().numpy()[numbers]
    power = np.abs(np.fft.fft(table - table.mean(0), axis=0)) ** 2
    folded = np.array([(power[w] + (power[-w] if w < 3 else 0)).sum() for w in (1, 2, 3)])
    shares = value_of(FrequencyShares(), model, batch)
    assert shares == pytest.approx((folded / folded.sum()).tolist(), rel=1e-9)
    part = batch.select(batch.targets != 0)
    assert 0 < len(part) < len(batch)
    logits = logits_of(model, part)
    x = torch.tensor([logarithm[int(target)] for target in part.targets], dtype=torch.float64)
    angle = 2 * math.pi * x / (p - 1)
    design = torch.stack([torch.ones_like(angle), angle.cos(), angle.sin()], 1)
    kept = design @ torch.linalg.lstsq(design, logits).solution
    seen = bt.measure(model, batch, RestrictedLoss(keys=(1,)), ExcludedLoss(keys=(1,)))
    expected = F.cross_entropy(kept, part.targets), F.cross_entropy(logits - kept + logits.mean(0), part.targets)
    assert list(seen.values()) == pytest.approx([each.item() for each in expected], rel=1e-9)


def test_a_model_that_multiplies_by_one_character_has_that_key_frequency():
    p, w = 31, 4
    task = bt.ModularMultiplication(p=p)
    model, batch = model_of(task, n_heads=1), task.split().test
    x = torch.zeros(p, dtype=torch.float64)
    x[list(powers_of_root(p))] = torch.arange(p - 1, dtype=torch.float64)
    made = 20 * torch.cos(2 * math.pi * w * (x[batch.targets][:, None] - x) / (p - 1))
    with model.hooks(fwd_hooks=[("unembed.hook_out", lambda logits, hook: made[:, None].expand_as(logits).clone())]):
        assert key_frequencies(model, batch) == (w,)


def test_products_that_are_all_zero_leave_nothing_to_measure():
    task = TASKS["multiplication"]
    model, batch = model_of(task), task.examples(0)
    zeros = batch.select((batch.targets == 0) & (batch.tokens[:, 0] != batch.tokens[:, 2]))
    assert math.isnan(value_of(RestrictedLoss(keys=(1,)), model, zeros))
