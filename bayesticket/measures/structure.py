"""Structure: where attention sits, compared with where the task's information is."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens import HookedTransformer

from bayesticket import theory
from bayesticket.errors import refuse, refuse_name, require_number
from bayesticket.measures.base import AttentionMeasure, Observation
from bayesticket.model import require_single_layer, value_table, values_of
from bayesticket.routing import Target, as_target, resolve
from bayesticket.tasks import Examples, uniform_over


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


@dataclass(frozen=True, eq=False, repr=False)
class KLToTarget(AttentionMeasure):
    """Divergence of attention from any target of `bayesticket.routing`, `E[D_KL(target‖α)]`: a number.

    A teacher for target costs one forward pass of the teacher each time.
    """

    target: Target = "uniform"

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "target", as_target("target", self.target))

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The mean divergence."""
        terms = []
        for layer, name in zip(self.layers, self.pattern_names(), strict=True):
            rows = self.rows(seen.activations[name])
            target = resolve(self.target, seen.batch, layer, query=self.query, heads=self.heads)
            terms.append(theory.kl_divergence(target.to(rows), rows).mean())
        return torch.stack(terms).mean()


@dataclass(frozen=True, eq=False, repr=False)
class StructuralCondition(AttentionMeasure):
    """Share of inputs on which the structural condition B(τ) holds, `α_i ≥ τ` for every `i ∈ S` (Def. 4.1): a number.

    Averaged over heads. 1 means that B(τ) holds on the batch, as Theorem 4.3 asks.
    """

    tau: float = 0.25

    def __post_init__(self):
        super().__post_init__()
        require_number("tau", self.tau, above=0.0, below=1.0)

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The share."""
        patterns = self.patterns(seen)
        holds = theory.structural_condition(patterns, seen.batch.informative[:, None], self.tau)
        return holds.to(patterns.dtype).mean()


@dataclass(frozen=True, eq=False, repr=False)
class InformativeMassByPosition(AttentionMeasure):
    """Attention on each informative position, `E[α_i]`, averaged over examples and heads: a vector of k numbers.

    Entry j is the j-th informative position of each sequence, from the left, wherever it stands.
    """

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Refuses sequences with different numbers of informative positions."""
        super().check(model, batch)
        require_same_count(batch, "InformativeMassByPosition")

    def value(self, seen: Observation) -> Float[Tensor, "k"]:
        """The mean mass of each."""
        return informative_weights(self.patterns(seen), seen.batch).mean((0, 1))


