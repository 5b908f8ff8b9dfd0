"""Interventions: what can be done to a model, its loss and its weights. See `base` for the algebra."""

from bayesticket.interventions.attention import (
    FrozenAttention,
    LinearAttention,
    MixedAttention,
    NoResidual,
    freeze_attention,
    mix_attention,
)
from bayesticket.interventions.base import AttentionIntervention, Intervention, Recipe, as_recipe
from bayesticket.interventions.context import Context
from bayesticket.interventions.distillation import SelfDistillation
from bayesticket.interventions.grokfast import Grokfast
from bayesticket.interventions.live import Live, require_readable, term_names
from bayesticket.interventions.orthograd import OrthoGrad, orthogonal_part
from bayesticket.interventions.priors import (
    EntropyPrior,
    GradientNoise,
    KLPrior,
    QKPenalty,
    SparsityPrior,
    noise_of_norm,
    root_sum,
    score_sum,
    squared_norm,
)
from bayesticket.interventions.weights import NormMatch, TicketMask, apply_masks, match_norm
from bayesticket.model import linear_attention, no_residual_hooks
from bayesticket.theory import attention_entropy, kl_divergence

__all__ = [
    "AttentionIntervention",
    "Context",
    "EntropyPrior",
    "FrozenAttention",
    "GradientNoise",
    "Grokfast",
    "Intervention",
    "KLPrior",
    "LinearAttention",
    "Live",
    "MixedAttention",
    "NoResidual",
    "NormMatch",
    "OrthoGrad",
    "QKPenalty",
    "Recipe",
    "SelfDistillation",
    "SparsityPrior",
    "TicketMask",
    "apply_masks",
    "as_recipe",
    "attention_entropy",
    "freeze_attention",
    "kl_divergence",
    "linear_attention",
    "match_norm",
    "mix_attention",
    "no_residual_hooks",
    "noise_of_norm",
    "orthogonal_part",
    "require_readable",
    "root_sum",
    "score_sum",
    "squared_norm",
    "term_names",
]
