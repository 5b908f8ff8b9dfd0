"""Sparse parity, and inputs too many to list."""

import itertools
import math

import pytest
import torch
from task_cases import operands_of, rows

from bayesticket.tasks import KOperandAddition, ModularAddition, SparseParity
from bayesticket.tasks.inputs import distinct_rows


def test_parity_lists_every_bit_string_once_when_it_can():
    examples = SparseParity(n=10, k=4).examples(seed=0)
    assert sorted(row[:-1] for row in rows(examples)) == list(itertools.product((0, 1), repeat=10))
    assert examples.informative[0].nonzero().flatten().tolist() == [i * 10 // 4 for i in range(4)]


@pytest.mark.parametrize("n", [40, 80])
@pytest.mark.parametrize("positions", ["fixed", "random"])
def test_parity_of_many_bits_samples_distinct_sequences(n, positions):
    task = SparseParity(n=n, k=3, positions=positions)
    examples = task.examples(seed=0)
    assert (len(examples), examples.n_positions) == (12_769, n + 1)
    assert task.d_vocab == (3 if positions == "fixed" else 5)
    assert len(set(rows(examples))) == 12_769
    assert examples.targets.tolist() == [sum(bits) % 2 for bits in operands_of(examples)]
    distractors = examples.tokens[:, :-1][~examples.informative[:, :-1]]
    assert distractors.unique().tolist() == ([0, 1] if positions == "fixed" else [3, 4])


def test_sampled_bits_are_fair_and_independent():
    bits = SparseParity(n=40, k=3).examples(seed=0).tokens[:, :-1].double() * 2 - 1
    correlation = bits.T @ bits / len(bits) - torch.eye(40)
    assert correlation.abs().max() < 5 / math.sqrt(len(bits))
    assert bits.mean(dim=0).abs().max() < 5 / math.sqrt(len(bits))


def test_sampling_can_exhaust_the_inputs():
    examples = SparseParity(n=17, k=2, n_samples=2**17).examples(seed=0)
    codes = examples.tokens[:, :-1] @ (2 ** torch.arange(17))
    assert torch.equal(codes.sort().values, torch.arange(2**17))


def test_sampling_favours_no_input():
    # Half of 16 inputs, so that repeats are many and how they are dropped matters.
    samples = [
        distinct_rows(2, 4, n=8, generator=torch.Generator().manual_seed(seed)) @ torch.tensor([8, 4, 2, 1])
        for seed in range(400)
    ]
    assert all(len(sample.unique()) == 8 for sample in samples)
    counts = torch.cat(samples).bincount(minlength=16)
    deviation = math.sqrt(400 * 0.5 * 0.5)
    assert (counts - 200).abs().max() < 5 * deviation


def test_n_samples_is_used_only_when_the_inputs_are_too_many():
    assert len(ModularAddition(p=256, n_samples=10).examples(seed=0)) == 65_536
    assert len(ModularAddition(p=257, n_samples=10).examples(seed=0)) == 10
    assert len(KOperandAddition(k=3).examples(seed=0)) == 12_769
