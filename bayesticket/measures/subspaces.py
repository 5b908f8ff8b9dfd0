"""Whether the values of informative tokens and of distractors lie in different subspaces."""

from einops import einsum, rearrange
from jaxtyping import Bool, Float
from torch import Tensor

from bayesticket import theory
from bayesticket.errors import refuse_case
from bayesticket.measures.base import AttentionMeasure, Observation
from bayesticket.measures.values import require_unedited_values, require_values_of_weights
from bayesticket.model import HookedTransformer, values_of
from bayesticket.specs import spec
from bayesticket.tasks import Examples


@spec
class SubspaceOverlap(AttentionMeasure):
    """How far values of operands and of distractors vary in the same directions (Eq. 10): a number from 0 to 1.

    `⟨C_S, C_D⟩ / (‖C_S‖ ‖C_D‖)` with C_S and C_D the covariances of the values at informative positions and at the
    other ones before the query, each value relative to the mean of its position; averaged over heads. 0 means that the
    space of values decomposes into an informative and a distractor subspace; 1 that both vary alike, as they do at
    fixed positions where operands and distractors have the same tokens. NaN where the values of the distractors do not
    vary. One-layer models only. Costs the values of every position once more.
    """

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Raises for models of more than one plain layer, and for batches without distractors."""
        super().check(model, batch)
        require_values_of_weights(model, "SubspaceOverlap")
        if not (~batch.informative[:, :-1]).any():
            raise refuse_case("SubspaceOverlap", "sequences without distractors", "sequences with distractors")

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The overlap."""
        require_unedited_values(seen, "SubspaceOverlap")
        values = values_of(seen.model, seen.batch.tokens)[:, :, :-1]
        values = rearrange(values if self.heads is None else values[:, self.heads], "n head T d -> head n T d")
        informative = seen.batch.informative[:, :-1]
        return theory.subspace_overlap(*(_varying(values, each) for each in (informative, ~informative))).mean()


def _varying(values: Float[Tensor, "head n T d"], members: Bool[Tensor, "n T"]) -> Float[Tensor, "head m d"]:
    """The values at some positions of each sequence, relative to the mean of those at the same position."""
    total = einsum(values, members.to(values), "head n T d, n T -> head T d")
    mean = total / members.sum(0).clamp_min(1)[:, None]
    return (values - mean[:, None])[:, members]
