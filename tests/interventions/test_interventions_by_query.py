"""Interventions on tasks that ask at several positions."""

import pytest
import torch
from answers import copying
from catalog import model_of
from helpers import properties, refused
from hypothesis import given
from hypothesis import strategies as st

import bayesticket as bt
from bayesticket.model import pattern_name

TASK = copying()
MODEL = model_of(TASK)
BATCH = TASK.split().train
TEACHER = bt.build_model(TASK, d_model=8, d_mlp=8, seed=9, dtype=torch.float64)
PRIORS = {
    "oracle": bt.KLPrior(strength=0.7),
    "uniform": bt.KLPrior("uniform", head=1),
    "adversarial": bt.KLPrior("adversarial"),
    "shifted": bt.KLPrior("shifted"),
    "permuted": bt.KLPrior(bt.Permuted("oracle")),
    "teacher": bt.KLPrior(TEACHER),
    "entropy": bt.EntropyPrior(strength=0.3),
    "sparsity": bt.SparsityPrior(strength=0.3),
    "sparsity of scores": bt.SparsityPrior(strength=0.3, on="scores"),
}


def penalty_of(recipe: bt.Intervention, batch: bt.Examples) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The penalty, and its gradients."""
    MODEL.zero_grad()
    with recipe.attach(MODEL, batch, seed=0) as live:
        MODEL(batch.tokens)
        penalty = live.penalty()
        penalty.backward()
    found = {name: weight.grad.clone() for name, weight in MODEL.named_parameters() if weight.grad is not None}
    MODEL.zero_grad()
    return penalty.detach(), found


def at(prior: bt.Intervention, query: int) -> bt.Intervention:
    import dataclasses

    return dataclasses.replace(prior, query=query)


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_a_prior_is_the_mean_of_those_at_each_answerable_query(prior):
    whole, gradients = penalty_of(prior, BATCH)
    each = [penalty_of(at(prior, query), BATCH) for query in (3, 5)]
    torch.testing.assert_close(whole, (each[0][0] + each[1][0]) / 2)
    assert not torch.allclose(whole, each[1][0], rtol=1e-3)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, (each[0][1][name] + each[1][1][name]) / 2)


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
@pytest.mark.parametrize("query", [3, 5])
def test_a_prior_at_a_query_is_that_on_the_sequence_up_to_it(prior, query):
    if "teacher" in PRIORS and prior is PRIORS["teacher"] and query != 5:
        return  # a teacher of six positions is none for four
    slot = BATCH.queries.index(query)
    ending = bt.Examples(BATCH.tokens[:, : query + 1], BATCH.targets[:, slot], BATCH.informative[:, slot, : query + 1])
    found, gradients = penalty_of(at(prior, query), BATCH)
    expected, expected_gradients = penalty_of(prior, ending)
    torch.testing.assert_close(found, expected)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected_gradients[name])


def test_a_teachers_attention_is_taken_at_the_query():
    _, cache = TEACHER.run_with_cache(BATCH.tokens)
    _, own = MODEL.run_with_cache(BATCH.tokens)
    target, attention = cache[pattern_name(0)][:, :, 3], own[pattern_name(0)][:, :, 3]
    terms = torch.xlogy(target, target) - torch.xlogy(target, attention)
    torch.testing.assert_close(penalty_of(bt.KLPrior(TEACHER, query=3), BATCH)[0], terms.sum(-1).mean())


@pytest.mark.parametrize(
    "edit", [bt.FrozenAttention("oracle"), bt.FrozenAttention("oracle", head=1), bt.MixedAttention(weight=0.3)]
)
def test_edits_are_made_at_every_answerable_query_and_nowhere_else(edit):
    name = pattern_name(0)
    _, before = MODEL.run_with_cache(BATCH.tokens)
    with MODEL.hooks(fwd_hooks=edit.hooks(BATCH)):
        _, after = MODEL.run_with_cache(BATCH.tokens)
    expected = before[name].clone()
    heads = [0, 1] if edit.heads is None else edit.heads
    weight = getattr(edit, "weight", 1.0)
    for slot, query in ((1, 3), (2, 5)):
        for head in heads:
            oracle = BATCH.informative[:, slot].double() / 2
            expected[:, head, query] = (1 - weight) * before[name][:, head, query] + weight * oracle
    torch.testing.assert_close(after[name], expected)


def test_training_with_frozen_oracle_sees_it_at_every_answerable_query():
    run = bt.train(TASK, bt.FrozenAttention("oracle"), model=bt.Architecture(d_model=8, d_mlp=8), epochs=3,
                   measures=[bt.KLToOracle(query="each", half="test")])  # fmt: skip
    assert run.curves["kl_to_oracle"].abs().max() < 1e-5
    assert run.curves["test_kl_to_oracle[query=each][Q3]"].abs().max() < 1e-5


@properties
@given(st.integers(0, 5))
def test_a_position_that_is_no_query_can_be_meant(position):
    _, cache = MODEL.run_with_cache(BATCH.tokens)
    attention = cache[pattern_name(0)][:, :, position, : position + 1]
    entropy = -(attention * attention.log()).sum(-1).mean()
    torch.testing.assert_close(penalty_of(bt.EntropyPrior(1.0, query=position), BATCH)[0], entropy)
    found = penalty_of(bt.KLPrior("uniform", query=position), BATCH)[0]
    n = position + 1
    torch.testing.assert_close(found, (-torch.tensor(n).log() - attention.log().mean(-1)).mean())


def test_what_cannot_be_is_refused():
    def attach(recipe):
        return lambda: recipe.attach(MODEL, BATCH)

    refused(attach(bt.KLPrior(query=2)), "query: got 2", "3 or 5")
    refused(attach(bt.FrozenAttention() + bt.FrozenAttention("uniform", query=3)), "both replace the pattern")
    refused(attach(bt.KLPrior(torch.full((6,), 1 / 6))), "KLPrior.target", "positions [4, 5]")
    attach(bt.KLPrior(torch.tensor([0.5, 0.5, 0, 0, 0, 0])))()
    refused(lambda: bt.FrozenAttention("uniform", query=9).hooks(BATCH), "query: got 9", "0 to 5")
    refused(lambda: bt.KLPrior(query="each"), "KLPrior.query", "only measures")
