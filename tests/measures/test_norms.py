"""Norms of the weights against numpy, and against the scores that the interaction matrix makes."""

import math

import numpy as np
import pytest
import torch
from catalog import ADDITION, TASKS, model_of
from helpers import deep_model, value_of

import bayesticket as bt
from bayesticket.measures import (
    ClassMargin,
    InteractionNorm,
    NormalizedMLPLoss,
    NormCondition,
    ScoreVariance,
    WeightNorms,
)


@pytest.mark.parametrize("make", [lambda: model_of(ADDITION), deep_model])
def test_norms_by_matrix(make):
    model = make()
    norms = value_of(WeightNorms(), model, ADDITION.split().train)
    labels = WeightNorms().labels(model)
    assert len(labels) == len(set(labels)) == len(norms)
    weights = model.state_dict()
    for label, norm in zip(labels, norms, strict=True):
        assert norm == pytest.approx(np.linalg.norm(weights[label].numpy().ravel()), rel=1e-6), label
    of_the_mlp = [norm for label, norm in zip(labels, norms, strict=True) if ".mlp." in label]
    assert math.hypot(*of_the_mlp) == pytest.approx(value_of(bt.MLPNorm(), model, ADDITION.split().train), rel=1e-6)


def test_membership_in_n_with_both_borders():
    model, batch = model_of(ADDITION), ADDITION.split().train
    norm = value_of(bt.MLPNorm(), model, batch)
    for bounds, inside in [
        ((0.0, norm), 1),
        ((norm, norm), 1),
        ((norm, 100.0), 1),
        ((0.0, norm * 0.999), 0),
        ((norm * 1.001, 100.0), 0),
    ]:
        assert value_of(NormCondition(*bounds), model, batch) == inside, bounds
    with pytest.raises(bt.BayesticketError, match="r_max"):
        NormCondition(2.0, 1.0)
    with pytest.raises(bt.BayesticketError, match="r_min"):
        NormCondition(-1.0, 1.0)


def test_membership_in_n_needs_an_mlp():
    with pytest.raises(bt.BayesticketError, match=r"^model: got a model without an MLP; accepted: "):
        bt.measure(deep_model(attn_only=True), ADDITION.split().train, NormCondition(1.0, 2.0))


def test_the_mlp_norm():
    model = model_of(TASKS["addition"])
    flat = torch.cat([p.flatten() for p in model.blocks[0].mlp.parameters()])
    assert bt.measure(model, TASKS["addition"].split().test, bt.MLPNorm())["mlp_norm"] == pytest.approx(
        flat.norm().item()
    )


@pytest.mark.parametrize("layers", [(0,), (1, 0)])
def test_the_interaction_norm_is_that_of_the_matrix_that_makes_the_scores(layers):
    model, batch = (deep_model() if len(layers) > 1 else model_of(ADDITION)), ADDITION.split().train
    norms = value_of(InteractionNorm(layer=layers), model, batch)
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
    assert norms == pytest.approx(expected, rel=1e-5)
    assert InteractionNorm(layer=layers).labels(model) == tuple(
        f"L{layer}H{head}" for layer in layers for head in (0, 1)
    )
    assert value_of(InteractionNorm(layer=layers, head=1), model, batch) == pytest.approx(expected[1::2], rel=1e-5)


def test_places_that_a_model_lacks_are_refused():
    model, batch = model_of(ADDITION), ADDITION.split().train
    for measure in (ScoreVariance(layer=1), InteractionNorm(layer=1), InteractionNorm(head=2), ScoreVariance(query=5)):
        with pytest.raises(bt.BayesticketError, match=r"layer|head|query"):
            bt.measure(model, batch, measure)
    with pytest.raises(bt.BayesticketError, match="radius"):
        NormalizedMLPLoss(0.0)
    with pytest.raises(bt.BayesticketError, match="of"):
        ClassMargin("most")  # type: ignore[arg-type]
