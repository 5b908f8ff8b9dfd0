"""How far the values of informative tokens are from the others."""

from collections.abc import Iterable
from typing import Literal

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor

from bayesticket.errors import refuse_case
from bayesticket.measures.base import AttentionMeasure, Observation, require_choice
from bayesticket.model import (
    HookedTransformer,
    is_before_values,
    own_hooks,
    require_single_layer,
    value_table,
    values_of,
)
from bayesticket.specs import spec
from bayesticket.tasks import Examples


def _require_plain_values(what: str, names: Iterable[str]) -> None:
    """Raises for hook points at which the values are changed."""
    for name in names:
        if is_before_values(name):
            raise refuse_case("SeparabilityMargin", f"{what} {name}", "values made by the weights")


@spec
class SeparabilityMargin(AttentionMeasure):
    """How far informative values stand out (Sec. 3.2, App. A.3): a vector of a distance and where it is attained.

    `of="centroid"`: Δ, the least `‖v_j − c‖` over inputs and `j ∈ S`, with c the attention-weighted centroid of the
    distractors' values; entries `margin`, `example`, `position`, `head`.
    `of="raw"`: Δ_raw, the least `‖v − v'‖` over changes of the token at an informative position (Eq. 11), among the
    tokens that occur there; entries `margin`, `position`, `token`, `other`, `head`.
    With a large margin a change of an informative token moves z as soon as that position gets attention. With small
    margins the lower bounds (18, 20, 21) say nothing. One-layer models only. Costs the values of every position once
    more (`centroid`), or the distances between all pairs of tokens at every informative position (`raw`): less than a
    training epoch.
    """

    of: Literal["centroid", "raw"] = "centroid"

    def __post_init__(self):
        super().__post_init__()
        require_choice("of", self.of, ("centroid", "raw"))

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Raises for models of more than one plain layer, and for sequences without distractors."""
        super().check(model, batch)
        require_single_layer(model, "SeparabilityMargin")
        _require_plain_values("a model with hooks of its own on", own_hooks(model))
        if self.of == "centroid" and batch.informative.all(-1).any():
            raise refuse_case("SeparabilityMargin", "a sequence without distractors", "sequences with distractors")

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
        centroid = einsum(alpha / alpha.sum(-1, keepdim=True), values, "n head key, n head key d_head -> n head d_head")
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
