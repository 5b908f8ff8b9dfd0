"""Measures: what can be read off a model, during training or alone. See `base` for how to add one."""

from bayesticket.measures.base import AttentionMeasure, Measure, Observation, Observer, measure
from bayesticket.measures.capacity import MLPNorm
from bayesticket.measures.gradients import AttentionGradient
from bayesticket.measures.performance import Accuracy, Loss
from bayesticket.measures.structure import AttentionEntropy, InformativeMass, KLToOracle

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
    "InformativeMass",
    "KLToOracle",
    "Loss",
    "MLPNorm",
    "Measure",
    "Observation",
    "Observer",
    "measure",
]
