"""What Eq. 27 asks of attention, on pairs of inputs that differ at one informative position alone."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bayesticket import theory
from bayesticket.errors import refuse_case
from bayesticket.measures.base import Observation, require_unedited
from bayesticket.measures.explaining import ReadoutMeasure, spread
from bayesticket.measures.masses import require_same_count
from bayesticket.model import (
    HookedTransformer,
    bypasses_mlp,
    logits_of_pooled,
    readout_matrices,
    require_relu_layer,
    score_table,
    value_table,
)
from bayesticket.specs import spec
from bayesticket.tasks import Examples


@spec
class PairwiseCondition(ReadoutMeasure):
    """The structural condition as it must hold, `α_j(x) + α_j(x') ≥ γ / (L Δ_max)` (Eq. 27): a vector.

    For every two inputs of different classes that differ at the informative position j alone. Such a pair is made of an
    example x, by replacing its token at j by another one with which the batch knows the answer. Entries:

    - `least`: the least `α_j(x) + α_j(x')` of any pair;
    - `separation`: γ, the least distance between the logits of a pair;
    - `threshold`: `γ / (L Δ_max)`, with `L = ‖W_O W_U‖ + ‖W_O W_in‖ ‖W_out W_U‖` and Δ_max the largest `‖v_j − c_j‖` in
      these pairs, c_j the centroid of all other values;
    - `share`: how many of the pairs reach it. Eq. 27 is proven, so this is 1 whatever the model;
    - `threshold/distractors`, `share/distractors`: the same with c_j the centroid of the distractors' values, as
      Section 3.2 defines it, for which nothing is proven when k > 1.

    `least` far above `threshold` means that the condition binds nothing: a model as steep as this one could have such
    logits with much less attention. Costs one run of MLP and unembedding on all pairs, of which `examples` examples at
    p = 113 have about 2,000 on training and 5,000 on test examples: one to two training epochs. For one plain layer
    of one head, unedited, whose last position is not informative.
    """

    examples: int | None = 32

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Raises for models and sequences about which Eq. 27 says nothing."""
        super().check(model, batch)
        require_same_count(batch, "PairwiseCondition")
        require_pairwise(model, batch, "PairwiseCondition")
        if not any(len(pairs.example) for pairs in _pairs(batch, spread(len(batch), self.examples))):
            accepted = "a batch in which two answers differ by one informative token"
            raise refuse_case("PairwiseCondition", "no pair of inputs of different classes", accepted)

    def labels(self, model: HookedTransformer) -> tuple[str, ...]:
        """What the entries are."""
        return ("least", "separation", "threshold", "share", "threshold/distractors", "share/distractors")

    def value(self, seen: Observation) -> Float[Tensor, "6"]:
        """The least mass of a pair, and what it has to reach."""
        require_unedited(seen, "PairwiseCondition")
        model, batch = seen.model, seen.batch.select(self.index(seen))
        found = [_compare(model, batch, pairs) for pairs in _pairs(seen.batch, self.index(seen)) if len(pairs.example)]
        masses = torch.cat([each.mass for each in found])
        separation = torch.stack([each.separation for each in found]).min()
        lipschitz = theory.lipschitz_products(*readout_matrices(model), mlp_residual=bypasses_mlp(model))[0]
        entries = [masses.min(), separation]
        for place in range(2):  # the centroid of all others, that of the distractors
            farthest = torch.stack([each.farthest[place] for each in found]).max()
            threshold = theory.structural_threshold(separation, lipschitz, farthest)
            share = (masses >= threshold * (1 - 8 * torch.finfo(masses.dtype).eps)).to(masses.dtype).mean()
            entries += [threshold, share]
        return torch.stack(entries)


def require_pairwise(model: HookedTransformer, batch: Examples, field: str) -> None:
    """Raises for models and sequences about which Eq. 27 says nothing."""
    require_relu_layer(model, field)
    if model.cfg.n_heads > 1:
        accepted = "one head; of several only the pooled mass is bounded, which DistributedMass measures"
        raise refuse_case(field, f"a model of {model.cfg.n_heads} heads", accepted)
    if batch.informative[:, -1].any():
        raise refuse_case(field, "an informative last position", "a query that two inputs can share")


