"""The query-only forward against TransformerLens' own, and training against a plain TransformerLens loop."""

import functools
import logging
import warnings
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from catalog import NAMES, TASKS, interventions
from transformer_lens import HookedTransformer, HookedTransformerConfig

import bayesticket as bt
from bayesticket.errors import BayesticketError
from bayesticket.model import FAST_HOOKS, TokenRows, choose_forward, full_forward, mounted, query_forward, why_full


def small_model(task, **options):
    return bt.build_model(task, d_model=16, d_mlp=32, **{"seed": 1, "dtype": torch.float64} | options)


def outcome(model, batch, intervention, forward):
    """Logits, loss and the gradient of every parameter, at an epoch where all schedules are on.

    The weights are afterwards what they were before: some interventions project them.
    """
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with bt.Recipe.attach(intervention or bt.Recipe(), model, batch, seed=0) as live:
        live.epoch = 20
        logits = forward(model, batch)
        loss = F.cross_entropy(logits, batch.targets) + live.penalty()
        loss.backward()
    gradients = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in model.named_parameters()}
    model.zero_grad()
    with torch.no_grad():
        for parameter, weight in zip(model.parameters(), before, strict=True):
            parameter.copy_(weight)
    return logits.detach(), loss.detach(), gradients


@functools.cache
def modelled(name, **options):
    """A task's training half, a model, and one of every intervention for both; no test changes them."""
    task = TASKS[name]
    model = small_model(task, **options)
    return task.split().train, model, interventions(task, model)


def full(model, batch):
    return full_forward(model, batch.tokens)


def fast(model, batch):
    return query_forward(model, TokenRows(batch.tokens, model.cfg.n_heads))


