"""What the examples of symbolic tasks say, and what redrawing changes."""

import itertools

import torch
from task_cases import CASES, build, every_layout, operands_of, rows, same

from bayesticket.tasks import ModularAddition, ModularMultiplication


@every_layout
def test_targets_are_the_function_of_the_informative_tokens(case, option):
    _, _, n_values, function = CASES[case]
    task = build(case, option)
    examples = task.examples(seed=3)
    operands = operands_of(examples)
    assert all(0 <= value < n_values for values in operands for value in values)
    assert examples.targets.tolist() == [function(values) for values in operands]
    assert set(examples.targets.tolist()) <= set(range(task.d_vocab_out))
    # Enumerated: every tuple of operands, each as often as the others.
    counts = {values: operands.count(values) for values in itertools.product(range(n_values), repeat=len(operands[0]))}
    assert set(operands) == set(counts)
    assert len(set(counts.values())) == 1


@every_layout
def test_shapes_vocabulary_and_query(case, option):
    task = build(case, option)
    examples = task.examples(seed=0)
    assert examples.tokens.shape == (len(examples), task.n_positions) == examples.informative.shape
    assert examples.tokens.dtype == examples.targets.dtype == torch.int64
    assert examples.tokens.min() >= 0
    assert examples.tokens.max() < task.d_vocab
    query = examples.tokens[:, -1].unique()
    assert len(query) == 1
    assert not (examples.tokens[:, :-1] == query).any()
    assert not examples.informative[:, -1].any()


@every_layout
def test_no_sequence_has_two_targets(case, option):
    examples = build(case, option).examples(seed=0)
    target_of = {}
    for row, target in zip(rows(examples), examples.targets.tolist(), strict=True):
        assert target_of.setdefault(row, target) == target


@every_layout
def test_oracle_is_uniform_over_the_informative_positions(case, option):
    examples = build(case, option).examples(seed=0)
    torch.testing.assert_close(examples.oracle.sum(dim=1), torch.ones(len(examples)))
    assert torch.equal(examples.oracle > 0, examples.informative)
    k = len(operands_of(examples)[0])
    torch.testing.assert_close(examples.oracle[examples.informative], torch.full((len(examples) * k,), 1 / k))


def test_multiplication_includes_zero():
    assert (ModularMultiplication(p=11).examples(seed=0).targets == 0).sum() == 21


@every_layout
def test_redraw_changes_random_distractors_and_nothing_else(case, option):
    task = build(case, option)
    whole = task.examples(seed=0)
    again = task.redraw(whole, seed=1)
    assert same(again, task.redraw(whole, seed=1))
    assert torch.equal(again.targets, whole.targets)
    assert torch.equal(again.informative, whole.informative)
    assert operands_of(again) == operands_of(whole)
    # Of a few examples with few symbols one draw may repeat the other: look at several.
    draws = torch.stack([task.redraw(whole, seed=seed).tokens for seed in range(1, 9)])
    changed = (draws != whole.tokens).any(dim=0)
    if "constant" in option or option == "no distractor":
        assert not changed.any()
        return
    n_distractors = (whole.n_positions - 1 - whole.informative.sum(dim=1)).max()
    assert changed.any()
    assert changed.sum(dim=1).max() <= n_distractors
    n_values = CASES[case][2]
    unchanged_symbols = (whole.tokens == n_values) & ~whole.informative if case != "parity" else whole.tokens == 2
    assert not (changed & unchanged_symbols).any()
    # New noise comes from the old noise's alphabet.
    alphabet = range(n_values) if "dynamic" not in option else range(task.d_vocab - n_values, task.d_vocab)
    assert set(draws[:, changed].flatten().tolist()) <= set(alphabet)


def test_redraws_of_different_seeds_are_independent():
    task = ModularAddition(p=113)
    whole = task.examples(seed=0)
    draws = [whole, *(task.redraw(whole, seed=seed) for seed in range(3))]
    for a, b in itertools.combinations(draws, 2):
        assert (a.tokens[:, 3] == b.tokens[:, 3]).float().mean() < 0.02
    assert (draws[1].tokens[:, 3].bincount(minlength=113) > 60).all()