@dataclass(frozen=True, eq=False, repr=False)
class DistributedMass(AttentionMeasure):
    """Informative mass pooled over heads, `Σ_h α_i^{(h)}` (App. E.2): a vector.

    Entries: the pooled mass of each of the k informative positions, averaged over examples; then its least over
    positions and examples, the largest τ_H for which the distributed condition holds; last the effective number of
    heads that carry it, `(Σ_h m_h)² / Σ_h m_h²`, which is 1 when one head carries all.
    """

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Refuses sequences with different numbers of informative positions."""
        super().check(model, batch)
        require_same_count(batch, "DistributedMass")

    def value(self, seen: Observation) -> Float[Tensor, "k_plus_2"]:
        """The pooled masses, the least, and the effective number of heads."""
        weights = informative_weights(self.patterns(seen), seen.batch)
        pooled = theory.distributed_mass(weights)
        effective = theory.effective_heads(weights.sum(-1).mean(0))
        return torch.cat([pooled.mean(0), pooled.min()[None], effective[None]])


def informative_weights(patterns: Float[Tensor, "n places key"], batch: Examples) -> Float[Tensor, "n places k"]:
    """The attention on informative positions alone, in the order of the sequence."""
    n, places, _ = patterns.shape
    marked = batch.informative[:, None].expand_as(patterns)
    return patterns[marked].view(n, places, -1)


def require_same_count(batch: Examples, field: str) -> None:
    """Refuses a batch whose sequences have different numbers of informative positions."""
    counts = batch.informative.sum(-1)
    if (counts != counts[0]).any():
        raise refuse(
            field, f"{int(counts.min())} to {int(counts.max())} informative positions", "as many in each sequence"
        )


@dataclass(frozen=True, eq=False, repr=False)
class SeparabilityMargin(AttentionMeasure):
    """How far informative values stand out (Sec. 3.2, App. A.3): a vector of a distance and where it is attained.

    `of="centroid"`: Δ, the least `‖v_j − c‖` over inputs and `j ∈ S`, with c the attention-weighted centroid of the
    distractors' values; entries `margin`, `example`, `position`, `head`.
    `of="raw"`: Δ_raw, the least `‖v − v'‖` over changes of the token at an informative position (Eq. 11), among the
    tokens that occur there; entries `margin`, `position`, `token`, `other`, `head`.
    A large margin means that changing an informative token moves z as soon as attention looks. Small margins make the
    lower bounds (18, 20, 21) empty. One-layer models only.
    """

    of: Literal["centroid", "raw"] = "centroid"

    def __post_init__(self):
        super().__post_init__()
        if self.of not in ("centroid", "raw"):
            raise refuse_name("of", self.of, ("centroid", "raw"))

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Refuses models of more than one plain layer, and sequences without distractors."""
        super().check(model, batch)
        require_single_layer(model, "SeparabilityMargin")
        if self.of == "centroid" and batch.informative.all(-1).any():
            raise refuse("SeparabilityMargin", "a sequence without distractors", "sequences with distractors")

    def labels(self, model: HookedTransformer) -> tuple[str, ...]:
        """What the entries are."""
        last = ("example", "position", "head") if self.of == "centroid" else ("position", "token", "other", "head")
        return ("margin", *last)

    def value(self, seen: Observation) -> Float[Tensor, "entries"]:
        """The margin and where it is attained."""
        return self._centroid(seen) if self.of == "centroid" else self._raw(seen)

    def _centroid(self, seen: Observation) -> Float[Tensor, "4"]:
        values = values_of(seen.model, seen.batch.tokens)
        values = values if self.heads is None else values[:, self.heads]
        informative = seen.batch.informative[:, None]
        alpha = self.patterns(seen) * ~informative
        # Where no distractor has any attention left, their centroid is the plain mean.
        alpha = torch.where(alpha.sum(-1, keepdim=True) > 0, alpha, (~informative).to(alpha))
        centroid = torch.einsum("nht,nhtd->nhd", alpha / alpha.sum(-1, keepdim=True), values)
        distance = (values - centroid[:, :, None]).norm(dim=-1).masked_fill(~informative, torch.inf)
        example, head, position = torch.unravel_index(distance.argmin(), distance.shape)
        return torch.stack([distance.min(), *(place.to(distance) for place in (example, position, head))])

    def _raw(self, seen: Observation) -> Float[Tensor, "5"]:
        table = value_table(seen.model, seen.batch.n_positions)
        table = table if self.heads is None else table[:, :, self.heads]
        found = []
        for position in torch.nonzero(seen.batch.informative.any(0))[:, 0].tolist():
            tokens = seen.batch.tokens[seen.batch.informative[:, position], position].unique()
            if len(tokens) < 2:
                continue
            values = table[position, tokens].transpose(0, 1)
            distance = torch.cdist(values, values, compute_mode="donot_use_mm_for_euclid_dist")
            distance.diagonal(dim1=1, dim2=2).fill_(torch.inf)
            head, token, other = torch.unravel_index(distance.argmin(), distance.shape)
            place = torch.tensor(position, dtype=distance.dtype, device=distance.device)
            found.append(
                torch.stack([distance.min(), place, *(x.to(distance) for x in (tokens[token], tokens[other], head))])
            )
        if not found:
            raise refuse("SeparabilityMargin", "one token at every informative position", "a batch where some differ")
        return min(found, key=lambda entry: entry[0])
