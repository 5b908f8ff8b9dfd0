"""A recipe at work at its edges: projections that undo each other, minibatches, looks without gradients."""

import dataclasses

import pytest
import torch
from helpers import precise_model

import bayesticket as bt

TASK = bt.ModularAddition(p=7)
TRAIN = TASK.split(train_fraction=0.4).train
W_IN = "blocks.0.mlp.W_in"


def mlp_norm(model):
    return torch.cat([value.detach().flatten() for name, value in model.named_parameters() if ".mlp." in name]).norm()


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_projection_that_a_later_one_undoes_is_applied_again(norm_first):
    model = precise_model(TASK)
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
    model = precise_model(TASK)
    with (bt.NormMatch(2.0) + bt.NormMatch(5.0, scope="all")).attach(model, TRAIN):
        whole = torch.cat([value.detach().flatten() for value in model.parameters()]).norm()
        # The last one holds exactly; the first more nearly after a second pass than after one.
        assert whole.item() == pytest.approx(5.0, rel=1e-12)
        after_two = abs(mlp_norm(model).item() - 2.0)
    once = precise_model(TASK)
    for part in (bt.NormMatch(2.0), bt.NormMatch(5.0, scope="all")):
        with part.attach(once, TRAIN):
            pass
    assert after_two < abs(mlp_norm(once).item() - 2.0)


def test_parts_that_need_the_full_forward_say_why():
    @bt.spec
    class AllQueries(bt.Intervention):
        def why_full(self, n_positions):
            return f"it reads {n_positions} queries"

    for recipe, reasons in [(bt.KLPrior() + bt.QKPenalty(), []), (bt.KLPrior() + AllQueries(), ["it reads 5 queries"])]:
        with recipe.attach(precise_model(TASK), TRAIN) as live:
            assert live.reasons() == reasons


def test_one_step_has_as_many_streams_of_noise_as_it_asks_for():
    with (bt.KLPrior() + bt.QKPenalty()).attach(precise_model(TASK), TRAIN) as live:
        one, other = (torch.rand(3, generator=live.context.generator("noise")) for _ in range(2))
        assert not torch.equal(one, other)


def test_a_projection_that_stands_alone_is_applied_once_a_step():
    class HalvingBias(bt.Intervention):
        def project(self, context):
            with torch.no_grad():
                context.parameters["unembed.b_U"].mul_(0.5)

    model = precise_model(TASK)
    with torch.no_grad():
        model.unembed.b_U.fill_(1.0)
    with (bt.KLPrior() + HalvingBias() + bt.QKPenalty()).attach(model, TRAIN) as live:
        assert (model.unembed.b_U == 0.5).all()
        live.project()
        assert (model.unembed.b_U == 0.25).all()


@pytest.mark.parametrize("gradients", [True, False])
def test_a_minibatch_is_a_batch_of_its_own(gradients):
    model, index = precise_model(TASK), torch.tensor([7, 2, 2, 11])
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
    model = precise_model(TASK)
    live = bt.KLPrior().attach(model, TRAIN)
    with torch.set_grad_enabled(gradients):
        with live:
            model(TRAIN.tokens)
            assert live.penalty() > 0
        with live, pytest.raises(bt.BayesticketError, match="the model has not run since attach"):
            live.penalty()


# What is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [9, 10])
def test_a_token_that_the_model_lacks_is_refused(token):
    tokens = TRAIN.tokens.clone()
    tokens[3, 1] = token
    with pytest.raises(bt.BayesticketError, match=f"^batch: got token {token}; accepted: tokens of the model, 0 to 8"):
        bt.Recipe().attach(precise_model(TASK), dataclasses.replace(TRAIN, tokens=tokens))


def test_sequences_are_at_most_as_long_as_the_models():
    with pytest.raises(bt.BayesticketError, match=r"^batch: got 5 positions; accepted: at most the model's 4"):
        bt.Recipe().attach(bt.build_model(bt.ModularAddition(p=7, n_distractors=0)), TRAIN)
    longer = bt.build_model(bt.ModularAddition(p=7, n_distractors=2), d_model=8, d_mlp=8)
    with bt.KLPrior().attach(longer, TRAIN) as live:
        longer(TRAIN.tokens)
        assert live.penalty() > 0


