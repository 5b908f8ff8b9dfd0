"""Structure: where attention sits, compared with where the task's information is."""

from collections.abc import Iterable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from bayesticket import theory
from bayesticket.attention import Target, as_target, resolve
from bayesticket.errors import refuse, refuse_name, require_number
from bayesticket.measures.base import AttentionMeasure, Observation
from bayesticket.measures.capacity import class_margins
from bayesticket.measures.explaining import bypasses_mlp, require_explainable
from bayesticket.model import (
    HookedTransformer,
    is_before_values,
    own_hooks,
    require_single_layer,
    value_table,
    values_of,
)
from bayesticket.specs import changed, spec
from bayesticket.tasks import Examples, uniform_over


@spec
class KLToOracle(AttentionMeasure):
    """Divergence of attention from the oracle, `E[D_KL(α*‖α)]` (Eq. 3): a number, averaged over examples and heads.

    `D_KL(α*‖α) = −log k − (1/k) Σ_{i∈S} log α_i`. 0 when attention is the oracle; log T − log k when it is uniform;
    large when an informative position is missed. Costs a pass over the pattern.
    """

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The mean divergence."""
        patterns = self.patterns(seen)
        oracle = uniform_over(seen.batch.informative, patterns.dtype)[:, None]
        return theory.kl_divergence(oracle, patterns).mean()


@spec
class InformativeMass(AttentionMeasure):
    """Attention on informative positions: a number.

    `of="mean"` is the mass on all of them together, `Σ_{i∈S} α_i`, averaged over examples and heads: 1 is the most.
    `of="least"` is the least weight that any informative position gets in any example, `min_x min_{i∈S} α_i(x)`: the
    largest τ for which the structural condition B(τ) holds (Def. 4.1, Eq. 2); 1/k is the most. Large where attention
    looks at what the target depends on, and the mean alone when it looks at a part of it. Costs a pass over the
    pattern.
    """

    of: Literal["mean", "least"] = "mean"

    def __post_init__(self):
        super().__post_init__()
        if self.of not in ("mean", "least"):
            raise refuse_name("of", self.of, ("mean", "least"))

    @property
    def name(self) -> str:
        """The name of its curve."""
        fields = ",".join(f"{name}={value}" for name, value in changed(self) if name != "of")
        return f"informative_mass_{self.of}" + (f"[{fields}]" if fields else "")

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The mean, or the least mass."""
        patterns, informative = self.patterns(seen), seen.batch.informative[:, None]
        if self.of == "mean":
            return theory.informative_mass(patterns, informative).mean()
        return theory.least_informative_mass(patterns, informative).min()


@spec
class AttentionEntropy(AttentionMeasure):
    """Entropy of attention, `E[H(α)]`, `H(α) = −Σ_i α_i log α_i`: a number, averaged over examples and heads.

    log T when attention is uniform; small when it has condensed on few keys, be they informative or not: log k at the
    oracle. Costs a pass over the pattern.
    """

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The mean entropy."""
        return theory.attention_entropy(self.patterns(seen)).mean()


@spec
class KLToTarget(AttentionMeasure):
    """Divergence of attention from any target of `bayesticket.routing`, `E[D_KL(target‖α)]`: a number.

    `D_KL(target‖α) = Σ_i target_i log(target_i / α_i)`, averaged over examples, heads and layers. 0 when attention is
    the target; large when a key that the target has weight on is missed. Costs a pass over the pattern; a teacher for
    target one forward pass of the teacher besides.
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


