"""The gradient in the interaction matrix against autograd."""

import pytest
import torch
import torch.nn.functional as F
from catalog import TASKS, model_of

import bayesticket as bt


@pytest.mark.parametrize("attention", ["softmax", "linear"])
@pytest.mark.parametrize("normalization_type", [None, "LN"])
@pytest.mark.parametrize("forward", ["fast", "full"])
@pytest.mark.parametrize("name", ["addition", "addition, drawn positions", "several queries", "parity"])
def test_the_attention_gradient_equals_autograds_on_an_explicit_interaction_matrix(
    name, forward, normalization_type, attention
):
    task = TASKS[name]
    model, batch = model_of(task, attention=attention, normalization_type=normalization_type), task.split().train
    seen = bt.measure(model, batch, bt.AttentionGradient(), forward=forward)["attention_gradient"]

    # The same attention, with scores made from one augmented matrix M a head that autograd can see.
    block = model.blocks[0]
    head = block.attn
    query = torch.cat([head.W_Q, head.b_Q[:, None]], 1).detach()
    key = torch.cat([head.W_K, head.b_K[:, None]], 1).detach()
    matrix = (query @ key.mT).requires_grad_()
    x = block.ln1(model.W_E[batch.tokens] + model.W_pos[: batch.n_positions])
    x = torch.cat([x, torch.ones_like(x[..., :1])], -1).detach()
    scores = torch.einsum("nd,hde,nte->nht", x[:, -1], matrix, x) / head.attn_scale

    def put_scores(whole, hook):
        whole = whole.clone()
        whole[:, :, -1] = scores
        return whole

    point = model.hook_dict["blocks.0.attn.hook_attn_scores"]
    point.add_hook(put_scores, prepend=True)
    loss = F.cross_entropy(model(batch.tokens)[:, -1], batch.targets)
    (expected,) = torch.autograd.grad(loss, matrix)
    assert seen == pytest.approx(expected.norm().item(), rel=1e-9)


def test_the_attention_gradient_is_the_tasks_alone_and_vanishes_when_attention_is_frozen():
    task = TASKS["addition"]
    model, batch = model_of(task), task.split().train
    plain = bt.measure(model, batch, bt.AttentionGradient())
    assert plain["attention_gradient"] > 0
    assert bt.measure(model, batch, bt.AttentionGradient(), intervention=bt.KLPrior(strength=100.0)) == plain
    frozen = bt.measure(model, batch, bt.AttentionGradient(), intervention=bt.FrozenAttention())
    assert frozen["attention_gradient"] == 0
