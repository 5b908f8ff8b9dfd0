"""Lemma 5.1 and the contraction of Definition 3.2 on models and in training."""

from itertools import pairwise

import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from catalog import TASKS, model_of

import bayesticket as bt
from bayesticket import theory
from bayesticket.interventions import reader
from bayesticket.measures import ExplainingAway, Observer, run_forward
from bayesticket.measures.contraction import Contraction
from bayesticket.measures.explaining import LipschitzBounds, explaining_away
from bayesticket.model import mounted

TASK = TASKS["addition"]


def observe(model, batch, measure, forward="fast"):
    """The four forms on every example, as the measure computes them."""
    kept = {}

    class Keep(type(measure)):
        def value(self, seen):
            kept["chain"] = explaining_away(self, seen, torch.arange(len(batch)))
            return torch.zeros(8)

    observer = Observer(model, [Keep(examples=None)], batch)
    with mounted(model, observer.hooks):
        logits = run_forward(forward, model, batch)
        loss = F.cross_entropy(logits, batch.targets)
        observer.values(batch, logits, loss, observer.gradients(loss))
    return kept["chain"]


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("forward", ["fast", "full"])
@pytest.mark.parametrize(
    "name", ["addition", "addition, constant", "addition, drawn positions", "several queries", "parity"]
)
def test_the_chain_holds_and_autograd_agrees_with_the_closed_form(name, forward, residual):
    task = TASKS[name]
    model, batch = model_of(task, residual=residual), task.split().train
    chain = observe(model, batch, ExplainingAway(), forward)
    assert (chain.measured <= chain.local * (1 + 1e-9) + 1e-15).all()
    assert (chain.local <= chain.global_ * (1 + 1e-9) + 1e-15).all()
    assert (chain.global_ <= chain.loose[..., None] * (1 + 1e-9)).all()

    seen = {}
    # The measured gradient, once more: one backward pass for each example, through the full forward.
    for n in range(0, len(batch), 7):
        with mounted(model, [("blocks.0.attn.hook_attn_scores", reader(seen))]):
            loss = F.cross_entropy(model(batch.tokens[n : n + 1])[:, -1], batch.targets[n : n + 1])
        (gradient,) = torch.autograd.grad(loss, seen["blocks.0.attn.hook_attn_scores"])
        torch.testing.assert_close(chain.measured[n], gradient[0, :, -1].abs(), rtol=1e-8, atol=1e-14)


def test_the_measured_gradient_is_the_closed_form_of_the_theory():
    model, batch = model_of(TASK), TASK.split().train
    chain = observe(model, batch, ExplainingAway())
    _, cache = model.run_with_cache(batch.tokens)
    block = model.blocks[0]
    jacobian = theory.jacobian(
        block.attn.W_O, block.mlp.W_in, block.mlp.W_out, model.W_U, cache["blocks.0.mlp.hook_pre"][:, -1][:, None]
    )
    error = theory.prediction_error(model(batch.tokens)[:, -1], batch.targets)[:, None]
    value = cache["blocks.0.attn.hook_v"].transpose(1, 2)
    gradient = theory.logit_gradient(cache["blocks.0.attn.hook_pattern"][:, :, -1], value, jacobian, error)
    torch.testing.assert_close(chain.measured, gradient.abs(), rtol=1e-8, atol=1e-14)


def test_the_summary_is_of_the_chain():
    model, batch = model_of(TASK), TASK.split().train
    chain = observe(model, batch, ExplainingAway())
    (summary,) = bt.measure(model, batch, ExplainingAway(examples=None)).values()
    expected = [form.amax(-1).mean().item() for form in chain[:3]] + [chain.loose.mean().item()]
    assert summary[:4].tolist() == pytest.approx(expected)
    forms = (chain.measured, chain.local, chain.global_, chain.loose[..., None].expand_as(chain.local))
    ratios = [(smaller / larger).max().item() for smaller, larger in pairwise(forms)]
    assert summary[5:].tolist() == pytest.approx(ratios)
    assert max(ratios) < 1
    _, cache = model.run_with_cache(batch.tokens)
    radius = cache["blocks.0.attn.hook_v"].norm(dim=-1).max().item()
    assert summary[4].item() == pytest.approx(summary[3].item() / radius)


