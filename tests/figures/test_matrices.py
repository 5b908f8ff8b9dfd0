"""Matrices through training: each is what the model computes, and each picture shows the moments asked for."""

import math

import numpy as np
import pytest
import torch
from helpers import refused

import bayesticket as bt
from bayesticket.figures import plot_circle, plot_heads, plot_norms, plot_ov, plot_pattern, plot_qk
from bayesticket.measures import attention_of, circle_of
from bayesticket.model import ov_by_token, qk_by_token

TASK = bt.ModularAddition(p=11)


@pytest.fixture(scope="module")
def run():
    small = bt.Architecture(d_model=16, d_mlp=24, n_heads=2)
    return bt.train(TASK, model=small, epochs=40, lr=3e-3, snapshots=bt.Every(10))


@pytest.fixture
def model():
    """A model in which positions and biases play no part."""
    model = bt.build_model(TASK, d_model=16, n_heads=2, dtype=torch.float64)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.mul_(0.0 if name.startswith("pos") or ".b_" in name else 5.0)
    return model


@pytest.mark.parametrize("head", [0, 1])
def test_the_qk_circuit_is_what_the_scores_are_made_of(model, head):
    tokens = TASK.examples(seed=0).tokens
    _, cache = model.run_with_cache(tokens)
    scores = cache["blocks.0.attn.hook_attn_scores"][:, head, -1]
    circuit = qk_by_token(model, 0, head)
    torch.testing.assert_close(scores, circuit[tokens[:, -1:], tokens])


@pytest.mark.parametrize("head", [0, 1])
def test_the_ov_circuit_is_what_attention_adds_to_the_logits(model, head):
    tokens = TASK.examples(seed=0).tokens
    _, cache = model.run_with_cache(tokens)
    pattern = cache["blocks.0.attn.hook_pattern"][:, head, -1]
    through_head = cache["blocks.0.attn.hook_z"][:, -1, head] @ model.W_O[0, head] @ model.W_U
    torch.testing.assert_close(through_head, (pattern[..., None] * ov_by_token(model, 0, head)[tokens]).sum(1))


def test_numbers_of_a_model_that_uses_a_frequency_stand_on_a_circle():
    model = bt.build_model(TASK, d_model=16, dtype=torch.float64)
    angle = 2 * math.pi * 3 * torch.arange(11, dtype=torch.float64) / 11
    plane, _ = torch.linalg.qr(torch.randn(16, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    with torch.no_grad():
        model.embed.W_E[:11] = 1.0 + 2.0 * torch.stack([angle.cos(), angle.sin()], 1) @ plane.T
    points = circle_of(model, TASK.examples(seed=0), 3)
    torch.testing.assert_close(points, 2.0 * torch.stack([angle.cos(), angle.sin()], 1), rtol=0, atol=1e-12)


def test_a_circle_needs_a_frequency_of_the_group(run):
    refused(
        lambda: circle_of(run.model, TASK.examples(seed=0), 6), "frequency: got 6; accepted: a whole number at most 5"
    )
    parity = bt.SparseParity(n=6, k=2)
    with pytest.raises(bt.BayesticketError, match="circle_of: got p = 2"):
        circle_of(bt.build_model(parity), parity.examples(seed=0), 1)
    flat = bt.train(TASK, epochs=1, snapshots=[0])
    refused(lambda: plot_circle(flat), "frequency: got a run without key frequencies")


def test_the_pattern_has_a_column_for_each_snapshot(run):
    (drawn,) = plot_pattern(run).data
    assert list(drawn.x) == ["0", "10", "20", "30", "40"]
    expected = attention_of(run.at(20), run.config.split().test).mean((0, 1))
    np.testing.assert_allclose(np.asarray(drawn.z)[:, 2], expected)


def test_each_head_has_a_panel_and_their_sum_is_below(run):
    figure = plot_heads(run)
    *heads, pooled = (np.asarray(trace.z) for trace in figure.data)
    expected = attention_of(run.at(20), run.config.split().test).mean(0)
    for head, drawn in enumerate(heads):
        np.testing.assert_allclose(drawn[:, 2], expected[head], rtol=1e-6)
    np.testing.assert_allclose(pooled, sum(heads), rtol=1e-6)
    first, labels = heads[0][:, -1], run.config.task.position_labels
    assert figure.layout.annotations[0].text == f"head 0: {labels[first.argmax()]}, {first.max():.2f}"


@pytest.mark.parametrize(("plot", "circuit"), [(plot_qk, qk_by_token), (plot_ov, ov_by_token)])
def test_circuits_are_drawn_on_one_scale(run, plot, circuit):
    figure = plot(run, epochs=[0, 40], head=1)
    first, last = figure.data
    np.testing.assert_allclose(first.z, circuit(run.at(0), 0, 1), rtol=1e-6)
    np.testing.assert_allclose(last.z, circuit(run.model, 0, 1), rtol=1e-6)
    assert first.zmax == last.zmax == -first.zmin
    assert first.zmax == pytest.approx(max(np.abs(first.z).max(), np.abs(last.z).max()))
    assert [title.text for title in figure.layout.annotations] == ["epoch 0", "epoch 40"]
    assert len(plot(run).data) == 4, "a few of all snapshots"


def test_circles_share_their_axes(run):
    figure = plot_circle(run, 2, epochs=[0, 20])
    assert [len(trace.x) for trace in figure.data] == [11, 11]
    assert len({tuple(axis.range) for axis in figure.select_xaxes()}) == 1


def test_the_norms_of_matrices_are_drawn_by_kind(run):
    measured = run.measure(bt.WeightNorms())
    drawn = {trace.name: list(trace.y) for trace in plot_norms(run).data}
    assert set(drawn) == {name for name, _ in run.model.named_parameters() if ".W_" in name or name.endswith("W_E")}
    for name, values in drawn.items():
        np.testing.assert_allclose(values, measured[f"weight_norms[{name}]"])


@pytest.mark.parametrize("plot", [plot_pattern, plot_heads, plot_qk, plot_ov, plot_circle, plot_norms])
def test_runs_without_snapshots_are_refused(plot):
    plain = bt.train(TASK, epochs=1)
    if plot is plot_norms:
        assert len(plot(plain).data[0].x) == 1, "the last epoch of any run can be measured"
    else:
        refused(lambda: plot(plain), "run: got a run without snapshots")
        refused(lambda: plot("run"), "run: got 'run'")


@pytest.mark.parametrize("plot", [plot_qk, plot_ov, plot_circle])
def test_moments_are_given_as_several_epochs(run, plot):
    refused(lambda: plot(run, epochs=20), "epochs: got 20", "accepted: epochs, such as")
