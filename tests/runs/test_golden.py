"""Twelve runs, over tasks, interventions, heads and optimisers, whose every recorded number is pinned.

They are in float64, in which another order of summation moves no number by more than a part in a million; a change of
what is computed does. All but one have a residual path. `golden.parquet` was written by the library before its rooms
were built. A change that is meant to change numbers writes it again, and says so in the changelog.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import bayesticket as bt

PINNED = Path(__file__).with_name("golden.parquet")
"""What was recorded, by run, column and epoch; written by this file as a script."""
GOLDEN = pd.read_parquet(PINNED)

RUNS = {
    "addition": lambda: (bt.ModularAddition(p=11), None, {}),
    "addition, kl, norm": lambda: (
        bt.ModularAddition(p=11),
        bt.KLPrior(strength=1.0) + bt.NormMatch(radius=8.0),
        {"seed": 1},
    ),
    "addition, constant, two heads, frozen": lambda: (
        bt.ModularAddition(p=11, distractors="constant"),
        bt.FrozenAttention("oracle"),
        {"model": bt.Architecture(d_model=16, n_heads=2, d_mlp=32, residual=True)},
    ),
    "addition, drawn positions, minibatches, noise": lambda: (
        bt.ModularAddition(p=11, positions="random", n_distractors=3),
        bt.GradientNoise(bt.KLPrior(strength=0.5)),
        {"batch_size": 16, "epochs": 30},
    ),
    "addition, redrawn, muon": lambda: (
        bt.ModularAddition(p=11, redraw_each_epoch=True),
        bt.EntropyPrior(strength=0.1),
        {"optimizer": "muon", "lr": 3e-3},
    ),
    "multiplication, lion": lambda: (
        bt.ModularMultiplication(p=11),
        bt.SparsityPrior(strength=0.1),
        {"optimizer": "lion", "lr": 3e-4},
    ),
    "three operands, sgd": lambda: (
        bt.KOperandAddition(k=3, p=5),
        bt.QKPenalty(strength=0.1),
        {"optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3},
    ),
    "parity, four heads, scores": lambda: (
        bt.SparseParity(n=10, k=2),
        bt.SparsityPrior(strength=0.01, on="scores"),
        {"model": bt.Architecture(d_model=16, n_heads=4, d_mlp=32, residual=True)},
    ),
    "permutations, ticket": lambda: (
        bt.PermutationComposition(n=3),
        bt.TicketMask({"blocks.0.mlp.W_in": torch.rand(64, 256, generator=torch.Generator().manual_seed(0)) > 0.5}),
        {},
    ),
    "no residual, linear, scheduled": lambda: (
        bt.ModularAddition(p=11),
        bt.KLPrior(strength=bt.Anneal(1.0, 0.0, last=30)),
        {"model": bt.Architecture(residual=False, attention="linear")},
    ),
    "normalised, mixed, measures": lambda: (
        bt.ModularAddition(p=11),
        bt.MixedAttention("oracle", weight=0.3),
        {
            "model": bt.Architecture(normalization_type="LN", residual=True),
            "measures": (bt.AttentionEntropy(), bt.EffectiveRank(), bt.WeightNorms()),
        },
    ),
    "everything measured": lambda: (
        bt.ModularAddition(p=11),
        bt.KLPrior("shifted", strength=0.3),
        {
            "measures": (
                bt.ExplainingAway(),
                bt.LipschitzBounds(),
                bt.Contraction(),
                bt.StructuralCondition("derived"),
                bt.SeparabilityMargin(),
                bt.RestrictedLoss(),
                bt.FrequencyShares(),
                bt.DistributedMass(),
                bt.ScoreVariance(),
                bt.InteractionNorm(),
                bt.NormalizedMLPLoss(),
            )
        },
    ),
}


def curves_of(name: str) -> pd.DataFrame:
    task, intervention, options = RUNS[name]()
    usual = {"model": bt.Architecture(residual=True), "epochs": 60, "record_every": 5, "dtype": "float64"}
    return bt.train(task, intervention, **(usual | options)).curves


@pytest.mark.parametrize("name", RUNS)
def test_every_recorded_number_is_what_it_was(name):
    curves = curves_of(name)
    pinned = GOLDEN[GOLDEN["run"] == name].pivot(index="epoch", columns="column", values="value")
    assert len(pinned.columns) >= 9
    for column in pinned:
        # A bias of the keys moves all scores alike. Its gradient is zero up to rounding, which is the processor's own.
        least = 1e-10 if column.endswith(".b_K]") else 1e-12
        np.testing.assert_allclose(curves[column], pinned[column], rtol=1e-6, atol=least, err_msg=column)


if __name__ == "__main__":
    found = {name: curves_of(name).reset_index().melt(id_vars="epoch", var_name="column") for name in RUNS}
    long = pd.concat(found, names=["run"]).reset_index(level=0).reset_index(drop=True)
    long.astype({"run": "category", "column": "category"}).to_parquet(PINNED, compression="zstd")
