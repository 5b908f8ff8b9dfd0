"""The effective rank against singular value decompositions."""

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from catalog import ADDITION, FORWARDS, model_of
from helpers import deep_model, value_of
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesticket.measures import EffectiveRank, effective_rank


def rank_by_svd(matrix):
    values = np.linalg.svd(matrix - matrix.mean(0), compute_uv=False)
    return math.exp(scipy.stats.entropy(values))


@given(n=st.integers(2, 30), d=st.integers(1, 12), scale=st.floats(1e-3, 1e3), seed=st.integers(0, 999))
@settings(deadline=None)
def test_effective_rank_against_a_singular_value_decomposition(n, d, scale, seed):
    matrix = scale * torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) + 5.0
    rank = effective_rank(matrix).item()
    assert rank == pytest.approx(rank_by_svd(matrix.numpy()), rel=1e-5)
    assert 1 - 1e-9 <= rank <= min(n - 1, d) + 1e-9


def test_effective_rank_of_known_matrices():
    generator = torch.Generator().manual_seed(0)
    directions = torch.linalg.qr(torch.randn(20, 5, generator=generator))[0].T  # five orthonormal rows of width 20
    signs = torch.cat([torch.eye(5), -torch.eye(5)])
    assert effective_rank(signs @ directions + 7.0).item() == pytest.approx(5, rel=1e-3)
    line = torch.linspace(-1, 1, 50)[:, None] * directions[:1]
    assert effective_rank(line).item() == pytest.approx(1, rel=1e-3)
    assert effective_rank(torch.ones(4, 3)).item() == 0
    rotation = torch.linalg.qr(torch.randn(20, 20, generator=generator))[0]
    cloud = torch.randn(40, 20, generator=generator)
    assert effective_rank(cloud @ rotation).item() == pytest.approx(effective_rank(cloud).item(), rel=1e-4)
    assert effective_rank(3 * cloud + 1).item() == pytest.approx(effective_rank(cloud).item(), rel=1e-4)


@pytest.mark.parametrize("forward", FORWARDS)
def test_effective_rank_of_the_representation_before_the_unembedding(forward):
    model, batch = model_of(ADDITION), ADDITION.split().test
    _, cache = model.run_with_cache(batch.tokens)
    expected = rank_by_svd(cache["blocks.0.hook_resid_post"][:, -1].numpy())
    assert value_of(EffectiveRank(), model, batch, forward=forward) == pytest.approx(expected, rel=1e-6)


def test_effective_rank_after_the_last_of_several_layers():
    model, batch = deep_model(), ADDITION.split().test
    _, cache = model.run_with_cache(batch.tokens)
    expected = rank_by_svd(cache["blocks.1.hook_resid_post"][:, -1].double().numpy())
    assert value_of(EffectiveRank(), model, batch) == pytest.approx(expected, rel=1e-4)