class _Pairs(NamedTuple):
    """Inputs that are made of examples by replacing one informative token, the same in order for all."""

    example: Int[Tensor, "pairs"]
    """Which of the chosen examples a pair is made of."""
    position: Int[Tensor, "pairs"]
    """The position that changes."""
    token: Int[Tensor, "pairs"]
    """The token that is put there."""


def _pairs(batch: Examples, index: Int[Tensor, "m"]) -> list[_Pairs]:
    """The pairs that some examples of a batch are in, for each informative position from the left."""
    n, positions = len(batch), torch.nonzero(batch.informative)[:, 1].view(len(batch), -1)
    tokens = batch.tokens.gather(1, positions)
    content = torch.zeros_like(batch.targets)  # a number for each row of informative tokens
    for column in tokens.T:
        content = torch.unique(content * (int(batch.tokens.max()) + 1) + column, return_inverse=True)[1]
    row = torch.arange(n, device=content.device)
    donors = torch.full((int(content.max()) + 1,), n, device=content.device).scatter_reduce_(0, content, row, "amin")
    found = []
    for slot in range(tokens.shape[1]):
        agree = tokens[index][:, None] == tokens[donors]
        apart = ~agree[:, :, slot] & (agree.sum(-1) == tokens.shape[1] - 1)
        apart &= batch.targets[index][:, None] != batch.targets[donors]
        example, donor = torch.nonzero(apart, as_tuple=True)
        found.append(_Pairs(example, positions[index[example], slot], tokens[donors[donor], slot]))
    return found


class _Compared(NamedTuple):
    """What Eq. 27 is about, for the pairs of one informative position."""

    mass: Float[Tensor, "pairs"]
    """The attention on the position that changes, in both inputs together."""
    separation: Float[Tensor, ""]
    """The least distance between the logits of a pair."""
    farthest: tuple[Float[Tensor, ""], Float[Tensor, ""]]
    """The largest distance of a value at that position from the centroid of all others, and of the distractors."""


def _compare(model: HookedTransformer, batch: Examples, pairs: _Pairs) -> _Compared:
    """Attention, values and logits of pairs made of the examples of a batch, in a model of one head."""
    scores, values = score_table(model, batch.tokens)[:, 0], value_table(model, batch.n_positions)[:, :, 0]
    place = torch.arange(batch.n_positions, device=batch.tokens.device)
    own_scores, own_values = scores.gather(2, batch.tokens[:, :, None])[..., 0], values[place, batch.tokens]
    example, position, token = pairs
    changes = place == position[:, None]
    # The other scores are the same in both inputs, and so is their centroid.
    rest = own_scores[example].masked_fill(changes, -torch.inf)
    centroid = theory.pool(rest.softmax(-1), own_values[example])
    offset = own_values[example, position] - centroid
    other_offset = values[position, token] - centroid
    log_rest = rest.logsumexp(-1)
    weight = torch.sigmoid(own_scores[example, position] - log_rest)
    other_weight = torch.sigmoid(scores[example, position, token] - log_rest)
    tokens = batch.tokens[example]
    logits, other_logits = (
        logits_of_pooled(model, tokens, (centroid + share[:, None] * off)[:, None])
        for share, off in ((weight, offset), (other_weight, other_offset))
    )
    distractors = own_scores.masked_fill(batch.informative, -torch.inf).softmax(-1)[example]
    away = theory.pool(distractors, own_values[example]) - centroid
    farthest = torch.stack([offset.norm(dim=-1), other_offset.norm(dim=-1)]).max()
    farthest_of_distractors = torch.stack([(offset - away).norm(dim=-1), (other_offset - away).norm(dim=-1)]).max()
    separation = (logits - other_logits).norm(dim=-1).min()
    return _Compared(weight + other_weight, separation, (farthest, farthest_of_distractors))
