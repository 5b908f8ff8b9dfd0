"""What weight decay does to a norm, and how long it takes (Def. 3.2, Props. B.1, B.2, Section 5.1, Eqs. 1, 5, 39, 40).

A step is `W' = (1 − ηλ) W − η D` with step size η, weight decay λ and a direction of bounded norm, `‖D‖_F ≤ D̄`.
By Young's inequality, for `0 < ηλ ≤ 1`,

    ‖W'‖² ≤ (1 − λ_eff) ‖W‖² + ρ²,    λ_eff = ηλ,    ρ² = (η/λ) D̄²
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from bayesticket.errors import refuse, require_integer, require_number, require_several

# Largest value on [0, 1] of the quintic that Muon iterates, and the largest that five iterations reach.
NEWTON_SCHULZ_PEAK = 1.2023686051632128


class Contraction(NamedTuple):
    """The constants of Definition 3.2: `rate` is λ_eff, `growth` is ρ², `step_bound` is D̄."""

    rate: float
    growth: float
    step_bound: float

    @property
    def floor(self) -> float:
        """The norm that the bound contracts to, `ρ/√λ_eff = D̄/λ`: below it nothing is promised."""
        return math.sqrt(self.growth / self.rate)


def contraction(lr: float, weight_decay: float, step_bound: float) -> Contraction:
    """`λ_eff = ηλ` and `ρ² = (η/λ) D̄²` of any optimiser with decoupled decay (Props. B.1, B.2, Eq. 22).

    >>> contraction(0.25, 2.0, step_bound=4.0)
    Contraction(rate=0.5, growth=2.0, step_bound=4.0)
    """
    require_number("lr", lr, above=0.0)
    require_number("weight_decay", weight_decay, above=0.0)
    require_number("step_bound", step_bound, least=0.0)
    if lr * weight_decay > 1:
        raise refuse("lr * weight_decay", lr * weight_decay, "at most 1")
    return Contraction(lr * weight_decay, lr / weight_decay * step_bound**2, step_bound)


def sgd_contraction(lr: float, weight_decay: float, gradient_norm: float) -> Contraction:
    """SGD without momentum and with L2 decay, where `D̄ = ‖G‖_F` (Prop. B.1).

    With momentum the accumulated decay overshoots, and no λ_eff > 0 will do.

    >>> sgd_contraction(0.25, 2.0, gradient_norm=1.0).floor
    0.5
    """
    return contraction(lr, weight_decay, gradient_norm)


def adamw_contraction(
    lr: float, weight_decay: float, shape: Sequence[int], betas: tuple[float, float], *, steps: int | None = None
) -> Contraction:
    """AdamW, where `D̄ = c √(mn)` with the c of `adam_ratio_bound` (Prop. B.2; the paper has c = 1).

    >>> round(adamw_contraction(1e-3, 1.0, (64, 256), (0.9, 0.999)).floor, 1)
    930.6
    """
    return contraction(lr, weight_decay, adam_step_bound(shape, betas, steps=steps))


def adam_step_bound(shape: Sequence[int], betas: tuple[float, float], *, steps: int | None = None) -> float:
    """The largest direction of an Adam step, D̄; see `adamw_contraction`."""
    return adam_ratio_bound(betas, steps=steps) * math.sqrt(_size(shape))


def muon_contraction(lr: float, weight_decay: float, shape: Sequence[int]) -> Contraction:
    """Muon as this library has it, where `D̄ = 1.2024 √max(1, n/m) √(h min(m, n))` (Prop. B.2).

    `shape` is (m, n) = (in, out), or (h, m, n) for a matrix per head, each orthogonalised by itself. The paper has
    `(1 + ε) √min(m, n)`; 1.2024 is how far five quintic Newton–Schulz iterations bring a singular value.

    >>> round(muon_contraction(1e-3, 1.0, (64, 256)).step_bound, 2)
    19.24
    """
    return contraction(lr, weight_decay, muon_step_bound(shape))


def muon_step_bound(shape: Sequence[int]) -> float:
    """The largest direction of a Muon step, D̄; see `muon_contraction`."""
    if len(shape) < 2:
        raise refuse("shape", tuple(shape), "at least two axes, (…, in, out)")
    *heads, n_in, n_out = shape
    stretch = NEWTON_SCHULZ_PEAK * math.sqrt(max(1.0, n_out / n_in))
    return stretch * math.sqrt(_size(heads) * min(n_in, n_out))


def lion_contraction(lr: float, weight_decay: float, shape: Sequence[int]) -> Contraction:
    """Lion, or the sign of anything, where `D̄ = √(mn)` (Prop. B.2).

    >>> lion_contraction(1e-3, 1.0, (64, 256)).step_bound
    128.0
    """
    return contraction(lr, weight_decay, sign_step_bound(shape))


def sign_step_bound(shape: Sequence[int]) -> float:
    """The largest direction of a step along a sign, D̄; see `lion_contraction`."""
    return math.sqrt(_size(shape))


def adam_ratio_bound(betas: tuple[float, float], *, steps: int | None = None) -> float:
    """The most that one coordinate of an Adam step can be, over all gradients: `c = max |m̂_t| / √v̂_t`.

    By Cauchy–Schwarz, with `q = β₁²/β₂`,

        c_t = (1 − β₁)/(1 − β₁ᵗ) · √((1 − β₂ᵗ)/(1 − β₂)) · √((1 − qᵗ)/(1 − q))

    which gradients that grow as `(β₂/β₁)ᵗ` attain. It rises with t to `(1 − β₁)/√((1 − β₂)(1 − q)) ≥ 1`, or beyond
    every bound when q ≥ 1. Compare `adam_ratio_sparse`.

    >>> round(adam_ratio_bound((0.9, 0.999)), 3), adam_ratio_bound((0.9, 0.999), steps=1)
    (7.27, 1.0)
    """
    beta1, beta2 = require_betas(betas)
    q = 0.0
    if beta1 > 0:
        q = beta1**2 / beta2 if beta2 > 0 else math.inf
    if steps is None:
        return math.inf if q >= 1 else (1 - beta1) / math.sqrt((1 - beta2) * (1 - q))
    require_integer("steps", steps, least=1)
    return math.sqrt(_series(beta2, steps) * _series(q, steps)) / _series(beta1, steps)


def adam_ratio_sparse(betas: tuple[float, float]) -> float:
    """What a coordinate of an Adam step is at its first gradient after a long silence, `(1 − β₁)/√(1 − β₂)`.

    Adam's own paper takes the larger of this and 1 for a bound. It is none: a gradient that grows over several steps
    goes beyond it, up to `adam_ratio_bound`.

    >>> round(adam_ratio_sparse((0.9, 0.999)), 3)
    3.162
    """
    beta1, beta2 = require_betas(betas)
    return (1 - beta1) / math.sqrt(1 - beta2)


def contracted_square(norm: Float[Tensor, "*batch"], optimiser: Contraction) -> Float[Tensor, "*batch"]:
    """The most that the squared norm can be after one more step, `(1 − λ_eff)‖W‖² + ρ²` (Eq. 1).

    >>> contracted_square(torch.tensor(2.0), Contraction(rate=0.5, growth=1.0, step_bound=1.0))
    tensor(3.)
    """
    return (1 - optimiser.rate) * norm.square() + optimiser.growth


def norm_envelope(
    norm: Float[Tensor, "*#batch"], steps: Float[Tensor, "*#batch"], optimiser: Contraction
) -> Float[Tensor, "*_"]:
    """The most that the norm can be after t steps, `√((1 − λ_eff)ᵗ (‖W₀‖² − f²) + f²)`, `f = D̄/λ` (Eq. 1, repeated).

    >>> norm_envelope(torch.tensor(2.0), torch.tensor(1.0), Contraction(rate=0.5, growth=1.0, step_bound=1.0))
    tensor(1.7321)
    """
    floor = optimiser.growth / optimiser.rate
    left = torch.exp(steps * max(_log_decay(optimiser.rate), -1e6))
    return (left * (norm.square() - floor) + floor).clamp_min(0).sqrt()


def plateau_wait_paper(
    norm: Float[Tensor, "*#batch"], radius: Float[Tensor, "*#batch"] | float, rate: float
) -> Float[Tensor, "*_"]:
    """The paper's length of the plateau, `(2/λ_eff) log(‖θ_mem‖/r_max)`, "a strict lower bound" there (Eqs. 5, 40).

    It contracts the squared norm (Eq. 39), and from an upper bound on it: under pure decay it bounds the wait from
    above. Section 5.1 contracts the norm itself, which takes half as long: `plateau_wait_least`.

    >>> plateau_wait_paper(torch.tensor(60.0), 30.0, 1e-3)
    tensor(1386.2943)
    """
    return 2 * (norm / radius).log().clamp_min(0) / rate


def plateau_wait_least(
    norm: Float[Tensor, "*#batch"], radius: Float[Tensor, "*#batch"] | float, rate: float, floor: float = 0.0
) -> Float[Tensor, "*_"]:
    """The fewest steps in which the norm can fall to `radius`: `log((‖θ‖ + f)/(r + f)) / −log(1 − λ_eff)`.

    As `‖W'‖ ≥ (1 − ηλ)‖W‖ − η D̄`, with `f = D̄/λ` (`Contraction.floor`). With f = 0, pure decay, it is the wait itself:
    Section 5.1's reading, where the norm shrinks by `1 − λ_eff` per step.

    >>> plateau_wait_least(torch.tensor(60.0), 30.0, 1e-3).round()
    tensor(693.)
    """
    return ((norm + floor) / (radius + floor)).log().clamp_min(0) / -_log_decay(rate)


def plateau_wait_most(
    norm: Float[Tensor, "*#batch"], radius: Float[Tensor, "*#batch"] | float, rate: float, floor: float = 0.0
) -> Float[Tensor, "*_"]:
    """The steps after which the norm has surely fallen to `radius`: `log((‖θ‖² − f²)/(r² − f²)) / −log(1 − λ_eff)`.

    From Eq. 1 repeated, with `f = D̄/λ` (`Contraction.floor`); infinite where `r ≤ f`. With f = 0 it is the squared-norm
    reading of Eqs. 39 and 40, twice the wait under pure decay.

    >>> plateau_wait_most(torch.tensor(60.0), 30.0, 1e-3).round()
    tensor(1386.)
    """
    above, target = norm.square() - floor**2, torch.zeros_like(norm) + radius**2 - floor**2
    wait = (above / target).log().clamp_min(0) / -_log_decay(rate)
    return torch.where(norm <= radius, 0.0, torch.where(target > 0, wait, torch.inf))


def _series(ratio: float, steps: int) -> float:
    """`1 + q + … + q^(steps − 1)`."""
    if ratio == 1 or steps == 1:
        return float(steps)
    if ratio > 1 and steps * math.log(ratio) > 700:
        return math.inf
    return (1 - ratio**steps) / (1 - ratio)


def _log_decay(rate: float) -> float:
    require_number("rate", rate, above=0.0)
    if rate > 1:
        raise refuse("rate", rate, "at most 1")
    return -math.inf if rate == 1 else math.log1p(-rate)


def _size(shape: Sequence[int]) -> int:
    for axis, length in enumerate(shape):
        require_integer(f"shape[{axis}]", length, least=1)
    return math.prod(shape)


def require_betas(betas: object) -> tuple[float, float]:
    """Two averaging factors as a tuple; raises unless both are numbers from 0 to below 1."""
    accepted = "two numbers, such as (0.9, 0.999)"
    listed = require_several("betas", betas, accepted)
    if len(listed) != 2 or getattr(betas, "ndim", 1) != 1:
        raise refuse("betas", betas, accepted)
    for place, beta in enumerate(listed):
        require_number(f"betas[{place}]", beta, least=0.0, below=1.0)
    return float(listed[0]), float(listed[1])
