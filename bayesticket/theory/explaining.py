"""Explaining away: how little the task can teach attention once it is memorised (Lemma 5.1, Eqs. 4, 29–37).

From tight to loose, for every example and position:

    |∂L/∂s_i|  ≤  α_i ‖v_i − z‖ ‖J‖₂ √(2L)  ≤  α_i ‖v_i − z‖ L_f √(2L)  ≤  2 R L_f √(2L)
    measured      local                       global                       loose

The paper has `‖W_V‖₂` times the norm of a token for R (`explaining_away_paper`).

Patterns, values and Jacobians are per head; give the error and the loss an axis of length 1 where heads are.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from einops import einsum
from jaxtyping import Bool, Float, Int
from torch import Tensor

from bayesticket.theory.capacity import spectral_norm
from bayesticket.theory.representation import pool


class ExplainingAway(NamedTuple):
    """The four forms of Lemma 5.1, three per position and one per example, each at least the one before."""

    measured: Float[Tensor, "*batch key"]
    local: Float[Tensor, "*batch key"]
    global_: Float[Tensor, "*batch key"]
    loose: Float[Tensor, "*batch"]


def prediction_error(
    logits: Float[Tensor, "*batch d_vocab"], targets: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch d_vocab"]:
    """Gradient of the cross-entropy in the logits, `p − y` with `p = softmax(logits)` (before Eq. 29).

    At the target it is minus the sum of the others, which does not round to 0 once `p_y` rounds to 1.

    >>> prediction_error(torch.zeros(2), torch.tensor(0))
    tensor([-0.5000,  0.5000])
    """
    right = _one_hot(logits, targets)
    others = torch.where(right, 0.0, logits.softmax(-1))
    return torch.where(right, -others.sum(-1, keepdim=True), others)


def example_loss(logits: Float[Tensor, "*batch d_vocab"], targets: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """The cross-entropy of each example, `L = log(1 + Σ_{c≠y} e^{l_c − l_y})`, exact however small (Lemma 5.1).

    The usual log-softmax rounds it to a multiple of 6e-8 in float32, and to 0 below that, while the gradient goes on:
    the bounds would then seem broken on a memorised example.

    >>> example_loss(torch.tensor([20.0, 0.0]), torch.tensor(0))
    tensor(2.0612e-09)
    """
    right = _one_hot(logits, targets)
    target = torch.where(right, logits, 0.0).sum(-1, keepdim=True)
    others = torch.where(right, -torch.inf, logits - target).logsumexp(-1)
    return torch.logaddexp(torch.zeros_like(others), others)


def error_bound(loss: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """Pinsker's bound on the error, `‖p − y‖₂ ≤ ‖p − y‖₁ ≤ √(2L)` with L the cross-entropy (Eq. 29).

    >>> error_bound(torch.tensor(0.02))
    tensor(0.2000)
    """
    return (2 * loss).clamp_min(0).sqrt()


def error_bound_sharp(loss: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """What a deterministic target gives without Pinsker, `‖p − y‖₂ ≤ √2 (1 − e^{−L}) ≤ √2 L`.

    The right class lacks exactly `1 − p_y = 1 − e^{−L}`, and the others share that. So the gradient falls with L, not
    with √L: at a loss of 1e-6 this is a thousandth of `error_bound`. Attained with two classes.

    >>> error_bound_sharp(torch.tensor(0.02))
    tensor(0.0280)
    """
    return -(2**0.5) * torch.expm1(-loss)


def logit_gradient(
    pattern: Float[Tensor, "*#batch key"],
    value: Float[Tensor, "*#batch key d_head"],
    jacobian: Float[Tensor, "*#batch d_head d_vocab"],
    error: Float[Tensor, "*#batch d_vocab"],
) -> Float[Tensor, "*_ key"]:
    """Gradient of the task loss in the scores, exactly: `∂L/∂s_i = α_i (v_i − z)ᵀ J (p − y)` (Eqs. 31–33).

    For softmax attention. See `jacobian` (rows are coordinates of z) and `prediction_error`.

    >>> pattern, value, error = torch.tensor([0.5, 0.5]), torch.eye(2), torch.tensor([-0.5, 0.5])
    >>> logit_gradient(pattern, value, torch.eye(2), error)
    tensor([-0.2500,  0.2500])
    """
    pull = jacobian @ error.unsqueeze(-1)
    offsets = value - pool(pattern, value).unsqueeze(-2)
    return pattern * (offsets @ pull).squeeze(-1)


def explaining_away_local(
    pattern: Float[Tensor, "*#batch key"],
    value: Float[Tensor, "*#batch key d_head"],
    jacobian: Float[Tensor, "*#batch d_head d_vocab"],
    loss: Float[Tensor, "*#batch"],
) -> Float[Tensor, "*_ key"]:
    """Lemma 5.1 with the map's steepness at the example, `α_i ‖v_i − z‖ ‖J‖₂ √(2L)` (Eq. 34)."""
    return explaining_away_global(pattern, value, spectral_norm(jacobian), loss)


