"""Waves, spectra and fits against numpy and the definitions."""

import cmath
import math

import numpy as np
import pytest
import torch
from helpers import addition_grid
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from bayesticket.measures.waves import fit, frequency_norms, frequency_shares, gini, operand_waves


def test_directions_that_depend_on_one_another_are_allowed_for():
    a = torch.randn(9, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    twice = torch.cat([a, a.sum(1, keepdim=True), torch.ones(9, 1, dtype=torch.float64)], 1)
    logits = torch.randn(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    design = np.concatenate([np.ones((9, 1)), a.numpy()], 1)
    expected = design @ np.linalg.lstsq(design, logits.numpy(), rcond=None)[0]
    assert fit(logits, twice).numpy() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("p", [6, 7])
def test_waves_of_all_frequencies_make_every_function_of_the_sum(p):
    _, batch = addition_grid(p)
    every = operand_waves(batch.tokens[:, [0, 2]], p, range(1, p // 2 + 1), "sum")
    assert every.shape == (p * p, p - 1)
    table = torch.randn(p, p, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(fit(table[batch.targets], every), table[batch.targets], atol=1e-9)


@given(p=st.integers(4, 12), seed=st.integers(0, 99))
def test_norms_by_frequency_against_the_definition(p, seed):
    table = torch.randn(p, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).numpy()
    norms = frequency_norms(torch.from_numpy(table)).numpy()
    coefficients = np.array(
        [
            [sum(table[x, f] * cmath.exp(-2j * math.pi * w * x / p) for x in range(p)) for f in range(3)]
            for w in range(p)
        ]
    )
    for w in range(1, p // 2 + 1):
        both = coefficients[w] if 2 * w == p else np.concatenate([coefficients[w], coefficients[p - w]])
        assert norms[w - 1] == pytest.approx(np.linalg.norm(both) / math.sqrt(p), rel=1e-9)
    assert (norms**2).sum() == pytest.approx(((table - table.mean(0)) ** 2).sum(), rel=1e-9)  # Parseval
    shares = frequency_shares(torch.from_numpy(table)).numpy()
    assert shares == pytest.approx(norms**2 / (norms**2).sum(), rel=1e-9)
    # relabelling the tokens from another origin changes neither
    shifted = frequency_norms(torch.from_numpy(np.roll(table, 3, axis=0)))
    assert shifted.numpy() == pytest.approx(norms, rel=1e-9)


def test_shares_of_a_constant_table():
    assert frequency_shares(torch.zeros(7, 2)).tolist() == [0.0, 0.0, 0.0]
    assert gini(torch.zeros(3)).item() == 0


@given(npst.arrays(np.float64, st.integers(1, 12), elements=st.floats(0, 1e3)))
def test_gini_is_the_mean_difference_over_all_pairs(values):
    value = gini(torch.from_numpy(values)).item()
    total = values.sum()
    expected = abs(values[:, None] - values).sum() / (2 * len(values) * total) if total else 0.0
    assert value == pytest.approx(expected, abs=1e-9)
    assert -1e-12 <= value <= 1 - 1 / len(values) + 1e-12
