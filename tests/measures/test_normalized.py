"""The loss with scaled MLP matrices against copies of the model that are scaled by hand."""

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from catalog import ADDITION, FORWARDS, TASKS, model_of
from helpers import deep_model, value_of

import bayesticket as bt
from bayesticket.measures import (
    NormalizedMLPLoss,
)


@pytest.mark.parametrize("forward", FORWARDS)
@pytest.mark.parametrize("radius", [0.5, 4.0, None])
@pytest.mark.parametrize(
    ("name", "residual"),
    [("addition", True), ("addition", False), ("parity", True), ("addition, drawn positions", False)],
)
def test_the_loss_is_that_of_a_copy_with_scaled_matrices(name, residual, radius, forward):
    task = TASKS[name]
    model, batch = model_of(task, init_scale=1.5, residual=residual), task.split().train
    scaled = copy.deepcopy(model)
    mlp = scaled.blocks[0].mlp
    with torch.no_grad():
        for matrix in (mlp.W_in, mlp.W_out):
            drawn = 1.5 * 0.8 / math.sqrt(12) * math.sqrt(12 * 16)
            matrix.mul_((drawn if radius is None else radius) / np.linalg.norm(matrix.numpy()))
    expected = F.cross_entropy(scaled(batch.tokens)[:, -1], batch.targets).item()
    assert value_of(NormalizedMLPLoss(radius), model, batch, forward=forward) == pytest.approx(expected, rel=1e-9)


def test_at_its_own_norm_a_models_loss_is_its_own():
    model, batch = model_of(ADDITION), ADDITION.split().train
    mlp = model.blocks[0].mlp
    with torch.no_grad():
        mlp.W_out.mul_(mlp.W_in.norm() / mlp.W_out.norm())
    loss = value_of(NormalizedMLPLoss(mlp.W_in.norm().item()), model, batch)
    assert loss == pytest.approx(value_of(bt.Loss(), model, batch), rel=1e-9)
    before = loss
    with torch.no_grad():  # and it does not see how large the matrices are
        mlp.W_in.mul_(7.0)
    assert value_of(NormalizedMLPLoss(mlp.W_in.norm().item() / 7), model, batch) == pytest.approx(before, rel=1e-9)


def test_the_norm_that_weights_are_drawn_with():
    model = bt.build_model(bt.ModularAddition(p=11))
    for matrix in (model.blocks[0].mlp.W_in, model.blocks[0].mlp.W_out):
        assert NormalizedMLPLoss().radius_of(model) == pytest.approx(matrix.norm().item(), rel=0.03)


def test_the_normalised_loss_sees_edits_of_attention():
    model, batch = model_of(ADDITION), ADDITION.split().train
    frozen = bt.FrozenAttention("oracle")
    plain, edited = (value_of(NormalizedMLPLoss(2.0), model, batch, intervention=each) for each in (None, frozen))
    scaled = copy.deepcopy(model)
    with torch.no_grad():
        for matrix in (scaled.blocks[0].mlp.W_in, scaled.blocks[0].mlp.W_out):
            matrix.mul_(2.0 / matrix.norm())
    assert edited == pytest.approx(value_of(bt.Loss(), scaled, batch, intervention=frozen), rel=1e-9)
    assert edited != pytest.approx(plain, rel=1e-3)


def test_edits_after_the_stream_it_starts_from_are_refused():
    batch = ADDITION.split().train
    with pytest.raises(bt.BayesticketError, match="edits between"):
        bt.measure(model_of(ADDITION, residual=True), batch, NormalizedMLPLoss(), intervention=bt.NoResidual())
    around = bt.NoResidual("attention")  # which is before it, and seen
    bt.measure(model_of(ADDITION, residual=True), batch, NormalizedMLPLoss(), intervention=around)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (deep_model, "n_layers=2.*accepted: a plain model of one layer"),
        (lambda: model_of(ADDITION, normalization_type="LN"), "normalization_type='LN'.*accepted: a plain model"),
    ],
)
def test_models_that_the_second_pass_does_not_describe_are_refused(make, why):
    with pytest.raises(bt.BayesticketError, match=f"NormalizedMLPLoss.*{why}"):
        bt.measure(make(), ADDITION.split().train, NormalizedMLPLoss())
