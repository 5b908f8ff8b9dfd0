"""Structural measures against brute force."""

import dataclasses
import math

import jaxtyping
import numpy as np
import pytest
import torch
from catalog import TASKS, model_of

import bayesticket as bt
from bayesticket.attention import resolve
from bayesticket.measures import StructuralCondition
from bayesticket.measures.structure import (
    DistributedMass,
    InformativeMass,
    InformativeMassByPosition,
    KLToTarget,
    SeparabilityMargin,
)


def cached(model, batch):
    _, cache = model.run_with_cache(batch.tokens)
    return cache["blocks.0.attn.hook_pattern"][:, :, -1], cache["blocks.0.attn.hook_v"]


def informative_places(batch, example):
    return [place for place in range(batch.n_positions) if batch.informative[example, place]]


@pytest.mark.parametrize("name", TASKS)
def test_the_structural_condition_and_masses_by_counting(name):
    task = TASKS[name]
    model, batch = model_of(task), task.split().test
    alpha, _ = cached(model, batch)
    k = len(informative_places(batch, 0))
    tau = 0.6 / batch.n_positions
    holds = [
        all(alpha[n, h, i] >= tau for i in informative_places(batch, n)) for n in range(len(batch)) for h in range(2)
    ]
    seen = bt.measure(model, batch, StructuralCondition(tau=tau), InformativeMassByPosition(), DistributedMass())
    assert seen[f"structural_condition[tau={tau}]"] == pytest.approx(sum(holds) / len(holds))
    by_place = [
        sum(alpha[n, h, informative_places(batch, n)[j]].item() for n in range(len(batch)) for h in range(2))
        for j in range(k)
    ]
    expected = [total / len(batch) / 2 for total in by_place]
    assert seen["informative_mass_by_position"].tolist() == pytest.approx(expected, rel=1e-9)
    pooled = [
        [sum(alpha[n, h, i].item() for h in range(2)) for i in informative_places(batch, n)] for n in range(len(batch))
    ]
    shares = torch.tensor(
        [sum(alpha[n, h, i].item() for n in range(len(batch)) for i in informative_places(batch, n)) for h in range(2)]
    )
    distributed = seen["distributed_mass"].tolist()
    assert distributed[:k] == pytest.approx([2 * mass for mass in expected], rel=1e-9)
    assert distributed[k] == pytest.approx(min(map(min, pooled)), rel=1e-9)
    assert distributed[k + 1] == pytest.approx(
        sum(shares.tolist()) ** 2 / sum(s * s for s in shares.tolist()), rel=1e-5
    )
    assert 1 <= distributed[k + 1] <= 2


# Derived threshold ------------------------------------------------------------------------------------------------

DERIVED = StructuralCondition("derived")


def answered_rightly(model, batch, wrong=0):
    """The batch with the model's own answers for targets, but for the first so many."""
    targets = model(batch.tokens)[:, -1].argmax(-1)
    targets[:wrong] = (targets[:wrong] + 1) % model.cfg.d_vocab_out
    return dataclasses.replace(batch, targets=targets)


def derived_by_hand(model, batch, residual=True, heads=(0,)):
    """γ / (L Δ_max), with loops over examples and positions."""
    logits = model(batch.tokens)[:, -1].detach().numpy()
    margin = min(
        row[target] - max(np.delete(row, target)) for row, target in zip(logits, batch.targets.tolist(), strict=True)
    )
    alpha, values = (cached.detach().numpy() for cached in cached(model, batch))
    weights = {name.rsplit(".", 1)[-1]: weight.numpy() for name, weight in model.state_dict().items()}
    thresholds = []
    for h in heads:
        W_O = weights["W_O"][h]
        lipschitz = np.linalg.norm(W_O @ weights["W_in"], 2) * np.linalg.norm(weights["W_out"] @ weights["W_U"], 2)
        lipschitz += np.linalg.norm(W_O @ weights["W_U"], 2) if residual else 0
        farthest = 0.0
        for n in range(len(batch)):
            for j in informative_places(batch, n):
                others = [t for t in range(batch.n_positions) if t != j]
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
    share, threshold = bt.measure(model, batch, DERIVED)["structural_condition[tau=derived]"].tolist()
    assert threshold == pytest.approx(expected, rel=1e-9)
    (given,) = bt.measure(model, batch, StructuralCondition(threshold)).values()
    assert share == given


