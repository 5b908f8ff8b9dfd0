"""Class margins against loops."""

import dataclasses

import numpy as np
import pytest
import torch
from catalog import TASKS, model_of
from helpers import value_of
from hypothesis import given
from hypothesis import strategies as st

import bayesticket as bt
from bayesticket.measures import (
    ClassMargin,
    class_margins,
)


@pytest.mark.parametrize("rightly", [False, True])
@pytest.mark.parametrize("name", TASKS)
def test_margins_against_a_loop_over_examples(name, rightly):
    task = TASKS[name]
    model, batch = model_of(task), task.split().test
    logits = model(batch.tokens)[:, -1].detach()
    if rightly:  # what the model answers is the target, so that margins are positive
        batch = dataclasses.replace(batch, targets=logits.argmax(-1))
    margins = []
    for row, target in zip(logits.tolist(), batch.targets.tolist(), strict=True):
        margins.append(row[target] - max(value for c, value in enumerate(row) if c != target))
    assert value_of(ClassMargin(), model, batch) == pytest.approx(min(margins), rel=1e-9)
    assert value_of(ClassMargin("median"), model, batch) == pytest.approx(np.median(margins), rel=1e-9)
    assert not rightly or min(margins) > 0
    assert np.mean([margin > 0 for margin in margins]) == pytest.approx(value_of(bt.Accuracy(), model, batch))


@given(seed=st.integers(0, 99), shift=st.floats(-50, 50))
def test_margins_do_not_see_what_the_softmax_does_not(seed, shift):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(6, 4, dtype=torch.float64, generator=generator)
    targets = torch.randint(0, 4, (6,), generator=generator)
    assert torch.allclose(class_margins(logits + shift, targets), class_margins(logits, targets))
    # the probability of the target, p ≥ 1/(1 + (C − 1) e^{−γ}), with equality if the others are equal
    probability = logits.softmax(-1).gather(1, targets[:, None])[:, 0]
    bound = 1 / (1 + 3 * torch.exp(-class_margins(logits, targets)))
    assert (probability >= bound - 1e-12).all()
