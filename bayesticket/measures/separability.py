"""How far the values of informative tokens are from the others."""

from typing import Literal

import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float
from torch import Tensor

from bayesticket.errors import refuse_case, require_choice
from bayesticket.measures.base import AttentionMeasure, Observation
from bayesticket.measures.values import require_unedited_values, require_values_of_weights
from bayesticket.model import (
    HookedTransformer,
    value_table,
    values_of,
)
from bayesticket.specs import spec
from bayesticket.tasks import Examples


@spec
class SeparabilityMargin(AttentionMeasure):
    """How far informative values stand out (Sec. 3.2, App. A.3): a vector of a distance and where it is attained.

    `of="centroid"`: Δ, the least `‖v_j − c‖` over inputs and `j ∈ S`, with c the attention-weighted centroid of the
    distractors' values; entries `margin`, `example`, `position`, `head`.
    `of="raw"`: Δ_raw, the least `‖v − v'‖` over changes of the token at an informative position (Eq. 11), among the
    tokens that occur there; entries `margin`, `position`, `token`, `other`, `head`.
    `of="readings"`: the paper has one symbol for what its statements need in four readings. Entries, over inputs and
    `j ∈ S`:
    - `least/distractors`: Δ itself, as Section 3.2 defines it and Theorem 4.3 presumes it to be positive;
    - `largest/distractors`: what Eq. 27 has for Δ_max if it is read with that centroid;
    - `least/others`: the least `‖v_j − c_j‖` with c_j the centroid of all other values (Eq. 13): the worst case of the
      offsets in Eqs. 14 to 21;
    - `largest/others`: Δ_max, for which Eqs. 15 and 27 hold.

    Where no attention is left for a centroid, it is the plain mean of the same values.

    With a large margin a change of an informative token moves z as soon as that position gets attention. With small
    margins the lower bounds (18, 20, 21) say nothing. One-layer models only. Costs the values of every position once
    more (`centroid`), a quarter of a training epoch; twice more (`readings`), half an epoch, on test examples a little
    more than one; or the distances between all pairs of tokens at every informative position (`raw`).
    """

    of: Literal["centroid", "raw", "readings"] = "centroid"

    def __post_init__(self):
        super().__post_init__()
        require_choice("of", self.of, ("centroid", "raw", "readings"))

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Raises for models of more than one plain layer, and for sequences without distractors."""
        super().check(model, batch)
        require_values_of_weights(model, "SeparabilityMargin")
        if self.of != "raw" and batch.informative.all(-1).any():
            raise refuse_case("SeparabilityMargin", "a sequence without distractors", "sequences with distractors")

    def labels(self, model: HookedTransformer) -> tuple[str, ...]:
        """What the entries are."""
        if self.of == "readings":
            return ("least/distractors", "largest/distractors", "least/others", "largest/others")
        last = ("example", "position", "head") if self.of == "centroid" else ("position", "token", "other", "head")
        return ("margin", *last)

    def value(self, seen: Observation) -> Float[Tensor, "entries"]:
        """The margin and where it is attained."""
        require_unedited_values(seen, "SeparabilityMargin")
        if self.of == "raw":
            return self._raw(seen)
        return self._centroid(seen) if self.of == "centroid" else self._readings(seen)

    def _distances(self, seen: Observation, of: Literal["distractors", "others"]) -> Float[Tensor, "n head key"]:
        values = values_of(seen.model, seen.batch.tokens)
        values = values if self.heads is None else values[:, self.heads]
        return centroid_distances(self.patterns(seen), values, seen.batch.informative, of)

    def _readings(self, seen: Observation) -> Float[Tensor, "4"]:
        readings = []
        for centroid in ("distractors", "others"):
            distance = self._distances(seen, centroid)
            known = ~distance.isnan()
            readings += [distance.masked_fill(~known, torch.inf).min(), distance.masked_fill(~known, 0.0).max()]
        return torch.stack(readings)

    def _centroid(self, seen: Observation) -> Float[Tensor, "4"]:
        distance = self._distances(seen, "distractors").nan_to_num(nan=torch.inf)
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
            values = rearrange(table[position, tokens], "token head d_head -> head token d_head")
            distance = torch.cdist(values, values, compute_mode="donot_use_mm_for_euclid_dist")
            distance.diagonal(dim1=1, dim2=2).fill_(torch.inf)
            head, token, other = torch.unravel_index(distance.argmin(), distance.shape)
            place = torch.tensor(position, dtype=distance.dtype, device=distance.device)
            found.append(
                torch.stack([distance.min(), place, *(x.to(distance) for x in (tokens[token], tokens[other], head))])
            )
        if not found:
            raise refuse_case(
                "SeparabilityMargin", "one token at every informative position", "a batch where some differ"
            )
        return min(found, key=lambda entry: entry[0])


def centroid_distances(
    patterns: Float[Tensor, "n head key"],
    values: Float[Tensor, "n head key d_head"],
    informative: Bool[Tensor, "n key"],
    of: Literal["distractors", "others"],
) -> Float[Tensor, "n head key"]:
    """How far the value of each informative position is from a centroid; NaN at all other positions.

    The centroid is that of the distractors, or of all other positions; without attention left, a plain mean.
    """
    if of == "distractors":
        distance = (values - _centroid(patterns, values, ~informative)[:, :, None]).norm(dim=-1)
    else:
        distance = torch.full_like(patterns, torch.nan)
        for place in torch.nonzero(informative.any(0))[:, 0].tolist():
            others = torch.ones_like(informative)
            others[:, place] = False
            distance[:, :, place] = (values[:, :, place] - _centroid(patterns, values, others)).norm(dim=-1)
    return distance.masked_fill(~informative[:, None], torch.nan)


def _centroid(
    patterns: Float[Tensor, "n head key"], values: Float[Tensor, "n head key d_head"], members: Bool[Tensor, "n key"]
) -> Float[Tensor, "n head d_head"]:
    """The centroid of the values of some positions, weighted by attention."""
    alpha = patterns * members[:, None]
    alpha = torch.where(alpha.sum(-1, keepdim=True) > 0, alpha, members[:, None].to(alpha))
    return einsum(alpha / alpha.sum(-1, keepdim=True), values, "n head key, n head key d_head -> n head d_head")
