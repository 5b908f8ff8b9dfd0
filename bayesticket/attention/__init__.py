"""Attention: the sites where it is read or changed, and the targets that it is compared with or drawn to."""

from bayesticket.attention.sites import AttentionSite, place_label, require_places, require_query
from bayesticket.attention.targets import (
    HoldsModel,
    Permuted,
    Target,
    Teacher,
    apart_from,
    as_target,
    require_visible,
    resolve,
)
from bayesticket.attention.teachers import require_same_tokens

__all__ = [
    "AttentionSite",
    "HoldsModel",
    "Permuted",
    "Target",
    "Teacher",
    "apart_from",
    "as_target",
    "place_label",
    "require_places",
    "require_query",
    "require_same_tokens",
    "require_visible",
    "resolve",
]
