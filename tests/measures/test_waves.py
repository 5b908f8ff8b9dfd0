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

from bayesticket.measures.waves import (
    fit,
    frequency_norms,
    frequency_shares,
    gini,
    is_key,
    keys_of,
    operand_products,
    waves,
)


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
    every = waves(batch.targets, p, range(1, p // 2 + 1))
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


# Shares of the frequencies 1 to 15 in a model of p = 31 with constant distractors, seed 0, after 4,000 epochs of
# training on 60 % of the examples under KLPrior(): it answers by four waves of very different strength.
GROKKED = {
    "embed": (.2521, .0519, .2209, .0114, .0092, .0315, .0088, .0052, .2178, .0065, .0069, .0121, .0460, .0185, .1011),
    "unembed": (
        .2757, .0106, .2156, .0074, .0131, .0130, .0118, .0088, .2253, .0093, .0148, .0095, .0166, .0108, .1578
    ),
    "logits": (.4270, .0054, .1605, .0006, .0012, .0017, .0010, .0006, .3766, .0003, .0009, .0007, .0011, .0011, .0214),
}  # fmt: skip


@pytest.mark.parametrize("of", GROKKED)
def test_all_key_frequencies_of_a_grokked_model_are_found_in_each_of_its_spectra(of):
    assert keys_of(torch.tensor(GROKKED[of]), above=3.0) == (1, 3, 9, 15)


@given(
    strengths=st.lists(st.floats(0.02, 1.0), min_size=1, max_size=6),
    noise=st.floats(0.0, 5e-4),
    m=st.integers(20, 80),
    seed=st.integers(0, 99),
)
def test_key_frequencies_of_any_strength_are_told_from_the_others(strengths, noise, m, seed):
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randperm(m, generator=generator)[: len(strengths)]
    power = noise * (0.5 + torch.rand(m, generator=generator, dtype=torch.float64))
    power[keys] = torch.tensor(strengths, dtype=torch.float64)
    shares = power / power.sum()
    expected = {int(key) + 1 for key in keys if shares[key] >= 0.01}
    assert set(keys_of(shares, above=3.0)) == expected


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=60).filter(any), st.floats(1.0, 5.0))
def test_what_stands_out_among_all_is_key(powers, above):
    power = torch.tensor(powers, dtype=torch.float64)
    shares = power / power.sum()
    found = is_key(shares, above)
    certain = (shares * len(shares) > above * (1 + 1e-9)) & (shares >= 0.01)
    assert (found | ~certain).all()
    if found.any():
        assert shares[found].min() >= shares[~found].max() if (~found).any() else True
    else:
        assert (shares * len(shares) <= above).all()


def test_products_of_two_operands_are_the_four_products():
    operands, angle = torch.tensor([[1, 2], [3, 5], [0, 4]]), 2 * math.pi * 2 / 7
    a, b = (angle * operands.double()).T
    expected = [a.cos() * b.cos(), a.cos() * b.sin(), a.sin() * b.cos(), a.sin() * b.sin()]
    assert torch.allclose(operand_products(operands, 7, [2]), torch.stack(expected, 1))