def test_the_derived_share_counts_inputs_at_that_threshold():
    # Values that are shrunk raise τ until some inputs are below it.
    task, shares = TASKS["addition"], []
    for scale in (1.0, 1e-2, 1e-3, 1e-4):
        model = model_of(task, n_heads=1)
        with torch.no_grad():
            model.blocks[0].attn.W_V.mul_(scale)
        batch = answered_rightly(model, task.split().train)
        share, threshold = bt.measure(model, batch, DERIVED)["structural_condition[tau=derived]"].tolist()
        alpha, _ = cached(model, batch)
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
        threshold = bt.measure(model, batch, DERIVED)["structural_condition[tau=derived]"][1]
        alpha = cached(model, batch)[0][:, 0]
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
    assert bt.measure(model, batch, DERIVED)["structural_condition[tau=derived]"].isnan().all()
    assert bt.measure(model, batch, StructuralCondition(0.1))["structural_condition[tau=0.1]"] >= 0


def test_deriving_is_refused_where_eq_27_says_nothing():
    from bayesticket.model.build import hooked_transformer

    batch = TASKS["addition"].split().test
    config = {"n_layers": 2, "d_model": 8, "d_head": 4, "n_heads": 2, "n_ctx": 5, "d_vocab": 9, "d_vocab_out": 7}
    deep = hooked_transformer(config | {"act_fn": "relu", "normalization_type": None}, seed=0)
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
    with pytest.raises((bt.BayesticketError, jaxtyping.TypeCheckError), match=r"tau"):
        StructuralCondition("guessed")  # type: ignore[arg-type]
    with pytest.raises(bt.BayesticketError, match=r"tau: got 1.5"):
        StructuralCondition(1.5)


def test_the_derived_condition_in_training_has_two_curves():
    run = bt.train(TASKS["addition"], measures=[DERIVED, StructuralCondition()], epochs=10, record_every=5)
    names = [f"structural_condition[tau=derived][{entry}]" for entry in ("share", "threshold")]
    assert {*names, "structural_condition"} <= set(run.curves)
    assert run.curves.loc[0, names].isna().all()  # nothing is answered rightly with a margin
    assert run.made_with is not None
    assert run.made_with["forward"] == "fast"


# Masses -----------------------------------------------------------------------------------------------------------


def test_one_head_carries_everything():
    task = TASKS["addition"]
    model, batch = model_of(task), task.split().train
    oracle_and_none = torch.zeros(len(batch), 2, 5, dtype=torch.float64)
    oracle_and_none[:, 0, [0, 2]] = 0.5
    oracle_and_none[:, 1, 3] = 1.0
    seen = bt.measure(model, batch, DistributedMass(), intervention=bt.FrozenAttention(oracle_and_none))
    assert seen["distributed_mass"].tolist() == pytest.approx([0.5, 0.5, 0.5, 1.0])


@pytest.mark.parametrize("target", ["uniform", "adversarial", "shifted", bt.Permuted("oracle")])
def test_the_divergence_from_any_target(target):
    task = TASKS["addition, drawn positions"]
    model, batch = model_of(task), task.split().test
    alpha, _ = cached(model, batch)
    weights = resolve(target, batch).expand_as(alpha)
    expected = torch.where(weights > 0, weights * (weights / alpha).log(), 0.0).sum(-1).mean()
    (value,) = bt.measure(model, batch, KLToTarget(target)).values()
    assert value == pytest.approx(expected.item(), rel=1e-9)


def test_the_divergence_from_a_teacher_is_zero_for_itself():
    task = TASKS["addition"]
    model = model_of(task)
    (value,) = bt.measure(model, task.split().test, KLToTarget(model)).values()
    assert value == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("normalization_type", [None, "LN"])
