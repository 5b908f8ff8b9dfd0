"""Measures of capacity against numpy, brute force, and models changed by hand."""

import copy
import dataclasses
import math

import jaxtyping
import numpy as np
import pytest
import scipy.stats
import torch
import torch.nn.functional as F
from catalog import TASKS, model_of
from hypothesis import given, settings
from hypothesis import strategies as st

import bayesticket as bt
from bayesticket.measures import NormCondition
from bayesticket.measures.capacity import (
    ClassMargin,
    EffectiveRank,
    InteractionNorm,
    NormalizedMLPLoss,
    ScoreVariance,
    WeightNorms,
    class_margins,
    effective_rank,
)
from bayesticket.model.build import hooked_transformer


def deep_model():
    config = {"n_layers": 2, "d_model": 8, "d_head": 4, "n_heads": 2, "n_ctx": 5, "d_vocab": 9, "d_vocab_out": 7}
    return hooked_transformer(config | {"act_fn": "relu", "normalization_type": "LN"}, seed=0)


def seen_by(measure, model, batch, **options):
    (value,) = bt.measure(model, batch, measure, **options).values()
    return value


ADDITION = TASKS["addition"]
FORWARDS = ("fast", "full")


# Norms ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda: model_of(ADDITION), deep_model])
def test_norms_by_matrix(make):
    model = make()
    norms = seen_by(WeightNorms(), model, ADDITION.split().train)
    labels = WeightNorms().labels(model)
    assert len(labels) == len(set(labels)) == len(norms)
    weights = model.state_dict()
    for label, norm in zip(labels, norms.tolist(), strict=True):
        assert norm == pytest.approx(np.linalg.norm(weights[label].numpy().ravel()), rel=1e-6), label
    of_the_mlp = [norm for label, norm in zip(labels, norms.tolist(), strict=True) if ".mlp." in label]
    assert math.hypot(*of_the_mlp) == pytest.approx(seen_by(bt.MLPNorm(), model, ADDITION.split().train), rel=1e-6)


def test_membership_in_n_with_both_borders():
    model, batch = model_of(ADDITION), ADDITION.split().train
    norm = seen_by(bt.MLPNorm(), model, batch)
    for bounds, inside in [
        ((0.0, norm), 1),
        ((norm, norm), 1),
        ((norm, 100.0), 1),
        ((0.0, norm * 0.999), 0),
        ((norm * 1.001, 100.0), 0),
    ]:
        assert seen_by(NormCondition(*bounds), model, batch) == inside, bounds
    with pytest.raises(bt.BayesticketError, match="r_max"):
        NormCondition(2.0, 1.0)
    with pytest.raises(bt.BayesticketError, match="r_min"):
        NormCondition(-1.0, 1.0)


def test_membership_in_n_needs_an_mlp():
    config = {"n_layers": 1, "d_model": 8, "d_head": 4, "n_heads": 2, "n_ctx": 5, "d_vocab": 9, "attn_only": True}
    model = hooked_transformer(config, seed=0)
    with pytest.raises(bt.BayesticketError, match="without an MLP"):
        bt.measure(model, ADDITION.split().train, NormCondition(1.0, 2.0))


@pytest.mark.parametrize("layers", [(0,), (1, 0)])
def test_the_interaction_norm_is_that_of_the_matrix_that_makes_the_scores(layers):
    model, batch = (deep_model() if len(layers) > 1 else model_of(ADDITION)), ADDITION.split().train
    norms = seen_by(InteractionNorm(layer=layers), model, batch)
    _, cache = model.run_with_cache(batch.tokens)
    expected = []
    for layer in layers:
        attention = model.blocks[layer].attn
        for head in range(2):
            matrix = torch.zeros(model.cfg.d_model + 1, model.cfg.d_model + 1, dtype=model.W_E.dtype)
            matrix[:-1, :-1] = attention.W_Q[head] @ attention.W_K[head].T
            matrix[:-1, -1] = attention.W_Q[head] @ attention.b_K[head]
            matrix[-1, :-1] = attention.b_Q[head] @ attention.W_K[head].T
            matrix[-1, -1] = attention.b_Q[head] @ attention.b_K[head]
            expected.append(np.linalg.norm(matrix.detach().numpy()))
            # it is M that makes the scores
            x = model.blocks[layer].ln1(cache[f"blocks.{layer}.hook_resid_pre"])
            x = torch.cat([x, torch.ones_like(x[..., :1])], -1)
            scores = torch.einsum("nd,de,nte->nt", x[:, -1], matrix, x) / attention.attn_scale
            read = cache[f"blocks.{layer}.attn.hook_attn_scores"][:, head, -1]
            assert torch.allclose(scores, read, atol=1e-5)
    assert norms.tolist() == pytest.approx(expected, rel=1e-5)
    assert InteractionNorm(layer=layers).labels(model) == tuple(
        f"L{layer}H{head}" for layer in layers for head in (0, 1)
    )
    assert seen_by(InteractionNorm(layer=layers, head=1), model, batch).tolist() == pytest.approx(
        expected[1::2], rel=1e-5
    )


