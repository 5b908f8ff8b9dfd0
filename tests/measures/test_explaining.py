"""Lemma 5.1 on models."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from catalog import TASKS, model_of
from helpers import properties, seeds, value_of
from hypothesis import given
from hypothesis import strategies as st

import bayesticket as bt
from bayesticket import theory
from bayesticket.measures import ExplainingAway, LipschitzBounds, Observer, observe
from bayesticket.measures.explaining import explaining_away
from bayesticket.model import keep_in, mounted

TASK = TASKS["addition"]


def chain_of(model, batch, measure, forward="fast"):
    """The four forms on every example, as the measure computes them."""
    kept = {}

    class Keep(type(measure)):
        def value(self, seen):
            kept["chain"] = explaining_away(self, seen, torch.arange(len(batch)))
            return torch.zeros(9)

    observe(model, batch, Observer(model, [Keep(examples=None)], batch), forward=forward)
    return kept["chain"]


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("forward", ["fast", "full"])
@pytest.mark.parametrize(
    "name", ["addition", "addition, constant", "addition, drawn positions", "several queries", "parity"]
)
def test_the_chain_holds_and_autograd_agrees_with_the_closed_form(name, forward, residual):
    task = TASKS[name]
    model, batch = model_of(task, residual=residual), task.split().train
    chain = chain_of(model, batch, ExplainingAway(), forward)
    assert (chain.measured <= chain.local * (1 + 1e-9) + 1e-15).all()
    assert (chain.local <= chain.global_ * (1 + 1e-9) + 1e-15).all()
    assert (chain.global_ <= chain.loose[..., None] * (1 + 1e-9)).all()

    seen = {}
    # The measured gradient, once more: one backward pass for each example, through the full forward.
    for n in range(0, len(batch), 7):
        with mounted(model, [("blocks.0.attn.hook_attn_scores", keep_in(seen))]):
            loss = F.cross_entropy(model(batch.tokens[n : n + 1])[:, -1], batch.targets[n : n + 1])
        (gradient,) = torch.autograd.grad(loss, seen["blocks.0.attn.hook_attn_scores"])
        torch.testing.assert_close(chain.measured[n], gradient[0, :, -1].abs(), rtol=1e-8, atol=1e-14)


def test_the_measured_gradient_is_the_closed_form_of_the_theory():
    model, batch = model_of(TASK, residual=True), TASK.split().train
    chain = chain_of(model, batch, ExplainingAway())
    _, cache = model.run_with_cache(batch.tokens)
    block = model.blocks[0]
    jacobian = theory.jacobian(
        block.attn.W_O, block.mlp.W_in, block.mlp.W_out, model.W_U, cache["blocks.0.mlp.hook_pre"][:, -1][:, None]
    )
    error = theory.prediction_error(model(batch.tokens)[:, -1], batch.targets)[:, None]
    value = cache["blocks.0.attn.hook_v"].transpose(1, 2)
    gradient = theory.logit_gradient(cache["blocks.0.attn.hook_pattern"][:, :, -1], value, jacobian, error)
    torch.testing.assert_close(chain.measured, gradient.abs(), rtol=1e-8, atol=1e-14)


def test_the_summary_is_of_the_chain():
    model, batch = model_of(TASK), TASK.split().train
    chain = chain_of(model, batch, ExplainingAway())
    summary = value_of(ExplainingAway(examples=None), model, batch)
    expected = [form.amax(-1).mean().item() for form in chain[:3]] + [chain.loose.mean().item()]
    assert summary[:4] == pytest.approx(expected)
    forms = (chain.measured, chain.local, chain.global_, chain.loose[..., None].expand_as(chain.local))
    ratios = [(smaller / larger).max().item() for smaller, larger in pairwise(forms)]
    assert summary[6:] == pytest.approx(ratios)
    assert max(ratios) < 1
    _, cache = model.run_with_cache(batch.tokens)
    radius, (paper, scaled) = cache["blocks.0.attn.hook_v"].norm(dim=-1).max().item(), summary[4:6]
    attention, stream = model.blocks[0].attn, cache["blocks.0.hook_resid_pre"]
    longest = (stream.square().sum(-1).max() + 1).sqrt().item()
    norms = [
        max(torch.linalg.matrix_norm(matrix, 2).item() for matrix in heads)
        for heads in (
            attention.W_V,
            [torch.cat([W, b[None]]) for W, b in zip(attention.W_V, attention.b_V, strict=True)],
        )
    ]
    assert paper == pytest.approx(summary[3] / radius * norms[0])
    assert scaled == pytest.approx(summary[3] / radius * norms[1] * longest)


@properties
@given(seeds, st.floats(0.01, 10.0), st.sampled_from(["addition", "addition, drawn positions", "parity"]))
def test_the_loose_form_never_exceeds_the_scaled_one(seed, scale, name):
    task = TASKS[name]
    model, batch = model_of(task, seed=seed % 100), task.split().train
    with torch.no_grad():
        model.blocks[0].attn.W_V.mul_(scale)
        model.embed.W_E.mul_(torch.rand((), generator=torch.Generator().manual_seed(seed)) * 4)
    seen = bt.measure(model, batch, ExplainingAway(examples=5))
    assert 0 < seen["explaining_away[examples=5][loose]"] <= seen["explaining_away[examples=5][scaled]"]


def test_lipschitz_bounds_are_ordered_and_local_ones_are_jacobians():
    model, batch = model_of(TASK, n_heads=1), TASK.split().train
    local, steepest, centred, products, factors = value_of(LipschitzBounds(examples=None), model, batch)
    assert local <= steepest <= centred <= products <= factors
    n = 3
    z = {}
    with mounted(model, [("blocks.0.attn.hook_z", lambda tensor, hook: z.update(z=tensor))]):
        logits = model(batch.tokens)[:, -1]
    rows = [torch.autograd.grad(logits[n, c], z["z"], retain_graph=True)[0][n, -1, 0] for c in range(7)]
    assert torch.linalg.matrix_norm(torch.stack(rows), 2) <= steepest * (1 + 1e-9)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"normalization_type": "LN"}, "normalization_type='LN'"),
        ({"attention": "linear"}, "attention='linear'"),
    ],
)
@pytest.mark.parametrize("measure", [ExplainingAway(), LipschitzBounds()])
def test_other_models_are_refused(measure, options, said):
    with pytest.raises(bt.BayesticketError, match=said):
        bt.measure(model_of(TASK, **options), TASK.split().train, measure)


@pytest.mark.parametrize("kind", [ExplainingAway, LipschitzBounds])
def test_another_query_is_refused(kind):
    with pytest.raises(bt.BayesticketError, match=r"query: got 2; accepted: -1"):
        bt.measure(model_of(TASK), TASK.split().train, kind(query=2))
    with pytest.raises(bt.BayesticketError, match=r"examples: got 0"):
        kind(examples=0)


def test_bounds_on_the_weights_are_refused_where_an_edit_bypasses_them():
    with pytest.raises(bt.BayesticketError, match=r"^LipschitzBounds: got an intervention that edits"):
        bt.measure(model_of(TASK), TASK.split().train, LipschitzBounds(), intervention=bt.NoResidual())


def test_edited_attention_is_refused():
    with pytest.raises(bt.BayesticketError, match=r"edits blocks\.0\.attn\.hook_pattern"):
        bt.measure(model_of(TASK), TASK.split().train, ExplainingAway(), intervention=bt.MixedAttention())
