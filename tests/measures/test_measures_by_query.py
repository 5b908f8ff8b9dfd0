"""Measures of tasks that ask at several positions, against the same on sequences that end at a query."""

import dataclasses

import pytest
import torch
from answers import copying
from catalog import model_of
from helpers import refused

import bayesticket as bt
from bayesticket.measures import AttentionMeasure, Column
from bayesticket.model import scores_name

TASK = copying()
BATCH = TASK.split(0.5).train
ONE_HEAD = model_of(TASK, n_heads=1)
TWO_LAYERS = model_of(TASK, n_layers=2)
PARITY = bt.AutoregressiveParity(n=7, k=2)


def ending_at(query: int, batch: bt.Examples = BATCH) -> bt.Examples:
    """Ordinary examples whose last position is a query."""
    slot, until = batch.queries.index(query), slice(query + 1)
    return bt.Examples(batch.tokens[:, until], batch.targets[:, slot], batch.informative[:, slot, until])


OF_ONE_QUERY = {
    "kl": bt.KLToOracle(),
    "kl to uniform": bt.KLToTarget("uniform"),
    "kl to shifted": bt.KLToTarget("shifted"),
    "entropy": bt.AttentionEntropy(),
    "score variance": bt.ScoreVariance(),
    "least mass": bt.InformativeMass("least"),
    "mean mass": bt.InformativeMass("mean"),
    "mass by position": bt.InformativeMassByPosition(),
    "distributed mass": bt.DistributedMass(),
    "structural": bt.StructuralCondition(0.2),
    "derived": bt.StructuralCondition("derived"),
    "pairs": bt.PairwiseCondition(),
    "separability": bt.SeparabilityMargin(),
    "readings": bt.SeparabilityMargin(of="readings"),
    "raw": bt.SeparabilityMargin(of="raw"),
    "explaining": bt.ExplainingAway(examples=None),
    "lipschitz": bt.LipschitzBounds(examples=None),
    "prior gradient": bt.PriorGradient(),
    "accuracy": bt.Accuracy(),
    "loss": bt.Loss(),
    "margin": bt.ClassMargin(),
}


@pytest.mark.parametrize("query", [3, 5])
@pytest.mark.parametrize("measure", OF_ONE_QUERY.values(), ids=OF_ONE_QUERY)
def test_a_measure_of_each_query_is_that_on_sequences_that_end_there(measure, query):
    expected = bt.measure(ONE_HEAD, ending_at(query), measure)
    found = bt.measure(ONE_HEAD, BATCH, dataclasses.replace(measure, query="each"))
    kept = {
        column.quantity: found[str(column)] for column in map(Column.parse, found) if column.place == {"query": query}
    }
    if len(kept) == len(expected):
        values = [kept[Column.parse(name).quantity] for name in expected]
    else:  # the entries have numbers
        values = [value for name, value in found.items() if f"[Q{query}" in name]
    torch.testing.assert_close(torch.tensor(values), torch.tensor(list(expected.values())), equal_nan=True)


@pytest.mark.parametrize("name", ["kl", "entropy", "mean mass", "structural", "score variance", "accuracy"])
def test_without_a_query_it_is_the_mean_over_those_that_can_be_answered(name):
    whole = list(bt.measure(ONE_HEAD, BATCH, OF_ONE_QUERY[name]).values())
    each = [list(bt.measure(ONE_HEAD, ending_at(query), OF_ONE_QUERY[name]).values()) for query in (3, 5)]
    assert each[0] != each[1]
    torch.testing.assert_close(torch.tensor(whole), torch.tensor(each).mean(0))


def test_the_least_of_all_queries_is_the_least():
    each = [bt.measure(ONE_HEAD, ending_at(query), bt.InformativeMass("least"), bt.ClassMargin()) for query in (3, 5)]
    whole = bt.measure(ONE_HEAD, BATCH, bt.InformativeMass("least"), bt.ClassMargin())
    for name in whole:
        assert whole[name] == pytest.approx(min(one[name] for one in each))


@pytest.mark.parametrize("name", ["derived", "pairs", "separability", "explaining", "lipschitz", "distributed mass"])
def test_what_makes_no_mean_asks_for_a_query(name):
    with pytest.raises(bt.BayesticketError, match=r"the queries \(3, 5\).*query=5, or query='each'"):
        bt.measure(ONE_HEAD, BATCH, OF_ONE_QUERY[name])
    one = bt.measure(ONE_HEAD, BATCH, dataclasses.replace(OF_ONE_QUERY[name], query=3))
    expected = bt.measure(ONE_HEAD, ending_at(3), OF_ONE_QUERY[name])
    torch.testing.assert_close(torch.tensor(list(one.values())), torch.tensor(list(expected.values())), equal_nan=True)


