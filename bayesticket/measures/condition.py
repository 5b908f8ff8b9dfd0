"""The structural condition B(τ), at a given threshold or at the one that Corollary 4.5 derives."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from bayesticket import theory
from bayesticket.errors import refuse, refuse_case, require_number
from bayesticket.measures.base import AttentionMeasure, Observation, require_unedited
from bayesticket.measures.margins import class_margins
from bayesticket.measures.pairs import require_pairwise
from bayesticket.measures.separability import centroid_distances
from bayesticket.model import HookedTransformer, bypasses_mlp, readout_matrices, values_of
from bayesticket.specs import spec
from bayesticket.tasks import Examples


@spec
class StructuralCondition(AttentionMeasure):
    """Share of inputs on which the structural condition B(τ) holds, `α_i ≥ τ` for every `i ∈ S` (Def. 4.1).

    Averaged over heads. At a given τ: a number. 1 means that B(τ) holds on the batch, as Theorem 4.3 asks. Costs a
    pass over the pattern.

    At `tau="derived"`: a vector of the `threshold` that the model and the batch have at that moment, and of the `share`
    of inputs that reach it. The threshold is `τ = γ / (L Δ_max)` (Cor. 4.5, Eq. 27), with
    - `γ = √2 m`, m the least class margin: the logits of two inputs of different classes are at least so far apart;
    - `L = ‖W_O W_U‖ + ‖W_O W_in‖ ‖W_out W_U‖`;
    - `Δ_max` the largest `‖v_j − c_j‖` over inputs and `j ∈ S`, with c_j the centroid of all other values.

    `threshold/distractors` and `share/distractors` are the same with c_j the centroid of the distractors' values, as
    Section 3.2 defines it; for k = 1 the two agree, for larger k Eq. 27 is about the first.

    A large threshold means that a model as steep as this one cannot have such margins with less attention. The paper
    demands it of every input. What must hold is `α_j(x) + α_j(x') ≥ τ` for every two inputs of different classes that
    differ at j alone, so the share may well be below 1 (`docs/theory.md`, no. 6); `PairwiseCondition` measures what
    must hold. All entries are NaN where `m ≤ 0`: the model answers some example wrongly, there is no margin, and
    nothing follows for attention.

    Costs four singular values of small matrices and a T × T by T × d_head product for each example: at T = 5 half
    a training epoch, on test examples one. For one plain layer of one head, unedited, read at a last position that is
    not informative.
    """

    tau: float | Literal["derived"] = 0.25

    def __post_init__(self):
        super().__post_init__()
        if isinstance(self.tau, str) and self.tau != "derived":
            raise refuse("tau", self.tau, "a finite number > 0 and < 1, or 'derived'")
        if self.tau != "derived":
            require_number("tau", self.tau, above=0.0, below=1.0)

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Raises, where τ is derived, for models and sequences about which Eq. 27 says nothing."""
        super().check(model, batch)
        if self.tau != "derived":
            return
        require_pairwise(model, batch, _DERIVED)
        if self.position % batch.n_positions != batch.n_positions - 1:
            raise refuse_case(_DERIVED, f"query={self.position}", "the last position, whose z the answer is made from")

    def pooling(self) -> Literal["mean"] | None:
        """The share of all inputs at all queries; a threshold that is derived is one of each query."""
        return None if self.tau == "derived" else "mean"

    def labels(self, model: HookedTransformer) -> tuple[str, ...]:
        """What the entries are, where τ is derived."""
        if self.tau != "derived":
            return ()
        return ("share", "threshold", "share/distractors", "threshold/distractors")

    def value(self, seen: Observation) -> Float[Tensor, "*entries"]:
        """The share, and the threshold where it is derived."""
        if self.tau != "derived":
            return self._share(seen, self.tau)
        require_unedited(seen, _DERIVED)
        entries = []
        for threshold in self._thresholds(seen):
            entries += [torch.where(threshold.isnan(), threshold, self._share(seen, threshold)), threshold]
        return torch.stack(entries)

    def _share(self, seen: Observation, tau: float | Float[Tensor, ""]) -> Float[Tensor, ""]:
        patterns = self.patterns(seen)
        holds = theory.structural_condition(patterns, seen.batch.informative[:, None], tau)
        return holds.to(patterns.dtype).mean()

    def _thresholds(self, seen: Observation) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """With the centroid of all other values, and with that of the distractors."""
        model, heads = seen.model, slice(None) if self.heads is None else self.heads
        margin = class_margins(seen.logits, seen.batch.targets).min()
        lipschitz = theory.lipschitz_products(*readout_matrices(model, self.heads), mlp_residual=bypasses_mlp(model))
        patterns, values = self.patterns(seen), values_of(model, seen.batch.tokens)[:, heads]
        informative, gamma = seen.batch.informative, theory.output_separation(margin, margin)
        # A position with all the attention has a centroid of NaN; the input it is compared with has the same centroid.
        others = torch.where(informative[:, None], theory.separation(patterns, values), 0.0).nan_to_num().amax((0, 2))
        distractors = centroid_distances(patterns, values, informative, "distractors")
        distractors = distractors.masked_fill(~informative[:, None], 0.0).amax((0, 2))
        thresholds = [theory.structural_threshold(gamma, lipschitz, most).min() for most in (others, distractors)]
        derived, with_distractors = (torch.where(margin > 0, threshold, torch.nan) for threshold in thresholds)
        return derived, with_distractors


_DERIVED = "StructuralCondition(tau='derived')"
