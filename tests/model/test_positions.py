"""Models with more positions than their task is long, and what tells where a token stands, against plain ones."""

import copy
import pickle
import warnings
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from catalog import NAMES, interventions
from helpers import refused
from hypothesis import given
from hypothesis import strategies as st
from transformer_lens import HookedTransformer, HookedTransformerConfig

import bayesticket as bt
from bayesticket.model import (
    TokenRows,
    describe_model,
    draw_position_ids,
    full_forward,
    mounted,
    query_forward,
    rebuild_model,
    unexplained_hooks,
    why_full,
)
from bayesticket.seeding import seeded_generator

ROOM = 14
SHORT = bt.ModularAddition(p=7, positions="random", n_distractors=2)
LONG = bt.ModularAddition(p=7, positions="random", n_distractors=8)
POSITIONS = ("learned", "drawn", "none", "rotary")
TASKS = {"short": SHORT, "long": LONG}


def model_of(positions, task=SHORT, **options):
    """A model whose weights, biases among them, are not small; positions that are fixed at 0 stay so."""
    options = {"d_model": 16, "d_mlp": 24, "n_heads": 2, "n_ctx": ROOM, "dtype": torch.float64} | options
    model = bt.build_model(task, positions=positions, seed=1, **options)
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            if parameter.requires_grad:
                parameter.add_(0.4 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(index)))
    return model


def plain_model(model, **changes):
    """A HookedTransformer made by TransformerLens alone, with the weights of a model of a standard layer."""
    cfg = model.cfg
    sizes = {name: getattr(cfg, name) for name in ("d_model", "d_head", "n_heads", "d_mlp", "n_ctx", "d_vocab")}
    settings = sizes | {"d_vocab_out": cfg.d_vocab_out, "act_fn": "relu", "normalization_type": None, "device": "cpu"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        config = HookedTransformerConfig(n_layers=1, dtype=torch.float64, **settings | changes)
        plain = HookedTransformer(config)
    own = dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in plain.named_parameters():
            parameter.copy_(own[name])
    return plain


def fast(model, batch, ids=None):
    return query_forward(model, TokenRows(batch.tokens, model.cfg.n_heads, ids))


def full(model, batch, ids=None):
    return full_forward(model, batch.tokens, ids)


def gradients_of(model, logits, batch):
    model.zero_grad()
    F.cross_entropy(logits, batch.targets).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


# Against plain TransformerLens --------------------------------------------------------------------------------------


@pytest.mark.parametrize("forward", [fast, full])
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("positions", ["learned", "none", "rotary"])
def test_a_model_is_the_plain_one_of_transformerlens_at_any_length(positions, task, forward):
    model, batch = model_of(positions, residual=True), TASKS[task].split().train
    changes = {"positional_embedding_type": "rotary"} if positions == "rotary" else {}
    plain = plain_model(model, **changes)
    if positions == "none":
        assert not plain.pos_embed.W_pos.any()
    wanted, logits = plain(batch.tokens)[:, -1], forward(model, batch)
    torch.testing.assert_close(logits, wanted, rtol=1e-10, atol=1e-10)
    found, expected = gradients_of(model, logits, batch), gradients_of(plain, wanted, batch)
    assert set(expected) - set(found) == ({"pos_embed.W_pos"} if positions == "none" else set())
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-9, atol=1e-11, msg=name)


