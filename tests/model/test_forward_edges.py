"""The query-only forward on small and lopsided batches, and how batches are made of rows."""

import copy

import pytest
import torch

import bayesticket as bt
import bayesticket.model.forward as fast_forward
from bayesticket.model import (
    FAST_HOOKS,
    TokenRows,
    choose_forward,
    full_forward,
    mounted,
    query_forward,
    why_full,
)
from bayesticket.model.variants import has_no_hooks_but_cuts, no_residual_hooks

TASK = bt.ModularAddition(p=7)
TOKENS = TASK.split(train_fraction=0.4).train.tokens

# Which positions hold one token throughout: none, the last alone, all but one, all.
BATCHES = {
    "one sequence": TOKENS[:1],
    "one sequence three times": TOKENS[:1].expand(3, -1).contiguous(),
    "two sequences": TOKENS[:2],
    "all but the first position constant": torch.cat([torch.arange(6)[:, None], TOKENS[:1, 1:].expand(6, -1)], 1),
    "all but the second position constant": torch.tensor([[3, token, 2, 2, 7] for token in (0, 5, 5, 1)]),
    "all but the last position constant": torch.tensor([[3, 1, 2, 2, token] for token in (0, 5, 5, 1)]),
    "no position constant": torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5], [1, 1, 1, 1, 1]]),
    "one position": torch.tensor([[0], [3], [3]]),
    "one position, constant": torch.tensor([[3], [3]]),
    "of two positions the last constant": torch.tensor([[0, 7], [3, 7], [2, 7]]),
    "the task's": TOKENS,
}
batches = pytest.mark.parametrize("tokens", BATCHES.values(), ids=BATCHES)


def a_model(n_heads=2, **options):
    model = bt.build_model(TASK, d_model=8, n_heads=n_heads, d_mlp=16, seed=1, dtype=torch.float64, **options)
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(index)))
    return model


def gradients(model, logits):
    weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(9), dtype=logits.dtype)
    found = torch.autograd.grad((logits * weights).sum(), list(model.parameters()), allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(model.parameters(), found, strict=True)]


def reads_and_doubles(tensor, hook):
    return 2 * tensor


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("name", [None, *FAST_HOOKS])
def test_hidden_units_are_mixed_unless_a_hook_lies_between_values_and_them(name, residual, monkeypatch):
    model, between = a_model(1, residual=residual), ("hook_z", "hook_attn_out", "hook_resid_mid")
    mixed = []
    readout = fast_forward._readout_of_mixed
    monkeypatch.setattr(fast_forward, "_readout_of_mixed", lambda *given: mixed.append(1) or readout(*given))
    hooks = [] if name is None else [(name, reads_and_doubles)]
    with mounted(model, hooks):
        quick = query_forward(model, TokenRows(TOKENS, 1))
        torch.testing.assert_close(quick, full_forward(model, TOKENS), rtol=1e-10, atol=1e-10)
    assert bool(mixed) == (name is None or not name.endswith(between))
    if residual:
        with mounted(model, [*hooks, *no_residual_hooks(0)]):
            torch.testing.assert_close(query_forward(model, TokenRows(TOKENS, 1)), full_forward(model, TOKENS))
    again = copy.deepcopy(model)
    assert has_no_hooks_but_cuts(again.hook_dict["blocks.0.hook_resid_mid"])