def assert_agree(model, batch, intervention, tolerance):
    slow, quick = outcome(model, batch, intervention, full), outcome(model, batch, intervention, fast)
    torch.testing.assert_close(quick[0], slow[0], rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(quick[1], slow[1], rtol=tolerance, atol=tolerance)
    whole = torch.stack([gradient.norm() for gradient in slow[2].values()]).norm()
    for name, gradient in slow[2].items():
        # A gradient that is 0 but for rounding (the key bias: softmax ignores it) is compared with the whole gradient.
        size = gradient.norm() if gradient.norm() > 1e-6 * whole else whole
        assert (quick[2][name] - gradient).norm() <= tolerance * size, name


MODELS = [(task, 4, "softmax") for task in TASKS] + [
    (task, n_heads, attention)
    for task in ("addition", "several queries")
    for n_heads, attention in ((1, "softmax"), (1, "linear"), (4, "linear"))
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("task", "n_heads", "attention"), MODELS)
def test_the_forwards_agree_in_float64(task, name, n_heads, attention):
    if "linear" in name and attention == "linear":
        pytest.skip("the same replacement twice")
    batch, model, by_name = modelled(task, n_heads=n_heads, attention=attention)
    if name == "mixed" and not (~batch.informative).any(-1).all():
        pytest.skip("no distractors")
    assert_agree(model, batch, by_name[name], 1e-10)


@pytest.mark.parametrize("n_heads", [1, 4])
@pytest.mark.parametrize("name", NAMES)
def test_the_forwards_agree_in_float32(name, n_heads):
    batch, model, by_name = modelled("addition", n_heads=n_heads, dtype=torch.float32)
    assert_agree(model, batch, by_name[name], 1e-5)


@pytest.mark.parametrize("options", [{"normalization_type": "LN"}, {"normalization_type": "RMS"}, {"residual": False}])
def test_the_forwards_agree_on_other_architectures(options):
    task = TASKS["addition"]
    model = small_model(task, n_heads=2, **options)
    assert why_full(model) is None
    assert_agree(model, task.split().train, bt.KLPrior(), 1e-10)


@pytest.mark.parametrize("n_heads", [1, 2])
@pytest.mark.parametrize("n", [1, 3])
def test_the_forwards_agree_where_all_sequences_are_equal(n, n_heads):
    """Then every position holds one token throughout, and one is still summed over as if it varied."""
    task = TASKS["addition"]
    model, batch = small_model(task, n_heads=n_heads), task.split().train
    assert_agree(model, batch.select(torch.zeros(n, dtype=torch.int64)), bt.KLPrior(), 1e-10)


def test_every_fast_hook_sees_what_the_full_forward_shows_at_the_query():
    task = TASKS["addition"]
    model, batch = small_model(task, n_heads=2), task.split().train
    seen = {}

    def keep(tensor, hook):
        seen[hook.name] = tensor

    with mounted(model, [(name, keep) for name in FAST_HOOKS]):
        fast(model, batch)
        quick = dict(seen)
        model(batch.tokens)
    for name in FAST_HOOKS:
        axis = 2 if "scores" in name or "pattern" in name else 1
        torch.testing.assert_close(quick[name], seen[name].narrow(axis, -1, 1), msg=name)


@pytest.mark.parametrize("name", FAST_HOOKS)
@pytest.mark.parametrize("forward", [full, fast])
def test_an_edit_on_any_fast_hook_changes_the_logits(name, forward):
    task = TASKS["addition"]
    model, batch = small_model(task), task.split().train

    def edit(tensor, hook):
        edited = tensor.clone()
        edited[..., -1] = edited[..., -1] + 1.0
        return edited

    before = forward(model, batch)
    with mounted(model, [(name, edit)]):
        assert not torch.allclose(forward(model, batch), before)
    torch.testing.assert_close(forward(model, batch), before)


def test_a_hook_that_the_fast_forward_lacks_makes_training_say_so_once(caplog):
    task = TASKS["addition"]

    @dataclass(frozen=True, eq=False)
    class Shrink(bt.Intervention):
        def edits(self, context):
            return [("hook_embed", lambda tensor, hook: 0.5 * tensor)]

    with caplog.at_level(logging.WARNING, logger="bayesticket"):
        run = bt.train(task, Shrink(), epochs=30)
    assert run.made_with["forward"] == "full"
    assert [record.getMessage() for record in caplog.records] == [
        "using the full forward, because hook_embed is not computed by the query-only forward"
    ]


@pytest.mark.parametrize(
    "changes", [{"n_layers": 2}, {"act_fn": "solu_ln"}, {"positional_embedding_type": "rotary"}, {"attn_only": True}]
)
def test_models_that_are_not_plain_get_the_full_forward(changes):
    config = {"n_layers": 1, "d_model": 8, "d_head": 8, "d_mlp": 8, "n_ctx": 5, "d_vocab": 9, "act_fn": "relu"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        model = HookedTransformer(HookedTransformerConfig(**config | changes, normalization_type=None, device="cpu"))
    assert choose_forward("auto", model) == "full"
    with pytest.raises(BayesticketError, match="forward: got 'fast'"):
        choose_forward("fast", model)


def test_a_module_with_a_pytorch_hook_gets_the_full_forward():
    model = small_model(TASKS["addition"])
    assert choose_forward("auto", model) == "fast"
    model.blocks[0].mlp.register_forward_hook(lambda module, inputs, output: 2 * output)
    assert choose_forward("auto", model) == "full"


def plain_loop(model, train, test, epochs, *, lr, weight_decay, frozen=None, kl_strength=0.0):
    """What one would write with TransformerLens alone; the recorded quantities, computed by their formulas."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=weight_decay, betas=(0.9, 0.999))
    hook, kept, rows = "blocks.0.attn.hook_pattern", {}, []

    def edit(pattern, hook):
        if frozen is not None:
            pattern = pattern.clone()
            pattern[:, :, -1] = frozen[:, None]
        kept["pattern"] = pattern
        return pattern

    for epoch in range(epochs):
        for group in optimiser.param_groups:
            group["lr"] = lr * min(1.0, (epoch + 1) / 10)
        with torch.no_grad():
            test_logits = model(test.tokens)[:, -1] if frozen is None else None
        with model.hooks(fwd_hooks=[(hook, edit)]):
            logits = model(train.tokens)[:, -1]
        attention = kept["pattern"][:, :, -1]
        loss = F.cross_entropy(logits, train.targets)
        divergence = (train.oracle[:, None] * (train.oracle[:, None].clamp_min(1e-30) / attention).log()).sum(-1).mean()
        rows.append(
            {
                "train_loss": loss.item(),
                "kl_to_oracle": divergence.item(),
                "mlp_norm": sum(p.square().sum() for p in model.blocks[0].mlp.parameters()).sqrt().item(),
                "informative_mass_mean": (attention * train.informative[:, None]).sum(-1).mean().item(),
                "train_accuracy": (logits.argmax(-1) == train.targets).double().mean().item(),
            }
        )
        if test_logits is not None:
            rows[-1]["test_loss"] = F.cross_entropy(test_logits, test.targets).item()
        (loss + kl_strength * divergence).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
    return rows


EPOCHS = 30


@functools.cache
def by_hand(case, n_heads):
    """The rows and the weights of a plain loop."""
    task = bt.ModularAddition(p=11)
    split = task.split(seed=2)
    model = bt.build_model(task, n_heads=n_heads, seed=2, dtype=torch.float64)
    oracle = torch.tensor([0.5, 0, 0.5, 0, 0], dtype=torch.float64).expand(len(split.train), 5)
    options = {"none": {}, "kl": {"kl_strength": 0.3}, "frozen": {"frozen": oracle}}[case]
    rows = plain_loop(model, split.train, split.test, EPOCHS, lr=3e-3, weight_decay=1.0, **options)
    return rows, {name: parameter.data for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("forward", ["fast", "full"])
@pytest.mark.parametrize("n_heads", [1, 4])
@pytest.mark.parametrize("case", ["none", "kl", "frozen"])
def test_training_equals_a_plain_transformer_lens_loop(case, n_heads, forward):
    rows, weights = by_hand(case, n_heads)
    run = bt.train(
        bt.ModularAddition(p=11),
        {"none": None, "kl": bt.KLPrior(strength=0.3), "frozen": bt.FrozenAttention("oracle")}[case],
        seed=2,
        epochs=EPOCHS,
        lr=3e-3,
        record_every=1,
        dtype="float64",
        forward=forward,
        model=bt.Architecture(n_heads=n_heads),
    )
    for name in rows[0]:
        if case == "frozen" and name == "kl_to_oracle":
            continue
        expected = torch.tensor([row[name] for row in rows], dtype=torch.float64)
        torch.testing.assert_close(torch.tensor(run.curves[name].to_numpy()[:EPOCHS]), expected, rtol=1e-8, atol=1e-10)
    for name, weight in weights.items():
        torch.testing.assert_close(run.weights[name], weight, rtol=1e-7, atol=1e-10, msg=name)