@pytest.mark.parametrize("forward", [fast, full])
@pytest.mark.parametrize("task", TASKS)
def test_drawn_positions_are_learned_ones_at_the_places_that_are_drawn(task, forward):
    model, batch = model_of("drawn", residual=True), TASKS[task].split().train
    plain, ids = plain_model(model), draw_position_ids(len(batch), batch.n_positions, ROOM, seeded_generator(0, "a"))
    for drawn in (ids, None):
        own = torch.arange(ROOM - batch.n_positions, ROOM) if drawn is None else drawn

        def at_places(embedding, hook, own=own):
            return plain.pos_embed.W_pos[own].expand_as(embedding)

        with mounted(plain, [("hook_pos_embed", at_places)]):
            wanted = plain(batch.tokens)[:, -1]
        logits = forward(model, batch, drawn)
        torch.testing.assert_close(logits, wanted, rtol=1e-10, atol=1e-10)
        found, expected = gradients_of(model, logits, batch), gradients_of(plain, wanted, batch)
        for name, gradient in expected.items():
            torch.testing.assert_close(found[name], gradient, rtol=1e-9, atol=1e-11, msg=name)
    torch.testing.assert_close(model(batch.tokens)[:, -1], logits, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("n_heads", [1, 2])
@pytest.mark.parametrize(
    "options", [{}, {"attention": "linear"}, {"normalization_type": "LN"}, {"residual": True}], ids=str
)
@pytest.mark.parametrize("positions", POSITIONS)
def test_the_forwards_agree_whatever_the_positions(positions, options, n_heads):
    model, batch = model_of(positions, n_heads=n_heads, **options), SHORT.split().train
    assert why_full(model) is None
    drawn = draw_position_ids(len(batch), batch.n_positions, ROOM, seeded_generator(0, "a"))
    for ids in (None, drawn) if positions == "drawn" else (None,):
        quick, slow = fast(model, batch, ids), full(model, batch, ids)
        torch.testing.assert_close(quick, slow, rtol=1e-10, atol=1e-10)
        found, expected = gradients_of(model, quick, batch), gradients_of(model, full(model, batch, ids), batch)
        for name, gradient in expected.items():
            torch.testing.assert_close(found[name], gradient, rtol=1e-9, atol=1e-11, msg=name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("positions", ["drawn", "none", "rotary"])
def test_the_forwards_agree_under_every_intervention(positions, name):
    model, train = model_of(positions), SHORT.split().train
    drawn = draw_position_ids(len(train), train.n_positions, ROOM, seeded_generator(0, "a"))
    batch = replace(train, position_ids=drawn if positions == "drawn" else None)
    recipe, before = interventions(SHORT, model)[name] or bt.Recipe(), copy.deepcopy(model.state_dict())
    losses, gradients = [], []
    for forward in (fast, full):
        with recipe.attach(model, batch, seed=0) as live:
            live.epoch = 20
            loss = F.cross_entropy(forward(model, batch, batch.position_ids), batch.targets) + live.penalty()
            model.zero_grad()
            loss.backward()
        losses.append(loss.detach())
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
        model.load_state_dict(before)  # some interventions project the weights
    torch.testing.assert_close(*losses, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-10)


def test_rotary_scores_depend_on_distances_alone():
    """Noise before the first operand moves everything else by one, which changes no score among the others."""
    model = model_of("rotary", n_heads=1)
    tokens = SHORT.split().train.tokens[:5]
    later = torch.cat([tokens[:, :1], tokens], 1)
    _, cache = model.run_with_cache(tokens)
    _, moved = model.run_with_cache(later)
    name = "blocks.0.attn.hook_attn_scores"
    torch.testing.assert_close(moved[name][:, :, -1, 1:], cache[name][:, :, -1], rtol=1e-10, atol=1e-10)


def test_without_positions_the_order_of_what_precedes_the_query_does_not_matter():
    model, tokens = model_of("none"), SHORT.split().train.tokens
    order = torch.tensor([3, 1, 4, 0, 2, 5])
    torch.testing.assert_close(model(tokens[:, order])[:, -1], model(tokens)[:, -1], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rotations_have_the_precision_of_the_weights_and_as_many_positions_as_the_model(dtype):
    model = bt.build_model(SHORT, d_model=8, n_ctx=5000, positions="rotary", dtype=dtype)
    attention = model.blocks[0].attn
    angles = torch.arange(5000, dtype=torch.float64)[:, None] / 10_000 ** (torch.arange(0, 8, 2) / 8)
    wanted = torch.cat([angles, angles], 1).sin()
    assert attention.rotary_sin.shape == (5000, 8)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-3  # of angles up to 5,000 in single precision
    torch.testing.assert_close(attention.rotary_sin.double(), wanted, rtol=0, atol=tolerance)


# Drawing ------------------------------------------------------------------------------------------------------------


@given(n_positions=st.integers(1, 9), more=st.integers(0, 9), seed=st.integers(0, 99))
def test_drawn_positions_are_in_order_within_the_room_and_the_query_is_last(n_positions, more, seed):
    n_ctx = n_positions + more
    ids = draw_position_ids(20, n_positions, n_ctx, torch.Generator().manual_seed(seed))
    assert ids.shape == (20, n_positions)
    assert (ids[:, 1:] > ids[:, :-1]).all()
    assert (ids[:, -1] == n_ctx - 1).all()
    assert (ids >= 0).all()


def test_every_set_of_positions_is_as_likely():
    ids = draw_position_ids(60_000, 3, 5, torch.Generator().manual_seed(0))
    counts = torch.unique(ids, dim=0, return_counts=True)[1]
    assert len(counts) == 6
    assert ((counts - 10_000).abs() < 400).all()  # more than four standard deviations


def test_another_draw_of_another_seed():
    draws = [draw_position_ids(5, 4, 20, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


# Copied, stored, refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("positions", POSITIONS)
def test_positions_are_copied_pickled_and_described_with_the_model(positions):
    model, tokens = model_of(positions), LONG.split().train.tokens
    assert unexplained_hooks(model) == []
    described = rebuild_model(**describe_model(model))
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), described):
        assert torch.equal(other(tokens), model(tokens))
        with torch.no_grad():
            other.embed.W_E.mul_(2.0)
            if positions in ("learned", "drawn"):
                other.pos_embed.W_pos.mul_(2.0)
        assert not torch.equal(other(tokens), model(tokens))
        if positions == "none":
            assert not other.pos_embed.W_pos.requires_grad
    if positions == "drawn":  # a copy's hook reads its own weights
        copied = copy.deepcopy(model)
        with torch.no_grad():
            copied.pos_embed.W_pos.zero_()
        assert not torch.equal(copied(tokens), model(tokens))


def test_a_hook_of_the_users_on_position_embeddings_needs_the_full_forward():
    model = model_of("drawn")
    assert why_full(model, ["hook_pos_embed"]) == "hook_pos_embed is not computed by the query-only forward"
    model.hook_pos_embed.add_hook(lambda tensor, hook: tensor)
    assert why_full(model) == "hook_pos_embed is not computed by the query-only forward"


def test_an_edit_of_position_embeddings_sees_those_that_are_drawn():
    model, batch = model_of("drawn"), SHORT.split().train
    ids = draw_position_ids(len(batch), batch.n_positions, ROOM, seeded_generator(0, "a"))
    seen = []
    with mounted(model, [("hook_pos_embed", lambda tensor, hook: seen.append(tensor))]):
        full(model, batch, ids)
        model(batch.tokens)
    assert torch.equal(seen[0], model.pos_embed.W_pos[ids])
    assert torch.equal(seen[1][0], model.pos_embed.W_pos[-batch.n_positions :])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n_ctx": 0}, "n_ctx: got 0; accepted: a whole number of at least 1"),
        ({"n_ctx": 10**9}, "n_ctx: got 1000000000; accepted: a whole number at most 16,384"),
        ({"n_ctx": 5}, "n_ctx: got 5; accepted: at least 6, the length of the task's sequences"),
        ({"positions": "absolute"}, "positions: got 'absolute'; accepted: 'learned', 'drawn', 'none', 'rotary'"),
        ({"positions": "drawn"}, "n_ctx: got None; accepted: a number of positions larger than the task's"),
        ({"positions": "rotary", "d_model": 6, "n_heads": 2}, "n_heads: got heads of odd width 3"),
    ],
)
def test_what_cannot_be_built_is_refused(options, said):
    refused(lambda: bt.build_model(SHORT, **options), said)


def test_positions_of_a_batch_are_refused_by_models_that_do_not_draw_them():
    batch = SHORT.split().train
    placed = bt.Examples(batch.tokens, batch.targets, batch.informative, position_ids=batch.tokens * 0 + 13)
    refused(lambda: bt.measure(model_of("learned"), placed, bt.Loss()), "batch: got position_ids; accepted: a batch ")
    bt.measure(model_of("drawn"), placed, bt.Loss())
    refused(lambda: bt.measure(model_of("drawn", n_ctx=13), placed, bt.Loss()), "batch: got position 13; accepted: ")


# Measures -----------------------------------------------------------------------------------------------------------


def gradient_in_interaction(model, batch, ids):
    """‖∂L/∂M‖ from the scores and the residual stream of TransformerLens' own forward, one example at a time."""
    kept = {}

    def keep(tensor, hook):
        kept[hook.name] = tensor

    names = ("hook_resid_pre", "attn.hook_attn_scores")
    with mounted(model, [(f"blocks.0.{name}", keep) for name in names]):
        loss = F.cross_entropy(full(model, batch, ids), batch.targets)
    stream, scores = (kept[f"blocks.0.{name}"] for name in names)
    (d_scores,) = torch.autograd.grad(loss, scores)
    total = torch.zeros(scores.shape[1], model.cfg.d_model + 1, model.cfg.d_model + 1, dtype=stream.dtype)
    for x, d in zip(stream, d_scores, strict=True):
        x = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], 1)
        for head in range(len(d)):
            total[head] += torch.outer(x[-1], d[head, -1] @ x)
    return (total / model.cfg.d_head**0.5).norm().item()


