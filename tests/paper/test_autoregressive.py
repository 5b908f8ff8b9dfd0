"""What is read off runs of next-token prediction."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from stories import line, story

from bayesticket.paper import autoregressive
from bayesticket.paper.figure import SMOKE
from bayesticket.runs.loop import Training


def test_the_loss_on_bits_is_that_of_all_tokens_but_the_parity():
    training = Training(replace(autoregressive.arms(SMOKE)[autoregressive.BARE], forward="full"))
    train = training.train.batch
    with torch.no_grad():
        losses = F.cross_entropy(training.model(train.tokens).flatten(0, 1), train.targets.flatten(), reduction="none")
    of_bits = losses.view(train.n, -1)[:, : autoregressive.N].sum(1) / (autoregressive.N - 1)
    recorded = {name: pd.Series([value]) for name, value in training.observed().items()}
    assert autoregressive.loss_on_bits(recorded).item() == pytest.approx(of_bits.mean().item(), rel=1e-5)


def test_the_gradient_late_on_the_plateau_is_that_before_grokking():
    gradient = line((0, 1.0), (2000, 1.0), (2020, 0.2), (3980, 0.2), (4000, 50.0))
    assert autoregressive.kept_alive(story(grokked=4000, attention_gradient=gradient)) == pytest.approx(0.2)
    falls_late = line((0, 1.0), (8000, 1.0), (8020, 0.0))
    assert autoregressive.kept_alive(story(attention_gradient=falls_late)) == 1.0, "the median counts"
    assert autoregressive.kept_alive(story(grokked=60)) is None
    assert autoregressive.kept_alive(story(grokked=80)) == 1.0
    gone = story(attention_gradient=lambda epochs: np.where(epochs < 300, 1.0, 0.0))
    assert autoregressive.kept_alive(gone) == 0.0