@spec
class StructuralCondition(AttentionMeasure):
    """Share of inputs on which the structural condition B(τ) holds, `α_i ≥ τ` for every `i ∈ S` (Def. 4.1).

    Averaged over heads. At a given τ: a number. 1 means that B(τ) holds on the batch, as Theorem 4.3 asks. Costs a
    pass over the pattern.

    At `tau="derived"`: a vector of `share` and of the `threshold` it is of, `τ = γ / (L Δ_max)` (Cor. 4.5, Eq. 27), of
    the model and the batch as they are at that moment: `γ = √2 m` with m the least class margin, as the logits of two
    inputs of different classes are at least so far apart; `L = ‖W_O W_U‖ + ‖W_O W_in‖ ‖W_out W_U‖`; `Δ_max` the largest
    `‖v_j − c_j‖` over inputs and `j ∈ S`, with c_j the centroid of all other values. A large threshold means that such
    margins cannot be had, at this steepness, by looking less. The paper asks it of every input; what must hold is
    `α_j(x) + α_j(x') ≥ τ` for each two inputs of different classes that differ at j alone, so the share may well be
    below 1 (`docs/theory.md`, no. 6). Both entries are NaN where `m ≤ 0`: some example is not answered rightly, so
    there is no margin to keep, and nothing follows for attention. Costs four singular values of small matrices and a
    T × T by T × d_head product for each example: at T = 5 less than a training epoch. For one plain layer of one head,
    unedited, read at a last position that is not itself informative.
    """

    tau: float | Literal["derived"] = 0.25

    def __post_init__(self):
        super().__post_init__()
        if isinstance(self.tau, str) and self.tau != "derived":
            raise refuse("tau", self.tau, "a finite number > 0 and < 1, or 'derived'")
        if self.tau != "derived":
            require_number("tau", self.tau, above=0.0, below=1.0)

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Refuses, where τ is derived, models and sequences about which Eq. 27 says nothing."""
        super().check(model, batch)
        if self.tau != "derived":
            return
        require_explainable(model, _DERIVED)
        if model.cfg.n_heads > 1:
            accepted = "one head; of several only the pooled mass is bounded, which DistributedMass measures"
            raise refuse(_DERIVED, f"a model of {model.cfg.n_heads} heads", accepted)
        if self.query % batch.n_positions != batch.n_positions - 1:
            raise refuse(_DERIVED, f"query={self.query}", "the last position, whose z the answer is made from")
        if batch.informative[:, -1].any():
            raise refuse(_DERIVED, "an informative last position", "a query that two inputs can share")

    def labels(self, model: HookedTransformer) -> tuple[str, ...]:
        """What the entries are, where τ is derived."""
        return ("share", "threshold") if self.tau == "derived" else ()

    def value(self, seen: Observation) -> Float[Tensor, "*entries"]:
        """The share, and the threshold where it is derived."""
        if self.tau != "derived":
            return self._share(seen, self.tau)
        if seen.edited:
            raise refuse(_DERIVED, f"an intervention that edits {seen.edited[0]}", "priors and projections only")
        threshold = self._threshold(seen)
        return torch.stack([torch.where(threshold.isnan(), threshold, self._share(seen, threshold)), threshold])

    def _share(self, seen: Observation, tau: float | Float[Tensor, ""]) -> Float[Tensor, ""]:
        patterns = self.patterns(seen)
        holds = theory.structural_condition(patterns, seen.batch.informative[:, None], tau)
        return holds.to(patterns.dtype).mean()

    def _threshold(self, seen: Observation) -> Float[Tensor, ""]:
        model, block = seen.model, seen.model.blocks[0]
        heads = slice(None) if self.heads is None else self.heads
        margin = class_margins(seen.logits, seen.batch.targets).min()
        weights = (block.attn.W_O[heads], block.mlp.W_in, block.mlp.W_out, model.unembed.W_U)
        lipschitz = theory.lipschitz_products(*weights, mlp_residual=bypasses_mlp(model))
        distance = theory.separation(self.patterns(seen), values_of(model, seen.batch.tokens)[:, heads])
        # Where a position has all the attention its centroid is nan; the other of the two inputs has the same one.
        distance = torch.where(seen.batch.informative[:, None], distance, 0.0).nan_to_num()
        gamma = theory.output_separation(margin, margin)
        threshold = theory.structural_threshold(gamma, lipschitz, distance.amax((0, 2))).min()
        return torch.where(margin > 0, threshold, torch.nan)


_DERIVED = "StructuralCondition(tau='derived')"


@spec
class InformativeMassByPosition(AttentionMeasure):
    """Attention on each informative position, `E[α_i]`, averaged over examples and heads: a vector of k numbers.

    Entry j is the j-th informative position of each sequence, from the left, wherever it stands. Large entries are
    positions that are looked at, 1/k each at the oracle; one that stays small is the operand that is missed. Costs a
    pass over the pattern.
    """

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Refuses sequences with different numbers of informative positions."""
        super().check(model, batch)
        require_same_count(batch, "InformativeMassByPosition")

    def value(self, seen: Observation) -> Float[Tensor, "k"]:
        """The mean mass of each."""
        return informative_weights(self.patterns(seen), seen.batch).mean((0, 1))


@spec
class DistributedMass(AttentionMeasure):
    """Informative mass pooled over heads, `Σ_h α_i^{(h)}` (App. E.2): a vector.

    Entries: the pooled mass of each of the k informative positions, averaged over examples; then its least over
    positions and examples, the largest τ_H for which the distributed condition holds; last the effective number of
    heads that carry it, `(Σ_h m_h)² / Σ_h m_h²` with `m_h = E[Σ_{i∈S} α_i^{(h)}]`, which is 1 when one head carries
    all. Large pooled mass, up to the number of heads for k = 1, means that the heads together look at what the target
    depends on, even where none does alone. Costs a pass over the pattern.
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


def _require_plain_values(what: str, names: Iterable[str]) -> None:
    """Refuses hook points at which the values are changed."""
    for name in names:
        if is_before_values(name):
            raise refuse("SeparabilityMargin", f"{what} {name}", "values made by the weights")


@spec
class SeparabilityMargin(AttentionMeasure):
    """How far informative values stand out (Sec. 3.2, App. A.3): a vector of a distance and where it is attained.

    `of="centroid"`: Δ, the least `‖v_j − c‖` over inputs and `j ∈ S`, with c the attention-weighted centroid of the
    distractors' values; entries `margin`, `example`, `position`, `head`.
    `of="raw"`: Δ_raw, the least `‖v − v'‖` over changes of the token at an informative position (Eq. 11), among the
    tokens that occur there; entries `margin`, `position`, `token`, `other`, `head`.
    A large margin means that changing an informative token moves z as soon as attention looks. Small margins make the
    lower bounds (18, 20, 21) empty. One-layer models only. Costs the values of every position once more (`centroid`),
    or the distances between all pairs of tokens at every informative position (`raw`): less than a training epoch.
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
        _require_plain_values("a model with hooks of its own on", own_hooks(model))
        if self.of == "centroid" and batch.informative.all(-1).any():
            raise refuse("SeparabilityMargin", "a sequence without distractors", "sequences with distractors")

    def labels(self, model: HookedTransformer) -> tuple[str, ...]:
        """What the entries are."""
        last = ("example", "position", "head") if self.of == "centroid" else ("position", "token", "other", "head")
        return ("margin", *last)

    def value(self, seen: Observation) -> Float[Tensor, "entries"]:
        """The margin and where it is attained."""
        _require_plain_values("an intervention that edits", seen.edited)
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
