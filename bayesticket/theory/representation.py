"""How far apart attention can hold two inputs that differ at one informative position (Appendix A.3, Eqs. 9–21).

Inputs x and x' differ at position j only. Everywhere here

- `weight`, `other_weight` are the attention that j gets in x and in x': α and α';
- `offset`, `other_offset` are its value relative to the centroid c of all the others: `a = v − c` and `b = v' − c`.

The statements hold for one head whose score at a position depends on the token there and on a fixed query: softmax
attention or normalised linear ReLU attention in the first layer.
"""

import torch
from einops import einsum
from jaxtyping import Bool, Float
from torch import Tensor


def pool(
    pattern: Float[Tensor, "*#batch key"], value: Float[Tensor, "*#batch key d_head"]
) -> Float[Tensor, "*_ d_head"]:
    """The pooled value, `z = Σ_i α_i v_i` (Eq. 9).

    >>> pool(torch.tensor([0.25, 0.75]), torch.eye(2))
    tensor([0.2500, 0.7500])
    """
    return einsum(pattern, value, "... key, ... key d_head -> ... d_head")


def rescaling(weight: Float[Tensor, "*#batch"], other_weight: Float[Tensor, "*#batch"]) -> Float[Tensor, "*_"]:
    """The one factor by which all other weights change, `α_i(x') = κ α_i(x)` with `κ = (1 − α')/(1 − α)` (Eq. 12).

    >>> rescaling(torch.tensor(0.5), torch.tensor(0.75))
    tensor(0.5000)
    """
    return (1 - other_weight) / (1 - weight)


def centroids(
    pattern: Float[Tensor, "*#batch key"],
    value: Float[Tensor, "*#batch key d_head"],
    members: Bool[Tensor, "*#batch key"] | None = None,
) -> Float[Tensor, "*_ key d_head"]:
    """For each position the centroid of the values elsewhere, `c_j = Σ_{i≠j} α_i v_i / (1 − α_j)` (Eq. 13).

    `members` restricts the sum, and its weights, to some positions, such as the distractors alone: with more than one
    informative position that is a different point, and Eqs. 14–21 are about the one over all. Where no weight is left
    the centroid is not defined, and nan.

    >>> centroids(torch.tensor([0.5, 0.25, 0.25]), torch.tensor([[1.0], [2.0], [4.0]])).squeeze(-1)
    tensor([3.0000, 2.0000, 1.3333])
    """
    size = pattern.shape[-1]
    elsewhere = 1 - torch.eye(size, dtype=pattern.dtype, device=pattern.device)
    weights = (pattern if members is None else pattern * members).unsqueeze(-2) * elsewhere
    return (weights / weights.sum(-1, keepdim=True)) @ value


def separation(
    pattern: Float[Tensor, "*#batch key"],
    value: Float[Tensor, "*#batch key d_head"],
    members: Bool[Tensor, "*#batch key"] | None = None,
) -> Float[Tensor, "*_ key"]:
    """For each position the distance of its value from the centroid of the others, `‖v_j − c_j‖` (Section 3.2).

    Its minimum over informative positions and inputs is the feature separability margin Δ, with `members` the
    distractors. Its maximum, over all positions, is the Δ_max of Eq. 15, and never above 2R.

    >>> separation(torch.tensor([0.5, 0.25, 0.25]), torch.tensor([[1.0], [2.0], [4.0]]))
    tensor([2.0000, 0.0000, 2.6667])
    """
    return (value - centroids(pattern, value, members)).norm(dim=-1)


def pooled_difference(
    weight: Float[Tensor, "*#batch"],
    other_weight: Float[Tensor, "*#batch"],
    offset: Float[Tensor, "*#batch d_head"],
    other_offset: Float[Tensor, "*#batch d_head"],
) -> Float[Tensor, "*_ d_head"]:
    """The difference of the pooled values, exactly: `z(x) − z(x') = α a − α' b` (Eq. 14).

    >>> pooled_difference(torch.tensor(0.5), torch.tensor(0.25), torch.tensor([1.0]), torch.tensor([2.0]))
    tensor([0.])
    """
    return weight.unsqueeze(-1) * offset - other_weight.unsqueeze(-1) * other_offset


