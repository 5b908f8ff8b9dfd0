"""Fourier measures against direct projections, sums over pairs and numpy."""

import cmath
import math

import jaxtyping
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from catalog import TASKS
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import bayesticket as bt
from bayesticket.measures import KeyFrequencyCount
from bayesticket.measures.fourier import (
    ExcludedLoss,
    FourierGini,
    FrequencyShares,
    RestrictedLoss,
    fit,
    frequency_norms,
    frequency_shares,
    gini,
    key_frequencies,
    mean_by_sum,
    operand_waves,
)


def grid(p, k=2):
    """Every example of a sum, and a model whose weights are not near zero."""
    task = bt.ModularAddition(p=p) if k == 2 else bt.KOperandAddition(k=k, p=p)
    model = bt.build_model(task, d_model=8, d_mlp=16, dtype=torch.float64)
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(index)))
    return task, model, task.examples(seed=0)


def logits_of(model, batch):
    with torch.no_grad():
        return model(batch.tokens)[:, -1]


def make_wavy(model, p, frequencies):
    """Gives the embedding, and the unembedding, waves of these frequencies only."""
    x = torch.arange(p, dtype=torch.float64)
    columns = [wave(2 * math.pi * w * x / p) for w in frequencies for wave in (torch.cos, torch.sin)]
    waves = torch.stack([*columns, *[torch.zeros(p)] * 8][:8], 1)
    with torch.no_grad():
        model.embed.W_E[:p] = waves + 3.0
        model.unembed.W_U.copy_(waves.T + 3.0)


# The orthonormal basis of functions on Z_p × Z_p, made by hand ---------------------------------------------------


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
    _, model, batch = grid(p)
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
    _, model, batch = grid(7)
    for kind in (RestrictedLoss, ExcludedLoss):
        (alone,) = bt.measure(model, batch, kind(together=False)).values()
        (some,) = bt.measure(model, batch, kind(together=False, keys=(3, 1))).values()
        expected = [next(iter(bt.measure(model, batch, kind(keys=(w,))).values())) for w in (1, 2, 3)]
        assert alone.tolist() == pytest.approx(expected, rel=1e-12)
        assert some.tolist() == pytest.approx([expected[2], expected[0]], rel=1e-12)
        assert kind(together=False).labels(model) == ("1", "2", "3")
        assert kind(together=False, keys=(3, 1)).labels(model) == ("3", "1")


def test_three_operands_on_the_full_grid():
    p, w = 5, 2
    _, model, batch = grid(p, k=3)
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
        (restricted,) = bt.measure(model, batch, RestrictedLoss(keys=(w,), directions=directions)).values()
        assert restricted == pytest.approx(loss_of(kept + logits.mean(0), batch), rel=1e-10)


@given(seed=st.integers(0, 999), share=st.floats(0.15, 1.0), directions=st.sampled_from(["sum", "products"]))
@settings(max_examples=25, deadline=None)
def test_on_a_sample_the_parts_are_numpys_least_squares(seed, share, directions):
    p, keys = 11, (2, 5)
    _, model, batch = grid(p)
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


