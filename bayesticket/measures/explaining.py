"""Explaining away (Lemma 5.1): the gradient that the task still sends to attention, and what bounds it."""

from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bayesticket import theory
from bayesticket.errors import refuse, require_integer
from bayesticket.measures.base import AttentionMeasure, Observation
from bayesticket.model import HookedTransformer, mlp_pre_name, own_hooks, require_single_layer, scores_name, values_of
from bayesticket.specs import spec
from bayesticket.tasks import Examples


@spec
class ExplainingAway(AttentionMeasure):
    """The gradient in the attention scores against its four bounds (Lemma 5.1, Eqs. 4, 29–37): a vector.

    For every example, head and position, from tight to loose:

        |∂L/∂s_i|  ≤  α_i ‖v_i − z‖ ‖J‖₂ √(2L)  ≤  α_i ‖v_i − z‖ L_f √(2L)  ≤  2 R L_f √(2L)

    with the loss L, the Jacobian J of the logits in z, and z of the example itself, L_f the global Lipschitz constant
    and R the largest value norm in the batch. Entries `measured`, `local`, `global`, `loose` are the largest over
    positions, averaged over examples and heads; `unit` is `loose` with R = 1, as the paper states it, which is no
    bound where values are longer than 1. `measured/local`, `local/global` and `global/loose` are the largest such ratio
    over all examples, heads and positions: none is above 1 but for rounding, or the chain is broken somewhere. A
    measured gradient far below its bounds, and bounds that fall with √L, are what the explaining-away plateau is.

    Costs a spectral norm for each of `examples` examples, spread evenly over the batch (None: all of them, about half
    a second for a thousand): with the default two or three training steps. One plain layer with softmax attention only.
    """

    examples: int | None = 256

    def __post_init__(self):
        super().__post_init__()
        if self.examples is not None:
            require_integer("examples", self.examples, least=1)

    def reads(self, model: HookedTransformer) -> tuple[str, ...]:
        """The pattern, and what the ReLU is given."""
        return (*self.pattern_names(), mlp_pre_name(0))

    def differentiates(self, model: HookedTransformer) -> tuple[str, ...]:
        """The scores."""
        return (scores_name(0),)

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Refuses models for which the lemma's chain is not this one."""
        super().check(model, batch)
        _require_last_query(self, "ExplainingAway")
        require_explainable(model, "ExplainingAway")

    def labels(self, model: HookedTransformer) -> tuple[str, ...]:
        """What the entries are."""
        return ("measured", "local", "global", "loose", "unit", "measured/local", "local/global", "global/loose")

    def value(self, seen: Observation) -> Float[Tensor, "8"]:
        """The gradient, its bounds, and the largest ratio along each link of the chain."""
        chain = explaining_away(self, seen, spread(len(seen.batch), self.examples).to(seen.logits.device))
        unit = chain.loose / _radius(seen)
        largest = [form.amax(-1).mean() for form in (chain.measured, chain.local, chain.global_)]
        forms = (chain.measured, chain.local, chain.global_, chain.loose[..., None])
        ratios = [_largest_ratio(smaller, larger) for smaller, larger in pairwise(forms)]
        return torch.stack([*largest, chain.loose.mean(), unit.mean(), *ratios])


def _largest_ratio(smaller: Float[Tensor, "*_"], larger: Float[Tensor, "*_"]) -> Float[Tensor, ""]:
    """The largest quotient, where 0/0 counts as 0, and anything else over 0 as infinite."""
    return torch.where(smaller > 0, smaller / larger, 0.0).max()


def explaining_away(measure: AttentionMeasure, seen: Observation, index: Int[Tensor, "m"]) -> theory.ExplainingAway:
    """The four forms for some examples of an observation, per head and position, the first by autograd."""
    _require_unedited(seen, "ExplainingAway")
    model, block = seen.model, seen.model.blocks[0]
    heads = slice(None) if measure.heads is None else measure.heads
    pattern = measure.rows(seen.activations[measure.pattern_names()[0]])[index]
    value = values_of(model, seen.batch.tokens[index])[:, heads]
    pre = seen.activations[mlp_pre_name(0)][index, -1][:, None]
    mlp_residual = bypasses_mlp(model)
    weights = (block.attn.W_O[heads], block.mlp.W_in, block.mlp.W_out, model.unembed.W_U)
    jacobian = theory.jacobian(*weights, pre, mlp_residual=mlp_residual)
    lipschitz = theory.lipschitz_products(*weights, mlp_residual=mlp_residual)
    loss = theory.example_loss(seen.logits[index], seen.batch.targets[index])[:, None]
    # The loss is a mean over the batch; the lemma is about one example.
    measured = len(seen.batch) * measure.rows(seen.gradients[scores_name(0)])[index].abs()
    return theory.ExplainingAway(
        measured,
        theory.explaining_away_local(pattern, value, jacobian, loss),
        theory.explaining_away_global(pattern, value, lipschitz, loss),
        theory.explaining_away_loose(_radius(seen), lipschitz, loss),
    )


