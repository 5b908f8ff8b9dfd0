"""Priors: interventions that add a term to the loss, and the controls that go with them."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from bayesticket.attention import Target, as_target, require_places
from bayesticket.errors import refuse, require_choice
from bayesticket.interventions.base import (
    AttentionIntervention,
    Intervention,
    check_target,
    notice_of_first_layer,
)
from bayesticket.interventions.context import Context
from bayesticket.model import pattern_name, require_layer, routing_parameters, scores_name, visible_from
from bayesticket.schedules import Strength, require_strength
from bayesticket.specs import spec
from bayesticket.theory import attention_entropy, kl_divergence


@spec
class KLPrior(AttentionIntervention):
    """Pulls attention toward a target, `strength · E[D_KL(α*‖α)]` (Eq. 6), averaged over layers, heads and examples.

    Of a task that asks at several positions the mean is also over the queries whose answers can be known.
    `KLPrior(teacher)` with a HookedTransformer or a Run for target distils that teacher's attention;
    `KLPrior("adversarial")` is the adversarial prior. Its controls: `"shifted"`, `Permuted("oracle")`,
    `GradientNoise`.

    >>> KLPrior(strength=0.1) + KLPrior("uniform", head=0)
    KLPrior(strength=0.1) + KLPrior(head=0, target='uniform')
    """

    target: Target = "oracle"
    strength: Strength = 1.0

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "target", as_target("target", self.target))
        require_strength("strength", self.strength)

    def reads(self) -> tuple[str, ...]:
        """The scores and the pattern of every layer."""
        return (*self.scores_names(), *self.pattern_names())

    def penalty(self, context: Context, activations: Mapping[str, Tensor]) -> Float[Tensor, ""]:
        """The divergence, times the strength."""
        terms = []
        for layer, site in itertools.product(self.layers, self.at_queries(context.batch)):
            scores, pattern = (site.rows(activations[name(layer)]) for name in (scores_name, pattern_name))
            target = context.target(self.target, layer, site).to(pattern)
            terms.append(kl_divergence(target, pattern, scores).mean())
        return context.value(self.strength, "KLPrior.strength") * torch.stack(terms).mean()

    def check(self, context: Context) -> None:
        """Raises unless the target fits."""
        super().check(context)
        check_target(self, self.target, context)


@spec
class EntropyPrior(AttentionIntervention):
    """Sharpens attention wherever it points, `strength · E[H(α)]`; it knows nothing of the oracle."""

    strength: Strength = 1.0

    def __post_init__(self):
        super().__post_init__()
        require_strength("strength", self.strength)

    def reads(self) -> tuple[str, ...]:
        """The pattern of every layer."""
        return self.pattern_names()

    def penalty(self, context: Context, activations: Mapping[str, Tensor]) -> Float[Tensor, ""]:
        """The entropy, times the strength."""
        sites = self.at_queries(context.batch)
        terms = [attention_entropy(site.rows(each)).mean() for each in activations.values() for site in sites]
        return context.value(self.strength, "EntropyPrior.strength") * torch.stack(terms).mean()


def root_sum(pattern: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch"]:
    """The sparsity of attention, `Σ_i √α_i`: 1 when it sits on one key, √T when it is uniform.

    >>> root_sum(torch.tensor([0.25, 0.25, 0.25, 0.25]))
    tensor(2.)
    """
    # The slope of the root is infinite at 0, where softmax arrives by underflow; the floor makes it finite.
    return pattern.clamp_min(torch.finfo(pattern.dtype).tiny).sqrt().sum(-1)


def score_sum(scores: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch"]:
    """The ℓ1 norm of attention's scores, `Σ_i |s_i|`.

    >>> score_sum(torch.tensor([1.0, -2.0]))
    tensor(3.)
    """
    return scores.abs().sum(-1)


@spec
class SparsityPrior(AttentionIntervention):
    """A sparsity penalty: `strength · E[Σ √α_i]` on the pattern, or `strength · E[Σ |s_i|]` on the scores.

    A softmax pattern has ℓ1 norm 1 whatever it is, so its ℓ1 norm cannot be penalised; `on` says what is. On the
    pattern the penalty sharpens attention; on the scores it shrinks them, which flattens attention.
    """

    strength: Strength = 1.0
    on: Literal["pattern", "scores"] = "pattern"

    def __post_init__(self):
        super().__post_init__()
        require_strength("strength", self.strength)
        require_choice("on", self.on, ("pattern", "scores"))

    def reads(self) -> tuple[str, ...]:
        """The pattern or the scores of every layer."""
        return self.pattern_names() if self.on == "pattern" else self.scores_names()

    def penalty(self, context: Context, activations: Mapping[str, Tensor]) -> Float[Tensor, ""]:
        """The sparsity measure, times the strength."""
        terms = []
        measured = zip(self.layers, activations.values(), strict=True)
        for (layer, activation), site in itertools.product(measured, self.at_queries(context.batch)):
            rows = site.rows(activation)
            if self.on == "scores":  # those of keys the query cannot see are −∞
                assert context.model is not None
                rows = rows[..., visible_from(context.model, layer, context.batch.n_positions, site.position)]
            terms.append((root_sum if self.on == "pattern" else score_sum)(rows).mean())
        return context.value(self.strength, "SparsityPrior.strength") * torch.stack(terms).mean()


def squared_norm(tensors: Iterable[Tensor]) -> Float[Tensor, ""]:
    """The squared Frobenius norm of several tensors together."""
    return torch.stack([tensor.square().sum() for tensor in tensors]).sum()


@spec
class QKPenalty(Intervention):
    """L2 penalty on the attention's query and key matrices, `strength · (‖W_Q‖² + ‖W_K‖²)`."""

    strength: Strength = 0.5
    layer: int | tuple[int, ...] = 0

    def __post_init__(self):
        require_strength("strength", self.strength)
        require_places("layer", self.layer)

    def penalty(self, context: Context, activations: Mapping[str, Tensor]) -> Float[Tensor, ""]:
        """The squared norms, times the strength."""
        names = routing_parameters(context.parameters, self.layer, biases=False)
        norm = squared_norm(context.parameters[name] for name in names)
        return context.value(self.strength, "QKPenalty.strength") * norm

    def check(self, context: Context) -> None:
        """Raises unless the model has the layers."""
        assert context.model is not None
        for place in (self.layer,) if isinstance(self.layer, int) else self.layer:
            require_layer(context.model, place, "QKPenalty.layer")
        notice_of_first_layer(self, self.layer, context.model)


