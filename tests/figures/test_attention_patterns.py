"""Attention patterns: what is drawn is where the last position attends."""

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

from bayesticket.errors import BayesticketError
from bayesticket.figures import mean_attention, plot_patterns
from bayesticket.interventions import FrozenAttention
from bayesticket.runs import Run, train
from bayesticket.tasks import ModularAddition


class TestPatterns:
    def test_mean_attention_agrees_with_a_plain_cache(self, runs: dict[str, Run]):
        run = runs["kl"]
        test = run.config.task.split(0.3, 0).test
        _, cache = run.model.run_with_cache(test.tokens)
        expected = cache["blocks.0.attn.hook_pattern"][:, :, -1].mean((0, 1))
        torch.testing.assert_close(mean_attention(run), expected)

    def test_mean_attention_is_that_under_the_intervention(self):
        run = train(ModularAddition(p=5), FrozenAttention("oracle"), epochs=3, progress=False)
        torch.testing.assert_close(mean_attention(run), torch.tensor([0.5, 0.0, 0.5, 0.0, 0.0]))

    def test_draws_the_weights(self):
        patterns = {"oracle": torch.tensor([0.5, 0.5, 0.0]), "none": torch.tensor([0.1, 0.2, 0.7])}
        (drawn,) = plot_patterns(patterns, ["a", "noise", "noise"]).data
        assert isinstance(drawn, go.Heatmap)
        np.testing.assert_allclose(drawn.z, [[0.5, 0.5, 0.0], [0.1, 0.2, 0.7]])
        assert drawn.y == ("oracle", "none")

    def test_refuses_labels_that_do_not_fit(self):
        with pytest.raises(BayesticketError, match=r"patterns\['oracle'\]: got 3"):
            plot_patterns({"oracle": torch.ones(3) / 3}, ["a", "b"])
