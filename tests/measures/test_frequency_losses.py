"""Losses with and without the key frequencies against direct projections and least squares."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from catalog import TASKS
from helpers import addition_grid, deep_model, logits_of, value_of
from hypothesis import given, settings
from hypothesis import strategies as st

import bayesticket as bt
from bayesticket.measures import (
    ExcludedLoss,
    FourierGini,
    FrequencyShares,
    KeyFrequencyCount,
    RestrictedLoss,
    key_frequencies,
)
from bayesticket.measures.waves import fit, waves
from bayesticket.specs import describe, restore


def orthonormal_basis(p):
    """The constant, then cosine and sine of every frequency, as functions on Z_p of norm 1; p odd."""
    x = np.arange(p)
    rows = [np.ones(p) / math.sqrt(p)]
    for w in range(1, p // 2 + 1):
        rows += [np.cos(2 * np.pi * w * x / p) * math.sqrt(2 / p), np.sin(2 * np.pi * w * x / p) * math.sqrt(2 / p)]
    return np.array(rows)


def project_on_the_grid(logits, p, keys, directions):
    """The part of the logits on all p² pairs in the given directions, each made of products of basis functions."""
    basis = orthonormal_basis(p)
    assert np.allclose(basis @ basis.T, np.eye(p))
    kept = np.zeros_like(logits)
    for w in keys:
        cos, sin = basis[2 * w - 1], basis[2 * w]
        products = [np.outer(u, v).ravel() for u in (cos, sin) for v in (cos, sin)]
        of_the_sum = [(products[0] - products[3]) / math.sqrt(2), (products[1] + products[2]) / math.sqrt(2)]
        for direction in products if directions == "products" else of_the_sum:
            kept += np.outer(direction, direction @ logits)
    return kept


def loss_of(logits, batch):
    return F.cross_entropy(torch.from_numpy(logits), batch.targets).item()


@pytest.mark.parametrize("directions", ["sum", "products"])
@pytest.mark.parametrize(("p", "keys"), [(5, (2,)), (7, (1, 3)), (7, (1, 2, 3)), (11, (4,))])
def test_on_the_full_grid_the_losses_are_those_of_the_direct_projection(p, keys, directions):
    model, batch = addition_grid(p)
    assert len(batch) == p * p
    logits = logits_of(model, batch).numpy()
    kept = project_on_the_grid(logits, p, keys, directions)
    seen = bt.measure(
        model, batch, *[kind(keys=keys, directions=directions) for kind in (RestrictedLoss, ExcludedLoss)]
    )
    restricted, excluded = seen.values()
    assert restricted == pytest.approx(loss_of(kept + logits.mean(0), batch), rel=1e-10)
    assert excluded == pytest.approx(loss_of(logits - kept, batch), rel=1e-10)


def test_one_at_a_time_is_every_frequency_alone():
    model, batch = addition_grid(7)
    for kind in (RestrictedLoss, ExcludedLoss):
        alone = value_of(kind(together=False), model, batch)
        some = value_of(kind(together=False, keys=(3, 1)), model, batch)
        expected = [value_of(kind(keys=(w,)), model, batch) for w in (1, 2, 3)]
        assert alone == pytest.approx(expected, rel=1e-12)
        assert some == pytest.approx([expected[2], expected[0]], rel=1e-12)
        assert kind(together=False).labels(model) == ("1", "2", "3")
        assert kind(together=False, keys=(3, 1)).labels(model) == ("3", "1")


def test_three_operands_on_the_full_grid():
    p, w = 5, 2
    model, batch = addition_grid(p, k=3)
    assert len(batch) == p**3
    logits = logits_of(model, batch).numpy()
    operands = batch.tokens[:, [0, 2, 4]].numpy()
    waves = [
        np.exp(2j * np.pi * w * operands @ signs / p)
        for signs in np.array([[1, 1, 1], [1, 1, -1], [1, -1, 1], [1, -1, -1]])
    ]
    for directions, count in (("sum", 1), ("products", 4)):
        columns = np.stack([part for wave in waves[:count] for part in (wave.real, wave.imag)], 1)
        columns /= np.linalg.norm(columns, axis=0)
        assert np.allclose(columns.T @ columns, np.eye(2 * count))
        kept = columns @ (columns.T @ logits)
        restricted = value_of(RestrictedLoss(keys=(w,), directions=directions), model, batch)
        assert restricted == pytest.approx(loss_of(kept + logits.mean(0), batch), rel=1e-10)


@given(seed=st.integers(0, 999), share=st.floats(0.15, 1.0), directions=st.sampled_from(["sum", "products"]))
@settings(max_examples=25, deadline=None)
def test_on_a_sample_the_parts_are_numpys_least_squares(seed, share, directions):
    p, keys = 11, (2, 5)
    model, batch = addition_grid(p)
    generator = torch.Generator().manual_seed(seed)
    part = batch.select(torch.randperm(p * p, generator=generator)[: int(share * p * p)])
    logits = logits_of(model, part).numpy()
    a, b = part.tokens[:, 0].numpy(), part.tokens[:, 2].numpy()
    signs = (1,) if directions == "sum" else (1, -1)
    columns = [np.ones(len(part))]
    for w in keys:
        for sign in signs:
            angle = 2 * np.pi * w * (a + sign * b) / p
            columns += [np.cos(angle), np.sin(angle)]
    design = np.stack(columns, 1)
    fitted = design @ np.linalg.lstsq(design, logits, rcond=None)[0]
    seen = bt.measure(model, part, *[kind(keys=keys, directions=directions) for kind in (RestrictedLoss, ExcludedLoss)])
    restricted, excluded = seen.values()
    assert restricted == pytest.approx(loss_of(fitted, part), rel=1e-7)
    assert excluded == pytest.approx(loss_of(logits - fitted + logits.mean(0), part), rel=1e-7)


def test_the_losses_of_a_model_that_adds_by_two_waves():
    p, keys = 13, (2, 5)
    model, batch = addition_grid(p)
    c = torch.arange(p, dtype=torch.float64)
    made = sum(20 * torch.cos(2 * math.pi * w * (batch.targets[:, None] - c) / p) for w in keys)

    def answer(logits, hook):  # a model's logits are made these
        return made[:, None].expand_as(logits).clone()

    with model.hooks(fwd_hooks=[("unembed.hook_out", answer)]):
        seen = bt.measure(
            model,
            batch,
            bt.Loss(),
            RestrictedLoss(above=4.0),
            ExcludedLoss(above=4.0),
            KeyFrequencyCount("logits", above=1.5),
            FrequencyShares("logits"),
            RestrictedLoss(above=1.5),
            ExcludedLoss(above=1.5),
            forward="full",
        )
        assert key_frequencies(model, batch, above=1.5) == keys
        assert key_frequencies(model, batch, above=4.0) == ()
    assert [seen[f"frequency_shares[of=logits][{w}]"] for w in range(1, 7)] == pytest.approx(
        [0, 0.5, 0, 0, 0.5, 0], abs=1e-12
    )
    assert seen["key_frequency_count[above=1.5]"] == 2
    assert seen["restricted_loss[above=1.5]"] == pytest.approx(seen["loss"], rel=1e-6, abs=1e-12)
    assert seen["excluded_loss[above=1.5]"] == pytest.approx(math.log(p), rel=1e-9)
    # above four times the even share of 1/6 there is neither: nothing is kept, and nothing removed
    assert seen["restricted_loss[above=4.0]"] == pytest.approx(math.log(p), rel=1e-9)
    assert seen["excluded_loss[above=4.0]"] == pytest.approx(seen["loss"], rel=1e-9)


def test_all_waves_of_a_model_are_kept_when_their_strengths_differ():
    p, strengths = 31, {2: 12.0, 7: 8.0, 11: 2.5}
    model, batch = addition_grid(p)
    harmonics = {(2 * w) % p: 0.03 * strength for w, strength in strengths.items()}
    x = torch.arange(p, dtype=torch.float64)

    def made(difference):
        angle = 2 * math.pi * difference / p
        return sum(strength * torch.cos(w * angle) for w, strength in (strengths | harmonics).items())

    with torch.no_grad():
        model.embed.W_E.zero_()
        model.unembed.W_U.zero_()
        for place, (w, strength) in enumerate(strengths.items()):
            wave = strength * torch.stack([torch.cos(2 * math.pi * w * x / p), torch.sin(2 * math.pi * w * x / p)])
            model.embed.W_E[:p, 2 * place : 2 * place + 2] = wave.T
            model.unembed.W_U[2 * place : 2 * place + 2] = wave
    logits = made(batch.targets[:, None] - x)

    def answer(given, hook):
        return logits[:, None].expand_as(given).clone()

    with model.hooks(fwd_hooks=[("unembed.hook_out", answer)]):
        for of in ("embed", "unembed", "logits"):
            assert key_frequencies(model, batch, of=of) == (2, 7, 11)
            assert value_of(KeyFrequencyCount(of), model, batch, forward="full") == 3
        found, all_three, two = (
            value_of(RestrictedLoss(keys=keys), model, batch, forward="full") for keys in (None, (2, 7, 11), (2, 7))
        )
    assert found == all_three < 0.6 * two


def test_measures_and_function_find_the_same_key_frequencies_unless_told_otherwise():
    run = bt.train(bt.ModularAddition(p=31), bt.KLPrior(), model=bt.Architecture(residual=False), epochs=250)
    half = run.config.split().test
    found = bt.key_frequencies(run.model, half)
    assert () != found != bt.key_frequencies(run.model, half, of="embed")
    by_default = bt.measure(run.model, half, KeyFrequencyCount(), RestrictedLoss(), ExcludedLoss())
    given = bt.measure(run.model, half, RestrictedLoss(keys=found), ExcludedLoss(keys=found))
    assert list(by_default.values()) == [len(found), *given.values()]


def test_what_the_softmax_does_not_see_the_shares_do_not_either():
    p = 7
    model, batch = addition_grid(p)
    shift = torch.cos(2 * math.pi * batch.targets / p).double()[:, None, None] * 50

    def measured():
        return bt.measure(
            model, batch, FrequencyShares("logits"), RestrictedLoss(keys=(2,)), ExcludedLoss(keys=(1,)), forward="full"
        ).values()

    plain = measured()
    with model.hooks(fwd_hooks=[("unembed.hook_out", lambda logits, hook: logits + shift)]):
        shifted = measured()
    for one, other in zip(plain, shifted, strict=True):
        assert torch.allclose(torch.as_tensor(one), torch.as_tensor(other))


def test_recorded_in_training_on_its_halves_under_labelled_names():
    task = bt.ModularAddition(p=7)
    keys = (1, 3)
    measures = [
        FrequencyShares(),
        FourierGini("unembed"),
        RestrictedLoss(keys=keys),
        ExcludedLoss(keys=keys),
        ExcludedLoss(keys=keys, together=False),
    ]
    run = bt.train(task, measures=measures, epochs=10, model=bt.Architecture(d_model=8, d_mlp=8))
    last, split = run.curves.iloc[-1], task.split()
    assert last["test_restricted_loss[keys=(1, 3)]"] == pytest.approx(
        value_of(RestrictedLoss(keys=keys), run.model, split.test), rel=1e-4
    )
    assert last["excluded_loss[keys=(1, 3)]"] == pytest.approx(
        value_of(ExcludedLoss(keys=keys), run.model, split.train), rel=1e-4
    )
    assert last[[f"frequency_shares[{w}]" for w in (1, 2, 3)]].sum() == pytest.approx(1, rel=1e-5)
    assert {"excluded_loss[keys=(1, 3),together=False][1]", "excluded_loss[keys=(1, 3),together=False][3]"} <= set(
        run.curves
    )


def test_a_deeper_model_is_measured_too():
    model, batch = deep_model(), TASKS["addition"].split().test
    logits = logits_of(model, batch)
    expected = F.cross_entropy(fit(logits, waves(batch.targets, 7, (2,))), batch.targets)
    assert value_of(RestrictedLoss(keys=(2,)), model, batch) == pytest.approx(expected.item(), rel=1e-5)


def test_keys_read_back_from_a_file_are_the_same():
    measure = RestrictedLoss(keys=(1, 3), directions="products")
    assert restore(describe(measure, {}), {}) == measure


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: RestrictedLoss(keys=(0,)), "keys"),
        (lambda: RestrictedLoss(keys=(1, 1)), "keys"),
        (lambda: RestrictedLoss(keys=(), together=False), "keys"),
        (lambda: RestrictedLoss(directions="both"), "directions"),
        (lambda: bt.measure(*addition_grid(7), RestrictedLoss(keys=(4,))), "keys"),
    ],
)
def test_fields_are_checked(make, field):
    with pytest.raises(bt.BayesticketError, match=field):
        make()


def test_more_directions_than_examples_are_refused():
    model, batch = addition_grid(7)
    with pytest.raises(bt.BayesticketError, match="directions"):
        bt.measure(model, batch.select(slice(0, 4)), ExcludedLoss(directions="products"))
