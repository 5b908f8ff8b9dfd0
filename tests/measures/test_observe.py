"""One forward pass as measures see it, in training and outside it."""

import pytest
import torch
from catalog import ADDITION, model_of
from helpers import attention_and_values, deep_model, value_of

import bayesticket as bt
from bayesticket.measures import (
    ClassMargin,
    CommutatorDefect,
    Contraction,
    DistributedMass,
    EffectiveRank,
    InteractionNorm,
    LipschitzBounds,
    NormalizedMLPLoss,
    NormCondition,
    Observer,
    OptimizerStep,
    ScoreVariance,
    WeightNorms,
    attention_of,
    observe,
)
from bayesticket.model import TokenRows

SMALL = bt.Architecture(d_model=8, d_mlp=8, n_heads=2)
EVERY = [
    WeightNorms(),
    NormCondition(1.0, 100.0),
    ClassMargin(),
    EffectiveRank(),
    CommutatorDefect(pairs=2),
    NormalizedMLPLoss(),
    ScoreVariance(),
    InteractionNorm(),
    DistributedMass(),
    LipschitzBounds(),
]


def test_a_measure_of_ones_own_needs_nothing_but_a_class():

    @bt.spec
    class MeanPattern(bt.AttentionMeasure):
        def value(self, seen):
            return self.patterns(seen).mean((0, 1))

    run = bt.train(ADDITION, measures=[MeanPattern()], epochs=10, model=SMALL)
    columns = [f"mean_pattern[{place}]" for place in range(5)]
    assert run.curves[columns].sum(axis=1).to_numpy() == pytest.approx(1.0, abs=1e-5)
    seen = value_of(MeanPattern(), run.model, ADDITION.split().train)
    assert seen == pytest.approx(run.curves[columns].iloc[-1].tolist(), rel=1e-4)


def test_training_records_by_the_fast_forward_what_measure_returns_under_the_same_names():
    run = bt.train(ADDITION, measures=EVERY, epochs=10, model=SMALL)
    assert run.made_with is not None
    assert run.made_with["forward"] == "fast"
    seen = bt.measure(run.model, ADDITION.split().train, *EVERY)
    assert set(seen) <= set(run.curves)
    assert len(seen) > len(EVERY)
    assert run.curves.iloc[-1][list(seen)].tolist() == pytest.approx(list(seen.values()), rel=1e-4)


def test_every_entry_of_a_vector_is_a_number_of_its_own():
    model, batch = model_of(ADDITION), ADDITION.split().test
    seen = bt.measure(model, batch, bt.Loss(), DistributedMass(), InteractionNorm(head=(1,)))
    assert list(seen) == [
        "loss",
        *(f"distributed_mass[{place}]" for place in range(4)),
        "interaction_norm[head=(1,)][L0H1]",
    ]
    assert all(type(value) is float for value in seen.values())


# Edits ------------------------------------------------------------------------------------------------------------


def test_measures_see_what_edits_have_made():
    model, batch = model_of(ADDITION), ADDITION.split().train
    assert value_of(bt.KLToOracle(), model, batch, intervention=bt.FrozenAttention("oracle")) == pytest.approx(
        0, abs=1e-12
    )
    for name, point in model.hook_dict.items():
        assert not point.fwd_hooks, name


@pytest.mark.parametrize("epoch", [0, 30, 100])
def test_an_edit_whose_weight_is_a_schedule_is_measured_at_an_epoch(epoch):
    model, batch, weight = model_of(ADDITION), ADDITION.split().train, bt.Anneal(1.0, 0.0, last=100)
    scheduled = bt.MixedAttention("oracle", weight=weight)
    constant = bt.MixedAttention("oracle", weight=weight.at(epoch))
    measures = bt.KLToOracle(), bt.Loss()
    seen = bt.measure(model, batch, *measures, intervention=scheduled, epoch=epoch)
    assert seen == bt.measure(model, batch, *measures, intervention=constant)
    pattern = attention_of(model, batch, intervention=scheduled, epoch=epoch)
    assert torch.equal(pattern, attention_of(model, batch, intervention=constant))