def pooled_difference_split(
    weight: Float[Tensor, "*#batch"],
    other_weight: Float[Tensor, "*#batch"],
    change: Float[Tensor, "*#batch d_head"],
    other_offset: Float[Tensor, "*#batch d_head"],
) -> Float[Tensor, "*_ d_head"]:
    """The same, as signal and fluctuation: `z(x) − z(x') = α (v − v') + (α − α') b` (Eq. 17), with `change = v − v'`.

    >>> pooled_difference_split(torch.tensor(0.5), torch.tensor(0.25), torch.tensor([-1.0]), torch.tensor([2.0]))
    tensor([0.])
    """
    return weight.unsqueeze(-1) * change + (weight - other_weight).unsqueeze(-1) * other_offset


def distance_upper(
    weight: Float[Tensor, "*#batch"],
    other_weight: Float[Tensor, "*#batch"],
    largest_offset: Float[Tensor, "*#batch"] | float,
) -> Float[Tensor, "*_"]:
    """The distance is at most `(α + α') Δ_max`, `Δ_max ≥ ‖a‖, ‖b‖` (Eq. 15): necessity rests on it.

    >>> distance_upper(torch.tensor(0.1), torch.tensor(0.3), 0.5)
    tensor(0.2000)
    """
    return (weight + other_weight) * largest_offset


def distance_upper_loose(
    weight: Float[Tensor, "*#batch"], other_weight: Float[Tensor, "*#batch"], radius: Float[Tensor, "*#batch"] | float
) -> Float[Tensor, "*_"]:
    """The distance is at most `2R (α + α')`, with `R ≥ ‖v_i‖` for all values (Eq. 16).

    >>> distance_upper_loose(torch.tensor(0.1), torch.tensor(0.3), 1.0)
    tensor(0.8000)
    """
    return 2 * radius * (weight + other_weight)


def distance_lower(
    weight: Float[Tensor, "*#batch"],
    other_weight: Float[Tensor, "*#batch"],
    raw_separation: Float[Tensor, "*#batch"] | float,
    radius: Float[Tensor, "*#batch"] | float,
) -> Float[Tensor, "*_"]:
    """The distance is at least `max(α, α') Δ_raw − 2R |α − α'|`, with `Δ_raw ≤ ‖v − v'‖` (Eq. 18).

    Negative, and then empty, where the two weights differ by more than `max(α, α') Δ_raw / 2R`.

    >>> distance_lower(torch.tensor(0.5), torch.tensor(0.4), 1.0, 1.0)
    tensor(0.3000)
    """
    return torch.maximum(weight, other_weight) * raw_separation - 2 * radius * (weight - other_weight).abs()


def squared_distance(
    weight: Float[Tensor, "*#batch"],
    other_weight: Float[Tensor, "*#batch"],
    offset: Float[Tensor, "*#batch d_head"],
    other_offset: Float[Tensor, "*#batch d_head"],
) -> Float[Tensor, "*_"]:
    """The squared distance as an identity, `αα'‖a − b‖² + (α − α')(α‖a‖² − α'‖b‖²)` (Eq. 19).

    >>> squared_distance(torch.tensor(0.5), torch.tensor(0.25), torch.tensor([1.0]), torch.tensor([2.0]))
    tensor(0.)
    """
    signal = weight * other_weight * (offset - other_offset).square().sum(-1)
    return signal + _fluctuation(weight, other_weight, offset, other_offset)


def orderings_agree(
    weight: Float[Tensor, "*#batch"],
    other_weight: Float[Tensor, "*#batch"],
    offset: Float[Tensor, "*#batch d_head"],
    other_offset: Float[Tensor, "*#batch d_head"],
) -> Bool[Tensor, "*_"]:
    """Whether `α − α'` and `α‖a‖² − α'‖b‖²` have one sign, so that Eq. 20 applies and not Eq. 21 (Remark A.1).

    >>> orderings_agree(torch.tensor(0.5), torch.tensor(0.25), torch.tensor([1.0]), torch.tensor([2.0]))
    tensor(False)
    """
    return _fluctuation(weight, other_weight, offset, other_offset) >= 0


