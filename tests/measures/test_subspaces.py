"""Whether operands and distractors have subspaces of their own."""

import numpy as np
import pytest
import torch
from catalog import TASKS, model_of
from helpers import attention_and_values, deep_model, informative_places, value_of
from hypothesis import given
from hypothesis import strategies as st

import bayesticket as bt
from bayesticket.theory import subspace_overlap


@pytest.mark.parametrize(
    ("name", "normalization_type"), [("addition", "LN"), ("addition, drawn positions", None), ("parity", None)]
)
def test_the_overlap_is_the_cosine_of_covariances_computed_value_by_value(name, normalization_type):
    task = TASKS[name]
    model, batch = model_of(task, normalization_type=normalization_type), task.split().test
    values = attention_and_values(model, batch)[1]
    of_heads = []
    for head in range(2):
        groups = {True: [], False: []}
        for t in range(batch.n_positions - 1):
            for is_operand, group in groups.items():
                rows = [n for n in range(len(batch)) if (t in informative_places(batch, n)) is is_operand]
                here = np.array([values[n, t, head].double().numpy() for n in rows])
                group.extend(here - here.mean(0) if rows else here)
        first, second = (np.cov(np.array(group), rowvar=False) for group in groups.values())
        of_heads.append((first * second).sum() / np.linalg.norm(first) / np.linalg.norm(second))
    assert value_of(bt.SubspaceOverlap(), model, batch) == pytest.approx(np.mean(of_heads), rel=1e-9)
    assert value_of(bt.SubspaceOverlap(head=1), model, batch) == pytest.approx(of_heads[1], rel=1e-9)


@given(st.integers(0, 99), st.integers(1, 4), st.floats(0.1, 10))
def test_an_overlap_is_between_0_and_1_whatever_the_scale_and_0_on_orthogonal_subspaces(seed, d, scale):
    generator = torch.Generator().manual_seed(seed)
    first, second = (torch.randn(9, d, generator=generator, dtype=torch.float64) for _ in range(2))
    overlap = subspace_overlap(first, second)
    assert 0 <= overlap <= 1 + 1e-12
    assert subspace_overlap(scale * second + 3, first) == pytest.approx(overlap.item(), rel=1e-9)
    nothing = torch.zeros_like(first)
    apart = subspace_overlap(torch.cat([first, nothing], 1), torch.cat([nothing, second], 1))
    assert apart == pytest.approx(0, abs=1e-12)


def test_where_operands_and_distractors_have_the_same_tokens_their_values_vary_alike():
    """Every pair occurs with every other noise token about as often, so that only positions tell them apart."""
    task = bt.ModularAddition(p=31)
    shared = value_of(bt.SubspaceOverlap(), bt.build_model(task), task.examples(0))
    own = bt.ModularAddition(p=31, positions="random")
    assert shared > 0.95
    assert value_of(bt.SubspaceOverlap(), bt.build_model(own), own.examples(0)) < 0.7


def test_without_variation_there_is_no_overlap():
    task = TASKS["addition, constant"]
    one = bt.Task(tokens=[[0, 4, 5], [1, 4, 5]], targets=[0, 1], informative=[True, False, False])
    assert np.isnan(value_of(bt.SubspaceOverlap(), model_of(one), one.examples(0)))
    assert not np.isnan(value_of(bt.SubspaceOverlap(), model_of(task), task.split().test))


def test_what_it_cannot_be_measured_on_is_refused():
    with pytest.raises(bt.BayesticketError, match="SubspaceOverlap: got a model with n_layers=2"):
        bt.measure(deep_model(normalization_type=None), TASKS["addition"].split().test, bt.SubspaceOverlap())
    task = bt.Task(tokens=[[0, 5], [1, 5]], targets=[0, 1], informative=[True, False])
    with pytest.raises(bt.BayesticketError, match="sequences without distractors"):
        bt.measure(model_of(task), task.examples(0), bt.SubspaceOverlap())
