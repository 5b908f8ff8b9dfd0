"""Self-distillation: attention is drawn to what it was on average."""

import itertools
from collections.abc import Iterator, Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from bayesticket.attention import AttentionSite
from bayesticket.errors import require_number
from bayesticket.interventions.base import AttentionIntervention
from bayesticket.interventions.context import Context
from bayesticket.model import pattern_name, scores_name
from bayesticket.schedules import Strength, require_strength
from bayesticket.specs import spec
from bayesticket.tasks import Examples
from bayesticket.theory import kl_divergence


@spec
class SelfDistillation(AttentionIntervention):
    """Pulls attention toward its own average over past steps, sharpened: a prior that knows nothing of the oracle.

    `strength · E[D_KL(ᾱ^γ / Σ ᾱ^γ ‖ α)]`, with γ the `sharpness`. The average `ᾱ ← keep · ᾱ + (1 − keep) · α` is kept
    for each training example, and begins with the first attention of training. At a sharpness of 1 the prior only slows
    attention down; above, it also draws it to the positions that have had most of it.

    >>> SelfDistillation(strength=0.1) + SelfDistillation(strength=0.1, sharpness=2.0)
    SelfDistillation(strength=0.1) + SelfDistillation(strength=0.1, sharpness=2.0)
    """

    strength: Strength = 1.0
    keep: float = 0.99
    """Share of the average that stays at each step."""
    sharpness: float = 1.0
    """The power of the average that is the target."""

    def __post_init__(self):
        super().__post_init__()
        require_strength("strength", self.strength)
        require_number("keep", self.keep, least=0.0, below=1.0)
        require_number("sharpness", self.sharpness, above=0.0)

    def reads(self) -> tuple[str, ...]:
        """The scores and the pattern of every layer."""
        return (*self.scores_names(), *self.pattern_names())

    def init(self, context: Context) -> Mapping[str, Tensor]:
        """The average attention of each layer, for every example and head: nothing at first."""
        if context.model is None:  # the hooks of the edits alone are wanted, of which there are none
            return {}
        batch, cfg = context.batch, context.model.cfg
        n_heads = cfg.n_heads if self.heads is None else len(self.heads)
        nothing = torch.zeros(batch.n, n_heads, batch.n_positions, dtype=cfg.dtype, device=batch.tokens.device)
        return {_average(*place): nothing.clone() for place in self._places(batch)}

    def _places(self, batch: Examples) -> Iterator[tuple[int, AttentionSite]]:
        """Each layer at each query."""
        return itertools.product(self.layers, self.at_queries(batch))

    def penalty(self, context: Context, activations: Mapping[str, Tensor]) -> Float[Tensor, ""]:
        """The divergence from the average so far, times the strength; then the average takes the attention in."""
        terms = []
        for layer, site in self._places(context.batch):
            scores, pattern = (site.rows(activations[name(layer)]) for name in (scores_name, pattern_name))
            average, chosen = context.state[_average(layer, site)], context.selected
            now = pattern.detach()
            target = self._target(average[chosen], now)
            terms.append(kl_divergence(target, pattern, scores).mean())
            average[chosen] = self.keep * average[chosen] + (1 - self.keep) * now
        return context.value(self.strength, "SelfDistillation.strength") * torch.stack(terms).mean()

    def _target(
        self, average: Float[Tensor, "n heads T"], now: Float[Tensor, "n heads T"]
    ) -> Float[Tensor, "n heads T"]:
        """The sharpened average, or the present attention of examples that have none yet."""
        mass = average.sum(-1, keepdim=True)
        past = torch.where(mass > 0, average / mass, now)
        # Relative to the largest weight, so that no power underflows everywhere.
        sharp = (past / past.amax(-1, keepdim=True)) ** self.sharpness
        return sharp / sharp.sum(-1, keepdim=True)


def _average(layer: int, site: AttentionSite) -> str:
    return f"average attention, layer {layer}, query {site.position}"