def distance_lower_aligned(
    weight: Float[Tensor, "*#batch"],
    other_weight: Float[Tensor, "*#batch"],
    raw_separation: Float[Tensor, "*#batch"] | float,
) -> Float[Tensor, "*_"]:
    """Where the orderings agree, the distance is at least `√(αα') Δ_raw` (Eq. 20); never below Eq. 18.

    >>> distance_lower_aligned(torch.tensor(0.5), torch.tensor(0.125), 1.0)
    tensor(0.2500)
    """
    return (weight * other_weight).sqrt() * raw_separation


def distance_lower_mismatched(
    weight: Float[Tensor, "*#batch"],
    other_weight: Float[Tensor, "*#batch"],
    raw_separation: Float[Tensor, "*#batch"] | float,
    radius: Float[Tensor, "*#batch"] | float,
) -> Float[Tensor, "*_"]:
    """Where they do not, at least `√(αα'Δ_raw² − 4R² max(α, α')|α − α'|)`, and 0 where that is no number (Eq. 21).

    Never above the positive part of Eq. 18, whatever the weights: Eq. 18 is the one to use.

    >>> distance_lower_mismatched(torch.tensor(0.5), torch.tensor(0.5), 1.0, 1.0)
    tensor(0.5000)
    """
    largest, gap = torch.maximum(weight, other_weight), (weight - other_weight).abs()
    squared = weight * other_weight * raw_separation**2 - 4 * radius**2 * largest * gap
    return squared.clamp_min(0).sqrt()


def distance_lower_squared(
    weight: Float[Tensor, "*#batch"],
    other_weight: Float[Tensor, "*#batch"],
    offset: Float[Tensor, "*#batch d_head"],
    other_offset: Float[Tensor, "*#batch d_head"],
    raw_separation: Float[Tensor, "*#batch"] | float,
    radius: Float[Tensor, "*#batch"] | float,
) -> Float[Tensor, "*_"]:
    """The lower bound of Remark A.1 that applies: Eq. 20 where `orderings_agree`, else Eq. 21.

    >>> half, one = torch.tensor(0.5), torch.tensor([1.0])
    >>> distance_lower_squared(half, half, one, -one, raw_separation=2.0, radius=1.0)
    tensor(1.)
    """
    return torch.where(
        orderings_agree(weight, other_weight, offset, other_offset),
        distance_lower_aligned(weight, other_weight, raw_separation),
        distance_lower_mismatched(weight, other_weight, raw_separation, radius),
    )


def _fluctuation(
    weight: Float[Tensor, "*#batch"],
    other_weight: Float[Tensor, "*#batch"],
    offset: Float[Tensor, "*#batch d_head"],
    other_offset: Float[Tensor, "*#batch d_head"],
) -> Float[Tensor, "*_"]:
    squares = weight * offset.square().sum(-1) - other_weight * other_offset.square().sum(-1)
    return (weight - other_weight) * squares


def subspace_overlap(
    first: Float[Tensor, "*batch n d_head"], second: Float[Tensor, "*batch m d_head"]
) -> Float[Tensor, "*batch"]:
    """How far the directions of two sets of vectors coincide, `⟨C, C'⟩ / (‖C‖_F ‖C'‖_F)` of their covariances.

    0 where each set varies in directions in which the other does not, so that the space decomposes as Eq. 10 has it; 1
    where both vary alike. Not defined, and nan, where a set does not vary.

    >>> across, up = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), torch.tensor([[0.0, 1.0], [0.0, -1.0]])
    >>> subspace_overlap(across, up), subspace_overlap(across, 3 * across + 1)
    (tensor(0.), tensor(1.))
    """
    covariances = []
    for vectors in (first, second):
        centred = vectors - vectors.mean(-2, keepdim=True)
        covariances.append(centred.mT @ centred)
    norms = [covariance.square().sum((-2, -1)).sqrt() for covariance in covariances]
    return (covariances[0] * covariances[1]).sum((-2, -1)) / (norms[0] * norms[1])
