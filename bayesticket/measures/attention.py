"""Where attention is: how far from a target, and how spread out."""

from collections.abc import Iterator
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from bayesticket import theory
from bayesticket.attention import Target, as_target, require_visible, resolve
from bayesticket.measures.base import AttentionMeasure, Observation
from bayesticket.model import HookedTransformer, scores_name, visible_from
from bayesticket.specs import spec
from bayesticket.tasks import Examples, uniform_over


@spec
class KLToOracle(AttentionMeasure):
    """Divergence of attention from the oracle, `E[D_KL(α*‖α)]` (Eq. 3): a number, averaged over examples and heads.

    `D_KL(α*‖α) = −log k − (1/k) Σ_{i∈S} log α_i`. 0 when attention is the oracle; log T − log k when it is uniform;
    large when an informative position is missed. A query that cannot see one, as `query=1` under causal attention, is
    refused: the divergence is infinite there. Exact at any distance between the scores, since `log α` is taken from
    them where the pattern is their softmax. Costs a pass over scores and pattern.
    """

    def pooling(self) -> Literal["mean"]:
        """The mean over queries."""
        return "mean"

    def reads(self, model: HookedTransformer) -> tuple[str, ...]:
        """The scores and the pattern of every layer."""
        return (*self.scores_names(), *self.pattern_names())

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Raises for a query that cannot attend to an informative position."""
        super().check(model, batch)
        _require_finite(self, "oracle", model, batch)

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The mean divergence."""
        terms = []
        for scores, pattern in _scores_and_patterns(self, seen):
            oracle = uniform_over(seen.batch.informative, pattern.dtype)[:, None]
            terms.append(theory.kl_divergence(oracle, pattern, scores).mean())
        return torch.stack(terms).mean()


@spec
class KLToTarget(AttentionMeasure):
    """Divergence of attention from any target of `bayesticket.attention`, `E[D_KL(target‖α)]`: a number.

    `D_KL(target‖α) = Σ_i target_i log(target_i / α_i)`, averaged over examples, heads and layers. 0 when attention is
    the target; large when a key that the target has weight on is missed. Exact at any distance between the scores, as
    `KLToOracle` is. Costs a pass over scores and pattern; with a teacher for target also one forward pass of the
    teacher.
    """

    target: Target = "uniform"

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "target", as_target("target", self.target))

    def pooling(self) -> Literal["mean"]:
        """The mean over queries."""
        return "mean"

    def reads(self, model: HookedTransformer) -> tuple[str, ...]:
        """The scores and the pattern of every layer."""
        return (*self.scores_names(), *self.pattern_names())

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Raises for a query that cannot attend to where the target has weight: the divergence is infinite there."""
        super().check(model, batch)
        _require_finite(self, self.target, model, batch)

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The mean divergence."""
        terms = []
        for layer, (scores, pattern) in zip(self.layers, _scores_and_patterns(self, seen), strict=True):
            target = resolve(self.target, seen.batch, layer, query=self.position, heads=self.heads)
            terms.append(theory.kl_divergence(target.to(pattern), pattern, scores).mean())
        return torch.stack(terms).mean()


def _scores_and_patterns(
    measure: AttentionMeasure, seen: Observation
) -> Iterator[tuple[Float[Tensor, "n heads key"], Float[Tensor, "n heads key"]]]:
    """The scores and the attention at a measure's site, by layer."""
    for names in zip(measure.scores_names(), measure.pattern_names(), strict=True):
        scores, pattern = (measure.rows(seen.activations[name]) for name in names)
        yield scores, pattern


def _require_finite(measure: AttentionMeasure, target: Target, model: HookedTransformer, batch: Examples) -> None:
    """Raises where a target has weight on keys that the query cannot see, so that the divergence is infinite."""
    for layer in measure.layers:
        visible = visible_from(model, layer, batch.n_positions, measure.position)
        if visible != slice(0, batch.n_positions):
            weights = resolve(target, batch, layer, query=measure.position, heads=measure.heads)
            require_visible(weights, visible, f"{type(measure).__name__}.query")


@spec
class AttentionEntropy(AttentionMeasure):
    """Entropy of attention, `E[H(α)]`, `H(α) = −Σ_i α_i log α_i`: a number, averaged over examples and heads.

    log T when attention is uniform, log k at the oracle; small when attention is on few keys, whether these are
    informative or not. Costs a pass over the pattern.
    """

    def pooling(self) -> Literal["mean"]:
        """The mean over queries."""
        return "mean"

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The mean entropy."""
        return theory.attention_entropy(self.patterns(seen)).mean()


@spec(kw_only=True)
class ScoreVariance(AttentionMeasure):
    """Variance of the attention scores over the keys (App. E.1): a number, averaged over examples and heads.

    `E[(1/T) Σ_i (s_i − s̄)²]` of the scores before the softmax, over the keys that the query may attend to. 0 means
    uniform attention, and a sharp pattern needs a large variance. ‖M‖_F bounds it, so it falls under weight decay.
    Costs a small part of a millisecond.
    """

    def pooling(self) -> Literal["mean"]:
        """The mean over queries."""
        return "mean"

    def reads(self, model: HookedTransformer) -> tuple[str, ...]:
        """The scores of every layer."""
        return self.scores_names()

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The mean variance."""
        variances = []
        for layer in self.layers:  # the scores of keys that the query cannot see are −∞
            visible = visible_from(seen.model, layer, seen.batch.n_positions, self.position)
            variances.append(theory.score_variance(self.rows(seen.activations[scores_name(layer)])[..., visible]))
        return torch.cat(variances, 1).mean()