# Margin -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rightly", [False, True])
@pytest.mark.parametrize("name", TASKS)
def test_margins_against_a_loop_over_examples(name, rightly):
    task = TASKS[name]
    model, batch = model_of(task), task.split().test
    logits = model(batch.tokens)[:, -1].detach()
    if rightly:  # what the model answers is the target, so that margins are positive
        batch = dataclasses.replace(batch, targets=logits.argmax(-1))
    margins = []
    for row, target in zip(logits.tolist(), batch.targets.tolist(), strict=True):
        margins.append(row[target] - max(value for c, value in enumerate(row) if c != target))
    assert seen_by(ClassMargin(), model, batch) == pytest.approx(min(margins), rel=1e-9)
    assert seen_by(ClassMargin("median"), model, batch) == pytest.approx(np.median(margins), rel=1e-9)
    assert not rightly or min(margins) > 0
    assert np.mean([margin > 0 for margin in margins]) == pytest.approx(seen_by(bt.Accuracy(), model, batch))


@given(seed=st.integers(0, 99), shift=st.floats(-50, 50))
def test_margins_do_not_see_what_the_softmax_does_not(seed, shift):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(6, 4, dtype=torch.float64, generator=generator)
    targets = torch.randint(0, 4, (6,), generator=generator)
    assert torch.allclose(class_margins(logits + shift, targets), class_margins(logits, targets))
    # the probability of the target, p ≥ 1/(1 + (C − 1) e^{−γ}), with equality if the others are equal
    probability = logits.softmax(-1).gather(1, targets[:, None])[:, 0]
    bound = 1 / (1 + 3 * torch.exp(-class_margins(logits, targets)))
    assert (probability >= bound - 1e-12).all()


# Effective rank ---------------------------------------------------------------------------------------------------


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
    assert seen_by(EffectiveRank(), model, batch, forward=forward) == pytest.approx(expected, rel=1e-6)


def test_effective_rank_after_the_last_of_several_layers():
    model, batch = deep_model(), ADDITION.split().test
    _, cache = model.run_with_cache(batch.tokens)
    expected = rank_by_svd(cache["blocks.1.hook_resid_post"][:, -1].double().numpy())
    assert seen_by(EffectiveRank(), model, batch) == pytest.approx(expected, rel=1e-4)


# Loss with normalised MLP weights ---------------------------------------------------------------------------------


@pytest.mark.parametrize("forward", FORWARDS)
@pytest.mark.parametrize("radius", [0.5, 4.0, None])
@pytest.mark.parametrize("name", ["addition", "parity", "addition, drawn positions"])
def test_the_loss_is_that_of_a_copy_with_scaled_matrices(name, radius, forward):
    task = TASKS[name]
    model, batch = model_of(task, init_scale=1.5), task.split().train
    scaled = copy.deepcopy(model)
    mlp = scaled.blocks[0].mlp
    with torch.no_grad():
        for matrix in (mlp.W_in, mlp.W_out):
            drawn = 1.5 * 0.8 / math.sqrt(12) * math.sqrt(12 * 16)
            matrix.mul_((drawn if radius is None else radius) / np.linalg.norm(matrix.numpy()))
    expected = F.cross_entropy(scaled(batch.tokens)[:, -1], batch.targets).item()
    assert seen_by(NormalizedMLPLoss(radius), model, batch, forward=forward) == pytest.approx(expected, rel=1e-9)


def test_at_its_own_norm_a_models_loss_is_its_own():
    model, batch = model_of(ADDITION), ADDITION.split().train
    mlp = model.blocks[0].mlp
    with torch.no_grad():
        mlp.W_out.mul_(mlp.W_in.norm() / mlp.W_out.norm())
    loss = seen_by(NormalizedMLPLoss(mlp.W_in.norm().item()), model, batch)
    assert loss == pytest.approx(seen_by(bt.Loss(), model, batch), rel=1e-9)
    before = loss
    with torch.no_grad():  # and it does not see how large the matrices are
        mlp.W_in.mul_(7.0)
    assert seen_by(NormalizedMLPLoss(mlp.W_in.norm().item() / 7), model, batch) == pytest.approx(before, rel=1e-9)


def test_the_norm_that_weights_are_drawn_with():
    model = bt.build_model(bt.ModularAddition(p=11))
    for matrix in (model.blocks[0].mlp.W_in, model.blocks[0].mlp.W_out):
        assert NormalizedMLPLoss()._radius(model) == pytest.approx(matrix.norm().item(), rel=0.03)


def test_the_normalised_loss_sees_edits_of_attention():
    model, batch = model_of(ADDITION), ADDITION.split().train
    frozen = bt.FrozenAttention("oracle")
    plain, edited = (seen_by(NormalizedMLPLoss(2.0), model, batch, intervention=each) for each in (None, frozen))
    scaled = copy.deepcopy(model)
    with torch.no_grad():
        for matrix in (scaled.blocks[0].mlp.W_in, scaled.blocks[0].mlp.W_out):
            matrix.mul_(2.0 / matrix.norm())
    assert edited == pytest.approx(seen_by(bt.Loss(), scaled, batch, intervention=frozen), rel=1e-9)
    assert edited != pytest.approx(plain, rel=1e-3)


