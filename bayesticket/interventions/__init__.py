"""Interventions: what can be done to a model, its loss and its weights. See `base` for the algebra."""

from bayesticket.interventions.attention import (
    FrozenAttention,
    LinearAttention,
    MixedAttention,
    NoResidual,
    freeze_attention,
    mix_attention,
)
from bayesticket.interventions.base import AttentionIntervention, Context, Intervention, Recipe, as_recipe
from bayesticket.interventions.priors import EntropyPrior, GradientNoise, KLPrior, QKPenalty, SparsityPrior
from bayesticket.interventions.schedule import Anneal, Schedule, Window
from bayesticket.interventions.weights import NormMatch, TicketMask, match_norm

__all__ = [
    "Anneal",
    "AttentionIntervention",
    "Context",
    "EntropyPrior",
    "FrozenAttention",
    "GradientNoise",
    "Intervention",
    "KLPrior",
    "LinearAttention",
    "MixedAttention",
    "NoResidual",
    "NormMatch",
    "QKPenalty",
    "Recipe",
    "Schedule",
    "SparsityPrior",
    "TicketMask",
    "Window",
    "as_recipe",
    "freeze_attention",
    "match_norm",
    "mix_attention",
]