@batches
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("n_heads", [1, 2, 4])
def test_the_forwards_agree_on_any_batch(tokens, n_heads, residual):
    model = a_model(n_heads, residual=residual)
    slow, quick = full_forward(model, tokens), query_forward(model, TokenRows(tokens, n_heads))
    torch.testing.assert_close(quick, slow, rtol=1e-10, atol=1e-10)
    for found, expected in zip(gradients(model, quick), gradients(model, slow), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@batches
@pytest.mark.parametrize("frozen", [("W_V", "b_V"), ("W_Q", "W_K", "b_Q", "b_K")])
def test_the_forwards_agree_where_a_part_is_frozen(tokens, frozen):
    # Of the mixing's two gradients, in the values and in the weights, only one is asked for.
    model = a_model()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    free = [
        value for name, value in model.blocks[0].attn.named_parameters() if name[:2] in "W_b_" and name not in frozen
    ]
    for parameter in free:
        parameter.requires_grad_(True)
    slow, quick = full_forward(model, tokens), query_forward(model, TokenRows(tokens, 2))
    for found, expected in zip(
        torch.autograd.grad(quick.square().sum(), free),
        torch.autograd.grad(slow.square().sum(), free),
        strict=True,
    ):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@batches
def test_rows_are_the_distinct_tokens_of_each_position(tokens):
    rows = TokenRows(tokens, 2)
    assert rows.n_sequences == len(tokens)
    assert rows.n_rows == len({(t, int(token)) for row in tokens for t, token in enumerate(row)})
    assert torch.equal(rows.tokens[rows.index], tokens)
    assert torch.equal(rows.positions[rows.index], torch.arange(tokens.shape[1]).expand_as(tokens))
    # A constant position holds one token throughout; the others do not, but one is kept for the bags.
    constant = rows.constant_positions.tolist()
    assert all(len(tokens[:, t].unique()) == 1 for t in constant)
    assert torch.equal(rows.constant_rows, rows.index[0, constant])
    left = [t for t in range(tokens.shape[1]) if t not in constant]
    assert left == [0] or all(len(tokens[:, t].unique()) > 1 for t in left)
    assert rows.bags.shape == (2 * len(tokens), len(left))
    # As many queries as there are tokens at the last position.
    assert len(rows.query_rows) == len(tokens[:, -1].unique())
    assert torch.equal(rows.query_rows[rows.query], rows.index[:, -1])


def test_a_batch_is_its_sequences_one_by_one():
    model = a_model()
    whole = query_forward(model, TokenRows(TOKENS, 2))
    for index in (0, 5, len(TOKENS) - 1):
        alone = query_forward(model, TokenRows(TOKENS[index : index + 1], 2))
        torch.testing.assert_close(alone[0], whole[index], rtol=1e-10, atol=1e-10)


def test_hooks_see_a_query_axis_of_length_one():
    model, shapes = a_model(), {}

    def keep(tensor, hook):
        shapes[hook.name] = tuple(tensor.shape)

    with mounted(model, [(name, keep) for name in FAST_HOOKS]):
        query_forward(model, TokenRows(TOKENS, 2))
    n, names = len(TOKENS), ("hook_attn_scores", "hook_pattern")
    assert set(shapes) == set(FAST_HOOKS)
    for name, shape in shapes.items():
        assert shape[:3] == (n, 2, 1) if name.endswith(names) else shape[:2] == (n, 1), name


# The choice of a forward


def test_the_choice_of_a_forward_names_the_first_reason(caplog):
    model = a_model()
    assert choose_forward("full", model) == "full"
    assert choose_forward("fast", model, FAST_HOOKS, [None, None]) == "fast"
    assert choose_forward("auto", model, FAST_HOOKS, [None, None]) == "fast"
    assert caplog.records == []
    assert choose_forward("auto", model, reasons=[None, "of this", "of that"]) == "full"
    assert [record.getMessage() for record in caplog.records] == ["using the full forward, because of this"]
    with pytest.raises(bt.BayesticketError, match="because of this"):
        choose_forward("fast", model, reasons=[None, "of this"])
    with pytest.raises(bt.BayesticketError, match="because hook_embed is not computed"):
        choose_forward("fast", model, [*FAST_HOOKS, "hook_embed"], ["of this"])


def test_measuring_in_a_loop_says_once_why_it_takes_the_full_forward(caplog):
    task = bt.ModularAddition(p=7)
    for seed in range(3):
        model = bt.build_model(task, seed=seed, d_model=8, d_mlp=8)
        model.blocks[0].ln1.register_forward_hook(lambda module, given, output: output)
        bt.measure(model, task.split().test, bt.Loss(), bt.KLToOracle())
    said = [record.getMessage() for record in caplog.records]
    assert said == ["using the full forward, because the module 'blocks.0.ln1' carries a PyTorch hook of its own"]


def test_a_deeper_model_is_all_its_layers_and_training_says_once_that_it_takes_the_full_forward(caplog, tmp_path):
    task = bt.ModularAddition(p=7)
    deep = bt.Architecture(d_model=8, d_mlp=8, n_layers=3, attention="linear", residual=False)
    run = bt.train(task, bt.KLPrior(layer=2), model=deep, epochs=20, measures=[bt.KLToOracle(layer=2)])
    assert [record.getMessage() for record in caplog.records] == [
        "using the full forward, because the model has n_layers=3"
    ]
    assert run.model.cfg.n_layers == 3
    assert "kl_to_oracle[layer=2]" in run.curves
    tokens = task.split().test.tokens
    loaded = bt.Run.load(run.save(tmp_path / "run"))
    assert torch.equal(loaded.model(tokens), run.model(tokens))
    patterns = run.model.run_with_cache(tokens)[1]
    for layer in range(3):
        scores, pattern = (patterns[f"blocks.{layer}.attn.{name}"] for name in ("hook_attn_scores", "hook_pattern"))
        torch.testing.assert_close(pattern, bt.interventions.linear_attention(scores))
        stream, out = patterns[f"blocks.{layer}.hook_resid_mid"], patterns[f"blocks.{layer}.hook_attn_out"]
        assert torch.equal(stream, out)
    built = bt.build_model(task, d_model=8, d_mlp=8, n_layers=3, attention="linear", residual=False)
    start = bt.train(task, model=built, epochs=1).curves.loc[0]
    assert start.equals(bt.train(task, model=deep, epochs=1).curves.loc[0])


def test_a_hook_of_the_users_on_a_point_that_the_fast_forward_lacks_is_a_reason():
    model = a_model()
    assert why_full(model) is None
    with model.hooks(fwd_hooks=[("blocks.0.attn.hook_q", lambda tensor, hook: tensor)]):
        assert "hook_q is not computed" in str(why_full(model))
    with model.hooks(fwd_hooks=[("blocks.0.attn.hook_pattern", lambda tensor, hook: tensor)]):
        assert why_full(model) is None


# The loss


@batches
def test_a_gradient_without_memory_of_its_own_is_used_as_any_other(tokens):
    # The gradient of a sum is a single one, expanded: all its strides are zero.
    model, found = a_model(), []
    for forward in (lambda: full_forward(model, tokens), lambda: query_forward(model, TokenRows(tokens, 2))):
        kept = {}
        with mounted(model, [("blocks.0.attn.hook_z", lambda z, hook, kept=kept: kept.update(z=z))]):
            forward()
        attention = model.blocks[0].attn
        found.append(torch.autograd.grad(kept["z"][:, -1].sum(), [attention.W_Q, attention.W_V, attention.b_V]))
    for slow, quick in zip(*found, strict=True):
        torch.testing.assert_close(quick, slow, rtol=1e-9, atol=1e-9)