@pytest.mark.parametrize("name", ["addition", "addition, drawn positions", "several queries", "parity"])
def test_the_separability_margin_by_search_over_all_pairs(name, normalization_type):
    task = TASKS[name]
    model, batch = model_of(task, normalization_type=normalization_type), task.split().test
    alpha, values = cached(model, batch)
    found = {}
    for n in range(len(batch)):
        places = informative_places(batch, n)
        others = [t for t in range(batch.n_positions) if t not in places]
        for h in range(2):
            mass = sum(alpha[n, h, t] for t in others)
            centroid = sum(alpha[n, h, t] * values[n, t, h] for t in others) / mass
            for j in places:
                found[n, j, h] = (values[n, j, h] - centroid).norm().item()
    margin, example, position, head = bt.measure(model, batch, SeparabilityMargin())["separability_margin"].tolist()
    assert margin == pytest.approx(min(found.values()), rel=1e-9)
    assert found[int(example), int(position), int(head)] == pytest.approx(margin, rel=1e-9)

    pairs = {}
    for j in range(batch.n_positions):
        rows = [n for n in range(len(batch)) if batch.informative[n, j]]
        for a in rows:
            for b in rows:
                token, other = int(batch.tokens[a, j]), int(batch.tokens[b, j])
                if token != other:
                    for h in range(2):
                        pairs[j, token, other, h] = (values[a, j, h] - values[b, j, h]).norm().item()
    (raw,) = bt.measure(model, batch, SeparabilityMargin("raw")).values()
    assert raw[0].item() == pytest.approx(min(pairs.values()), rel=1e-9)
    assert pairs[tuple(int(entry) for entry in raw[1:])] == pytest.approx(raw[0].item(), rel=1e-9)


def test_a_deeper_model_is_refused_with_the_reason():
    from bayesticket.model.build import hooked_transformer

    config = {"n_layers": 2, "d_model": 8, "d_head": 4, "n_heads": 2, "n_ctx": 5, "d_vocab": 9, "act_fn": "relu"}
    model = hooked_transformer(config | {"normalization_type": None}, seed=0)
    with pytest.raises(bt.BayesticketError, match=r"n_layers=2.*one-layer.*own token alone"):
        bt.measure(model, TASKS["addition"].split().test, SeparabilityMargin())


def test_vectors_are_named_in_curves():
    run = bt.train(
        TASKS["addition"], model=bt.Architecture(d_model=8, d_mlp=8), measures=[SeparabilityMargin()], epochs=10
    )
    names = [f"separability_margin[{name}]" for name in ("margin", "example", "position", "head")]
    assert set(names) <= set(run.curves)


def test_the_margin_is_refused_where_values_are_edited():
    from bayesticket.interventions import Intervention
    from bayesticket.measures.structure import SeparabilityMargin

    @dataclasses.dataclass(frozen=True, eq=False, repr=False)
    class LargeValues(Intervention):
        def edits(self, context):
            return [("blocks.0.attn.hook_v", lambda value, hook: 100 * value)]

    model, batch = model_of(TASKS["addition"]), TASKS["addition"].split().test
    with pytest.raises(bt.BayesticketError, match=r"SeparabilityMargin.*edits blocks\.0\.attn\.hook_v"):
        bt.measure(model, batch, SeparabilityMargin(), intervention=LargeValues())
    bt.measure(model, batch, SeparabilityMargin(), intervention=bt.FrozenAttention())  # moves attention, not values
    model.hook_dict["blocks.0.attn.hook_v"].add_hook(lambda values, hook: 2 * values)
    with pytest.raises(bt.BayesticketError, match=r"hooks of its own on blocks\.0\.attn\.hook_v"):
        bt.measure(model, batch, SeparabilityMargin())


@pytest.mark.parametrize(
    ("measure", "name"),
    [
        (InformativeMass(), "informative_mass_mean"),
        (InformativeMass("least"), "informative_mass_least"),
        (InformativeMass("least", head=0), "informative_mass_least[head=0]"),
    ],
)
def test_the_curve_of_informative_mass_says_which_and_where(measure, name):
    assert measure.name == name
