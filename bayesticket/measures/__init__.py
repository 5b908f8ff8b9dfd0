"""Measures: what can be read off a model, during training or alone. See `base` for how to add one."""

from bayesticket.measures.base import (
    AttentionMeasure,
    Half,
    Measure,
    Observation,
    Observer,
    OptimizerStep,
    measure,
    run_forward,
)
from bayesticket.measures.capacity import (
    ClassMargin,
    EffectiveRank,
    InteractionNorm,
    MLPNorm,
    NormalizedMLPLoss,
    NormCondition,
    ScoreVariance,
    WeightNorms,
)
from bayesticket.measures.contraction import Contraction
from bayesticket.measures.explaining import ExplainingAway, LipschitzBounds
from bayesticket.measures.fourier import ExcludedLoss, FourierGini, FrequencyShares, KeyFrequencyCount, RestrictedLoss
from bayesticket.measures.gradients import AttentionGradient
from bayesticket.measures.performance import Accuracy, Loss
from bayesticket.measures.structure import (
    AttentionEntropy,
    DistributedMass,
    InformativeMass,
    InformativeMassByPosition,
    KLToOracle,
    KLToTarget,
    SeparabilityMargin,
    StructuralCondition,
)

DEFAULT_MEASURES: tuple[Measure, ...] = (
    Loss(),
    Accuracy(),
    KLToOracle(),
    InformativeMass("least"),
    InformativeMass("mean"),
    MLPNorm(),
    AttentionGradient(),
)
"""What training records unless told otherwise."""

__all__ = [
    "DEFAULT_MEASURES",
    "Accuracy",
    "AttentionEntropy",
    "AttentionGradient",
    "AttentionMeasure",
    "ClassMargin",
    "Contraction",
    "DistributedMass",
    "EffectiveRank",
    "ExcludedLoss",
    "ExplainingAway",
    "FourierGini",
    "FrequencyShares",
    "Half",
    "InformativeMass",
    "InformativeMassByPosition",
    "InteractionNorm",
    "KLToOracle",
    "KLToTarget",
    "KeyFrequencyCount",
    "LipschitzBounds",
    "Loss",
    "MLPNorm",
    "Measure",
    "NormCondition",
    "NormalizedMLPLoss",
    "Observation",
    "Observer",
    "OptimizerStep",
    "RestrictedLoss",
    "ScoreVariance",
    "SeparabilityMargin",
    "StructuralCondition",
    "WeightNorms",
    "measure",
    "run_forward",
]
