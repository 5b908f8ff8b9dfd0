"""How much attention the informative positions get."""

from typing import Literal

import torch
from einops import rearrange, reduce
from jaxtyping import Float
from torch import Tensor

from bayesticket import theory
from bayesticket.errors import refuse_case, require_choice
from bayesticket.measures.base import AttentionMeasure, Observation
from bayesticket.measures.columns import Column, changed_fields
from bayesticket.model import HookedTransformer
from bayesticket.specs import spec
from bayesticket.tasks import Examples


@spec
class InformativeMass(AttentionMeasure):
    """Attention on informative positions: a number.

    `of="mean"` is the mass on all of them together, `Σ_{i∈S} α_i`, averaged over examples and heads: 1 is the most.
    `of="least"` is the least weight that any informative position gets in any example, `min_x min_{i∈S} α_i(x)`: the
    largest τ for which the structural condition B(τ) holds (Def. 4.1, Eq. 2); 1/k is the most. Both are large where
    attention is on everything that the target depends on; where it is on a part of that, only the mean is. Costs a
    pass over the pattern.
    """

    of: Literal["mean", "least"] = "mean"

    def __post_init__(self):
        super().__post_init__()
        require_choice("of", self.of, ("mean", "least"))

    @property
    def name(self) -> str:
        """The name of its curve."""
        return str(Column(f"informative_mass_{self.of}", changed_fields(self, without=("of", "half"))))

    def pooling(self) -> Literal["mean", "least"]:
        """The mean over queries, or the least of all."""
        return self.of

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The mean, or the least mass."""
        patterns, informative = self.patterns(seen), seen.batch.informative[:, None]
        if self.of == "mean":
            return theory.informative_mass(patterns, informative).mean()
        return theory.least_informative_mass(patterns, informative).min()


@spec
class InformativeMassByPosition(AttentionMeasure):
    """Attention on each informative position, `E[α_i]`, averaged over examples and heads: a vector of k numbers.

    Entry j is the j-th informative position of each sequence, from the left, wherever it stands. At the oracle every
    entry is 1/k; an entry that stays small is an operand that is missed. Costs a pass over the pattern.
    """

    def pooling(self) -> Literal["mean"]:
        """The mean over queries."""
        return "mean"

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Raises where sequences have different numbers of informative positions."""
        super().check(model, batch)
        require_same_count(batch, "InformativeMassByPosition")

    def value(self, seen: Observation) -> Float[Tensor, "k"]:
        """The mean mass of each."""
        return reduce(informative_weights(self.patterns(seen), seen.batch), "n place k -> k", "mean")


@spec
class DistributedMass(AttentionMeasure):
    """Informative mass pooled over heads, `Σ_h α_i^{(h)}` (App. E.2): a vector.

    Entries: the pooled mass of each of the k informative positions, averaged over examples; then its least over
    positions and examples, the largest τ_H for which the distributed condition holds; last the effective number of
    heads that carry it, `(Σ_h m_h)² / Σ_h m_h²` with `m_h = E[Σ_{i∈S} α_i^{(h)}]`, which is 1 when one head carries
    all. A large pooled mass, up to the number of heads for k = 1, means that the heads together attend to what the
    target depends on, even where no single head does. Costs a pass over the pattern.
    """

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Raises where sequences have different numbers of informative positions."""
        super().check(model, batch)
        require_same_count(batch, "DistributedMass")

    def value(self, seen: Observation) -> Float[Tensor, "k_plus_2"]:
        """The pooled masses, the least, and the effective number of heads."""
        weights = informative_weights(self.patterns(seen), seen.batch)
        pooled = theory.distributed_mass(weights)
        effective = theory.effective_heads(weights.sum(-1).mean(0))
        return torch.cat([pooled.mean(0), pooled.min()[None], effective[None]])


def informative_weights(patterns: Float[Tensor, "n place key"], batch: Examples) -> Float[Tensor, "n place k"]:
    """The attention on informative positions alone, in the order of the sequence."""
    n, place, _ = patterns.shape
    chosen = patterns[batch.informative[:, None].expand_as(patterns)]
    return rearrange(chosen, "(n place k) -> n place k", n=n, place=place)


def require_same_count(batch: Examples, field: str) -> None:
    """Raises where the sequences of a batch have different numbers of informative positions."""
    counts = batch.informative.sum(-1)
    if (counts != counts[0]).any():
        situation = f"{int(counts.min())} to {int(counts.max())} informative positions"
        raise refuse_case(field, situation, "as many in each sequence")
