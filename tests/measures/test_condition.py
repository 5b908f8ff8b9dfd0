"""The structural condition at a derived threshold against brute force."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from catalog import TASKS, model_of
from helpers import attention_and_values, deep_model, informative_places, value_of

import bayesticket as bt
from bayesticket.measures import (
    StructuralCondition,
)

DERIVED = StructuralCondition("derived")


def answered_rightly(model, batch, wrong=0):
    """The batch with the model's own answers for targets, but for the first so many."""
    targets = model(batch.tokens)[:, -1].argmax(-1)
    targets[:wrong] = (targets[:wrong] + 1) % model.cfg.d_vocab_out
    return dataclasses.replace(batch, targets=targets)


def derived_by_hand(model, batch, residual=True, heads=(0,), others_than="itself"):
    """γ / (L Δ_max), with loops over examples and positions."""
    logits = model(batch.tokens)[:, -1].detach().numpy()
    margin = min(
        row[target] - max(np.delete(row, target)) for row, target in zip(logits, batch.targets.tolist(), strict=True)
    )
    alpha, values = (read.detach().numpy() for read in attention_and_values(model, batch))
    weights = {name.rsplit(".", 1)[-1]: weight.numpy() for name, weight in model.state_dict().items()}
    thresholds = []
    for h in heads:
        W_O = weights["W_O"][h]
        lipschitz = np.linalg.norm(W_O @ weights["W_in"], 2) * np.linalg.norm(weights["W_out"] @ weights["W_U"], 2)
        lipschitz += np.linalg.norm(W_O @ weights["W_U"], 2) if residual else 0
        farthest = 0.0
        for n in range(len(batch)):
            for j in informative_places(batch, n):
                left_out = [j] if others_than == "itself" else informative_places(batch, n)
                others = [t for t in range(batch.n_positions) if t not in left_out]
                centroid = sum(alpha[n, h, t] * values[n, t, h] for t in others) / alpha[n, h, others].sum()
                farthest = max(farthest, np.linalg.norm(values[n, j, h] - centroid))
        thresholds.append(math.sqrt(2) * margin / (lipschitz * farthest))
    return min(thresholds)


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("name", ["addition", "addition, drawn positions", "several queries", "parity"])
def test_the_derived_threshold_by_search(name, residual):
    task = TASKS[name]
    model = model_of(task, n_heads=1, residual=residual)
    batch = answered_rightly(model, task.split().test)
    expected = derived_by_hand(model, batch, residual)
    share, threshold, share_of_distractors, threshold_of_distractors = value_of(DERIVED, model, batch)
    assert threshold == pytest.approx(expected, rel=1e-9)
    assert share == value_of(StructuralCondition(threshold), model, batch)
    expected = derived_by_hand(model, batch, residual, others_than="the informative")
    assert threshold_of_distractors == pytest.approx(expected, rel=1e-9)
    assert share_of_distractors == value_of(StructuralCondition(threshold_of_distractors), model, batch)


def test_the_derived_share_counts_inputs_at_that_threshold():
    # Values that are shrunk raise τ until some inputs are below it.
    task, shares = TASKS["addition"], []
    for scale in (1.0, 1e-2, 1e-3, 1e-4):
        model = model_of(task, n_heads=1)
        with torch.no_grad():
            model.blocks[0].attn.W_V.mul_(scale)
        batch = answered_rightly(model, task.split().train)
        share, threshold, *_ = value_of(DERIVED, model, batch)
        alpha, _ = attention_and_values(model, batch)
        holds = [
            all(alpha[n, h, i] >= threshold for i in informative_places(batch, n))
            for n in range(len(batch))
            for h in range(1)
        ]
        assert share == pytest.approx(sum(holds) / len(holds))
        shares.append(share)
    assert shares[0] > shares[-1] == 0


def test_two_inputs_of_different_classes_have_the_derived_mass_together():
    # What Eq. 27 proves, on every such pair.
    task, pairs = TASKS["addition, constant"], 0
    for seed in range(6):
        model = model_of(task, n_heads=1, seed=seed)
        batch = answered_rightly(model, task.split().test)
        _, threshold, *_ = value_of(DERIVED, model, batch)
        alpha = attention_and_values(model, batch)[0][:, 0]
        for a in range(len(batch)):
            for b in range(a):
                (changed,) = torch.nonzero(batch.tokens[a] != batch.tokens[b], as_tuple=True)
                if len(changed) == 1 and batch.targets[a] != batch.targets[b]:
                    assert alpha[a, changed[0]] + alpha[b, changed[0]] >= threshold
                    pairs += 1
    assert pairs >= 5


def test_without_a_margin_nothing_is_derived():
    task = TASKS["addition"]
    model = model_of(task, n_heads=1)
    batch = answered_rightly(model, task.split().test, wrong=1)
    assert all(map(math.isnan, value_of(DERIVED, model, batch)))
    assert value_of(StructuralCondition(0.1), model, batch) >= 0


def test_deriving_is_refused_where_eq_27_says_nothing():
    batch = TASKS["addition"].split().test
    deep = deep_model(normalization_type=None)
    with pytest.raises(bt.BayesticketError, match=r"tau='derived'.*n_layers=2.*one-layer.*own token alone"):
        bt.measure(deep, batch, DERIVED)
    bt.measure(deep, batch, StructuralCondition(0.1), StructuralCondition(layer=1))  # the given τ does not care

    model = model_of(TASKS["addition"], n_heads=1)
    with pytest.raises(bt.BayesticketError, match=r"tau='derived'.*2 heads.*DistributedMass"):
        bt.measure(model_of(TASKS["addition"]), batch, DERIVED)
    with pytest.raises(bt.BayesticketError, match=r"tau='derived'.*query=2.*last position"):
        bt.measure(model, batch, StructuralCondition("derived", query=2))
    for place in ({"normalization_type": "LN"}, {"attention": "linear"}):
        with pytest.raises(bt.BayesticketError, match=r"tau='derived'.*one layer with softmax attention, ReLU"):
            bt.measure(model_of(TASKS["addition"], n_heads=1, **place), batch, DERIVED)
    with pytest.raises(bt.BayesticketError, match=r"tau='derived'.*edits.*hook_pattern"):
        bt.measure(model, batch, DERIVED, intervention=bt.FrozenAttention())
    at_query = dataclasses.replace(batch, informative=batch.informative.roll(1, 1) | batch.informative.roll(2, 1))
    with pytest.raises(bt.BayesticketError, match=r"tau='derived'.*informative last position"):
        bt.measure(model, at_query, DERIVED)
    with pytest.raises(bt.BayesticketError, match=r"tau"):
        StructuralCondition("guessed")  # type: ignore[arg-type]
    with pytest.raises(bt.BayesticketError, match=r"tau: got 1.5"):
        StructuralCondition(1.5)


def test_the_derived_condition_in_training_has_curves_for_both_centroids():
    run = bt.train(TASKS["addition"], measures=[DERIVED, StructuralCondition()], epochs=10, record_every=5)
    names = [f"structural_condition[tau=derived][{entry}]" for entry in ("share", "threshold/distractors")]
    assert {*names, "structural_condition"} <= set(run.curves)
    assert run.curves.loc[0, names].isna().all()  # nothing is answered rightly with a margin
    assert run.made_with is not None
    assert run.made_with["forward"] == "fast"
