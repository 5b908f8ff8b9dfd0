"""Orbits: which examples are one up to a symmetry of their task, and what splits and curves make of that."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import bayesticket as bt

COMMUTATIVE = [
    bt.ModularAddition(p=7),
    bt.ModularMultiplication(p=5, distractors="constant"),
    bt.KOperandAddition(k=3, p=4),
    bt.ModularAddition(p=5, positions="random", n_distractors=3),
]
SMALL = bt.Architecture(d_model=8, d_mlp=8)


def operands_of(task, examples):
    return [tuple(row.tolist()) for row in examples.tokens[examples.informative].view(len(examples), -1)]


@pytest.mark.parametrize("task", COMMUTATIVE, ids=repr)
def test_operands_in_any_order_are_one_orbit(task):
    examples = task.examples(seed=0)
    orbit, operands = task.orbits_of(examples).tolist(), operands_of(task, examples)
    by_orbit = {}
    for number, row in zip(orbit, operands, strict=True):
        by_orbit.setdefault(number, set()).add(tuple(sorted(row)))
    assert all(len(sets) == 1 for sets in by_orbit.values())
    assert len(by_orbit) == len({tuple(sorted(row)) for row in operands})


@pytest.mark.parametrize("task", [*COMMUTATIVE, bt.SparseParity(n=8, k=3)], ids=repr)
def test_a_symmetry_keeps_the_target(task):
    examples = task.examples(seed=0)
    orbit = task.orbits_of(examples)
    for number in orbit.unique():
        assert len(examples.targets[orbit == number].unique()) == 1


def test_permutations_do_not_commute():
    task = bt.PermutationComposition(n=3)
    examples = task.examples(seed=0)
    assert len(task.orbits_of(examples).unique()) == len(examples)


def test_parity_counts_the_bits_that_are_not_asked_for():
    task = bt.SparseParity(n=6, k=2)
    examples = task.examples(seed=0)
    first, second, *others = (0, 3, 1, 2, 4, 5)
    bits = examples.tokens[:, :-1]
    keys = {(*sorted((row[first], row[second])), *(row[at] for at in others)) for row in bits.tolist()}
    assert len(task.orbits_of(examples).unique()) == len(keys) == 48


@given(st.sampled_from([*COMMUTATIVE, bt.SparseParity(n=6, k=2)]), st.floats(0.1, 0.9), st.integers(0, 5))
def test_a_split_by_orbits_shares_none(task, fraction, seed):
    split = task.split(fraction, seed, by="orbit")
    assert not set(split.train.orbit.tolist()) & set(split.test.orbit.tolist())
    assert split.test.unseen.all()
    assert len(split.train) + len(split.test) == len(task.examples(seed))
    largest = int(torch.bincount(torch.cat([split.train.orbit, split.test.orbit])).max())
    assert 0 <= math.floor(fraction * len(task.examples(seed)) + 1e-9) - len(split.train) < largest


@given(st.sampled_from(COMMUTATIVE), st.floats(0.1, 0.9), st.integers(0, 5))
def test_unseen_examples_are_those_without_a_mirror_in_training(task, fraction, seed):
    split = task.split(fraction, seed)
    trained = {tuple(sorted(row)) for row in operands_of(task, split.train)}
    expected = [tuple(sorted(row)) not in trained for row in operands_of(task, split.test)]
    assert split.test.unseen.tolist() == expected


def test_the_share_of_mirrored_pairs_at_full_scale():
    shares = [1 - bt.ModularAddition(p=113).split(0.3, seed).test.unseen.double().mean().item() for seed in range(5)]
    assert [round(share, 4) for share in shares] == [0.2968, 0.3004, 0.2959, 0.299, 0.302]


def test_a_users_data_has_the_orbits_that_it_is_given():
    data = {"tokens": [[0, 1], [1, 0], [2, 0], [0, 2]], "targets": [0, 0, 1, 1], "informative": [True, True]}
    assert bt.Task(**data).split(0.5).test.unseen.tolist() == [True, True]
    mirrored = bt.Task(**data, orbits=[7, 7, 3, 3])
    assert all(len(mirrored.split(0.5, seed, by="orbit").train.orbit.unique()) == 1 for seed in range(4))
    seen = [mirrored.split(0.5, seed).test.unseen.tolist() for seed in range(8)]
    assert [True, True] in seen
    assert [False, False] in seen
    assert mirrored != bt.Task(**data)


def test_unseen_curves_are_those_of_the_unseen_examples_alone():
    task, recipe = bt.ModularAddition(p=11, distractors="constant"), bt.KLPrior(strength=1.0)
    options = {"model": SMALL, "epochs": 40, "dtype": "float64"}
    measures = [bt.AttentionEntropy(half=("test", "unseen")), bt.AttentionGradient(half="unseen")]
    run = bt.train(task, recipe, measures=measures, **options)
    test = run.config.split().test
    alone = test.select(test.unseen)
    seen = bt.measure(run.model, alone, bt.Accuracy(), bt.Loss(), bt.AttentionEntropy(), bt.AttentionGradient())
    last = run.curves.iloc[-1]
    assert 0 < len(alone) < len(test)
    for name, value in seen.items():
        assert last[f"unseen_{name}"] == pytest.approx(value, rel=1e-9), name
    whole = bt.measure(run.model, test, bt.AttentionEntropy())
    assert last["test_attention_entropy"] == pytest.approx(whole["attention_entropy"], rel=1e-9)


def test_unseen_curves_equal_test_curves_where_nothing_leaks():
    run = bt.train(bt.ModularAddition(p=7), model=SMALL, epochs=20, split_by="orbit")
    assert (run.curves["unseen_accuracy"] == run.curves["test_accuracy"]).all()
    assert (run.curves["unseen_loss"] == run.curves["test_loss"]).all()


def test_an_empty_unseen_part_is_named_and_its_curves_are_nan(caplog):
    data = {"tokens": torch.randint(0, 5, (40, 3)), "targets": torch.randint(0, 3, (40,)), "informative": [True] * 3}
    run = bt.train(bt.Task(**data, orbits=torch.zeros(40, dtype=int)), model=SMALL, epochs=10)
    assert run.curves["unseen_accuracy"].isna().all()
    assert "no test example is unseen" in caplog.text


def test_memorising_and_reading_alike_answers_the_mirrored_pairs_alone():
    # W_pos = 0 and frozen oracle attention make the model symmetric in its operands.
    task = bt.ModularAddition(p=11, distractors="constant")
    model = bt.build_model(task, d_model=32, d_mlp=128)
    with torch.no_grad():
        model.pos_embed.W_pos.zero_()
    model.pos_embed.W_pos.requires_grad_(False)
    run = bt.train(task, bt.FrozenAttention("oracle"), model=model, epochs=400, weight_decay=0.0, lr=3e-3)
    test, last = run.config.split().test, run.curves.iloc[-1]
    mirrored = 1 - test.unseen.double().mean().item()
    assert last["train_accuracy"] == 1.0
    assert last["unseen_accuracy"] < 0.35
    assert last["test_accuracy"] == pytest.approx(mirrored + (1 - mirrored) * last["unseen_accuracy"], abs=1e-6)