@spec
class GradientNoise(Intervention):
    """A control: noise on the gradients of W_Q, W_K, b_Q, b_K, as large as a prior's gradient, without its direction.

    Every step draws a Gaussian direction `u` of norm 1 and adds `fraction · ‖∇P‖ · u` to the gradient, where `P` is
    the penalty of `like` at the same weights; `P` itself is not added. It is a penalty whose value is 0 and whose
    gradient is the noise.
    """

    like: Intervention = KLPrior()
    fraction: Strength = 1.0

    def __post_init__(self):
        if (
            not isinstance(self.like, AttentionIntervention)
            or not self.like.fills("penalty")
            or self.like.fills("init")
        ):
            raise refuse("like", self.like, "a prior on attention without state, such as KLPrior(strength=1.0)")
        require_strength("fraction", self.fraction)

    def reads(self) -> tuple[str, ...]:
        """What the prior reads."""
        return self.like.reads()

    def penalty(self, context: Context, activations: Mapping[str, Tensor]) -> Float[Tensor, ""] | None:
        """Zero, with the noise for gradient."""
        fraction = context.value(self.fraction, "GradientNoise.fraction")
        prior = self.like.penalty(context, activations)
        if prior is None or not prior.requires_grad:
            return None
        names = routing_parameters(context.parameters, self.like.layers)  # type: ignore[attr-defined]
        weights = [context.parameters[name] for name in names]
        weights = [weight for weight in weights if weight.requires_grad]
        if not weights:
            return None
        gradients = torch.autograd.grad(prior, weights, retain_graph=True, materialize_grads=True)
        noise = noise_of_norm(weights, fraction * squared_norm(gradients).sqrt(), context.generator("gradient noise"))
        return torch.stack([((w - w.detach()) * u).sum() for w, u in zip(weights, noise, strict=True)]).sum()

    def check(self, context: Context) -> None:
        """Raises where the prior does."""
        self.like.check(context)


def noise_of_norm(
    like: Iterable[Tensor], norm: Float[Tensor, ""], generator: torch.Generator
) -> list[Float[Tensor, "..."]]:
    """Gaussian noise in the shapes of some tensors, scaled to a joint Frobenius norm."""
    noise = [torch.randn(t.shape, generator=generator, dtype=t.dtype, device=t.device) for t in like]
    scale = norm / squared_norm(noise).sqrt()
    return [scale * u for u in noise]
