"""Models without a residual path, or with linear attention: their own hooks see what others edit, and go with them."""

import copy
import itertools
import pickle

import pytest
import torch

import bayesticket as bt
from bayesticket.model import FORWARDS, TokenRows, full_forward, mounted, query_forward, unexplained_hooks

TASK = bt.ModularAddition(p=7)
BATCH = TASK.split().test
ARCHITECTURES = [
    dict(zip(("residual", "attention", "n_layers"), each, strict=True))
    for each in itertools.product([True, False], ["softmax", "linear"], [1, 2])
]


def model_of(**options):
    return bt.build_model(TASK, d_model=16, d_mlp=32, n_heads=2, seed=1, dtype=torch.float64, **options)


def logits_of(model, forward):
    if forward == "full":
        return full_forward(model, BATCH.tokens)
    return query_forward(model, TokenRows(BATCH.tokens, model.cfg.n_heads))


def halved(tensor, hook):
    return tensor / 2


@pytest.mark.parametrize("forward", FORWARDS)
@pytest.mark.parametrize("attention", ["softmax", "linear"])
@pytest.mark.parametrize(
    ("name", "parameters"),
    [("hook_attn_out", ("attn.W_O", "attn.b_O")), ("hook_mlp_out", ("mlp.W_out", "mlp.b_out"))],
)
def test_edits_that_are_mounted_later_reach_the_logits(name, parameters, attention, forward):
    """Half of what attention or the MLP gives is what half of its last weights give."""
    model, expected = model_of(residual=False, attention=attention), model_of(residual=False, attention=attention)
    with torch.no_grad():
        for parameter in parameters:
            expected.get_parameter(f"blocks.0.{parameter}").div_(2)
    before, wanted = logits_of(model, forward), logits_of(expected, forward)
    hooks = [(f"blocks.0.{name}", halved)]
    with mounted(model, hooks):
        torch.testing.assert_close(logits_of(model, forward), wanted)
    with model.hooks(fwd_hooks=hooks):
        torch.testing.assert_close(logits_of(model, forward), wanted)
    assert torch.equal(logits_of(model, forward), before)


@pytest.mark.parametrize("options", ARCHITECTURES, ids=str)
def test_a_models_own_hooks_are_copied_and_pickled_with_it(options):
    model = model_of(**options)
    wanted = full_forward(model, BATCH.tokens)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(full_forward(other, BATCH.tokens), wanted)
        assert unexplained_hooks(other) == []


def test_an_intervention_that_takes_the_path_away_sees_edits_to_its_right():
    """The path is away, and what replaces it is what was made of attention's output, in either order."""

    @bt.spec
    class HalvedAttention(bt.Intervention):
        def edits(self, context):
            return [("blocks.0.hook_attn_out", halved)]

    model = model_of(residual=True)
    expected = model_of(residual=False)
    with torch.no_grad():
        expected.blocks[0].attn.W_O.div_(2), expected.blocks[0].attn.b_O.div_(2)
    for recipe in (bt.NoResidual() + HalvedAttention(), HalvedAttention() + bt.NoResidual()):
        with recipe.attach(model, BATCH):
            torch.testing.assert_close(full_forward(model, BATCH.tokens), full_forward(expected, BATCH.tokens))
