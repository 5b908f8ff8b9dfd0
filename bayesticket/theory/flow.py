"""The flow of attention under the KL prior alone (Theorem 5.2, Appendix D.4, Eqs. 46–53, Lemma D.1).

    ds/dt = −β̃ (α − α*),    α = softmax(s),    dD/dt = −β̃ ‖α − α*‖²

Everything depends on `β̃ t` only, so every delay is proportional to 1/β̃. How D falls depends on the target: over a
target of full support it ends exponentially, over a sparse one, such as the oracle, as `1/(c β̃ t)`.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bayesticket.errors import refuse, require_integer, require_number
from bayesticket.theory.divergence import kl_divergence, kl_logit_gradient

# In units of 1/β̃, in which no eigenvalue of the softmax' Jacobian exceeds ½. The solution slows down as it goes.
_FIRST_STEP, _STEP_GROWTH, _LARGEST_STEP = 0.02, 0.01, 1.0


def score_flow(
    scores: Float[Tensor, "*#batch key"], target: Float[Tensor, "*#batch key"], times: Sequence[float], rate: float
) -> Float[Tensor, "*_ time key"]:
    """The scores at increasing times, by integrating `ds/dt = −β̃ (α − α*)` from `scores` at time 0 (Eq. 47).

    Fourth-order Runge–Kutta, whose steps lengthen with the time that has passed. Costs about a step per unit of `β̃ t`.

    >>> score_flow(torch.zeros(2), torch.tensor([1.0, 0.0]), [0.0, 1.0], rate=1.0).diff(dim=-1).squeeze(-1)
    tensor([ 0.0000, -0.7921])
    """
    require_number("rate", rate, least=0.0)
    for index, (before, after) in enumerate(zip((0.0, *times), times, strict=False)):
        if not after >= before:
            raise refuse(f"times[{index}]", after, f"increasing times from 0, so at least {before}")
    states, elapsed, state = [], 0.0, scores + torch.zeros_like(target)
    for time in times:
        while elapsed < rate * time:
            longest = min(_LARGEST_STEP, _FIRST_STEP + _STEP_GROWTH * elapsed)
            left = rate * time - elapsed
            step = left if left <= longest else longest
            state = _runge_kutta(state, target, step)
            elapsed = rate * time if left <= longest else elapsed + step
        states.append(state)
    return torch.stack(states, -2) if states else state.unsqueeze(-2)[..., :0, :]


def divergence_flow(
    scores: Float[Tensor, "*#batch key"], target: Float[Tensor, "*#batch key"], times: Sequence[float], rate: float
) -> Float[Tensor, "*_ time"]:
    """The divergence D(α*‖α) along `score_flow` (Eq. 48); it never rises.

    >>> divergence_flow(torch.zeros(2), torch.tensor([1.0, 0.0]), [0.0, 1.0, 100.0], rate=1.0)
    tensor([0.6931, 0.3736, 0.0051])
    """
    return kl_divergence(target.unsqueeze(-2), score_flow(scores, target, times, rate).softmax(-1))


def divergence_slope(
    target: Float[Tensor, "*#batch key"], pattern: Float[Tensor, "*#batch key"], rate: float
) -> Float[Tensor, "*_"]:
    """How fast the divergence falls along the flow, `dD/dt = −β̃ ‖α − α*‖²` (Eqs. 46, 48).

    >>> divergence_slope(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5]), rate=2.0)
    tensor(-1.)
    """
    return -rate * kl_logit_gradient(target, pattern).square().sum(-1)


def exponential_divergence(
    divergence: Float[Tensor, "*#batch"], times: Float[Tensor, "*#batch"], rate: float, mu: float
) -> Float[Tensor, "*_"]:
    """The paper's decay, `D_t ≤ D_0 e^{−μβ̃t}` (Eq. 52): true while `pl_ratio ≥ μ`, false in the end if α* is sparse.

    >>> exponential_divergence(torch.tensor(1.0), torch.tensor(2.0), rate=1.0, mu=0.5)
    tensor(0.3679)
    """
    return divergence * torch.exp(-mu * rate * times)


def exponential_delay(
    divergence: Float[Tensor, "*#batch"], goal: Float[Tensor, "*#batch"], rate: float, mu: float
) -> Float[Tensor, "*_"]:
    """The paper's delay, `Δt ≤ log(D_0/δ) / (μβ̃)` (Eqs. 7, 53), on the same condition.

    >>> exponential_delay(torch.tensor(1.0), torch.tensor(0.1), rate=1.0, mu=0.5)
    tensor(4.6052)
    """
    return (divergence / goal).log().clamp_min(0) / (mu * rate)


def sparse_asymptote(
    times: Float[Tensor, "*batch"], rate: float, informative: int, distractors: int
) -> Float[Tensor, "*batch"]:
    """What the divergence from an oracle becomes, `D → 1/(c β̃ t)` with `c = 1/k + 1/m`.

    `k = |S|` positions are informative and m are not. With mass ε on the distractors `D ≈ ε` and, once it is spread
    evenly, `‖α − α*‖² = c ε²`, so that `dD/dt ≈ −c β̃ D²`.

    >>> sparse_asymptote(torch.tensor(10.0), rate=1.0, informative=2, distractors=2)
    tensor(0.1000)
    """
    return 1 / (_evenness(informative, distractors) * rate * times)


def sparse_delay(
    divergence: Float[Tensor, "*#batch"],
    goal: Float[Tensor, "*#batch"],
    rate: float,
    informative: int,
    distractors: int,
) -> Float[Tensor, "*_"]:
    """The time from one divergence to a smaller one, exactly, where attention is even within and outside of S.

    `(1/u − log u)` at `u = e^δ − 1`, less the same at `u = e^{D_0} − 1`, over `c β̃` with `c = 1/k + 1/m`. It grows as
    1/δ where Eq. 53 has log(1/δ), and like it in proportion to 1/β̃. Attention that begins uniform stays even.

    >>> sparse_delay(torch.tensor(2.0).log(), torch.tensor(1.01).log(), rate=1.0, informative=2, distractors=2)
    tensor(103.6053)
    """
    start, end = torch.expm1(divergence), torch.expm1(goal)
    passed = (1 / end - end.log()) - (1 / start - start.log())
    return passed.clamp_min(0) / (rate * _evenness(informative, distractors))


def pl_ratio(target: Float[Tensor, "*#batch key"], pattern: Float[Tensor, "*#batch key"]) -> Float[Tensor, "*_"]:
    """The local Polyak–Łojasiewicz ratio, `‖α − α*‖² / D(α*‖α)` (Lemma D.1, Eqs. 49–51): D falls at β̃ times it.

    Near a target of full support it lies between `2 min α*` and `2 max α*`; near a sparse one it goes to 0 with D.

    >>> pl_ratio(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5]))
    tensor(0.7213)
    """
    return kl_logit_gradient(target, pattern).square().sum(-1) / kl_divergence(target, pattern)


def pl_constant_paper(
    target: Float[Tensor, "*batch key"], support: Bool[Tensor, "*batch key"]
) -> Float[Tensor, "*batch"]:
    """The paper's constant, `μ = 2 min_{i∈S} α*_i` (Eq. 50): the limit of a lower bound and itself none.

    >>> pl_constant_paper(torch.tensor([0.25, 0.75]), torch.tensor([True, True]))
    tensor(0.5000)
    """
    return 2 * torch.where(support, target, torch.inf).amin(-1)


def pl_constant(target: Float[Tensor, "*#batch key"], pattern: Float[Tensor, "*#batch key"]) -> Float[Tensor, "*_"]:
    """A lower bound on `pl_ratio` everywhere: the least of `2 min(α_i, α*_i)` on the support and of `α_i` off it.

    As `p log(p/q) + q − p ≤ (q − p)²/(2 min(p, q))` for each weight, and is q where p = 0. It tends to Lemma D.1's
    constant at a target of full support, and to 0 at a sparse one.

    >>> pl_constant(torch.tensor([1.0, 0.0]), torch.tensor([0.75, 0.25]))
    tensor(0.2500)
    """
    return torch.where(target > 0, 2 * torch.minimum(target, pattern), pattern).amin(-1)


def _runge_kutta(state: Tensor, target: Tensor, step: float) -> Tensor:
    first = target - state.softmax(-1)
    second = target - (state + 0.5 * step * first).softmax(-1)
    third = target - (state + 0.5 * step * second).softmax(-1)
    fourth = target - (state + step * third).softmax(-1)
    return state + step / 6 * (first + 2 * second + 2 * third + fourth)


def _evenness(informative: int, distractors: int) -> float:
    require_integer("informative", informative, least=1)
    require_integer("distractors", distractors, least=1)
    return 1 / informative + 1 / distractors