def test_a_penalty_whose_strength_is_a_schedule_changes_no_measure():
    model, batch, strength = model_of(ADDITION), ADDITION.split().train, bt.Anneal(1.0, 0.0, last=100)
    plain = bt.measure(model, batch, bt.KLToOracle(), bt.AttentionGradient())
    for prior in (bt.KLPrior(strength=strength), bt.QKPenalty(strength=strength), bt.GradientNoise(fraction=strength)):
        for epoch in (None, 5):
            seen = bt.measure(model, batch, bt.KLToOracle(), bt.AttentionGradient(), intervention=prior, epoch=epoch)
            assert seen == plain
    mixed = bt.MixedAttention("oracle", weight=strength)
    both, edit = (
        bt.measure(model, batch, bt.KLToOracle(), intervention=recipe, epoch=30)
        for recipe in (bt.KLPrior(strength=strength) + mixed, mixed)
    )
    assert both == edit


@pytest.mark.parametrize("half", ["train", "test", "unseen", ("train", "test")])
def test_measuring_a_batch_takes_no_notice_of_half(half):
    model, batch = model_of(ADDITION), ADDITION.split().test
    assert batch.unseen.unique().tolist() == [False, True]
    for kind in (bt.Loss, bt.KLToOracle, DistributedMass, bt.RestrictedLoss):
        assert bt.measure(model, batch, kind(half=half)) == bt.measure(model, batch, kind())


def test_training_records_a_measure_on_the_parts_that_it_is_told():
    measures = [bt.AttentionEntropy(half=("train", "test")), ClassMargin(half="test")]
    run = bt.train(ADDITION, measures=measures, epochs=1, model=SMALL)
    named = [name for name in run.curves if "entropy" in name or "margin" in name]
    assert named == ["attention_entropy", "test_attention_entropy", "test_class_margin"]


def test_one_part_may_be_named_without_brackets_in_a_class_too():
    @bt.spec
    class LossThere(bt.Measure):
        halves = "test"

        def value(self, seen):
            return seen.loss

    assert LossThere().recorded_on == ("test",)


def test_a_schedule_without_an_epoch_is_refused():
    model, batch = model_of(ADDITION), ADDITION.split().train
    scheduled = bt.MixedAttention("oracle", weight=bt.Anneal())
    with pytest.raises(bt.BayesticketError, match="got a schedule, but no epoch"):
        bt.measure(model, batch, bt.KLToOracle(), intervention=scheduled)
    with pytest.raises(bt.BayesticketError, match=r"^epoch: got -1"):
        bt.measure(model, batch, bt.KLToOracle(), intervention=scheduled, epoch=-1)


# Observing by hand ------------------------------------------------------------------------------------------------


def test_an_observation_has_the_logits_the_loss_and_what_was_read():
    model, batch = model_of(ADDITION), ADDITION.split().train
    observer = Observer(model, [bt.AttentionGradient(), bt.KLToOracle()], batch)
    seen = observe(model, batch, observer, loss=lambda logits, targets: 3 * bt.CrossEntropy()(logits, targets))
    assert torch.equal(seen.logits, model(batch.tokens)[:, -1])
    plain = bt.measure(model, batch, bt.Loss(), bt.AttentionGradient(), bt.KLToOracle(), forward="full")
    assert seen.loss.item() == pytest.approx(3 * plain["loss"])
    assert seen.values["attention_gradient"].item() == pytest.approx(3 * plain["attention_gradient"])
    assert seen.values["kl_to_oracle"].item() == plain["kl_to_oracle"]
    assert set(seen.activations) == {"blocks.0.attn.hook_pattern", "blocks.0.attn.hook_attn_scores"}
    assert set(seen.gradients) == {"blocks.0.attn.hook_attn_scores"}


def test_the_rows_and_the_step_of_training_are_passed_on():
    model, batch = model_of(ADDITION), ADDITION.split().train
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    step = OptimizerStep(before, before, bt.SGD(lr=0.1, weight_decay=1.0), 0.1, 1.0)
    observer = Observer(model, [Contraction()], batch)
    rows = TokenRows(batch.tokens, model.cfg.n_heads)
    seen = observe(model, batch, observer, forward="fast", rows=rows, step=step)
    assert seen.values["contraction"][:2].tolist() == [0.0, 0.1]
    assert torch.equal(seen.logits, observe(model, batch, observer, forward="fast").logits)
    other = TokenRows(batch.tokens[:3], model.cfg.n_heads)
    assert len(observe(model, batch.select(slice(0, 3)), observer, forward="fast", rows=other).logits) == 3


