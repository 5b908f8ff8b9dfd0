"""Where one looks, and what one draws it to: the sites and the targets of attention."""

from bayesticket.attention.sites import (
    AttentionSite,
    require_places,
)
from bayesticket.attention.targets import (
    Permuted,
    Target,
    as_target,
    require_visible,
    resolve,
)

__all__ = [
    "AttentionSite",
    "Permuted",
    "Target",
    "as_target",
    "require_places",
    "require_visible",
    "resolve",
]