@pytest.mark.parametrize("n", [1, 2])
def test_a_batch_may_be_as_small_as_one_example(n):
    model, few = precise_model(TASK), TRAIN.select(slice(0, n))
    with bt.KLPrior().attach(model, few) as live:
        model(few.tokens)
        assert live.penalty() > 0


def test_a_seed_and_an_epoch_are_whole_numbers_from_zero():
    with pytest.raises(bt.BayesticketError, match=r"^seed: got -1"):
        bt.GradientNoise().attach(precise_model(TASK), TRAIN, seed=-1)
    live = bt.KLPrior().attach(precise_model(TASK), TRAIN, seed=0)
    with pytest.raises(bt.BayesticketError, match=r"^epoch: got -1"):
        live.epoch = -1
    assert live.epoch is None
    live.epoch = 0
    assert live.epoch == 0


def test_a_target_on_what_the_query_cannot_see_is_refused_before_the_model_runs():
    for kind in (bt.KLPrior, bt.FrozenAttention):
        with pytest.raises(bt.BayesticketError, match=rf"^{kind.__name__}\.target: .*cannot attend to"):
            kind(query=1).attach(precise_model(TASK), TRAIN)


@pytest.mark.parametrize("kind", [bt.KLPrior, bt.FrozenAttention])
def test_a_target_has_one_head_or_as_many_as_are_meant(kind):
    by_head = torch.full((len(TRAIN), 3, 5), 0.2, dtype=torch.float64)
    for target, heads in ((by_head, {}), (by_head[:, :2], {"head": 0}), (by_head[:1], {})):
        with pytest.raises(
            bt.BayesticketError, match=rf"^{kind.__name__}\.target: got \d heads; accepted: 1 or \d heads"
        ):
            kind(target, **heads).attach(precise_model(TASK), TRAIN)
    for target, heads in ((by_head[:, :2], {}), (by_head[:, :1], {}), (by_head[:, :2], {"head": (1, 0)})):
        kind(target, **heads).attach(precise_model(TASK), TRAIN)


def test_a_place_that_the_model_lacks_is_refused_before_it_runs():
    for place, field in (({"layer": 1}, "layer"), ({"head": 2}, "head"), ({"query": 5}, "query")):
        for kind in (bt.EntropyPrior, bt.LinearAttention) if field != "query" else (bt.EntropyPrior,):
            with pytest.raises(bt.BayesticketError, match=rf"{field}: got"):
                kind(**place).attach(precise_model(TASK), TRAIN)


# What is at work ------------------------------------------------------------------------------------------------------


def test_edits_are_listed_apart_from_what_is_read():
    live = (bt.KLPrior() + bt.NoResidual("mlp") + bt.FrozenAttention()).attach(precise_model(TASK), TRAIN)
    edited = [name for name, _ in live.edits]
    assert edited == ["blocks.0.hook_mlp_out", "blocks.0.hook_resid_post", "blocks.0.attn.hook_pattern"]
    assert live.hook_names[-3:] == edited
    assert "blocks.0.attn.hook_pattern" in live.hook_names[:-3]


def test_two_projections_are_applied_twice_each():
    counts = []

    class CountingProjections(bt.Intervention):
        def project(self, context):
            counts.append(context.step)

    with (CountingProjections() + bt.KLPrior() + CountingProjections()).attach(precise_model(TASK), TRAIN) as live:
        assert counts == [0] * 4
        live.project()
        assert counts == [0] * 8
        live.project()
        assert counts == [0] * 8 + [1] * 4