@pytest.mark.parametrize("normalization_type", [None, "LNPre"])
@pytest.mark.parametrize("positions", ["learned", "drawn", "none"])
def test_the_attention_gradient_is_right_wherever_tokens_are(positions, normalization_type):
    model, batch = model_of(positions, normalization_type=normalization_type), SHORT.split().train
    drawn = draw_position_ids(len(batch), batch.n_positions, ROOM, seeded_generator(0, "a"))
    for ids in (None, drawn) if positions == "drawn" else (None,):
        placed = bt.Examples(batch.tokens, batch.targets, batch.informative, position_ids=ids)
        found = bt.measure(model, placed, bt.AttentionGradient(), bt.Loss())
        if normalization_type is None:
            wanted = gradient_in_interaction(model, batch, ids)
            assert found["attention_gradient"] == pytest.approx(wanted, rel=1e-9)
        other = bt.measure(model, placed, bt.AttentionGradient(), bt.Loss(), forward="full")
        assert dict(other) == pytest.approx(dict(found), rel=1e-9)


VALUES = [
    bt.SeparabilityMargin(of="raw"),
    bt.ExplainingAway(),
    bt.StructuralCondition("derived"),
    bt.PairwiseCondition(),
]


@pytest.mark.parametrize("measure", VALUES, ids=repr)
@pytest.mark.parametrize("positions", ["drawn", "rotary"])
def test_measures_of_a_table_of_values_refuse_models_without_one(positions, measure):
    model, batch = model_of(positions, n_heads=1), SHORT.split().test
    refused(lambda: bt.measure(model, batch, measure), "got a model with positio", "; accepted: ")


