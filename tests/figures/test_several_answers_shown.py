"""Figures of runs on tasks that ask at several positions."""

import pytest
import torch
from answers import copying

import bayesticket as bt
from bayesticket.figures import film, mean_attention, plot_heads, plot_pattern, write_families

SMALL = bt.Architecture(d_model=8, d_mlp=8)
PARITY = bt.AutoregressiveParity(n=7, k=2)


@pytest.fixture(scope="module")
def runs() -> dict[str, bt.Run]:
    each = [bt.AttentionEntropy(query="each"), bt.ExplainingAway(query="each"), bt.SeparabilityMargin(query="each")]
    options = {"model": SMALL, "epochs": 20, "snapshots": [0, 10], "measures": each}
    return {"parity": bt.train(PARITY, **options), "own": bt.train(copying(), bt.KLPrior(), **options)}


def test_a_picture_of_one_query_says_which(runs, tmp_path):
    for name, shown in {"parity": "the last position", "own": "the last position, one of 2 queries"}.items():
        assert shown in plot_pattern(runs[name]).layout.title.text
        assert shown in plot_heads(runs[name]).layout.title.text
        assert f"Attention of {shown}" in film(runs[name], tmp_path / f"{name}.html").read_text(encoding="utf-8")
    assert "position 3, one of 2 queries" in plot_pattern(runs["own"], query=3).layout.title.text


def test_the_attention_that_is_shown_is_that_of_the_query(runs):
    run = runs["own"]
    test = run.config.split().test
    _, cache = run.model.run_with_cache(test.tokens)
    pattern = cache["blocks.0.attn.hook_pattern"].mean((0, 1))
    torch.testing.assert_close(mean_attention(run), pattern[5])
    torch.testing.assert_close(mean_attention(run, query=3), pattern[3])


def test_pages_and_curves_are_drawn(runs, tmp_path):
    for name, run in runs.items():
        names = {trace.name for trace in run.plot().data}
        assert {"train", "test"} <= {name.partition(",")[0] for name in names if name}
        assert write_families(run, tmp_path / f"{name}.html").stat().st_size > 0
        assert "accuracies up to epoch 20" in run._repr_html_()
