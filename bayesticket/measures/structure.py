"""Structure: where attention sits, compared with where the task's information is."""

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from bayesticket import theory
from bayesticket.errors import refuse_name
from bayesticket.measures.base import AttentionMeasure, Observation
from bayesticket.tasks import uniform_over


@dataclass(frozen=True, eq=False, repr=False)
class KLToOracle(AttentionMeasure):
    """Divergence of attention from the oracle, `E[D_KL(α*‖α)]` (Eq. 3): a number, averaged over examples and heads.

    0 when attention is the oracle; log T − log k when it is uniform; large when an informative position is missed.
    """

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The mean divergence."""
        patterns = self.patterns(seen)
        oracle = uniform_over(seen.batch.informative, patterns.dtype)[:, None]
        return theory.kl_divergence(oracle, patterns).mean()


@dataclass(frozen=True, eq=False, repr=False)
class InformativeMass(AttentionMeasure):
    """Attention on informative positions: a number.

    `of="mean"` is the mass on all of them together, `Σ_{i∈S} α_i`, averaged over examples and heads: 1 is the most.
    `of="least"` is the least weight that any informative position gets in any example, `min_x min_{i∈S} α_i(x)`: the
    largest τ for which the structural condition B(τ) holds (Def. 4.1, Eq. 2); 1/k is the most.
    """

    of: Literal["mean", "least"] = "mean"

    def __post_init__(self):
        super().__post_init__()
        if self.of not in ("mean", "least"):
            raise refuse_name("of", self.of, ("mean", "least"))

    @property
    def name(self) -> str:
        """The name of its curve."""
        place = super().name.removeprefix("informative_mass").replace("of=least", "").replace("[]", "")
        return f"informative_mass_{self.of}{place}"

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The mean, or the least mass."""
        patterns, informative = self.patterns(seen), seen.batch.informative[:, None]
        if self.of == "mean":
            return theory.informative_mass(patterns, informative).mean()
        return theory.least_informative_mass(patterns, informative).min()


@dataclass(frozen=True, eq=False, repr=False)
class AttentionEntropy(AttentionMeasure):
    """Entropy of attention, `E[H(α)]`: a number, averaged over examples and heads; log T when it is uniform."""

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The mean entropy."""
        return theory.attention_entropy(self.patterns(seen)).mean()