@pytest.mark.parametrize("measure", VALUES, ids=repr)
def test_measures_of_a_table_of_values_are_those_of_a_model_without_more_positions(measure):
    batch = SHORT.split().test
    for positions in ("learned", "none"):
        roomy = model_of(positions, n_heads=1)
        tight = bt.build_model(SHORT, d_model=16, d_mlp=24, dtype=torch.float64, positions=positions)
        with torch.no_grad():
            for name, parameter in tight.named_parameters():
                parameter.copy_(roomy.get_parameter(name)[: len(parameter)])
        wanted = bt.measure(tight, batch, measure)
        assert dict(bt.measure(roomy, batch, measure)) == pytest.approx(dict(wanted), rel=1e-12, nan_ok=True)


@pytest.mark.parametrize("measure", [bt.AttentionGradient(), bt.PriorGradient(), bt.InteractionNorm()], ids=repr)
def test_measures_of_one_interaction_matrix_refuse_rotary_positions(measure):
    model, batch = model_of("rotary"), SHORT.split().test
    refused(lambda: bt.measure(model, batch, measure), "got a model with positional_embedding_type='rotary'")


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_teacher_may_have_more_positions_than_its_pupil(positions):
    teacher, batch = model_of(positions), SHORT.split().train
    pupil = bt.build_model(SHORT, d_model=8, n_heads=2, dtype=torch.float64)
    with bt.KLPrior(teacher).attach(pupil, batch) as live:
        pupil(batch.tokens)
        assert live.penalty() > 0
    refused(lambda: bt.KLPrior(pupil).attach(model_of(positions), LONG.split().train), "teacher: got a model with 6 ")
