"""Sums of interventions, and the hooks of a recipe that stands alone."""

import pytest
import torch
from helpers import precise_model

import bayesticket as bt

TASK = bt.ModularAddition(p=7)
TRAIN = TASK.split(train_fraction=0.4).train
PATTERN = "blocks.0.attn.hook_pattern"


def last_row(model, tokens, hooks=()):
    """The attention of the last position under hooks."""
    seen = []
    keep = (PATTERN, lambda pattern, hook: seen.append(pattern[:, :, -1]))
    with torch.no_grad(), model.hooks(fwd_hooks=[*hooks, keep]):
        model(tokens)
    return seen[0]


def test_the_sum_of_a_list_is_its_composition():
    a, b, c = bt.KLPrior(), bt.NormMatch(2.0), bt.EntropyPrior()
    assert sum([a, b, c]) == a + b + c
    assert sum([a]) == bt.Recipe((a,)) == None + a == a + None
    assert sum([a + b, c]) == a + (b + c)


@pytest.mark.parametrize("other", [1, 2, 0.5, True, "kl", bt.KLPrior])
def test_only_interventions_are_composed(other):
    for compose in (lambda: other + bt.NormMatch(2.0), lambda: bt.NormMatch(2.0) + other):
        with pytest.raises((bt.BayesticketError, TypeError)):
            compose()


def test_hooks_of_a_task_are_made_for_its_examples():
    # A teacher's attention depends on the distractors too, which are drawn by a seed.
    teacher, model, examples = precise_model(TASK, seed=9), precise_model(TASK), TASK.examples(seed=0)
    hooks = bt.FrozenAttention(teacher).hooks(TASK)
    assert torch.equal(last_row(model, examples.tokens, hooks), last_row(teacher, examples.tokens))


def test_hooks_act_from_left_to_right_each_with_a_state_of_its_own():
    @bt.spec
    class DoublingAndAdding(bt.Intervention):
        """Doubles the MLP's output, and adds to it what its state holds."""

        amount: float = 1.0

        def init(self, context):
            return {"amount": torch.tensor(self.amount, dtype=torch.float64)}

        def edits(self, context):
            return [("blocks.0.hook_mlp_out", lambda tensor, hook: 2 * tensor + context.state["amount"])]

    seen = []
    keep = ("blocks.0.hook_mlp_out", lambda tensor, hook: seen.append(tensor))
    model = precise_model(TASK)
    with torch.no_grad():
        for hooks in ([], (DoublingAndAdding(1.0) + DoublingAndAdding(5.0)).hooks(TRAIN)):
            with model.hooks(fwd_hooks=[*hooks, keep]):
                model(TRAIN.tokens)
    torch.testing.assert_close(seen[1], 2 * (2 * seen[0] + 1.0) + 5.0)


@pytest.mark.parametrize(
    "use",
    [lambda recipe: recipe.hooks(TRAIN), lambda recipe: recipe.attach(precise_model(TASK), TRAIN)],
    ids=["hooks", "attach"],
)
def test_one_query_by_two_names_is_replaced_once(use):
    # That −1 and 4 are the same query is known where sequences have a length.
    recipe = bt.FrozenAttention("uniform") + bt.FrozenAttention(query=4)
    with pytest.raises(bt.BayesticketError, match="which both replace the pattern of layer 0"):
        use(recipe)
    use(bt.FrozenAttention("uniform") + bt.FrozenAttention(query=3))


def test_two_parts_that_replace_the_same_attention_are_refused_when_they_are_composed():
    with pytest.raises(bt.BayesticketError, match="which both replace the pattern of layer 0"):
        bt.FrozenAttention("uniform") + bt.FrozenAttention()


@pytest.mark.parametrize(
    "recipe",
    [
        bt.FrozenAttention(head=0) + bt.FrozenAttention(head=1),
        bt.FrozenAttention(query=3) + bt.FrozenAttention(),
        bt.FrozenAttention(layer=0) + bt.FrozenAttention(layer=1),
        bt.LinearAttention(head=0) + bt.FrozenAttention(head=1),
        bt.FrozenAttention() + bt.MixedAttention(weight=0.5) + bt.KLPrior(),
    ],
    ids=repr,
)
def test_parts_that_replace_different_attention_go_together(recipe):
    assert len(recipe.hooks(TRAIN)) >= 2
