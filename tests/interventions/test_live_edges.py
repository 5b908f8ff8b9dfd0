"""A recipe at work at its edges: projections that undo each other, minibatches, looks without gradients."""

import pytest
import torch

import bayesticket as bt

TASK = bt.ModularAddition(p=7)
TRAIN = TASK.split(train_fraction=0.4).train
W_IN = "blocks.0.mlp.W_in"


def a_model():
    return bt.build_model(TASK, d_model=8, n_heads=2, d_mlp=16, seed=1, dtype=torch.float64)


def mlp_norm(model):
    return torch.cat([value.detach().flatten() for name, value in model.named_parameters() if ".mlp." in name]).norm()


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_projection_that_a_later_one_undoes_is_applied_again(norm_first):
    model = a_model()
    mask = torch.zeros_like(model.blocks[0].mlp.W_in, dtype=torch.bool)
    mask[:, ::2] = True
    # The mask takes a part of the norm away; after the mask the norm only scales, and no pruned weight comes back.
    norm, ticket = bt.NormMatch(radius=3.0), bt.TicketMask({W_IN: mask})
    recipe = norm + ticket if norm_first else ticket + norm
    with recipe.attach(model, TRAIN) as live:
        assert mlp_norm(model).item() == pytest.approx(3.0, rel=1e-12)  # from before the first step on
        with torch.no_grad():
            model.blocks[0].mlp.W_in.add_(1.0)
        live.gradients()
        live.project()
        assert mlp_norm(model).item() == pytest.approx(3.0, rel=1e-12)
        assert not model.blocks[0].mlp.W_in[:, 1::2].any()
        assert model.blocks[0].mlp.W_in[:, ::2].all()


def test_a_second_pass_brings_two_norms_nearer_to_both():
    model = a_model()
    with (bt.NormMatch(2.0) + bt.NormMatch(5.0, scope="all")).attach(model, TRAIN):
        whole = torch.cat([value.detach().flatten() for value in model.parameters()]).norm()
        # The last one holds exactly; the first more nearly after a second pass than after one.
        assert whole.item() == pytest.approx(5.0, rel=1e-12)
        after_two = abs(mlp_norm(model).item() - 2.0)
    once = a_model()
    for part in (bt.NormMatch(2.0), bt.NormMatch(5.0, scope="all")):
        with part.attach(once, TRAIN):
            pass
    assert after_two < abs(mlp_norm(once).item() - 2.0)


def test_a_projection_that_stands_alone_is_applied_once_a_step():
    class Halving(bt.Intervention):
        def project(self, context):
            with torch.no_grad():
                context.parameters["unembed.b_U"].mul_(0.5)

    model = a_model()
    with torch.no_grad():
        model.unembed.b_U.fill_(1.0)
    with (bt.KLPrior() + Halving() + bt.QKPenalty()).attach(model, TRAIN) as live:
        assert (model.unembed.b_U == 0.5).all()
        live.project()
        assert (model.unembed.b_U == 0.25).all()


@pytest.mark.parametrize("gradients", [True, False])
def test_a_minibatch_is_a_batch_of_its_own(gradients):
    model, index = a_model(), torch.tensor([7, 2, 2, 11])
    # Targets of its own for every example, so that it matters which of them are selected.
    one, other = torch.randn(2, len(TRAIN), 5, generator=torch.Generator().manual_seed(0)).double().softmax(-1)
    recipe = bt.MixedAttention(one, weight=0.5) + bt.KLPrior(other)
    alone = bt.MixedAttention(one[index], weight=0.5) + bt.KLPrior(other[index])
    with torch.set_grad_enabled(gradients):
        with alone.attach(model, TRAIN.select(index)) as live:
            logits, expected = model(TRAIN.tokens[index]), live.penalty()
        with recipe.attach(model, TRAIN) as live:
            live.select(index)
            assert torch.equal(model(TRAIN.tokens[index]), logits)
            torch.testing.assert_close(live.penalty(), expected)
            live.select(None)
            model(TRAIN.tokens)
            assert live.penalty() != expected


@pytest.mark.parametrize("gradients", [True, False])
def test_what_was_read_in_one_context_is_not_read_in_the_next(gradients):
    model = a_model()
    live = bt.KLPrior().attach(model, TRAIN)
    with torch.set_grad_enabled(gradients):
        with live:
            model(TRAIN.tokens)
            assert live.penalty() > 0
        with live, pytest.raises(bt.BayesticketError, match="the model has not run since attach"):
            live.penalty()