def test_measures_of_a_query_that_is_not_asked_are_refused():
    for measure in (bt.KLToOracle(query=2), bt.AttentionEntropy(query=0), bt.Accuracy(query=4)):
        with pytest.raises(bt.BayesticketError, match=r"query: got \d; accepted: 3 or 5"):
            bt.measure(ONE_HEAD, BATCH, measure)
    with pytest.raises(bt.BayesticketError, match="query"):
        bt.measure(ONE_HEAD, ending_at(5), bt.Accuracy(query=2))


@pytest.mark.parametrize("task", [TASK, PARITY])
def test_every_measure_is_taken_or_says_which_query_is_missing(task):
    batch, model = task.split().train, model_of(task, n_heads=1, residual=None)
    for measure in [*OF_ONE_QUERY.values(), bt.EffectiveRank(), bt.NormalizedMLPLoss(), bt.AttentionGradient(),
                    bt.MLPNorm(), bt.WeightNorms(), bt.InteractionNorm()]:  # fmt: skip
        pools = measure.takes_all_queries or measure.pooling() is not None
        if pools or task is PARITY:
            assert bt.measure(model, batch, measure), measure
        else:
            with pytest.raises(bt.BayesticketError, match="query=5"):
                bt.measure(model, batch, measure)


def loss_gradients_in_interaction(model, batch):
    """∂L/∂M of the loss over all queries, and ∂P/∂M of the prior, with M a leaf that the scores are made of."""
    attention = model.blocks[0].attn
    stream = model.embed.W_E[batch.tokens] + model.pos_embed.W_pos[: batch.n_positions]
    stream = torch.cat([stream, torch.ones_like(stream[..., :1])], -1).detach()
    query = torch.cat([attention.W_Q, attention.b_Q[:, None]], 1)
    key = torch.cat([attention.W_K, attention.b_K[:, None]], 1)
    interaction = torch.einsum("hxd,hyd->hxy", query, key).detach().requires_grad_()
    causal = torch.ones(batch.n_positions, batch.n_positions).tril().bool()

    def scores(given, hook):
        found = torch.einsum("nqx,hxy,nky->nhqk", stream, interaction, stream) / attention.attn_scale
        return found.masked_fill(~causal, -torch.inf)

    kept = []
    hooks = [(scores_name(0), scores), ("blocks.0.attn.hook_pattern", lambda pattern, hook: kept.append(pattern))]
    with model.hooks(fwd_hooks=hooks):
        logits = model(batch.tokens)[:, list(batch.queries)]
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
    divergences = []
    for slot, position in enumerate(batch.queries):
        if position in batch.answerable:
            chosen = kept[0][:, :, position][batch.informative[:, slot][:, None].expand(-1, interaction.shape[0], -1)]
            divergences.append(-chosen.log().mean())
    prior = torch.stack(divergences).mean()
    return [torch.autograd.grad(each, interaction, retain_graph=True)[0].norm() for each in (loss, prior)]


@pytest.mark.parametrize("n_heads", [1, 2])
def test_gradients_in_the_interaction_matrix_are_those_of_all_queries(n_heads):
    model = model_of(TASK, n_heads=n_heads)
    seen = bt.measure(model, BATCH, bt.AttentionGradient(), bt.PriorGradient())
    expected = loss_gradients_in_interaction(model, BATCH)
    torch.testing.assert_close(torch.tensor(list(seen.values())).double(), torch.stack(expected))


@bt.spec
class GradientInStream(bt.Measure):
    """The norm of the gradient of the loss in the stream into a layer, which several queries reach."""

    def differentiates(self, model):
        return ("blocks.1.hook_resid_pre",)

    def pooling(self):
        return "mean"

    def value(self, seen):
        return seen.gradients["blocks.1.hook_resid_pre"].norm()


def test_gradients_of_one_query_are_those_of_its_loss_alone():
    own = [bt.measure(TWO_LAYERS, ending_at(query), GradientInStream())["gradient_in_stream"] for query in (3, 5)]
    assert bt.measure(TWO_LAYERS, BATCH, GradientInStream())["gradient_in_stream"] == pytest.approx(sum(own) / 2)
    run = bt.train(TASK, model=TWO_LAYERS, epochs=1, train_fraction=0.5, measures=[GradientInStream()])
    assert run.curves["gradient_in_stream"].loc[0] == pytest.approx(sum(own) / 2)


