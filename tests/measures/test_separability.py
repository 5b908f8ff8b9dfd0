"""The separability margin by a search over all pairs."""

import dataclasses

import pytest
import torch
from catalog import TASKS, model_of
from helpers import attention_and_values, deep_model, informative_places, value_of

import bayesticket as bt
from bayesticket.measures import (
    SeparabilityMargin,
)


@pytest.mark.parametrize(
    ("name", "normalization_type"),
    [("addition", "LN"), ("addition, drawn positions", None), ("several queries", None), ("parity", "LN")],
)
def test_the_separability_margin_by_search_over_all_pairs(name, normalization_type):
    task = TASKS[name]
    model, batch = model_of(task, normalization_type=normalization_type), task.split().test
    alpha, values = attention_and_values(model, batch)
    found, from_all_others = {}, []
    for n in range(len(batch)):
        places = informative_places(batch, n)
        others = [t for t in range(batch.n_positions) if t not in places]
        for h in range(2):
            mass = sum(alpha[n, h, t] for t in others)
            centroid = sum(alpha[n, h, t] * values[n, t, h] for t in others) / mass
            for j in places:
                found[n, j, h] = (values[n, j, h] - centroid).norm().item()
                rest = [t for t in range(batch.n_positions) if t != j]
                of_rest = sum(alpha[n, h, t] * values[n, t, h] for t in rest) / sum(alpha[n, h, t] for t in rest)
                from_all_others.append((values[n, j, h] - of_rest).norm().item())
    margin, example, position, head = value_of(SeparabilityMargin(), model, batch)
    assert margin == pytest.approx(min(found.values()), rel=1e-9)
    assert found[int(example), int(position), int(head)] == pytest.approx(margin, rel=1e-9)

    expected = [choose(of) for of in (found.values(), from_all_others) for choose in (min, max)]
    assert value_of(SeparabilityMargin("readings"), model, batch) == pytest.approx(expected, rel=1e-9)

    pairs = {}
    for j in range(batch.n_positions):
        rows = [n for n in range(len(batch)) if batch.informative[n, j]]
        for a in rows:
            for b in rows:
                token, other = int(batch.tokens[a, j]), int(batch.tokens[b, j])
                if token != other:
                    for h in range(2):
                        pairs[j, token, other, h] = (values[a, j, h] - values[b, j, h]).norm().item()
    raw = value_of(SeparabilityMargin("raw"), model, batch)
    assert raw[0] == pytest.approx(min(pairs.values()), rel=1e-9)
    assert pairs[tuple(int(entry) for entry in raw[1:])] == pytest.approx(raw[0], rel=1e-9)


def test_without_attention_left_a_centroid_is_the_plain_mean():
    task = TASKS["addition"]
    model, batch = model_of(task, n_heads=1), task.split().train
    values = attention_and_values(model, batch)[1][:, :, 0]
    on_the_first = torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    seen = bt.measure(model, batch, SeparabilityMargin("readings"), intervention=bt.FrozenAttention(on_the_first))
    informative = batch.informative[0]
    own = (values[:, informative] - values[:, ~informative].mean(1, keepdim=True)).norm(dim=-1)
    assert seen["separability_margin[of=readings][least/distractors]"] == pytest.approx(own.min().item())
    assert seen["separability_margin[of=readings][largest/distractors]"] == pytest.approx(own.max().item())
    first = (values[:, 0] - values[:, 1:].mean(1)).norm(dim=-1)
    second = (values[:, informative][:, 1] - values[:, 0]).norm(dim=-1)
    both = torch.cat([first, second])
    assert seen["separability_margin[of=readings][least/others]"] == pytest.approx(both.min().item())
    assert seen["separability_margin[of=readings][largest/others]"] == pytest.approx(both.max().item())


def test_readings_need_distractors():
    task = TASKS["addition"]
    batch = task.split().train
    batch = dataclasses.replace(batch, informative=torch.ones_like(batch.informative))
    with pytest.raises(bt.BayesticketError, match="a sequence without distractors"):
        bt.measure(model_of(task), batch, SeparabilityMargin("readings"))


def test_a_deeper_model_is_refused_with_the_reason():
    with pytest.raises(bt.BayesticketError, match=r"n_layers=2.*one-layer.*own token alone"):
        bt.measure(deep_model(normalization_type=None), TASKS["addition"].split().test, SeparabilityMargin())


def test_vectors_are_named_in_curves():
    run = bt.train(
        TASKS["addition"], model=bt.Architecture(d_model=8, d_mlp=8), measures=[SeparabilityMargin()], epochs=10
    )
    names = [f"separability_margin[{name}]" for name in ("margin", "example", "position", "head")]
    assert set(names) <= set(run.curves)


def test_the_margin_is_refused_where_values_are_edited():
    @bt.spec
    class LargeValues(bt.Intervention):
        def edits(self, context):
            return [("blocks.0.attn.hook_v", lambda value, hook: 100 * value)]

    model, batch = model_of(TASKS["addition"]), TASKS["addition"].split().test
    with pytest.raises(bt.BayesticketError, match=r"SeparabilityMargin.*edits blocks\.0\.attn\.hook_v"):
        bt.measure(model, batch, SeparabilityMargin(), intervention=LargeValues())
    bt.measure(model, batch, SeparabilityMargin(), intervention=bt.FrozenAttention())  # moves attention, not values
    model.hook_dict["blocks.0.attn.hook_v"].add_hook(lambda values, hook: 2 * values)
    with pytest.raises(bt.BayesticketError, match=r"hooks of its own on blocks\.0\.attn\.hook_v"):
        bt.measure(model, batch, SeparabilityMargin())
