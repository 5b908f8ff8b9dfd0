"""The gradient in the interaction matrix against autograd."""

import pytest
import torch
import torch.nn.functional as F
from catalog import TASKS, model_of
from helpers import deep_model

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


def gradient_by_autograd(model, batch, layer, heads):
    """Autograd's gradient in one augmented matrix M a head, from which the scores of every query are made."""
    block = model.blocks[layer]
    head = block.attn
    query = torch.cat([head.W_Q, head.b_Q[:, None]], 1).detach()
    key = torch.cat([head.W_K, head.b_K[:, None]], 1).detach()
    matrix = (query @ key.mT).requires_grad_()
    with torch.no_grad():
        _, cache = model.run_with_cache(batch.tokens)
        x = block.ln1(cache[f"blocks.{layer}.hook_resid_pre"])
        x = torch.cat([x, torch.ones_like(x[..., :1])], -1)
    made = torch.einsum("nqd,hde,nke->nhqk", x, matrix, x) / head.attn_scale
    rest = cache[f"blocks.{layer}.attn.hook_attn_scores"] - made.detach()  # the mask, and a bias where there is one
    visible = rest.isfinite()
    assert rest[visible].abs().max() < 1e-9 or model.cfg.positional_embedding_type == "alibi"
    scores = torch.where(visible, made, 0.0) + rest
    with model.hooks(fwd_hooks=[(f"blocks.{layer}.attn.hook_attn_scores", lambda given, hook: scores)]):
        loss = F.cross_entropy(model(batch.tokens)[:, -1], batch.targets)
    (gradient,) = torch.autograd.grad(loss, matrix)
    return gradient[heads].norm().item()


@pytest.mark.parametrize("positions", ["standard", "alibi"])
@pytest.mark.parametrize("normalization_type", [None, "LN"])
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_in_a_deeper_model_every_query_counts(layer, normalization_type, positions):
    model = deep_model(n_layers=3, normalization_type=normalization_type, positional_embedding_type=positions).double()
    batch = TASKS["addition"].split().train
    seen = bt.measure(model, batch, bt.AttentionGradient(layer=layer), bt.AttentionGradient(layer=layer, head=1))
    expected = [gradient_by_autograd(model, batch, layer, heads) for heads in (slice(None), [1])]
    assert list(seen.values()) == pytest.approx(expected, rel=1e-9)


def test_edits_of_what_the_scores_are_made_of_leave_no_gradient_to_compare():
    @bt.spec
    class Doubled(bt.Intervention):
        name: str = "blocks.0.attn.hook_q"

        def edits(self, context):
            return [(self.name, lambda tensor, hook: 2 * tensor)]

    model, batch = deep_model(), TASKS["addition"].split().train
    for name, known in (("attn.hook_q", False), ("attn.hook_k", False), ("hook_mlp_out", True)):
        seen = bt.measure(model, batch, bt.AttentionGradient(layer="each"), intervention=Doubled(f"blocks.0.{name}"))
        assert (seen["attention_gradient[layer=each][L0]"] > 0) == known
        assert seen["attention_gradient[layer=each][L1]"] > 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"positional_embedding_type": "rotary", "rotary_dim": 4}, "positional_embedding_type='rotary'"),
        ({"positional_embedding_type": "shortformer"}, "positional_embedding_type='shortformer'"),
        ({"attn_scores_soft_cap": 5.0}, "attn_scores_soft_cap=5.0"),
    ],
)
def test_scores_that_no_single_matrix_makes_are_refused(changes, said):
    with pytest.raises(bt.BayesticketError, match=f"^AttentionGradient: got a model with {said}; accepted: scores"):
        bt.measure(deep_model(**changes), TASKS["addition"].split().train, bt.AttentionGradient())


def test_hooks_of_the_models_own_on_queries_are_refused():
    model = deep_model()
    model.add_perma_hook("blocks.1.attn.hook_q", lambda tensor, hook: 2 * tensor)
    batch = TASKS["addition"].split().train
    assert bt.measure(model, batch, bt.AttentionGradient())["attention_gradient[L0]"] > 0
    with pytest.raises(bt.BayesticketError, match=r"hooks of its own on blocks\.1\.attn\.hook_q"):
        bt.measure(model, batch, bt.AttentionGradient(layer=1))


def test_a_single_query_has_no_gradient_of_its_own():
    with pytest.raises(bt.BayesticketError, match=r"^AttentionGradient\.query: got 2; accepted: -1"):
        bt.AttentionGradient(query=2)