def test_a_measure_of_ones_own_says_how_its_queries_are_pooled():
    @bt.spec
    class Share(bt.Measure):
        def value(self, seen):
            assert seen.logits.ndim == 2
            return (seen.batch.targets == 1).double().mean()

    with pytest.raises(bt.BayesticketError, match=r"Share: got the queries \(3, 5\).*batch\.at\(5\).*def pooling"):
        bt.measure(ONE_HEAD, BATCH, Share())
    assert bt.measure(ONE_HEAD, BATCH.at(3), Share())["share"] == (BATCH.targets[:, 1] == 1).double().mean()
    parity = PARITY.split().train
    assert bt.measure(model_of(PARITY), parity, Share())["share"] == parity.targets[:, -1].double().mean()


def test_unseen_examples_are_measured_at_their_queries():
    test = PARITY.split().test
    model = model_of(PARITY)
    run = bt.train(PARITY, model=model, epochs=1, measures=[bt.KLToOracle(half="unseen")])
    expected = bt.measure(model, test.select(test.unseen), bt.KLToOracle())["kl_to_oracle"]
    assert run.curves["unseen_kl_to_oracle"].loc[0] == pytest.approx(expected)


def test_tensors_and_teachers_for_whole_sequences_are_targets_at_each_query():
    teacher = model_of(TASK, seed=5, n_heads=1)
    _, cache = teacher.run_with_cache(BATCH.tokens)
    _, own = ONE_HEAD.run_with_cache(BATCH.tokens)
    rows = torch.zeros(6, dtype=torch.float64)
    rows[:2] = torch.tensor([0.25, 0.75])
    for query in (3, 5):
        attention, target = (
            own["blocks.0.attn.hook_pattern"][:, :, query],
            cache["blocks.0.attn.hook_pattern"][:, :, query],
        )
        expected = (torch.xlogy(target, target) - torch.xlogy(target, attention)).sum(-1).mean()
        (found,) = bt.measure(ONE_HEAD, BATCH, bt.KLToTarget(teacher, query=query)).values()
        assert found == pytest.approx(expected.item())
        expected = (torch.xlogy(rows, rows) - torch.xlogy(rows, attention)).sum(-1).mean()
        (found,) = bt.measure(ONE_HEAD, BATCH, bt.KLToTarget(rows, query=query)).values()
        assert found == pytest.approx(expected.item())
        refused(lambda query=query: bt.measure(ONE_HEAD, BATCH, bt.KLToOracle(query=query + 6)), "query: got")
    refused(lambda: bt.measure(ONE_HEAD, BATCH, bt.KLToTarget(rows.flip(0), query=3)), "mass 1 on positions [4, 5]")


def test_frequencies_are_those_of_one_query():
    model = model_of(TASK)
    with pytest.raises(bt.BayesticketError, match=r"the queries \(3, 5\)"):
        bt.measure(model, BATCH, bt.KeyFrequencyCount())
    expected = bt.measure(model, ending_at(5), bt.FrequencyShares(of="logits"))
    assert bt.measure(model, BATCH.at(5), bt.FrequencyShares(of="logits")) == pytest.approx(dict(expected))
    assert bt.key_frequencies(model, BATCH.at(5), above=1.0) == bt.key_frequencies(model, ending_at(5), above=1.0)
    with pytest.raises(bt.BayesticketError, match=r"batch\.at\(5\)"):
        bt.key_frequencies(model, BATCH)


def test_layers_and_heads_of_each_query_have_their_labels():
    seen = bt.measure(TWO_LAYERS, BATCH, bt.AttentionEntropy(layer="each", head="each", query="each"))
    assert "attention_entropy[layer=each,head=each,query=each][L1H0Q5]" in seen
    column = Column.parse("attention_entropy[layer=each,head=each,query=each][L1H0Q5]")
    assert column.place == {"layer": 1, "head": 0, "query": 5}
    assert column.setting == "layer=1,head=0,query=5"
    ordinary = bt.measure(ONE_HEAD, ending_at(5), bt.AttentionEntropy(query="each"), bt.AttentionEntropy())
    assert ordinary["attention_entropy[query=each][Q5]"] == ordinary["attention_entropy"]


def test_attention_is_shown_at_a_query():
    _, cache = ONE_HEAD.run_with_cache(BATCH.tokens)
    from bayesticket.measures import attention_of

    torch.testing.assert_close(attention_of(ONE_HEAD, BATCH, query=3), cache["blocks.0.attn.hook_pattern"][:, :, 3])
    with pytest.raises(bt.BayesticketError, match=r"positions \(3, 5\)"):
        attention_of(ONE_HEAD, BATCH)
    assert issubclass(type(bt.KLToOracle()), AttentionMeasure)