def explaining_away_global(
    pattern: Float[Tensor, "*#batch key"],
    value: Float[Tensor, "*#batch key d_head"],
    lipschitz: Float[Tensor, "*#batch"],
    loss: Float[Tensor, "*#batch"],
) -> Float[Tensor, "*_ key"]:
    """Lemma 5.1 with the map's steepness anywhere, `α_i ‖v_i − z‖ L_f √(2L)` (Eq. 34).

    >>> pattern, value = torch.tensor([0.5, 0.5]), torch.eye(2)
    >>> explaining_away_global(pattern, value, torch.tensor(1.0), torch.tensor(0.5))
    tensor([0.3536, 0.3536])
    """
    return _reach(pattern, value) * (lipschitz * error_bound(loss)).unsqueeze(-1)


def explaining_away_loose(
    radius: Float[Tensor, "*#batch"] | float, lipschitz: Float[Tensor, "*#batch"], loss: Float[Tensor, "*#batch"]
) -> Float[Tensor, "*_"]:
    """Lemma 5.1 with the length of the values, `2 R L_f √(2L)`, with `R ≥ ‖v_i‖` (Eqs. 4, 37).

    `α_i ‖v_i − z‖ ≤ 2R α_i (1 − α_i) ≤ R/2`, so a quarter of it holds as well.

    >>> explaining_away_loose(1.0, torch.tensor(1.0), torch.tensor(0.5))
    tensor(2.)
    """
    return 2 * radius * lipschitz * error_bound(loss)


def explaining_away_paper(
    stretch: Float[Tensor, "*#batch"] | float,
    lipschitz: Float[Tensor, "*#batch"],
    loss: Float[Tensor, "*#batch"],
    length: Float[Tensor, "*#batch"] | float = 1.0,
) -> Float[Tensor, "*_"]:
    """Lemma 5.1 as the paper states it, `2 L_f ‖W_V‖₂ √(2L)`, for embeddings of norm 1 or less (Eqs. 4, 37).

    `stretch` is `‖W_V‖₂`. A value `v = x W_V` is no longer than `‖W_V‖₂ ‖x‖`, so that for other embeddings the bound is
    `length` times as large, with `length ≥ ‖x_i‖`: then it is never below `explaining_away_loose`. Positions belong to
    x; biases enter by augmenting x with 1 and W_V with the row b_V.

    >>> explaining_away_paper(3.0, torch.tensor(1.0), torch.tensor(0.5))
    tensor(6.)
    >>> explaining_away_paper(3.0, torch.tensor(1.0), torch.tensor(0.5), length=2.0)
    tensor(12.)
    """
    return explaining_away_loose(stretch * length, lipschitz, loss)


def explaining_away_sharp(
    pattern: Float[Tensor, "*#batch key"],
    value: Float[Tensor, "*#batch key d_head"],
    jacobian: Float[Tensor, "*#batch d_head d_vocab"],
    loss: Float[Tensor, "*#batch"],
) -> Float[Tensor, "*_ key"]:
    """Between measured and local: `α_i ‖v_i − z‖ ‖J‖₂ √2 (1 − e^{−L})`, linear in a small loss."""
    return _reach(pattern, value) * (spectral_norm(jacobian) * error_bound_sharp(loss)).unsqueeze(-1)


def explaining_away(
    pattern: Float[Tensor, "*#batch key"],
    value: Float[Tensor, "*#batch key d_head"],
    jacobian: Float[Tensor, "*#batch d_head d_vocab"],
    error: Float[Tensor, "*#batch d_vocab"],
    loss: Float[Tensor, "*#batch"],
    lipschitz: Float[Tensor, "*#batch"],
    radius: Float[Tensor, "*#batch"] | float,
) -> ExplainingAway:
    """All four forms at once; see the head of this module."""
    return ExplainingAway(
        logit_gradient(pattern, value, jacobian, error).abs(),
        explaining_away_local(pattern, value, jacobian, loss),
        explaining_away_global(pattern, value, lipschitz, loss),
        explaining_away_loose(radius, lipschitz, loss),
    )


def interaction_gradient(
    query: Float[Tensor, "n d"], source: Float[Tensor, "n heads d"], scale: float
) -> Float[Tensor, "heads d d"]:
    """Gradient of a loss in the interaction matrix, `∂L/∂M = Σ_n x_q (Σ_i ∂L/∂s_{n,i} x_{n,i})ᵀ / √d_head` (Eq. 38).

    `source[n, h]` is the inner sum `Σ_i ∂L/∂s_{n,h,i} x_{n,i}`.
    """
    return einsum(query, source, "n d, n head e -> head d e") / scale


def _one_hot(logits: Float[Tensor, "*batch d_vocab"], targets: Int[Tensor, "*batch"]) -> Bool[Tensor, "*batch d_vocab"]:
    return F.one_hot(targets.long(), logits.shape[-1]).bool()


def _reach(
    pattern: Float[Tensor, "*#batch key"], value: Float[Tensor, "*#batch key d_head"]
) -> Float[Tensor, "*_ key"]:
    return pattern * (value - pool(pattern, value).unsqueeze(-2)).norm(dim=-1)
