"""Runs with given curves, what is expected of the figures of each family, and how colour-blind readers see colours."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

import bayesticket as bt
from bayesticket.cli.expressions import parse_spec
from bayesticket.figures import FAMILIES, plot_bounds, plot_capacity, plot_frequencies, plot_gradients, plot_structure

PLOTS = {
    "bounds": plot_bounds,
    "gradients": plot_gradients,
    "structure": plot_structure,
    "capacity": plot_capacity,
    "frequencies": plot_frequencies,
}


VARIANTS = [
    bt.ExplainingAway(examples=None),
    bt.LipschitzBounds(),
    bt.SeparabilityMargin(),
    bt.SeparabilityMargin("raw"),
    bt.StructuralCondition(),
    bt.StructuralCondition("derived"),
    bt.InformativeMassByPosition(),
    bt.DistributedMass(),
    bt.KLToTarget("adversarial"),
    bt.AttentionEntropy(),
    bt.ScoreVariance(),
    bt.SubspaceOverlap(),
    bt.InteractionNorm(),
    bt.WeightNorms(),
    bt.NormCondition(1.0, 100.0),
    bt.ClassMargin(),
    bt.ClassMargin("median"),
    bt.Contraction(),
    bt.EffectiveRank(),
    bt.CommutatorDefect(pairs=2),
    bt.NormalizedMLPLoss(),
    bt.RestrictedLoss(),
    bt.ExcludedLoss(),
    bt.FrequencyShares("unembed"),
    bt.KeyFrequencyCount(),
    bt.FourierGini(),
]
OF_FAMILIES = [parse_spec(text, kind=bt.Measure) for family in FAMILIES for text in family.measures]
MEASURES = [*VARIANTS, *(measure for measure in OF_FAMILIES if type(measure) not in map(type, VARIANTS))]
"""Every measure that a family is drawn from; of some, settings other than the default."""


EXPECTED = {
    "bounds": [
        f"explaining_away[examples=None][{form}]"
        for form in ("measured", "local", "global", "loose", "paper", "scaled")
    ],
    "gradients": ["attention_gradient", "kl_to_oracle"],
    "structure": [
        *("informative_mass_mean", "informative_mass_least", "kl_to_oracle", "attention_entropy"),
        *("informative_mass_by_position[0]", "informative_mass_by_position[1]", "kl_to_target[target=adversarial]"),
        *("structural_condition", "structural_condition[tau=derived][share]"),
        *("structural_condition[tau=derived][threshold]", "separability_margin[margin]"),
        *("separability_margin[of=raw][margin]", *(f"distributed_mass[{entry}]" for entry in range(4))),
    ],
    "capacity": [
        *("mlp_norm", "norm_condition[r_min=1.0,r_max=100.0]", "class_margin", "class_margin[of=median]"),
        *(f"lipschitz_bounds[{bound}]" for bound in ("local", "steepest", "centred", "products", "factors")),
        *(f"weight_norms[blocks.0.attn.{name}]" for name in ("W_Q", "W_K", "W_V", "W_O")),
        *("weight_norms[blocks.0.mlp.W_in]", "weight_norms[blocks.0.mlp.W_out]", "weight_norms[embed.W_E]"),
        *("weight_norms[pos_embed.W_pos]", "weight_norms[unembed.W_U]", "interaction_norm[L0H0]", "score_variance"),
        *("contraction[observed]", "contraction[rate]", "effective_rank", "normalized_mlp_loss"),
        *("train_loss", "test_loss"),
    ],
    "frequencies": [
        *("train_loss", "test_loss", "test_restricted_loss", "excluded_loss", "key_frequency_count", "fourier_gini"),
        *(f"frequency_shares[of=unembed][{w}]" for w in (1, 2, 3)),
    ],
}


EPOCHS = np.arange(0, 5001, 50)


def made(columns: dict[str, np.ndarray]) -> bt.Run:
    """A run with given curves, and accuracies."""
    accuracies = {"train_accuracy": np.where(EPOCHS >= 400, 1.0, 0.5), "test_accuracy": np.where(EPOCHS >= 3000, 1, 0)}
    curves = pd.DataFrame(accuracies | columns, index=pd.Index(EPOCHS, name="epoch"), dtype="float64")
    return bt.Run(description={}, tensors={}, weights={}, curves=curves, epoch=5000)


STORY = {
    "attention_gradient": np.select([EPOCHS < 250, EPOCHS < 900, EPOCHS < 2000], [1.0, 0.9, 0.2], 0.5),
    "kl_to_oracle": np.where(EPOCHS >= 1500, 0.3, 1.0),
}


def traces(figure: go.Figure) -> dict[str, go.Scatter]:
    return {trace.name: trace for trace in figure.data}


def columns_of(figure: go.Figure, run: bt.Run) -> set[str]:
    """The columns whose values are drawn, epoch by epoch."""
    drawn = [np.asarray(trace.y) for trace in figure.data if np.array_equal(trace.x, run.curves.index)]
    return {name for name in run.curves if any(np.array_equal(y, run.curves[name], equal_nan=True) for y in drawn)}


def named(figure: go.Figure, name: str) -> list[go.Scatter]:
    return [trace for trace in figure.data if isinstance(trace, go.Scatter) and trace.name == name]


VISIONS = {
    "full": np.eye(3).tolist(),
    # Machado, Oliveira & Fernandes (2009), at full severity
    "protanopia": [
        [0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900],
    ],
}  # fmt: skip


def seen_by(colour: str, matrix: np.ndarray) -> np.ndarray:
    """A colour as a colour-blind reader sees it, in CIELAB."""
    coded = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    light = np.clip(matrix @ np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4), 0, 1)
    to_xyz = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]])
    x, y, z = np.cbrt(to_xyz @ light / to_xyz.sum(1))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])
