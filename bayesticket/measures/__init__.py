"""Measures: what can be read off a model and a batch, during training or alone.

Here stand the measures, the names of their columns, and the one way to mount hooks, run a model and observe it. A
measure reads; it changes neither model nor batch. See `base` for how to add one.
"""

from bayesticket.measures.attention import AttentionEntropy, KLToOracle, KLToTarget, ScoreVariance
from bayesticket.measures.base import AttentionMeasure, Measure, Observation, OptimizerStep
from bayesticket.measures.columns import Column, Half, Measured, names_evaluation, of_evaluation
from bayesticket.measures.commutator import CommutatorDefect, commutator_defect
from bayesticket.measures.condition import StructuralCondition
from bayesticket.measures.contraction import Contraction
from bayesticket.measures.defaults import DEFAULT_MEASURES, additional, suited_to
from bayesticket.measures.explaining import ExplainingAway, LipschitzBounds
from bayesticket.measures.frequency_losses import ExcludedLoss, RestrictedLoss
from bayesticket.measures.gradients import AttentionGradient, PriorGradient
from bayesticket.measures.margins import ClassMargin, class_margins
from bayesticket.measures.masses import DistributedMass, InformativeMass, InformativeMassByPosition
from bayesticket.measures.normalized import NormalizedMLPLoss
from bayesticket.measures.norms import InteractionNorm, MLPNorm, NormCondition, WeightNorms
from bayesticket.measures.observe import (
    Observed,
    Observer,
    activations_of,
    attention_of,
    measure,
    observe,
    run_forward,
)
from bayesticket.measures.pairs import PairwiseCondition
from bayesticket.measures.performance import Accuracy, Loss
from bayesticket.measures.rank import EffectiveRank, effective_rank
from bayesticket.measures.separability import SeparabilityMargin
from bayesticket.measures.spectrum import (
    FourierGini,
    FrequencyShares,
    KeyFrequencyCount,
    circle_of,
    key_frequencies,
    neuron_frequencies,
)
from bayesticket.measures.subspaces import SubspaceOverlap
from bayesticket.measures.waves import is_key

__all__ = [
    "DEFAULT_MEASURES",
    "Accuracy",
    "AttentionEntropy",
    "AttentionGradient",
    "AttentionMeasure",
    "ClassMargin",
    "Column",
    "CommutatorDefect",
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
    "Measured",
    "NormCondition",
    "NormalizedMLPLoss",
    "Observation",
    "Observed",
    "Observer",
    "OptimizerStep",
    "PairwiseCondition",
    "PriorGradient",
    "RestrictedLoss",
    "ScoreVariance",
    "SeparabilityMargin",
    "StructuralCondition",
    "SubspaceOverlap",
    "WeightNorms",
    "activations_of",
    "additional",
    "attention_of",
    "circle_of",
    "class_margins",
    "commutator_defect",
    "effective_rank",
    "is_key",
    "key_frequencies",
    "measure",
    "names_evaluation",
    "neuron_frequencies",
    "observe",
    "of_evaluation",
    "run_forward",
    "suited_to",
]