def test_directions_that_depend_on_one_another_are_allowed_for():
    a = torch.randn(9, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    twice = torch.cat([a, a.sum(1, keepdim=True), torch.ones(9, 1, dtype=torch.float64)], 1)
    logits = torch.randn(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    design = np.concatenate([np.ones((9, 1)), a.numpy()], 1)
    expected = design @ np.linalg.lstsq(design, logits.numpy(), rcond=None)[0]
    assert fit(logits, twice).numpy() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("p", [6, 7])
def test_waves_of_all_frequencies_make_every_function_of_the_sum(p):
    _, _, batch = grid(p)
    every = operand_waves(batch.tokens[:, [0, 2]], p, range(1, p // 2 + 1), "sum")
    assert every.shape == (p * p, p - 1)
    table = torch.randn(p, p, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(fit(table[batch.targets], every), table[batch.targets], atol=1e-9)


def test_the_losses_of_a_model_that_adds_by_two_waves():
    p, keys = 13, (2, 5)
    _, model, batch = grid(p)
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
    assert seen["frequency_shares[of=logits]"].tolist() == pytest.approx([0, 0.5, 0, 0, 0.5, 0], abs=1e-12)
    assert seen["key_frequency_count[of=logits,above=1.5]"] == 2
    assert seen["restricted_loss[above=1.5]"] == pytest.approx(seen["loss"], rel=1e-6, abs=1e-12)
    assert seen["excluded_loss[above=1.5]"] == pytest.approx(math.log(p), rel=1e-9)
    # above four times the even share of 1/6 there is neither: nothing is kept, and nothing removed
    assert seen["restricted_loss[above=4.0]"] == pytest.approx(math.log(p), rel=1e-9)
    assert seen["excluded_loss[above=4.0]"] == pytest.approx(seen["loss"], rel=1e-9)


# Spectra ----------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("frequencies", [(3,), (1, 4)])
def test_spectra_of_weights_made_of_waves(frequencies):
    p = 11
    _, model, batch = grid(p)
    make_wavy(model, p, frequencies)
    expected = [1 / len(frequencies) if w in frequencies else 0 for w in range(1, 6)]
    for of in ("embed", "unembed"):
        shares, count, unequal = bt.measure(
            model, batch, FrequencyShares(of), KeyFrequencyCount(of, above=1.5), FourierGini(of)
        ).values()
        assert shares.tolist() == pytest.approx(expected, abs=1e-12)
        assert count == len(frequencies)
        assert unequal == pytest.approx(1 - len(frequencies) / 5, abs=1e-9)
        assert key_frequencies(model, batch, of=of, above=1.5) == frequencies
    assert FrequencyShares().labels(model) == ("1", "2", "3", "4", "5")


def test_of_the_embedding_only_the_numbers_count():
    _, model, batch = grid(7)
    before = bt.measure(model, batch, FrequencyShares())["frequency_shares"]
    assert model.cfg.d_vocab == 9
    with torch.no_grad():
        model.embed.W_E[7:] += 100.0
        model.unembed.W_U[:] += torch.randn(8, 1, dtype=torch.float64)  # a constant over outputs is no wave
    assert torch.equal(bt.measure(model, batch, FrequencyShares())["frequency_shares"], before)


@given(npst.arrays(np.float64, st.integers(1, 12), elements=st.floats(0, 1e3)))
def test_gini_is_the_mean_difference_over_all_pairs(values):
    value = gini(torch.from_numpy(values)).item()
    total = values.sum()
    expected = abs(values[:, None] - values).sum() / (2 * len(values) * total) if total else 0.0
    assert value == pytest.approx(expected, abs=1e-9)
    assert -1e-12 <= value <= 1 - 1 / len(values) + 1e-12


def test_shares_of_logits_are_those_of_the_mean_by_sum():
    p = 7
    _, model, batch = grid(p)
    part = batch.select((batch.targets != 3) & (batch.tokens[:, 0] > 1))
    logits = logits_of(model, part)
    means = torch.stack([logits[part.targets == c].mean(0) if c != 3 else torch.zeros(p) for c in range(p)])
    means[3] = means[[0, 1, 2, 4, 5, 6]].mean(0)
    assert torch.allclose(mean_by_sum(logits, part.targets, p), means)
    shares = bt.measure(model, part, FrequencyShares("logits"))["frequency_shares[of=logits]"]
    centred = means - means.mean(1, keepdim=True)
    power = np.abs(np.fft.fft(centred.numpy(), axis=0)[1:4]) ** 2
    assert shares.tolist() == pytest.approx((power.sum(1) / power.sum()).tolist(), rel=1e-9)


def test_what_the_softmax_does_not_see_the_shares_do_not_either():
    p = 7
    _, model, batch = grid(p)
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


# Training and refusals --------------------------------------------------------------------------------------------


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
        bt.measure(run.model, split.test, RestrictedLoss(keys=keys))["restricted_loss[keys=(1, 3)]"], rel=1e-4
    )
    assert last["excluded_loss[keys=(1, 3)]"] == pytest.approx(
        bt.measure(run.model, split.train, ExcludedLoss(keys=keys))["excluded_loss[keys=(1, 3)]"], rel=1e-4
    )
    assert last[[f"frequency_shares[{w}]" for w in (1, 2, 3)]].sum() == pytest.approx(1, rel=1e-5)
    assert {"excluded_loss[keys=(1, 3),together=False][1]", "excluded_loss[keys=(1, 3),together=False][3]"} <= set(
        run.curves
    )


EVERY = [
    FrequencyShares(),
    FrequencyShares("logits"),
    KeyFrequencyCount(),
    FourierGini(),
    RestrictedLoss(),
    ExcludedLoss(),
]


@pytest.mark.parametrize("measure", EVERY, ids=lambda measure: measure.name)
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("multiplication", "target"),
        ("permutations", "target"),
        ("several queries", "target|token"),
        ("parity", "p = 2"),
        ("addition, drawn positions", "positions that differ"),
    ],
)
def test_other_data_are_refused(measure, name, why):
    task = TASKS[name]
    model = bt.build_model(task, d_model=8, d_mlp=8)
    with pytest.raises(bt.BayesticketError, match=f"{type(measure).__name__}.*({why}).*accepted: a batch of modular"):
        bt.measure(model, task.split().test, measure)


@pytest.mark.parametrize("name", ["addition", "addition, constant", "addition, no distractors", "three operands"])
@pytest.mark.parametrize("measure", EVERY, ids=lambda measure: measure.name)
def test_modular_addition_in_all_its_layouts_is_accepted(measure, name):
    task = TASKS[name]
    (value,) = bt.measure(bt.build_model(task, d_model=8, d_mlp=8), task.split().test, measure).values()
    assert torch.isfinite(torch.as_tensor(value)).all()


def test_a_deeper_model_is_measured_too():
    from bayesticket.model.build import hooked_transformer

    config = {"n_layers": 2, "d_model": 8, "d_head": 4, "n_heads": 2, "n_ctx": 5, "d_vocab": 9, "d_vocab_out": 7}
    model = hooked_transformer(config | {"act_fn": "relu", "normalization_type": "LN"}, seed=0)
    batch = TASKS["addition"].split().test
    logits = logits_of(model, batch)
    operands = batch.tokens[:, [0, 2]]
    expected = F.cross_entropy(fit(logits, operand_waves(operands, 7, (2,), "sum")), batch.targets)
    assert bt.measure(model, batch, RestrictedLoss(keys=(2,)))["restricted_loss[keys=(2,)]"] == pytest.approx(
        expected.item(), rel=1e-5
    )


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: FourierGini("logits"), "of"),
        (lambda: FrequencyShares("weights"), "of"),
        (lambda: KeyFrequencyCount(above=0.5), "above"),
        (lambda: RestrictedLoss(keys=(0,)), "keys"),
        (lambda: RestrictedLoss(keys=(1, 1)), "keys"),
        (lambda: RestrictedLoss(keys=(), together=False), "keys"),
        (lambda: RestrictedLoss(directions="both"), "directions"),
        (lambda: bt.measure(grid(7)[1], grid(7)[2], RestrictedLoss(keys=(4,))), "keys"),
        (
            lambda: bt.measure(grid(7)[1], grid(7)[2].select(slice(0, 4)), ExcludedLoss(directions="products")),
            "directions",
        ),
    ],
)
def test_fields_are_checked(make, field):
    with pytest.raises((bt.BayesticketError, jaxtyping.TypeCheckError), match=field):
        make()


def test_keys_read_back_from_a_file_are_the_same():
    from bayesticket.specs import describe, restore

    measure = RestrictedLoss(keys=(1, 3), directions="products")
    assert restore(describe(measure, {}), {}) == measure
