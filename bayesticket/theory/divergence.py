"""Attention against a target, and the condition that the paper puts on it (Section 4, Eqs. 2, 3, 25, 27, 41–45)."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bayesticket.errors import require_integer


def kl_divergence(
    target: Float[Tensor, "*#batch key"],
    pattern: Float[Tensor, "*#batch key"],
    scores: Float[Tensor, "*#batch key"] | None = None,
) -> Float[Tensor, "*_"]:
    """Divergence of the attention from a target, `D(α*‖α) = Σ_i α*_i log(α*_i / α_i)` (Eqs. 3, 6).

    `log α` is taken from the pattern while no weight that the target asks for is below √tiny, 1e-19 in float32. Below,
    it is the log-softmax of the scores, where these are given and the pattern is their softmax: value and gradient,
    `α − α*`, are right however far apart the scores are. Where attention was edited or is no softmax, a weight below
    tiny, the smallest normal number of its dtype, counts as that number: the divergence is then large and finite (about
    87 in float32), and has no gradient.

    >>> kl_divergence(torch.tensor([0.5, 0.0, 0.5]), torch.tensor([0.25, 0.5, 0.25]))
    tensor(0.6931)
    >>> scores = torch.tensor([0.0, 200.0])
    >>> kl_divergence(torch.tensor([1.0, 0.0]), scores.softmax(-1), scores)
    tensor(200.)
    """
    log_pattern = None
    if scores is not None and _vanishes(target, pattern):
        log_pattern = _log_softmax(scores, pattern)
    if log_pattern is None:
        log_pattern = pattern.clamp_min(torch.finfo(pattern.dtype).tiny).log()
    return torch.xlogy(target, target).sum(-1) - (target * log_pattern).sum(-1)


def _vanishes(target: Float[Tensor, "*#batch key"], pattern: Float[Tensor, "*#batch key"]) -> bool:
    """Whether a weight that the target asks for is so small that its logarithm and its gradient lose digits."""
    least = torch.finfo(pattern.dtype).tiny ** 0.5
    # The second question costs a few passes, and is seldom asked.
    return bool(pattern.min() < least) and bool((target * (pattern < least)).max() > 0)


def _log_softmax(
    scores: Float[Tensor, "*#batch key"], pattern: Float[Tensor, "*#batch key"]
) -> Float[Tensor, "*#batch key"] | None:
    """The log-softmax of the scores, finite; None where the pattern differs from their softmax by more than rounding.

    The two patterns are compared, because any hook between scores and pattern may have changed the pattern.
    """
    log_pattern = scores.log_softmax(-1)
    limits, found = torch.finfo(pattern.dtype), pattern.detach()
    difference = log_pattern.detach().exp().sub_(found).abs_()
    if not bool(difference.sub_(found, alpha=limits.eps**0.5).max() <= limits.tiny):
        return None
    return log_pattern.clamp_min(limits.min)  # a key that the query cannot see has the score −∞


def kl_logit_gradient(
    target: Float[Tensor, "*#batch key"], pattern: Float[Tensor, "*#batch key"]
) -> Float[Tensor, "*_ key"]:
    """Gradient of the divergence in the scores before the softmax, `∂D/∂s_i = α_i − α*_i` (Eqs. 41–45).

    It does not depend on the task's loss, and so does not vanish when the training examples are memorised.

    >>> kl_logit_gradient(torch.tensor([0.5, 0.0, 0.5]), torch.tensor([0.25, 0.5, 0.25]))
    tensor([-0.2500,  0.5000, -0.2500])
    """
    return pattern - target


def attention_entropy(pattern: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch"]:
    """Entropy of attention, `H(α) = −Σ_i α_i log α_i`: 0 when it sits on one key, log T when it is uniform.

    >>> attention_entropy(torch.tensor([0.5, 0.5, 0.0]))
    tensor(0.6931)
    """
    # The floor keeps the gradient of a vanishing weight finite; its product with the weight is 0 all the same.
    return -(pattern * pattern.clamp_min(torch.finfo(pattern.dtype).tiny).log()).sum(-1)


def informative_mass(
    pattern: Float[Tensor, "*#batch key"], informative: Bool[Tensor, "*#batch key"]
) -> Float[Tensor, "*_"]:
    """Attention on all informative positions together, `Σ_{i∈S} α_i`.

    >>> informative_mass(torch.tensor([0.5, 0.3, 0.2]), torch.tensor([True, False, True]))
    tensor(0.7000)
    """
    return (pattern * informative).sum(-1)


def least_informative_mass(
    pattern: Float[Tensor, "*#batch key"], informative: Bool[Tensor, "*#batch key"]
) -> Float[Tensor, "*_"]:
    """Attention on the informative position that has least of it, `min_{i∈S} α_i` (Def. 4.1, Eq. 2).

    >>> least_informative_mass(torch.tensor([0.5, 0.3, 0.2]), torch.tensor([True, False, True]))
    tensor(0.2000)
    """
    return torch.where(informative, pattern, torch.inf).amin(-1)


def structural_condition(
    pattern: Float[Tensor, "*#batch key"],
    informative: Bool[Tensor, "*#batch key"],
    threshold: Float[Tensor, "*#batch"] | float,
) -> Bool[Tensor, "*_"]:
    """Whether an input satisfies B(τ), `α_i ≥ τ` for every `i ∈ S` (Def. 4.1, Eq. 2).

    >>> structural_condition(torch.tensor([0.5, 0.3, 0.2]), torch.tensor([True, False, True]), 0.2)
    tensor(True)
    """
    return least_informative_mass(pattern, informative) >= threshold


def output_separation(margin: Float[Tensor, "*#batch"], other_margin: Float[Tensor, "*#batch"]) -> Float[Tensor, "*_"]:
    """How far apart the logits of two inputs of different classes are at least, `γ = (m + m') / √2` (Eq. 25).

    `m` and `m'` are the class margins: the logit of the right class less the largest of the others. Along the direction
    `(e_y − e_y') / √2` alone the two logit vectors differ by that much.

    >>> output_separation(torch.tensor(1.0), torch.tensor(1.0))
    tensor(1.4142)
    """
    return (margin + other_margin) / 2**0.5


def structural_threshold(
    gamma: Float[Tensor, "*#batch"] | float,
    lipschitz: Float[Tensor, "*#batch"],
    separation: Float[Tensor, "*#batch"] | float,
) -> Float[Tensor, "*_"]:
    """The mass that two inputs must give to the position where they differ, `τ = γ / (L Δ_max)` (Thm 4.3, Eq. 27).

    Two inputs of different classes that differ at the informative position j only, and whose logits are γ apart, need
    `α_j(x) + α_j(x') ≥ τ`. `lipschitz` is that of the map from the pooled value to the logits, and `separation` the
    *largest* `‖v_j − c_j‖` (at most 2R). The paper asks `α_j ≥ τ` of each input, which suffices for the pair and is
    not needed by it: what each pair does need is `max(α_j(x), α_j(x')) ≥ τ/2`.

    >>> structural_threshold(1.0, torch.tensor(5.0), 2.0)
    tensor(0.1000)
    """
    return gamma / (lipschitz * separation)


def divergence_bound(threshold: Float[Tensor, "*batch"], count: int) -> Float[Tensor, "*batch"]:
    """The most that D(α*‖α) can be where B(τ) holds, `log(1/(kτ))` with `k = |S|` (Cor. 4.5, Eq. 3).

    It cannot be lowered: attention with exactly τ at each informative position attains it. A divergence below it does
    not give B(τ) back, see `sufficient_divergence`.

    >>> divergence_bound(torch.tensor(0.25), count=2)
    tensor(0.6931)
    """
    require_integer("count", count, least=1)
    return -(count * threshold).log()


def sufficient_divergence(threshold: Float[Tensor, "*batch"], count: int) -> Float[Tensor, "*batch"]:
    """The divergence below which B(τ) is sure to hold, for `τ ≤ 1/k`: the converse that Cor. 4.5 is used for in Eq. 53.

    `(1/k) [log(1/(kτ)) + (k−1) log((k−1)/(k(1−τ)))]`, which is the divergence of attention that has τ at one
    informative position and the rest spread evenly over the others. It equals `divergence_bound` for k = 1 and is
    smaller for more.

    >>> sufficient_divergence(torch.tensor(0.25), count=2)
    tensor(0.1438)
    """
    own = divergence_bound(threshold, count)
    if count == 1:
        return own
    return (own + (count - 1) * ((count - 1) / (count * (1 - threshold))).log()) / count