def test_a_graph_is_kept_only_for_measures_that_need_gradients():
    model, batch = model_of(ADDITION), ADDITION.split().train
    for measure, needed in ((bt.AttentionGradient(), True), (bt.KLToOracle(), False)):
        assert observe(model, batch, Observer(model, [measure], batch)).loss.requires_grad == needed


@bt.spec
class TestLoss(bt.Measure):
    __test__ = False  # no test, whatever pytest makes of the name

    def value(self, seen):
        return seen.loss


@bt.spec
class Labelled(bt.Measure):
    def value(self, seen):
        return torch.zeros(1)

    def labels(self, model):
        return ("a=1",)


@pytest.mark.parametrize("measure", [TestLoss(), Labelled()])
def test_a_measure_whose_column_could_not_be_read_back_is_refused(measure):
    with pytest.raises(bt.BayesticketError, match=r"^column: got the name '.*', which would be read as"):
        bt.measure(model_of(ADDITION), ADDITION.split().train, measure)


def test_a_hook_point_that_does_not_exist_is_not_read():
    model, batch = model_of(ADDITION), ADDITION.split().train
    with pytest.raises(bt.BayesticketError, match=r"^Observer reads a hook: got 'blocks\.0\.attn\.hook_patern'"):
        Observer(model, (), batch, reads=("blocks.0.attn.hook_patern",))


# Attention --------------------------------------------------------------------------------------------------------


def test_attention_is_that_of_the_models_own_cache():
    model, batch = model_of(ADDITION), ADDITION.split().test
    assert torch.equal(attention_of(model, batch), attention_and_values(model, batch)[0])
    assert not attention_of(model, batch).requires_grad


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("query", [-1, 2])
def test_attention_of_any_layer_and_query(layer, query):
    model, batch = deep_model(), ADDITION.split().test
    _, cache = model.run_with_cache(batch.tokens)
    expected = cache[f"blocks.{layer}.attn.hook_pattern"][:, :, query]
    assert torch.equal(attention_of(model, batch, layer=layer, query=query), expected)


def test_attention_under_an_intervention_is_the_edited_one():
    model, batch = model_of(ADDITION), ADDITION.split().test
    pattern = attention_of(model, batch, intervention=bt.KLPrior() + bt.FrozenAttention("oracle", head=1))
    assert torch.equal(pattern[:, 1], batch.oracle.to(pattern))
    assert torch.equal(pattern[:, 0], attention_of(model, batch)[:, 0])
    for name, point in model.hook_dict.items():
        assert not point.fwd_hooks, name


@pytest.mark.parametrize(
    ("place", "said"), [({"layer": 1}, "^layer: got 1"), ({"query": 5}, "^query: got 5"), ({"layer": -1}, "^layer")]
)
def test_attention_at_a_place_that_the_model_lacks_is_refused(place, said):
    with pytest.raises(bt.BayesticketError, match=said):
        attention_of(model_of(ADDITION), ADDITION.split().test, **place)


def test_a_default_measure_may_be_recorded_on_further_halves(tmp_path):
    small = bt.Architecture(d_model=8, d_mlp=8)
    measures = [bt.KLToOracle(half=("train", "test")), bt.Loss(), bt.MLPNorm(half="test")]
    run = bt.train(ADDITION, model=small, epochs=5, measures=measures)
    assert {"kl_to_oracle", "test_kl_to_oracle", "mlp_norm", "test_mlp_norm"} <= set(run.curves)

    @bt.spec
    class Square(bt.Measure):
        def value(self, seen):
            return seen.logits

    with pytest.raises(bt.BayesticketError, match="Square"):
        bt.train(ADDITION, model=small, epochs=5, measures=[Square()], store=tmp_path / "run")
    assert not (tmp_path / "run").exists()
