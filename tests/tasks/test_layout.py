"""Layouts: positions, lengths and vocabularies of symbolic sequences."""

import itertools
import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from task_cases import rows

from bayesticket.tasks import KOperandAddition, ModularAddition
from bayesticket.tasks.layout import Layout

few = settings(max_examples=25, deadline=None)


def test_default_layout_is_a_plus_b_noise_equals():
    task = ModularAddition(p=113)
    assert (task.n_positions, task.d_vocab, task.d_vocab_out) == (5, 115, 113)
    tokens = task.examples(seed=0).tokens
    assert (tokens[:, 1] == 113).all()
    assert (tokens[:, 4] == 114).all()
    assert task.examples(seed=0).informative.tolist() == [[True, False, True, False, False]] * 113**2
    noise = tokens[:, 3].bincount(minlength=115)
    assert noise[113:].sum() == 0
    # Chi-squared with 112 degrees of freedom has mean 112 and deviation 15.
    assert ((noise[:113] - 113) ** 2 / 113).sum() < 112 + 5 * 15


def test_constant_layout_differs_between_sequences_in_its_operands_only():
    task = ModularAddition(p=113, distractors="constant", n_distractors=2)
    assert (task.n_positions, task.d_vocab) == (6, 116)
    tokens = task.examples(seed=0).tokens
    assert [column.unique().tolist() for column in tokens[:, [1, 3, 4, 5]].T] == [[113], [115], [115], [114]]
    assert torch.equal(task.examples(seed=0).tokens, task.examples(seed=1).tokens)


def test_vocabulary_does_not_depend_on_length():
    for options in ({}, {"positions": "random"}, {"distractors": "constant"}):
        assert len({ModularAddition(p=7, n_distractors=n, **options).d_vocab for n in range(4)}) == 1


@few
@given(st.integers(1, 4), st.integers(0, 4), st.booleans())
def test_length_is_operands_operators_noise_and_query(k, n_distractors, dynamic):
    task = KOperandAddition(k=k, p=3, n_distractors=n_distractors, positions="random" if dynamic else "fixed")
    examples = task.examples(seed=0)
    assert task.n_positions == examples.n_positions == k + (k - 1) + n_distractors + 1
    assert (examples.informative.sum(dim=1) == k).all()
    assert ((examples.tokens == 3).sum(dim=1) == k - 1).all()


def test_random_positions_are_uniform_over_subsets_and_symbols_keep_their_order():
    task = ModularAddition(p=113, positions="random", n_distractors=2)
    assert (task.n_positions, task.d_vocab) == (6, 115 + 113)
    examples = task.examples(seed=0)
    subsets = [tuple(torch.nonzero(row).flatten().tolist()) for row in examples.informative]
    expected = len(examples) / math.comb(5, 2)
    counts = {subset: subsets.count(subset) for subset in set(subsets)}
    assert set(counts) == set(itertools.combinations(range(5), 2))
    assert all(abs(count - expected) < 5 * math.sqrt(expected) for count in counts.values())
    for row, marks in zip(rows(examples)[:500], examples.informative.tolist(), strict=False):
        operator, *noise, query = (token for token, marked in zip(row, marks, strict=True) if not marked)
        assert (operator, query) == (113, 114)
        assert all(115 <= token < 115 + 113 for token in noise)


def test_layout_has_a_place_for_every_symbol():
    layout = Layout(n_values=7, n_operands=3, n_noise=2, separated=True, home=(0, 2, 4))
    informative = layout.random_positions(50, torch.Generator().manual_seed(0))
    assert (layout.noise_positions(informative).sum(dim=1) == 2).all()
    assert not (layout.noise_positions(informative) & informative).any()
