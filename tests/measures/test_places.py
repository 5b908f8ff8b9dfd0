"""Curves of each layer and head, and which layer the names of a deeper model say."""

from dataclasses import replace

import pytest
import torch
from catalog import TASKS, model_of
from helpers import deep_model, value_of

import bayesticket as bt
from bayesticket.attention import AttentionSite
from bayesticket.measures import Column, DistributedMass, InformativeMassByPosition, InteractionNorm, KLToTarget

ADDITION = TASKS["addition"]
BATCH = ADDITION.split().test
EVERY = [
    bt.KLToOracle(),
    bt.AttentionEntropy(),
    bt.InformativeMass("least"),
    bt.measures.ScoreVariance(),
    bt.StructuralCondition(0.2),
    bt.AttentionGradient(),
    bt.PriorGradient(),
    bt.PriorGradient("uniform"),
    KLToTarget("uniform"),
    InformativeMassByPosition(),
    DistributedMass(),
]


@pytest.mark.parametrize("measure", EVERY, ids=lambda measure: measure.name)
def test_each_layer_and_head_has_the_value_that_it_has_alone(measure):
    model = deep_model()
    cases = {
        ("each", None): {f"L{layer}": (layer, None) for layer in (0, 1)},
        (1, "each"): {f"H{head}": (1, head) for head in (0, 1)},
        ("each", "each"): {f"L{layer}H{head}": (layer, head) for layer in (0, 1) for head in (0, 1)},
    }
    for (layer, head), places in cases.items():
        seen = bt.measure(model, BATCH, replace(measure, layer=layer, head=head))
        expected: dict[str, float] = {}
        for label, (own_layer, own_head) in places.items():
            alone = bt.measure(model, BATCH, replace(measure, layer=own_layer, head=own_head))
            for name, value in alone.items():
                quantity = Column.parse(name).quantity
                expected[f"{label}.{quantity}" if quantity else label] = value
        assert {Column.parse(name).entry: value for name, value in seen.items()} == pytest.approx(expected)


def test_heads_of_a_model_of_one_layer():
    model = model_of(ADDITION)
    seen = bt.measure(model, BATCH, bt.KLToOracle(head="each"), bt.ExplainingAway(head="each"))
    assert list(seen)[:3] == [
        "kl_to_oracle[head=each][H0]", "kl_to_oracle[head=each][H1]", "explaining_away[head=each][H0.measured]",
    ]  # fmt: skip
    assert seen["kl_to_oracle[head=each][H1]"] == value_of(bt.KLToOracle(head=1), model, BATCH)


def test_a_measure_of_ones_own_has_places_too():
    @bt.spec
    class LargestWeight(bt.AttentionMeasure):
        def value(self, seen):
            return self.patterns(seen).max()

    seen = bt.measure(deep_model(), BATCH, LargestWeight(layer="each", head="each"))
    assert list(seen) == [f"largest_weight[layer=each,head=each][L{x}H{y}]" for x in (0, 1) for y in (0, 1)]


def test_names_of_a_model_of_one_layer_do_not_speak_of_layers():
    assert list(bt.measure(model_of(ADDITION), BATCH, bt.KLToOracle(), DistributedMass())) == [
        "kl_to_oracle", *(f"distributed_mass[{place}]" for place in range(4)),
    ]  # fmt: skip


def test_in_a_deeper_model_a_name_says_the_layer_that_is_meant_by_default():
    seen = bt.measure(deep_model(), BATCH, bt.KLToOracle(), bt.KLToOracle(layer=1), bt.KLToOracle(layer=(0, 1)))
    assert list(seen) == ["kl_to_oracle[L0]", "kl_to_oracle[layer=1]", "kl_to_oracle[layer=(0, 1)]"]


def test_training_a_deeper_model_records_every_layer():
    run = bt.train(ADDITION, bt.KLPrior(layer=1), model=deep_model(), epochs=2)
    for name in ("kl_to_oracle", "informative_mass_mean", "informative_mass_least", "attention_gradient"):
        assert [column for column in run.curves if column.startswith(name)] == [
            f"{name}[layer=each][L0]", f"{name}[layer=each][L1]",
        ]  # fmt: skip
    seen = bt.measure(run.model, ADDITION.split().train, bt.KLToOracle(layer=1))
    assert run.curves["kl_to_oracle[layer=each][L1]"].iloc[-1] == pytest.approx(seen["kl_to_oracle[layer=1]"], rel=1e-4)
    assert "KLToOracle(layer='each')" in run.recorded


def test_the_matrix_of_each_head_has_its_entry_in_any_case():
    model = deep_model()
    names = [f"interaction_norm[layer=each][L{layer}H{head}]" for layer in (0, 1) for head in (0, 1)]
    seen = bt.measure(model, BATCH, InteractionNorm(layer="each"))
    assert list(seen) == names
    assert list(seen.values()) == value_of(InteractionNorm(layer=(0, 1), head="each"), model, BATCH)


@pytest.mark.parametrize(
    ("name", "setting", "quantity"),
    [
        ("kl_to_oracle", "", ""),
        ("kl_to_oracle[head=1]", "head=1", ""),
        ("kl_to_oracle[layer=each][L1]", "layer=1", ""),
        ("kl_to_oracle[L0]", "layer=0", ""),
        ("kl_to_target[layer=each,head=each,target=uniform][L1H0]", "target=uniform,layer=1,head=0", ""),
        ("explaining_away[head=each][H11.local/global]", "head=11", "local/global"),
        ("weight_norms[blocks.0.mlp.W_in]", "", "blocks.0.mlp.W_in"),
        ("own[Large]", "", "Large"),
        ("own[H]", "", "H"),
    ],
)
def test_setting_and_quantity_of_a_column(name, setting, quantity):
    assert (Column.parse(name).setting, Column.parse(name).quantity) == (setting, quantity)


def test_a_layer_that_was_not_asked_of_a_model_has_no_number():
    with pytest.raises(bt.BayesticketError, match=r"^AttentionSite.layer: got 'each', which no model has been asked"):
        _ = AttentionSite(layer="each").layers
    with pytest.raises(bt.BayesticketError, match=r"^AttentionSite.head: got 'each'"):
        _ = AttentionSite(head="each").heads


@pytest.mark.parametrize("make", [bt.KLPrior, bt.FrozenAttention, bt.LinearAttention, bt.EntropyPrior])
@pytest.mark.parametrize("field", ["layer", "head"])
def test_an_intervention_is_told_its_layers(make, field):
    with pytest.raises(bt.BayesticketError, match=rf"^{make.__name__}\.{field}: got 'each'; accepted: .*only measures"):
        make(**{field: "each"})


def test_a_default_that_a_model_cannot_have_is_left_out_of_its_record(caplog):
    model = deep_model(positional_embedding_type="rotary", rotary_dim=4)
    run = bt.train(ADDITION, model=model, epochs=1)
    assert not [column for column in run.curves if column.startswith("attention_gradient")]
    assert "AttentionGradient is not recorded. AttentionGradient: got a model with positional_emb" in caplog.text
    assert torch.isfinite(torch.tensor(run.curves["kl_to_oracle[layer=each][L1]"].to_numpy())).all()
