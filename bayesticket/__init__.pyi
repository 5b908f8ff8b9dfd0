from .config import TrainConfig as TrainConfig
from .errors import BayesticketError as BayesticketError
from .interventions import (
    Anneal as Anneal,
)
from .interventions import (
    AttentionIntervention as AttentionIntervention,
)
from .interventions import (
    Context as Context,
)
from .interventions import (
    EntropyPrior as EntropyPrior,
)
from .interventions import (
    FrozenAttention as FrozenAttention,
)
from .interventions import (
    GradientNoise as GradientNoise,
)
from .interventions import (
    Intervention as Intervention,
)
from .interventions import (
    KLPrior as KLPrior,
)
from .interventions import (
    LinearAttention as LinearAttention,
)
from .interventions import (
    MixedAttention as MixedAttention,
)
from .interventions import (
    NoResidual as NoResidual,
)
from .interventions import (
    NormMatch as NormMatch,
)
from .interventions import (
    QKPenalty as QKPenalty,
)
from .interventions import (
    Recipe as Recipe,
)
from .interventions import (
    Schedule as Schedule,
)
from .interventions import (
    SparsityPrior as SparsityPrior,
)
from .interventions import (
    TicketMask as TicketMask,
)
from .interventions import (
    Window as Window,
)
from .live import Live as Live
from .measures import (
    Accuracy as Accuracy,
)
from .measures import (
    AttentionEntropy as AttentionEntropy,
)
from .measures import (
    AttentionGradient as AttentionGradient,
)
from .measures import (
    AttentionMeasure as AttentionMeasure,
)
from .measures import (
    ClassMargin as ClassMargin,
)
from .measures import (
    Contraction as Contraction,
)
from .measures import (
    DistributedMass as DistributedMass,
)
from .measures import (
    EffectiveRank as EffectiveRank,
)
from .measures import (
    ExcludedLoss as ExcludedLoss,
)
from .measures import (
    ExplainingAway as ExplainingAway,
)
from .measures import (
    FourierGini as FourierGini,
)
from .measures import (
    FrequencyShares as FrequencyShares,
)
from .measures import (
    InformativeMass as InformativeMass,
)
from .measures import (
    InformativeMassByPosition as InformativeMassByPosition,
)
from .measures import (
    InteractionNorm as InteractionNorm,
)
from .measures import (
    KeyFrequencyCount as KeyFrequencyCount,
)
from .measures import (
    KLToOracle as KLToOracle,
)
from .measures import (
    KLToTarget as KLToTarget,
)
from .measures import (
    LipschitzBounds as LipschitzBounds,
)
from .measures import (
    Loss as Loss,
)
from .measures import (
    Measure as Measure,
)
from .measures import (
    MLPNorm as MLPNorm,
)
from .measures import (
    NormalizedMLPLoss as NormalizedMLPLoss,
)
from .measures import (
    NormCondition as NormCondition,
)
from .measures import (
    Observation as Observation,
)
from .measures import (
    RestrictedLoss as RestrictedLoss,
)
from .measures import (
    ScoreVariance as ScoreVariance,
)
from .measures import (
    SeparabilityMargin as SeparabilityMargin,
)
from .measures import (
    StructuralCondition as StructuralCondition,
)
from .measures import (
    WeightNorms as WeightNorms,
)
from .measures import (
    measure as measure,
)
from .model import Architecture as Architecture
from .model import build_model as build_model
from .paper.reproduce import reproduce as reproduce
from .routing import Permuted as Permuted
from .run import Run as Run
from .sweep import Runs as Runs
from .sweep import sweep as sweep
from .symbolic import (
    KOperandAddition as KOperandAddition,
)
from .symbolic import (
    ModularAddition as ModularAddition,
)
from .symbolic import (
    ModularMultiplication as ModularMultiplication,
)
from .symbolic import (
    PermutationComposition as PermutationComposition,
)
from .symbolic import (
    SparseParity as SparseParity,
)
from .tasks import AbstractTask as AbstractTask
from .tasks import Examples as Examples
from .tasks import Split as Split
from .tasks import Task as Task
from .tickets import Ticket as Ticket
from .tickets import find_ticket as find_ticket
from .tickets import jaccard_distance as jaccard_distance
from .tickets import random_ticket as random_ticket
from .tickets import retrain as retrain
from .tickets import rewind as rewind
from .tickets import same_norm as same_norm
from .tickets import ticket_config as ticket_config
from .train import Interrupted as Interrupted
from .train import NonFiniteLoss as NonFiniteLoss
from .train import NotSaved as NotSaved
from .train import resume as resume
from .train import train as train