def test_edits_after_the_stream_it_starts_from_are_refused():
    batch = ADDITION.split().train
    with pytest.raises(bt.BayesticketError, match="edits between"):
        bt.measure(model_of(ADDITION), batch, NormalizedMLPLoss(), intervention=bt.NoResidual())
    with pytest.raises(bt.BayesticketError, match="edits between"):
        bt.measure(model_of(ADDITION, residual=False), batch, NormalizedMLPLoss())
    around = bt.NoResidual("attention")  # which is before it, and seen
    bt.measure(model_of(ADDITION), batch, NormalizedMLPLoss(), intervention=around)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (deep_model, "n_layers=2.*accepted: a plain model of one layer"),
        (lambda: model_of(ADDITION, normalization_type="LN"), "normalization_type='LN'.*accepted: a plain model"),
    ],
)
def test_models_that_the_second_pass_does_not_describe_are_refused(make, why):
    with pytest.raises(bt.BayesticketError, match=f"NormalizedMLPLoss.*{why}"):
        bt.measure(make(), ADDITION.split().train, NormalizedMLPLoss())


# Scores -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("forward", FORWARDS)
def test_the_variance_of_scores(forward):
    model, batch = model_of(ADDITION), ADDITION.split().test
    _, cache = model.run_with_cache(batch.tokens)
    scores = cache["blocks.0.attn.hook_attn_scores"].numpy()[:, :, -1]
    assert seen_by(ScoreVariance(), model, batch, forward=forward) == pytest.approx(scores.var(-1).mean(), rel=1e-9)
    of_one = seen_by(ScoreVariance(head=1), model, batch, forward=forward)
    assert of_one == pytest.approx(scores[:, 1].var(-1).mean(), rel=1e-9)


@pytest.mark.parametrize("query", [0, 1, 2, -2])
def test_keys_that_the_query_cannot_see_do_not_count(query):
    model, batch = deep_model(), ADDITION.split().test
    _, cache = model.run_with_cache(batch.tokens)
    variances = []
    for layer in (0, 1):
        scores = cache[f"blocks.{layer}.attn.hook_attn_scores"].numpy()[:, :, query]
        variances.append(scores[..., : query % 5 + 1].var(-1).mean())
    seen = seen_by(ScoreVariance(layer=(0, 1), query=query), model, batch)
    assert seen == pytest.approx(np.mean(variances), rel=1e-4, abs=1e-12)
    assert (query == 0) == (seen == 0)


def test_the_variance_is_bounded_by_the_interaction_norm():
    model, batch = model_of(ADDITION, n_heads=1), ADDITION.split().test
    x = (model.W_E[batch.tokens] + model.W_pos[:5]).detach()
    x = torch.cat([x, torch.ones_like(x[..., :1])], -1)
    radius = x.norm(dim=-1).max().item()
    (norm,) = seen_by(InteractionNorm(), model, batch).tolist()
    largest = norm * radius**2 / model.blocks[0].attn.attn_scale
    assert 0 < seen_by(ScoreVariance(), model, batch) <= largest**2


# Together ---------------------------------------------------------------------------------------------------------

EVERY = [
    WeightNorms(),
    NormCondition(1.0, 100.0),
    ClassMargin(),
    EffectiveRank(),
    NormalizedMLPLoss(),
    ScoreVariance(),
    InteractionNorm(),
]


def test_recorded_in_training_by_the_fast_forward():
    run = bt.train(ADDITION, measures=EVERY, epochs=10, model=bt.Architecture(d_model=8, d_mlp=8, n_heads=2))
    assert run.made_with is not None
    assert run.made_with["forward"] == "fast"
    last, train = run.curves.iloc[-1], ADDITION.split().train
    for measure in EVERY:
        value = torch.as_tensor(seen_by(measure, run.model, train))
        labels = measure.labels(run.model)
        names = [f"{measure.name}[{label}]" for label in labels] if labels else [measure.name]
        assert last[names].tolist() == pytest.approx(value.flatten().tolist(), rel=1e-4), measure.name


def test_places_that_a_model_lacks_are_refused():
    model, batch = model_of(ADDITION), ADDITION.split().train
    for measure in (ScoreVariance(layer=1), InteractionNorm(layer=1), InteractionNorm(head=2), ScoreVariance(query=5)):
        with pytest.raises(bt.BayesticketError, match=r"layer|head|query"):
            bt.measure(model, batch, measure)
    with pytest.raises(bt.BayesticketError, match="radius"):
        NormalizedMLPLoss(0.0)
    with pytest.raises((bt.BayesticketError, jaxtyping.TypeCheckError), match="of"):
        ClassMargin("most")  # type: ignore[arg-type]
