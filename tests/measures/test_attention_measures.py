"""Divergences, entropy and the variance of scores against scipy and numpy."""

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from catalog import ADDITION, FORWARDS, TASKS, model_of
from helpers import attention_and_values, deep_model, value_of

import bayesticket as bt
from bayesticket.attention import resolve
from bayesticket.measures import InteractionNorm, KLToTarget, ScoreVariance


@pytest.mark.parametrize("name", TASKS)
def test_structure_against_scipy(name):
    task = TASKS[name]
    model, batch = model_of(task), task.split().test
    seen = bt.measure(
        model,
        batch,
        bt.KLToOracle(),
        bt.AttentionEntropy(),
        bt.InformativeMass("mean"),
        bt.InformativeMass("least"),
        bt.KLToOracle(head=1),
    )
    alpha = attention_and_values(model, batch)[0].numpy()
    marked = batch.informative[:, None].double().numpy()
    oracle = marked / marked.sum(-1, keepdims=True)
    divergence = scipy.special.rel_entr(oracle, alpha).sum(-1)
    assert seen["kl_to_oracle"] == pytest.approx(divergence.mean(), rel=1e-9)
    assert seen["kl_to_oracle[head=1]"] == pytest.approx(divergence[:, 1].mean(), rel=1e-9)
    assert seen["attention_entropy"] == pytest.approx(scipy.stats.entropy(alpha, axis=-1).mean(), rel=1e-9)
    masses = [
        [alpha[n, h, i] for i in range(batch.n_positions) if batch.informative[n, i]]
        for n in range(len(batch))
        for h in range(2)
    ]
    assert seen["informative_mass_mean"] == pytest.approx(sum(map(sum, masses)) / len(masses), rel=1e-9)
    assert seen["informative_mass_least"] == pytest.approx(min(map(min, masses)), rel=1e-9)


def test_layers_and_heads_of_a_deeper_model():
    model = deep_model()
    batch = TASKS["addition"].split().test
    seen = bt.measure(model, batch, bt.KLToOracle(layer=1, head=1), bt.AttentionGradient(layer=1))
    _, cache = model.run_with_cache(batch.tokens)
    alpha = cache["blocks.1.attn.hook_pattern"][:, 1, -1]
    expected = scipy.special.rel_entr(batch.oracle.numpy(), alpha.numpy()).sum(-1).mean()
    assert seen["kl_to_oracle[layer=1,head=1]"] == pytest.approx(expected, rel=1e-5)
    assert seen["attention_gradient[layer=1]"] > 0


@pytest.mark.parametrize("target", ["uniform", "adversarial", "shifted", bt.Permuted("oracle")])
def test_the_divergence_from_any_target(target):
    task = TASKS["addition, drawn positions"]
    model, batch = model_of(task), task.split().test
    alpha, _ = attention_and_values(model, batch)
    weights = resolve(target, batch).expand_as(alpha)
    expected = torch.where(weights > 0, weights * (weights / alpha).log(), 0.0).sum(-1).mean()
    value = value_of(KLToTarget(target), model, batch)
    assert value == pytest.approx(expected.item(), rel=1e-9)


def test_the_divergence_from_a_teacher_is_zero_for_itself():
    task = TASKS["addition"]
    model = model_of(task)
    value = value_of(KLToTarget(model), model, task.split().test)
    assert value == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("forward", FORWARDS)
def test_the_variance_of_scores(forward):
    model, batch = model_of(ADDITION), ADDITION.split().test
    _, cache = model.run_with_cache(batch.tokens)
    scores = cache["blocks.0.attn.hook_attn_scores"].numpy()[:, :, -1]
    assert value_of(ScoreVariance(), model, batch, forward=forward) == pytest.approx(scores.var(-1).mean(), rel=1e-9)
    of_one = value_of(ScoreVariance(head=1), model, batch, forward=forward)
    assert of_one == pytest.approx(scores[:, 1].var(-1).mean(), rel=1e-9)


@pytest.mark.parametrize("query", [0, 1, 2, -2])
def test_keys_that_the_query_cannot_see_do_not_count(query):
    model, batch = deep_model(), ADDITION.split().test
    _, cache = model.run_with_cache(batch.tokens)
    variances = []
    for layer in (0, 1):
        scores = cache[f"blocks.{layer}.attn.hook_attn_scores"].numpy()[:, :, query]
        variances.append(scores[..., : query % 5 + 1].var(-1).mean())
    seen = value_of(ScoreVariance(layer=(0, 1), query=query), model, batch)
    assert seen == pytest.approx(np.mean(variances), rel=1e-4, abs=1e-12)
    assert (query == 0) == (seen == 0)


def test_the_variance_is_bounded_by_the_interaction_norm():
    model, batch = model_of(ADDITION, n_heads=1), ADDITION.split().test
    x = (model.W_E[batch.tokens] + model.W_pos[:5]).detach()
    x = torch.cat([x, torch.ones_like(x[..., :1])], -1)
    radius = x.norm(dim=-1).max().item()
    (norm,) = value_of(InteractionNorm(), model, batch)
    largest = norm * radius**2 / model.blocks[0].attn.attn_scale
    assert 0 < value_of(ScoreVariance(), model, batch) <= largest**2
