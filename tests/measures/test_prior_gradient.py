"""The prior's gradient in the interaction matrix against autograd."""

import pytest
import torch
from catalog import TASKS, model_of
from helpers import deep_model

import bayesticket as bt


def gradient_by_autograd(model, batch, measure):
    """Autograd's gradient of the prior in one augmented matrix M a head, from which the scores are made."""
    layer, head = measure.layers[0], model.blocks[measure.layers[0]].attn
    query = torch.cat([head.W_Q, head.b_Q[:, None]], 1).detach()
    key = torch.cat([head.W_K, head.b_K[:, None]], 1).detach()
    matrix = (query @ key.mT).requires_grad_()
    with torch.no_grad():
        _, cache = model.run_with_cache(batch.tokens)
        x = model.blocks[layer].ln1(cache[f"blocks.{layer}.hook_resid_pre"])
    x = torch.cat([x, torch.ones_like(x[..., :1])], -1)
    scores = torch.einsum("nd,hde,nke->nhk", x[:, -1], matrix, x) / head.attn_scale

    def put_scores(whole, hook):
        whole = whole.clone()
        whole[:, :, -1] = scores
        return whole

    prior = bt.KLPrior(measure.target, strength=1.0, layer=layer, head=measure.head)
    with (
        model.hooks(fwd_hooks=[(f"blocks.{layer}.attn.hook_attn_scores", put_scores)]),
        prior.attach(model, batch) as live,
    ):
        model(batch.tokens)
        (gradient,) = torch.autograd.grad(live.penalty(), matrix)
    return gradient.norm().item()


@pytest.mark.parametrize("normalization_type", [None, "LN"])
@pytest.mark.parametrize("forward", ["fast", "full"])
@pytest.mark.parametrize("target", ["oracle", "uniform", "shifted"])
@pytest.mark.parametrize("name", ["addition", "addition, drawn positions", "several queries", "parity"])
def test_the_priors_gradient_equals_autograds_on_an_explicit_interaction_matrix(
    name, target, forward, normalization_type
):
    task = TASKS[name]
    model, batch = model_of(task, normalization_type=normalization_type), task.split().train
    for measure in (bt.PriorGradient(target), bt.PriorGradient(target, head=1)):
        (seen,) = bt.measure(model, batch, measure, forward=forward).values()
        assert seen == pytest.approx(gradient_by_autograd(model, batch, measure), rel=1e-9)


@pytest.mark.parametrize("layer", [0, 1])
def test_in_a_deeper_model_it_is_that_of_each_layers_last_query(layer):
    model, batch = deep_model().double(), TASKS["addition"].split().train
    for measure in (bt.PriorGradient(layer=layer), bt.PriorGradient("uniform", layer=layer, head=1)):
        (seen,) = bt.measure(model, batch, measure).values()
        assert seen == pytest.approx(gradient_by_autograd(model, batch, measure), rel=1e-9)


def test_it_vanishes_at_its_target_alone_and_does_not_know_the_task():
    task = TASKS["addition"]
    model, batch = model_of(task), task.split().train
    seen = bt.measure(model, batch, bt.PriorGradient(model), bt.PriorGradient())
    own, oracle = seen.values()
    assert own == pytest.approx(0, abs=1e-12)
    assert oracle > 0.01
    with torch.no_grad():
        model.unembed.W_U.mul_(100)
    assert bt.measure(model, batch, bt.PriorGradient())["prior_gradient"] == oracle


def test_edited_attention_has_no_such_gradient():
    task = TASKS["addition"]
    model, batch = model_of(task), task.split().train
    for edit in (bt.FrozenAttention(), bt.LinearAttention()):
        assert torch.tensor(bt.measure(model, batch, bt.PriorGradient(), intervention=edit)["prior_gradient"]).isnan()
    with pytest.raises(bt.BayesticketError, match=r"hooks of its own on blocks\.0\.attn\.hook_pattern.*softmax"):
        bt.measure(model_of(task, attention="linear"), batch, bt.PriorGradient())
    with pytest.raises(bt.BayesticketError, match=r"^PriorGradient\.query: got 2; accepted: -1"):
        bt.PriorGradient(query=2)
    with pytest.raises(bt.BayesticketError, match=r"^PriorGradient: got a model with attn_scores_soft_cap=5\.0"):
        bt.measure(deep_model(attn_scores_soft_cap=5.0), batch, bt.PriorGradient())
