"""Functions of a number modulo p: waves, spectra, and least-squares fits by waves.

A function of a number modulo p is a sum of waves of the frequencies `w = 0 … ⌊p/2⌋`, `cos(2πwx/p)` and `sin(2πwx/p)`.
These are pure functions of tensors, which know nothing of models.
"""

import math
from collections.abc import Iterable
from functools import cache
from typing import Literal

import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

Directions = Literal["sum", "products"]


def waves(
    numbers: Int[Tensor, "n"], p: int, frequencies: Iterable[int], dtype: torch.dtype = torch.float64
) -> Float[Tensor, "n directions"]:
    """Cosine and sine of every frequency at the given numbers: `cos(2πwx/p)`, `sin(2πwx/p)`, in this order.

    The sine of `w = p/2`, which is 0 at every whole number, is left out.

    >>> waves(torch.tensor([0, 1, 2, 3]), 4, [1, 2]).round().int().tolist()
    [[1, 0, 1], [0, 1, -1], [-1, 0, 1], [0, -1, -1]]
    """
    table = _wave_table(p, tuple(frequencies)).to(numbers.device, dtype)
    return table[numbers % p]


@cache
def _wave_table(p: int, frequencies: tuple[int, ...]) -> Float[Tensor, "p directions"]:
    x = torch.arange(p, dtype=torch.float64, device="cpu")
    columns = []
    for w in frequencies:
        angle = 2 * math.pi * torch.remainder(w * x, p) / p
        columns += [angle.cos()] if 2 * w == p else [angle.cos(), angle.sin()]
    return torch.stack(columns, 1) if columns else torch.zeros(p, 0, dtype=torch.float64, device="cpu")


def frequency_norms(table: Float[Tensor, "p features"]) -> Float[Tensor, "frequencies"]:
    """Norm of the part of a table that varies with frequency `w = 1 … ⌊p/2⌋` along its first axis, all features.

    The parts are orthogonal: their squares sum to `‖table − mean‖²_F`.

    >>> angle = 2 * torch.pi * torch.arange(5) / 5
    >>> frequency_norms(torch.stack([3 * angle.cos(), 3 * angle.sin()], 1)).round(decimals=4)
    tensor([6.7082, 0.0000])
    """
    p = len(table)
    power = torch.fft.rfft(table.double(), dim=0).abs().square().sum(1)[1:] / p
    # every frequency other than p/2 stands for two, w and p − w
    power = 2 * power if p % 2 else torch.cat([2 * power[:-1], power[-1:]])
    return power.sqrt().to(table.dtype)


def frequency_shares(table: Float[Tensor, "p features"]) -> Float[Tensor, "frequencies"]:
    """Share of every frequency in the squared norm of a table about its mean, `‖part_w‖² / Σ_w ‖part_w‖²`.

    All 0 for a constant table.
    """
    power = frequency_norms(table).square()
    total = power.sum()
    return torch.where(total > 0, power / torch.where(total > 0, total, 1.0), 0.0)


LEAST_SHARE = 0.01
"""The least share of a key frequency: the harmonics of key frequencies, as `2w` of w, have less."""


def is_key(shares: Float[Tensor, "frequencies"], above: float) -> Bool[Tensor, "frequencies"]:
    """Whether each frequency is key: this is the one rule for it.

    From the largest share down, a frequency is key as long as its share exceeds `above` times the even share of what
    the larger ones have left, `(1 − Σ_larger share) / (number of frequencies left)`, and is at least 1 % of the whole.
    A frequency of a strong model's own is then found beside others that are many times stronger.

    >>> is_key(torch.tensor([0.70, 0.01, 0.23, 0.005, 0.005, 0.04, 0.005, 0.005]), above=3.0)
    tensor([ True, False,  True, False, False,  True, False, False])
    """
    ordered, order = shares.sort(descending=True)
    larger = ordered.cumsum(0) - ordered
    left = torch.arange(len(shares), 0, -1, dtype=shares.dtype, device=shares.device)
    stands_out = (ordered * left > above * (1 - larger)) & (ordered >= LEAST_SHARE)
    return torch.zeros_like(stands_out).scatter(0, order, stands_out.cumprod(0).bool())


def keys_of(shares: Float[Tensor, "frequencies"], above: float) -> tuple[int, ...]:
    """The key frequencies, in order; the first share is that of frequency 1.

    >>> keys_of(torch.tensor([0.1, 0.8, 0.1]), above=2.0)
    (2,)
    """
    return tuple((is_key(shares, above).nonzero()[:, 0] + 1).tolist())


def gini(values: Float[Tensor, "m"]) -> Float[Tensor, ""]:
    """Gini coefficient of non-negative numbers, `Σ_{i,j} |v_i − v_j| / (2 m Σ_i v_i)`.

    0 when all are equal (also when all are 0), `1 − 1/m` when only one is not 0.

    >>> gini(torch.tensor([1.0, 1.0])), gini(torch.tensor([0.0, 0.0, 0.0, 2.0]))
    (tensor(0.), tensor(0.7500))
    """
    ordered, m = values.sort().values, len(values)
    weights = 2 * torch.arange(1, m + 1, device=values.device, dtype=values.dtype) - m - 1
    total = ordered.sum()
    return torch.where(total > 0, weights @ ordered / (m * torch.where(total > 0, total, 1.0)), 0.0)


def mean_by_sum(logits: Float[Tensor, "n outputs"], sums: Int[Tensor, "n"], p: int) -> Float[Tensor, "p outputs"]:
    """Mean logits of the examples with each sum; where the batch has none, the mean over the sums that it has."""
    totals = torch.zeros(p, logits.shape[1], dtype=logits.dtype, device=logits.device).index_add_(0, sums, logits)
    counts = torch.bincount(sums, minlength=p)[:, None]
    means = totals / counts.clamp_min(1)
    present = counts > 0
    return torch.where(present, means, (means * present).sum(0) / present.sum())


def fit(logits: Float[Tensor, "n outputs"], directions: Float[Tensor, "n directions"]) -> Float[Tensor, "n outputs"]:
    """Least-squares fit of the logits by 1 and some directions, which are functions of the example.

    The directions may be linearly dependent on this batch.
    """
    mean = logits.mean(0)
    if not directions.shape[1] or not len(logits):
        return mean.expand_as(logits)
    # In float64 the normal equations are exact enough for float32 logits, and cost one thin product.
    centred = directions.double() - directions.double().mean(0)
    gram = centred.T @ centred
    right = centred.T.to(logits.dtype) @ logits
    solution = torch.linalg.pinv(gram, rtol=1e-10, hermitian=True) @ right.double()
    return mean + centred.to(logits.dtype) @ solution.to(logits.dtype)


def operand_products(
    operands: Int[Tensor, "n k"], order: int, frequencies: Iterable[int]
) -> Float[Tensor, "n directions"]:
    """All products of the waves of some frequencies of the operands: of k operands `2^k` products a frequency.

    Of two: `cos(wa) cos(wb)`, `cos(wa) sin(wb)`, `sin(wa) cos(wb)`, `sin(wa) sin(wb)`. Their span contains the waves of
    `a + b` and of `a − b`.
    """
    blocks = []
    for w in frequencies:
        product = waves(operands[:, 0], order, [w])
        for operand in operands.T[1:]:
            product = einsum(product, waves(operand, order, [w]), "n product, n wave -> n product wave")
            product = rearrange(product, "n product wave -> n (product wave)")
        blocks.append(product)
    return torch.cat(blocks, 1) if blocks else waves(operands[:, 0], order, ())
