"""Loss and accuracy against a loop over examples."""

import pytest
import scipy.special
import scipy.stats
from catalog import TASKS, model_of

import bayesticket as bt


def test_performance_against_a_loop_over_examples():
    task = TASKS["addition"]
    model, batch = model_of(task), task.split().test
    logits = model(batch.tokens)[:, -1]
    right = [int(row.argmax()) == int(target) for row, target in zip(logits, batch.targets, strict=True)]
    losses = [
        scipy.special.logsumexp(row.detach()) - row[t].item() for row, t in zip(logits, batch.targets, strict=True)
    ]
    seen = bt.measure(model, batch, bt.Loss(), bt.Accuracy())
    assert seen["accuracy"] == pytest.approx(sum(right) / len(right))
    assert seen["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-9)
