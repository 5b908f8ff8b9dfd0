"""Examples that are asked at several positions, and autoregressive parity."""

import dataclasses

import pytest
import torch
from answers import copying
from helpers import properties
from hypothesis import given
from hypothesis import strategies as st

import bayesticket as bt
from bayesticket.tasks import AutoregressiveParity, Examples, SparseParity, Task


@pytest.mark.parametrize(
    ("n", "k", "positions"), [(6, 2, "fixed"), (6, 6, "fixed"), (7, 3, "random"), (20, 4, "fixed")]
)
def test_each_token_of_a_parity_is_asked_for_from_those_before_it(n, k, positions):
    task = AutoregressiveParity(n=n, k=k, positions=positions, n_samples=50)
    alone = SparseParity(n=n, k=k, positions=positions, n_samples=50).examples(seed=3)
    examples = task.examples(seed=3)
    assert torch.equal(examples.tokens, alone.tokens)
    assert examples.queries == tuple(range(n + 1))
    assert examples.answerable == (n,)
    for tokens, targets, parity in zip(
        examples.tokens.tolist(), examples.targets.tolist(), alone.targets.tolist(), strict=True
    ):
        assert [*tokens, parity] == [tokens[0], *targets]
    assert torch.equal(examples.informative[:, -1], alone.informative)
    assert not examples.informative[:, :-1].any()
    assert torch.equal(examples.at(-1).oracle, alone.oracle)
    assert int(examples.targets.max()) < task.d_vocab_out == task.d_vocab
    assert torch.equal(task.orbits_of(examples), SparseParity(n=n, k=k, positions=positions).orbits_of(alone))


def test_a_redraw_asks_for_the_bits_that_it_has_drawn():
    task = AutoregressiveParity(n=40, k=3, n_samples=30, redraw_each_epoch=True)
    first = task.examples(seed=0)
    again = task.redraw(first, seed=1)
    assert (again.tokens != first.tokens).any()
    assert torch.equal(again.targets[:, :-1], again.tokens[:, 1:])
    assert torch.equal(again.targets[:, -1], first.targets[:, -1])
    operands = again.tokens[:, list(task.layout.home)]
    assert torch.equal(operands.sum(1) % 2, again.targets[:, -1])


@properties
@given(st.data())
def test_what_one_query_sees_is_the_sequence_up_to_it(data):
    n_positions = data.draw(st.integers(2, 6))
    queries = tuple(sorted(data.draw(st.sets(st.integers(0, n_positions - 1), min_size=1))))
    n, generator = 4, torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    known = data.draw(st.sets(st.sampled_from(queries), min_size=1))
    informative = torch.zeros(n, len(queries), n_positions, dtype=torch.bool)
    for slot, query in enumerate(queries):
        if query in known:
            informative[:, slot, : query + 1] = torch.rand(n, query + 1, generator=generator) < 0.5
            informative[:, slot, data.draw(st.integers(0, query))] = True
    tokens = torch.randint(0, 5, (n, n_positions), generator=generator)
    targets = torch.randint(0, 5, (n, len(queries)), generator=generator)
    examples = Examples(tokens, targets, informative, queries=queries)
    assert examples.answerable == tuple(sorted(known))
    empty = ~informative.any(-1)
    assert (examples.oracle[empty] == 0).all()
    torch.testing.assert_close(examples.oracle.sum(-1), (~empty).float())
    some = torch.tensor([2, 0])
    for query in examples.answerable:
        slot, seen = queries.index(query), examples.select(some).at(query)
        plain = Examples(tokens[some, : query + 1], targets[some, slot], informative[some, slot, : query + 1])
        for name in ("tokens", "targets", "informative", "oracle"):
            assert torch.equal(getattr(seen, name), getattr(plain, name))
        assert torch.equal(seen.select(slice(1)).tokens, seen.tokens[:1])
        assert len(seen.select(slice(1)).whole) == 1


def test_splits_keep_what_is_asked():
    task = copying()
    split, examples = task.split(0.5), task.examples(0)
    assert split.train.queries == split.test.queries == task.queries
    assert torch.equal(split.test.targets, examples.targets[split.test.origin])
    assert torch.equal(split.test.informative, examples.informative[split.test.origin])


def test_the_last_position_alone_may_be_asked_as_one_of_several_is():
    given = AutoregressiveParity(n=5, k=2).examples(0)
    one = Examples(given.tokens, given.targets[:, -1:], given.informative[:, -1:], queries=(5,))
    assert one.asks_last_alone
    assert not given.asks_last_alone
    assert torch.equal(one.at(-1).targets, given.targets[:, -1])


def test_autoregressive_parity_is_a_task_of_its_own():
    split = bt.AutoregressiveParity(n=8, k=2).split(by="orbit")
    assert split.train.orbit is not None
    assert bool(split.test.unseen.all())
    assert dataclasses.replace(split.train, orbit=None).queries == split.train.queries


def test_own_data_keep_their_answers():
    task = Task(tokens=[[3, 1, 4]], targets=[[1, 2]], informative=[[[True, False, False], [False] * 3]], queries=[1, 2])
    assert task.queries == (1, 2)
    assert task.examples(0).answerable == (1,)
    assert "queries=(1, 2)" in repr(task)