def test_the_noise_of_a_step_is_the_same_however_often_it_is_asked_for():
    def noise(live):
        (gradient,) = torch.autograd.grad(live.penalty(), model.blocks[0].attn.W_Q, retain_graph=True)
        return gradient

    model = precise_model(TASK)
    with (bt.GradientNoise() + bt.GradientNoise()).attach(model, TRAIN, seed=3) as live:
        model(TRAIN.tokens)
        first = noise(live)
        assert torch.equal(first, noise(live))
        live.project()
        model(TRAIN.tokens)
        assert not torch.isclose(first, noise(live)).any()


def test_a_state_of_another_shape_is_copied_when_it_is_restored():
    @bt.spec
    class Growing(bt.Intervention):
        def init(self, context):
            return {"seen": torch.zeros(1)}

    live = Growing().attach(precise_model(TASK), TRAIN)
    stored = {"growing/seen": torch.ones(3)}
    live.restore_state(stored)
    stored["growing/seen"].zero_()
    assert live.state()["growing/seen"].tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(("since", "noticed_after"), [(0, 1), (1, 2), (2, 4), (3, 4), (4, 8)])
def test_state_on_the_object_is_looked_for_after_1_2_4_8_steps(since, noticed_after):
    @bt.spec
    class RememberingSteps(bt.Intervention):
        def __post_init__(self):
            object.__setattr__(self, "seen", [])

        def project(self, context):
            if context.step >= since:
                self.seen.append(context.step)

    def loop():
        with RememberingSteps().attach(precise_model(TASK), TRAIN) as live:
            for _ in range(20):
                steps.append(live.context.step)
                live.project()

    steps = []
    with pytest.raises(bt.BayesticketError, match="RememberingSteps: got state on itself"):
        loop()
    assert len(steps) == noticed_after


def test_noise_without_a_seed_never_repeats():
    model, seen = precise_model(TASK), []
    for _ in range(30):
        with bt.GradientNoise().attach(model, TRAIN) as live:
            model(TRAIN.tokens)
            (gradient,) = torch.autograd.grad(live.penalty(), model.blocks[0].attn.W_Q)
            seen.append(round(gradient.flatten()[0].item(), 12))
    assert len(set(seen)) == 30


def test_a_batch_that_is_drawn_anew_has_its_own_targets():
    # A teacher's attention depends on the distractors, which are what is drawn.
    teacher, model = bt.build_model(TASK, d_model=8, d_mlp=8, seed=9, dtype=torch.float64), precise_model(TASK)
    drawn = TASK.redraw(TRAIN, seed=5)
    with bt.KLPrior(teacher).attach(model, TRAIN) as live, torch.no_grad():
        model(TRAIN.tokens)
        first = live.penalty()
        live.context.replace(drawn)
        model(drawn.tokens)
        second = live.penalty()
    with bt.KLPrior(teacher).attach(model, drawn) as live, torch.no_grad():
        model(drawn.tokens)
        assert torch.equal(live.penalty(), second)
    assert first != second


def test_a_minibatch_has_the_target_that_all_examples_share():
    model, index = precise_model(TASK), torch.tensor([7, 2, 11])
    with bt.KLPrior("oracle").attach(model, TRAIN) as live, torch.no_grad():
        live.select(index)
        model(TRAIN.tokens[index])
        found = live.penalty()
    with bt.KLPrior("oracle").attach(model, TRAIN.select(index)) as live, torch.no_grad():
        model(TRAIN.tokens[index])
        torch.testing.assert_close(found, live.penalty())


# Weights --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("radius", [1e-3, 1.0, 50.0])
def test_a_norm_may_be_small_and_weights_may_hold_zeros(radius):
    model = precise_model(TASK)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter[..., 0] = 0.0
        model.blocks[0].mlp.b_in[1] = 1.0
    with bt.NormMatch(radius).attach(model, TRAIN):
        assert mlp_norm(model).item() == pytest.approx(radius, rel=1e-9)


def test_the_averaging_of_grokfast_is_a_number_from_0_to_below_1():
    assert bt.Grokfast(alpha=0.0).alpha == 0.0
    for alpha in (-0.1, 1.0, 1.5):
        with pytest.raises(bt.BayesticketError, match=f"^alpha: got {alpha}"):
            bt.Grokfast(alpha=alpha)