def test_lipschitz_bounds_are_ordered_and_local_ones_are_jacobians():
    model, batch = model_of(TASK, n_heads=1), TASK.split().train
    (bounds,) = bt.measure(model, batch, LipschitzBounds(examples=None)).values()
    local, steepest, centred, products, factors = bounds.tolist()
    assert local <= steepest <= centred <= products <= factors
    n = 3
    z = {}
    with mounted(model, [("blocks.0.attn.hook_z", lambda tensor, hook: z.update(z=tensor))]):
        logits = model(batch.tokens)[:, -1]
    rows = [torch.autograd.grad(logits[n, c], z["z"], retain_graph=True)[0][n, -1, 0] for c in range(7)]
    assert torch.linalg.matrix_norm(torch.stack(rows), 2) <= steepest * (1 + 1e-9)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"normalization_type": "LN"}, "normalization_type='LN'"),
        ({"attention": "linear"}, "attention='linear'"),
    ],
)
@pytest.mark.parametrize("measure", [ExplainingAway(), LipschitzBounds()])
def test_other_models_are_refused(measure, options, said):
    with pytest.raises(bt.BayesticketError, match=said):
        bt.measure(model_of(TASK, **options), TASK.split().train, measure)


@pytest.mark.parametrize("kind", [ExplainingAway, LipschitzBounds])
def test_another_query_is_refused(kind):
    with pytest.raises(bt.BayesticketError, match=r"query: got 2; accepted: -1"):
        bt.measure(model_of(TASK), TASK.split().train, kind(query=2))
    with pytest.raises(bt.BayesticketError, match=r"examples: got 0"):
        kind(examples=0)


def test_bounds_on_the_weights_are_refused_where_an_edit_bypasses_them():
    with pytest.raises(bt.BayesticketError, match=r"^LipschitzBounds: got 'an intervention that edits"):
        bt.measure(model_of(TASK), TASK.split().train, LipschitzBounds(), intervention=bt.NoResidual())


@pytest.mark.parametrize("options", [{"betas": (0.95, 0.9)}, {"lr": 0.11, "weight_decay": 10.0}])
def test_a_step_without_a_bound_has_none(options):
    run = bt.train(TASK, model=bt.Architecture(d_model=8, d_mlp=8), epochs=20, measures=[Contraction()], **options)
    assert run.curves[["contraction[bound]", "contraction[slack]"]].isna().all().all()
    assert run.curves["contraction[observed]"].notna().any()


def test_edited_attention_is_refused():
    with pytest.raises(bt.BayesticketError, match=r"edits blocks\.0\.attn\.hook_pattern"):
        bt.measure(model_of(TASK), TASK.split().train, ExplainingAway(), intervention=bt.MixedAttention())


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "muon", "lion"])
@pytest.mark.parametrize("scope", ["mlp", "all"])
def test_every_step_of_training_obeys_the_contraction(optimizer, scope):
    lr = {"sgd": 0.1, "lion": 1e-3}.get(optimizer, 3e-3)
    run = bt.train(
        TASK,
        model=bt.Architecture(d_model=16, d_mlp=32),
        optimizer=optimizer,
        lr=lr,
        epochs=60,
        record_every=1,
        warmup=10,
        measures=[Contraction(scope)],
    )
    name = "contraction" + ("" if scope == "mlp" else "[scope=all]")
    seen = {label: run.curves[f"{name}[{label}]"] for label in ("observed", "rate", "direction", "bound", "slack")}
    assert seen["slack"].isna().sum() == 1, "only at epoch 0 there is no step"
    assert (seen["slack"].iloc[1:] >= 1).all()
    assert (seen["direction"].iloc[1:] <= seen["bound"].iloc[1:] * (1 + 1e-6)).all()
    expected = [lr * min(1, (epoch + 1) / 10) for epoch in range(60)]
    assert seen["rate"].iloc[1:].tolist() == pytest.approx(expected)
    if scope == "mlp":
        norms = run.curves["mlp_norm"].to_numpy() ** 2
        assert (1 - norms[1:] / norms[:-1]).tolist() == pytest.approx(seen["observed"].iloc[1:].tolist(), abs=1e-5)


def test_the_step_before_a_record_survives_an_interruption(tmp_path, monkeypatch):
    from bayesticket.runs import Training

    options = {"model": bt.Architecture(d_model=8, d_mlp=8), "epochs": 40, "measures": [Contraction()]}
    whole = bt.train(TASK, **options)
    original = Training.take_epoch

    def die(self):
        if self.epoch == 23:
            raise MemoryError
        original(self)

    monkeypatch.setattr(Training, "take_epoch", die)
    with pytest.raises(MemoryError):
        bt.train(TASK, **options, store=tmp_path / "run", checkpoint_every=20)
    monkeypatch.setattr(Training, "take_epoch", original)
    resumed = bt.resume(tmp_path / "run")
    pd.testing.assert_frame_equal(resumed.curves, whole.curves, check_exact=True)
    assert resumed.curves["contraction[observed]"].notna().sum() == 4