def _radius(seen: Observation) -> Float[Tensor, ""]:
    return values_of(seen.model, seen.batch.tokens).norm(dim=-1).max()


def spread(n: int, most: int | None) -> Int[Tensor, "m"]:
    """At most so many of n indices, spread evenly.

    >>> spread(10, 4).tolist(), spread(3, None).tolist()
    ([0, 3, 6, 9], [0, 1, 2])
    """
    return torch.arange(n) if most is None or most >= n else torch.linspace(0, n - 1, most).round().long()


@spec
class LipschitzBounds(AttentionMeasure):
    """How steep the map from the pooled value z to the logits is, and can be (Def. 4.2, Eqs. 23, 30): a vector.

    `local` is the mean, `steepest` the largest norm of the Jacobian over examples; the others are global: `centred`
    ≤ `products` ≤ `factors` (see `bayesticket.theory`), averaged over heads. Large bounds mean a capacity to fit
    noise; they contract with the MLP's norm. Costs as much as `ExplainingAway`, and holds for the same models.
    """

    examples: int | None = 256

    def __post_init__(self):
        super().__post_init__()
        if self.examples is not None:
            require_integer("examples", self.examples, least=1)

    def reads(self, model: HookedTransformer) -> tuple[str, ...]:
        """What the ReLU is given."""
        return (mlp_pre_name(0),)

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Refuses models with another map from z to the logits."""
        super().check(model, batch)
        _require_last_query(self, "LipschitzBounds")
        require_explainable(model, "LipschitzBounds")

    def labels(self, model: HookedTransformer) -> tuple[str, ...]:
        """What the entries are."""
        return ("local", "steepest", "centred", "products", "factors")

    def value(self, seen: Observation) -> Float[Tensor, "5"]:
        """The local and global constants."""
        _require_unedited(seen, "LipschitzBounds")
        model, block = seen.model, seen.model.blocks[0]
        index = spread(len(seen.batch), self.examples).to(seen.logits.device)
        heads = slice(None) if self.heads is None else self.heads
        weights = (block.attn.W_O[heads], block.mlp.W_in, block.mlp.W_out, model.unembed.W_U)
        pre = seen.activations[mlp_pre_name(0)][index, -1][:, None]
        options = {"mlp_residual": bypasses_mlp(model)}
        local = theory.lipschitz_local(theory.jacobian(*weights, pre, **options))
        bounds = (theory.lipschitz_centred, theory.lipschitz_products, theory.lipschitz_factors)
        return torch.stack([local.mean(), local.max(), *(bound(*weights, **options).mean() for bound in bounds)])


def _require_unedited(seen: Observation, field: str) -> None:
    """Refuses an intervention that edits, after which the weights no longer say what the model computes."""
    if seen.edited:
        raise refuse(field, f"an intervention that edits {seen.edited[0]}", "priors and projections only")


def _require_last_query(measure: AttentionMeasure, field: str) -> None:
    """Refuses a query other than the one whose z the answer is made from."""
    if measure.query != -1:
        raise refuse(f"{field}.query", measure.query, "-1, the last position, whose z the answer is made from")


def require_explainable(model: HookedTransformer, field: str) -> None:
    """Refuses all but one plain layer with softmax attention, a ReLU MLP, no normalisation, and no hooks of its own."""
    require_single_layer(model, field)
    architecture = getattr(model, "architecture", None)
    accepted = "one layer with softmax attention, ReLU and no normalisation, which Lemma 5.1 is about"
    for name, expected in (("normalization_type", None), ("act_fn", "relu")):
        if (given := getattr(model.cfg, name)) != expected:
            raise refuse(field, f"a model with {name}={given!r}", accepted)
    if architecture is not None and architecture.attention != "softmax":
        raise refuse(field, f"a model with attention={architecture.attention!r}", accepted)
    if own_hooks(model) and (architecture is None or architecture.residual):
        raise refuse(field, f"a model with hooks of its own on {own_hooks(model)[0]}", accepted)


def bypasses_mlp(model: HookedTransformer) -> bool:
    """Whether the residual stream leads around the MLP."""
    architecture = getattr(model, "architecture", None)
    return architecture is None or architecture.residual
