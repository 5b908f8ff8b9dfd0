"""Attention: the sites where it is read or changed, and the targets that it is compared with or drawn to."""

from bayesticket.attention.sites import AttentionSite, place_label, require_places, require_query
from bayesticket.attention.targets import HoldsModel, Permuted, Target, as_target, require_visible, resolve

__all__ = [
    "AttentionSite",
    "HoldsModel",
    "Permuted",
    "Target",
    "as_target",
    "place_label",
    "require_places",
    "require_query",
    "require_visible",
    "resolve",
]
