"""Splits and seeds: halves are disjoint, and seeds decide everything."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from task_cases import build, every_layout, operands_of, rows, same

from bayesticket.errors import BayesticketError
from bayesticket.tasks import ModularAddition, ModularMultiplication, PermutationComposition, SparseParity

few = settings(max_examples=25, deadline=None)


def test_the_reference_split_has_3830_and_8939_examples():
    for task in (ModularAddition(p=113), ModularMultiplication(p=113, distractors="constant")):
        split = task.split(train_fraction=0.3, seed=0)
        assert (split.train.n, split.test.n) == (3830, 8939)


@every_layout
def test_split_halves_are_disjoint_and_cover_everything(case, option):
    task = build(case, option)
    split = task.split(train_fraction=0.4, seed=2)
    whole = task.examples(seed=2)
    assert sorted(rows(split.train) + rows(split.test)) == sorted(rows(whole))
    if case != "parity":
        train, test = set(operands_of(split.train)), set(operands_of(split.test))
        assert not train & test
        assert len(train) + len(test) == len(whole)
    else:
        assert not set(rows(split.train)) & set(rows(split.test))


@few
@given(st.integers(1, 99), st.integers(2, 12))
def test_train_size_is_the_floor_of_the_typed_fraction(percent, p):
    exact = percent * p * p // 100
    if 0 < exact < p * p:
        assert len(ModularAddition(p=p).split(percent / 100).train) == exact
    else:
        with pytest.raises(BayesticketError, match="train_fraction"):
            ModularAddition(p=p).split(percent / 100)


@every_layout
def test_seeds_decide_everything(case, option):
    task = build(case, option)
    assert same(task.split(seed=5).train, task.split(seed=5).train)
    assert same(task.split(seed=5).test, task.split(seed=5).test)
    assert not torch.equal(task.split(seed=5).train.tokens, task.split(seed=6).train.tokens)


@every_layout
def test_the_global_generator_is_neither_read_nor_altered(case, option):
    task = build(case, option)
    results = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        state = torch.get_rng_state()
        split = task.split(seed=0)
        results.append((split.train, task.redraw(split.train, seed=1)))
        assert torch.equal(torch.get_rng_state(), state)
    assert all(same(first, second) for first, second in zip(*results, strict=True))


def test_sampled_inputs_ignore_the_global_generator():
    torch.manual_seed(1)
    first = SparseParity(n=40).examples(seed=0)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert same(first, SparseParity(n=40).examples(seed=0))
    assert torch.equal(torch.get_rng_state(), state)


def test_shuffling_distractors_and_positions_come_from_streams_of_their_own():
    # Were the streams one, more distractors would change which pairs are trained on.
    splits = [ModularAddition(p=11, n_distractors=n).split(seed=0) for n in (0, 1, 4)]
    assert len({tuple(operands_of(split.train)) for split in splits}) == 1
    fixed, dynamic = (ModularAddition(p=11, positions=positions) for positions in ("fixed", "random"))
    noise = fixed.examples(seed=0).tokens[:, 3]
    tokens = dynamic.examples(seed=0).tokens
    assert torch.equal(tokens[tokens > 12] - 13, noise)


def test_distractors_are_drawn_anew_for_each_seed():
    task = ModularAddition(p=113)
    noises = [task.examples(seed).tokens[:, 3] for seed in range(3)]
    for a, b in itertools.combinations(noises, 2):
        assert (a == b).float().mean() < 0.02


def test_a_default_device_does_not_matter():
    expected = SparseParity(n=40, positions="random").split(seed=0).train
    with torch.device("meta"):
        split = SparseParity(n=40, positions="random").split(seed=0)
        permuted = PermutationComposition(n=4).split(seed=0)
        again = ModularAddition(p=5).redraw(ModularAddition(p=5).examples(seed=0), seed=1)
    assert same(split.train, expected)
    assert permuted.train.tokens.device.type == again.tokens.device.type == "cpu"
