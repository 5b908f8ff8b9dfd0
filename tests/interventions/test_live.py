"""A recipe at work in a training loop of the user's, against the same loop written by hand."""

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from helpers import precise_model

import bayesticket as bt
from bayesticket.interventions.live import term_names

TASK = bt.ModularAddition(p=7)
SPLIT = TASK.split(train_fraction=0.4)
TRAIN = SPLIT.train
PATTERN = "blocks.0.attn.hook_pattern"


def task_loss(model, batch=TRAIN):
    return F.cross_entropy(model(batch.tokens)[:, -1], batch.targets)


def steps(model, loss, *, count, after=lambda: None, before=lambda step: None):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=1.0)
    losses = []
    for step in range(count):
        before(step)
        total = loss()
        total.backward()
        optimizer.step()
        optimizer.zero_grad()
        after()
        losses.append(total.item())
    return losses


def test_a_loop_with_attach_is_the_loop_written_by_hand():
    recipe = (
        bt.KLPrior(strength=bt.Anneal(1.0, 0.0, last=6))
        + bt.MixedAttention(torch.full((5,), 0.2, dtype=torch.float64), weight=0.3)
        + bt.EntropyPrior(strength=0.2, head=1)
        + bt.QKPenalty(strength=0.1)
        + bt.NormMatch(radius=3.0)
    )
    model, other = precise_model(TASK), precise_model(TASK)
    with recipe.attach(model, TRAIN) as live:
        losses = steps(
            model,
            lambda: task_loss(model) + live.penalty(),
            count=8,
            after=live.project,
            before=lambda step: setattr(live, "epoch", step),
        )

    # By hand: one hook that keeps the pattern, moves it, and keeps it again; three formulas; one rescaling.
    kept, epoch, oracle = {}, [0], torch.tensor([0.5, 0, 0.5, 0, 0], dtype=torch.float64)
    mlp = [value for name, value in other.named_parameters() if ".mlp." in name]

    def mix(pattern, hook):
        kept["before"] = pattern
        kept["after"] = torch.cat([pattern[:, :, :-1], 0.7 * pattern[:, :, -1:] + 0.3 / 5], 2)
        return kept["after"]

    def loss():
        value = task_loss(other)
        strength = max(0.0, 1 - epoch[0] / 6)
        log_alpha = kept["before"][:, :, -1].clamp_min(1e-300).log()
        divergence = (-(oracle * log_alpha).sum(-1) - torch.log(torch.tensor(2.0, dtype=torch.float64))).mean()
        alpha = kept["after"][:, 1, -1]
        entropy = -(alpha * alpha.log()).sum(-1).mean()
        attention = other.blocks[0].attn
        return (
            value
            + strength * divergence
            + 0.2 * entropy
            + 0.1 * (attention.W_Q.square().sum() + attention.W_K.square().sum())
        )

    def rescale():
        with torch.no_grad():
            norm = torch.cat([value.flatten() for value in mlp]).norm()
            for value in mlp:
                value.mul_(3.0 / norm)

    rescale()
    with other.hooks(fwd_hooks=[(PATTERN, mix)]):
        expected = steps(other, loss, count=8, after=rescale, before=lambda step: epoch.__setitem__(0, step))
    assert losses == pytest.approx(expected, rel=1e-10)
    for (name, found), value in zip(model.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(found, value, rtol=1e-8, atol=1e-9, msg=name)


def test_terms_are_named_and_add_up():
    model = precise_model(TASK)
    recipe = bt.KLPrior() + bt.FrozenAttention() + bt.QKPenalty() + bt.KLPrior("uniform")
    with recipe.attach(model, TRAIN) as live:
        model(TRAIN.tokens)
        terms = live.penalties()
        assert list(terms) == ["kl_prior", "qk_penalty", "kl_prior_2"]
        assert live.penalty().item() == pytest.approx(sum(term.item() for term in terms.values()))


def test_a_recipe_without_penalties_costs_nothing():
    with bt.Recipe().attach(precise_model(TASK), TRAIN) as live:
        assert live.penalty().item() == 0.0
        assert live.penalties() == {}


@pytest.mark.parametrize("count", [2, 3, 12])
def test_parts_of_one_kind_are_numbered(count):
    names = term_names([bt.KLPrior(), *[bt.KLPrior("uniform")] * (count - 1), bt.EntropyPrior()])
    assert names == ["kl_prior", *[f"kl_prior_{number}" for number in range(2, count + 1)], "entropy_prior"]


# --- what is refused ---


def test_a_penalty_before_any_forward_pass_is_refused():
    model = precise_model(TASK)
    with bt.KLPrior().attach(model, TRAIN) as live, pytest.raises(bt.BayesticketError, match="before penalty"):
        live.penalty()


def test_a_penalty_after_the_context_is_refused():
    model = precise_model(TASK)
    with bt.KLPrior().attach(model, TRAIN) as live:
        model(TRAIN.tokens)
    with pytest.raises(bt.BayesticketError, match="the model has not run since attach"):
        live.penalty()


def test_a_penalty_on_another_number_of_sequences_is_refused():
    model = precise_model(TASK)
    message = rf"the model ran on 5 sequences; accepted: the {len(TRAIN)} of the batch"
    with bt.KLPrior().attach(model, TRAIN) as live:
        model(TRAIN.tokens[:5])
        with pytest.raises(bt.BayesticketError, match=message):
            live.penalty()


@pytest.mark.parametrize("attached", [True, False])
def test_edits_by_sequence_refuse_another_number_of_sequences(attached):
    task = bt.ModularAddition(p=7, positions="random")
    model, train = bt.build_model(task, d_model=8, d_mlp=8), task.split().train
    frozen = bt.FrozenAttention("oracle")
    context = frozen.attach(model, train) if attached else model.hooks(fwd_hooks=frozen.hooks(train))
    with context, pytest.raises(bt.BayesticketError, match=rf"5 sequences.*the {len(train)} sequences"):
        model(train.tokens[:5])


@pytest.mark.parametrize(
    ("recipe", "field"),
    [
        (bt.KLPrior(strength=bt.Anneal()), "KLPrior.strength"),
        (bt.GradientNoise(fraction=bt.Window()), "GradientNoise.fraction"),
        (bt.MixedAttention(weight=bt.Anneal()), "MixedAttention.weight"),
    ],
)
def test_a_schedule_without_an_epoch_is_refused(recipe, field):
    model = precise_model(TASK)

    def use(live):
        model(TRAIN.tokens)
        return live.penalty()

    with recipe.attach(model, TRAIN) as live:
        with pytest.raises(bt.BayesticketError, match=rf"{field}: got a schedule, but no epoch.*live\.epoch"):
            use(live)
        live.epoch = 3
        use(live)


def test_entering_twice_is_refused_and_leaves_the_first_at_work():
    model = precise_model(TASK)
    plain = task_loss(model).item()
    with bt.FrozenAttention().attach(model, TRAIN) as live:
        inside = task_loss(model).item()
        with pytest.raises(bt.BayesticketError, match="already at work"), live:
            pass
        assert task_loss(model).item() == inside != plain
    assert task_loss(model).item() == plain


@pytest.mark.parametrize("batch", [TASK, SPLIT, TRAIN.tokens, None])
def test_only_half_of_a_split_can_be_attached(batch):
    with pytest.raises((bt.BayesticketError, TypeError), match="batch"):
        bt.KLPrior().attach(precise_model(TASK), batch)


def test_hooks_of_a_task_whose_positions_are_drawn_are_refused():
    with pytest.raises(bt.BayesticketError, match="half of a split"):
        bt.FrozenAttention().hooks(bt.ModularAddition(p=7, positions="random"))


# --- entering, leaving, projecting ---


def test_entering_projects_once_and_project_every_time():
    model = precise_model(TASK)
    live = bt.NormMatch(radius=3.0).attach(model, TRAIN)

    def norm():
        return torch.nn.utils.get_total_norm([v for n, v in model.named_parameters() if ".mlp." in n]).item()

    def double():
        with torch.no_grad():
            model.blocks[0].mlp.W_in.mul_(2)

    assert norm() != pytest.approx(3.0)
    with live:
        assert norm() == pytest.approx(3.0)
        double()
    with live:
        assert norm() > 3.1
        live.project()
        assert norm() == pytest.approx(3.0)
        double()
        live.project()
        assert norm() == pytest.approx(3.0)


def test_project_counts_the_steps():
    with bt.Recipe().attach(precise_model(TASK), TRAIN) as live:
        assert live.context.step == 0
        live.project()
        live.project()
        assert live.context.step == 2


def test_no_graph_outlives_the_context():
    model = precise_model(TASK)
    with bt.KLPrior().attach(model, TRAIN) as live:
        kept = []
        with model.hooks(fwd_hooks=[(PATTERN, lambda pattern, hook: kept.append(weakref.ref(pattern)))]):
            loss = task_loss(model) + live.penalty()
        loss.backward()
        del loss
    gc.collect()
    assert live is not None
    assert kept[0]() is None


def test_masks_of_frozen_parameters_are_held_without_gradients():
    model = bt.build_model(TASK, d_model=8, d_mlp=16, biases=False)
    mask = torch.zeros(16, dtype=torch.bool)
    with bt.TicketMask({"blocks.0.mlp.b_in": mask}).attach(model, TRAIN) as live:
        task_loss(model).backward()
        live.gradients()
        live.project()
    assert not model.blocks[0].mlp.b_in.any()


# --- the user's own hooks ---


def test_the_users_hooks_inside_do_not_drop_ours():
    model = precise_model(TASK)
    with bt.FrozenAttention("uniform").attach(model, TRAIN):
        ours = task_loss(model).item()
        seen = []
        with model.hooks(fwd_hooks=[(PATTERN, lambda pattern, hook: seen.append(pattern[:, :, -1]))]):
            assert task_loss(model).item() == ours
        assert task_loss(model).item() == ours
        model.run_with_cache(TRAIN.tokens)
        model.run_with_hooks(TRAIN.tokens, fwd_hooks=[(PATTERN, lambda pattern, hook: None)])
        assert task_loss(model).item() == ours
    torch.testing.assert_close(seen[0], torch.full_like(seen[0], 0.2))
    assert task_loss(model).item() != ours


@pytest.mark.parametrize("permanent", [False, True])
def test_ours_do_not_drop_the_users(permanent):
    model = precise_model(TASK)
    scale = ("blocks.0.mlp.hook_post", lambda tensor, hook: tensor * 0.5)
    model.add_hook(*scale, is_permanent=permanent)
    alone = task_loss(model).item()
    assert alone != task_loss(precise_model(TASK)).item()
    with bt.FrozenAttention("uniform").attach(model, TRAIN):
        both = task_loss(model).item()
    assert task_loss(model).item() == alone
    other = precise_model(TASK)
    with other.hooks(fwd_hooks=[scale, *bt.FrozenAttention("uniform").hooks(TRAIN)]):
        assert task_loss(other).item() == pytest.approx(both, rel=1e-12)


def test_ours_inside_the_users_context_do_not_drop_the_users():
    model = precise_model(TASK)
    scale = ("blocks.0.mlp.hook_post", lambda tensor, hook: tensor * 0.5)
    with model.hooks(fwd_hooks=[scale]):
        alone = task_loss(model).item()
        with bt.FrozenAttention("uniform").attach(model, TRAIN):
            assert task_loss(model).item() != alone
        assert task_loss(model).item() == alone
    assert task_loss(model).item() == task_loss(precise_model(TASK)).item() != alone


def test_two_recipes_attached_at_once_act_one_after_the_other():
    model = precise_model(TASK)
    seen = []
    first, second = bt.FrozenAttention("uniform"), bt.KLPrior("uniform")
    with first.attach(model, TRAIN), second.attach(model, TRAIN) as live:
        with model.hooks(fwd_hooks=[(PATTERN, lambda pattern, hook: seen.append(pattern))]):
            model(TRAIN.tokens)
        assert live.penalty().item() == pytest.approx(0, abs=1e-12)
