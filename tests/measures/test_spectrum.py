"""Spectra of models whose weights or logits are made of known waves."""

import math

import numpy as np
import pytest
import torch
from catalog import TASKS
from helpers import addition_grid, logits_of, value_of

import bayesticket as bt
from bayesticket.measures import (
    ExcludedLoss,
    FourierGini,
    FrequencyShares,
    KeyFrequencyCount,
    RestrictedLoss,
    key_frequencies,
)
from bayesticket.measures.waves import mean_by_sum


def make_wavy(model, p, frequencies):
    """Gives the embedding, and the unembedding, waves of these frequencies only."""
    x = torch.arange(p, dtype=torch.float64)
    columns = [wave(2 * math.pi * w * x / p) for w in frequencies for wave in (torch.cos, torch.sin)]
    waves = torch.stack([*columns, *[torch.zeros(p)] * 8][:8], 1)
    with torch.no_grad():
        model.embed.W_E[:p] = waves + 3.0
        model.unembed.W_U.copy_(waves.T + 3.0)


@pytest.mark.parametrize("frequencies", [(3,), (1, 4)])
def test_spectra_of_weights_made_of_waves(frequencies):
    p = 11
    model, batch = addition_grid(p)
    make_wavy(model, p, frequencies)
    expected = [1 / len(frequencies) if w in frequencies else 0 for w in range(1, 6)]
    for of in ("embed", "unembed"):
        count, unequal = bt.measure(model, batch, KeyFrequencyCount(of, above=1.5), FourierGini(of)).values()
        assert value_of(FrequencyShares(of), model, batch) == pytest.approx(expected, abs=1e-12)
        assert count == len(frequencies)
        assert unequal == pytest.approx(1 - len(frequencies) / 5, abs=1e-9)
        assert key_frequencies(model, batch, of=of, above=1.5) == frequencies
    assert FrequencyShares().labels(model) == ("1", "2", "3", "4", "5")


def test_of_the_embedding_only_the_numbers_count():
    model, batch = addition_grid(7)
    before = value_of(FrequencyShares(), model, batch)
    assert model.cfg.d_vocab == 9
    with torch.no_grad():
        model.embed.W_E[7:] += 100.0
        model.unembed.W_U[:] += torch.randn(8, 1, dtype=torch.float64)  # a constant over outputs is no wave
    assert value_of(FrequencyShares(), model, batch) == before


def test_shares_of_logits_are_those_of_the_mean_by_sum():
    p = 7
    model, batch = addition_grid(p)
    part = batch.select((batch.targets != 3) & (batch.tokens[:, 0] > 1))
    logits = logits_of(model, part)
    means = torch.stack([logits[part.targets == c].mean(0) if c != 3 else torch.zeros(p) for c in range(p)])
    means[3] = means[[0, 1, 2, 4, 5, 6]].mean(0)
    assert torch.allclose(mean_by_sum(logits, part.targets, p), means)
    shares = value_of(FrequencyShares("logits"), model, part)
    centred = means - means.mean(1, keepdim=True)
    power = np.abs(np.fft.fft(centred.numpy(), axis=0)[1:4]) ** 2
    assert shares == pytest.approx((power.sum(1) / power.sum()).tolist(), rel=1e-9)


def test_random_weights_have_no_key_frequencies():
    task = bt.ModularAddition(p=113)
    model, batch = bt.build_model(task), task.split().test.select(slice(0, 2000))
    seen = bt.measure(
        model, batch, *[KeyFrequencyCount(of) for of in ("embed", "unembed", "logits")], FourierGini(), RestrictedLoss()
    )
    *counts, unequal, restricted = seen.values()
    assert counts == [0, 0, 0]
    assert unequal == pytest.approx(0.0625 / math.sqrt(math.pi), rel=0.3)  # norms of 128 normals differ by 1/16
    assert restricted == pytest.approx(math.log(113), rel=0.02)


EVERY = [
    FrequencyShares(),
    FrequencyShares("logits"),
    KeyFrequencyCount(),
    FourierGini(),
    RestrictedLoss(),
    ExcludedLoss(),
]


OTHERS = {
    "products modulo 8": bt.ModularMultiplication(p=8),
    "marks that differ": bt.Task(
        tokens=[[1, 2, 9], [3, 4, 9], [1, 1, 9], [5, 0, 9], [6, 2, 9]],
        targets=[3, 7, 2, 5, 8],
        informative=torch.tensor([[True, True, False]] * 4 + [[True, False, False]]),
    ),
}


@pytest.mark.parametrize("measure", EVERY, ids=lambda measure: measure.name)
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("permutations", "target"),
        ("several queries", "target|token"),
        ("parity", "p = 2"),
        ("products modulo 8", "target"),
        ("marks that differ", "1 to 2 informative positions"),
    ],
)
def test_other_data_are_refused(measure, name, why):
    task = (TASKS | OTHERS)[name]
    model = bt.build_model(task, d_model=8, d_mlp=8)
    with pytest.raises(bt.BayesticketError, match=f"{type(measure).__name__}: got .*({why}).*accepted: a batch over"):
        bt.measure(model, task.split().test, measure)


ACCEPTED = [
    *("addition", "addition, constant", "addition, drawn positions", "addition, no distractors", "three operands"),
    "multiplication",
]


@pytest.mark.parametrize("name", ACCEPTED)
@pytest.mark.parametrize("measure", EVERY, ids=lambda measure: measure.name)
def test_sums_and_products_in_all_their_layouts_are_accepted(measure, name):
    task = TASKS[name]
    value = value_of(measure, bt.build_model(task, d_model=8, d_mlp=8), task.split().test)
    assert torch.isfinite(torch.as_tensor(value)).all()


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: FourierGini("logits"), "of"),
        (lambda: FrequencyShares("weights"), "of"),
        (lambda: KeyFrequencyCount(above=0.5), "above"),
    ],
)
def test_fields_are_checked(make, field):
    with pytest.raises(bt.BayesticketError, match=field):
        make()
