"""Explaining away (Lemma 5.1): the gradient that the task still sends to attention, and what bounds it."""

from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bayesticket import theory
from bayesticket.errors import refuse, require_integer
from bayesticket.measures.base import AttentionMeasure, Observation, require_unedited
from bayesticket.model import (
    HookedTransformer,
    bypasses_mlp,
    mlp_pre_name,
    position_embeddings,
    readout_matrices,
    require_relu_layer,
    scores_name,
    values_of,
)
from bayesticket.specs import spec
from bayesticket.tasks import Examples


@spec
class ReadoutMeasure(AttentionMeasure):
    """Base of the measures of the map from the pooled value z to the logits, taken at some examples of the batch."""

    examples: int | None = 256
    """How many examples to take, spread evenly over the batch; None for all."""

    def __post_init__(self):
        super().__post_init__()
        if self.examples is not None:
            require_integer("examples", self.examples, least=1)

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Raises for a model in which this map is another one, and for a query whose z the answer is not made from."""
        super().check(model, batch)
        reader = type(self).__name__
        if self.query != -1:
            raise refuse(f"{reader}.query", self.query, "-1, the last position, whose z the answer is made from")
        require_relu_layer(model, reader)

    def index(self, seen: Observation) -> Int[Tensor, "m"]:
        """The examples that are taken."""
        return spread(len(seen.batch), self.examples).to(seen.logits.device)

    def jacobian(self, seen: Observation, index: Int[Tensor, "m"]) -> Float[Tensor, "m heads d_head outputs"]:
        """The Jacobian of the logits in each head's z, at some examples."""
        pre = seen.activations[mlp_pre_name(0)][index, -1][:, None]
        weights = readout_matrices(seen.model, self.heads)
        return theory.jacobian(*weights, pre, mlp_residual=bypasses_mlp(seen.model))


def spread(n: int, most: int | None) -> Int[Tensor, "m"]:
    """Indices of at most `most` of n examples, spread evenly.

    >>> spread(10, 4).tolist(), spread(3, None).tolist()
    ([0, 3, 6, 9], [0, 1, 2])
    """
    return torch.arange(n) if most is None or most >= n else torch.linspace(0, n - 1, most).round().long()


@spec
class ExplainingAway(ReadoutMeasure):
    """The gradient in the attention scores against its four bounds (Lemma 5.1, Eqs. 4, 29–37): a vector.

    For every example, head and position, from tight to loose:

        |∂L/∂s_i|  ≤  α_i ‖v_i − z‖ ‖J‖₂ √(2L)  ≤  α_i ‖v_i − z‖ L_f √(2L)  ≤  2 R L_f √(2L)

    The loss L, the Jacobian J of the logits in z, and z are those of the example; L_f is the global Lipschitz constant
    and R the largest value norm in the batch. Entries:

    - `measured`, `local`, `global`, `loose`: the largest over positions, averaged over examples and heads;
    - `paper`: the bound as the paper states it, `2 L_f ‖W_V‖₂ √(2L)`, for embeddings of norm 1 or less;
    - `scaled`: `2 L_f ‖[W_V; b_V]‖₂ max‖[x, 1]‖ √(2L)`, which is the same for embeddings as they are, with positions
      and biases, so that `loose ≤ scaled`. Of several heads the largest ‖W_V‖₂ counts, as the longest value does in R;
    - `measured/local`, `local/global`, `global/loose`: the largest such ratio over all examples, heads and positions.
      The lemma says that none exceeds 1, apart from rounding.

    On the explaining-away plateau the measured gradient is far below its bounds, and the bounds fall with √L.

    In a trained model embeddings are seldom of norm 1: then `paper` is no bound, and `scaled` is.

    Costs a spectral norm for each of `examples` examples, spread evenly over the batch (None: all of them, about half
    a second for a thousand): with the default two or three training steps. One plain layer with softmax attention only.
    """

    def reads(self, model: HookedTransformer) -> tuple[str, ...]:
        """The pattern, and the input of the ReLU."""
        return (*self.pattern_names(), mlp_pre_name(0))

    def differentiates(self, model: HookedTransformer) -> tuple[str, ...]:
        """The scores."""
        return (scores_name(0),)

    def labels(self, model: HookedTransformer) -> tuple[str, ...]:
        """What the entries are."""
        links = ("measured/local", "local/global", "global/loose")
        return ("measured", "local", "global", "loose", "paper", "scaled", *links)

    def value(self, seen: Observation) -> Float[Tensor, "9"]:
        """The gradient, its bounds, and the largest ratio of neighbours in the chain."""
        index = self.index(seen)
        chain = explaining_away(self, seen, index)
        largest = [form.amax(-1).mean() for form in (chain.measured, chain.local, chain.global_)]
        forms = (chain.measured, chain.local, chain.global_, chain.loose[..., None])
        ratios = [_largest_ratio(smaller, larger) for smaller, larger in pairwise(forms)]
        bounds = (chain.loose, *_from_embeddings(self, seen, index))
        return torch.stack([*largest, *(bound.mean() for bound in bounds), *ratios])


def explaining_away(measure: ReadoutMeasure, seen: Observation, index: Int[Tensor, "m"]) -> theory.ExplainingAway:
    """The four forms for some examples of an observation, per head and position, the first by autograd."""
    require_unedited(seen, "ExplainingAway")
    model, heads = seen.model, slice(None) if measure.heads is None else measure.heads
    pattern = measure.rows(seen.activations[measure.pattern_names()[0]])[index]
    value = values_of(model, seen.batch.tokens[index])[:, heads]
    lipschitz, loss = _lipschitz_and_loss(measure, seen, index)
    # The loss is a mean over the batch; the lemma is about one example.
    measured = len(seen.batch) * measure.rows(seen.gradients[scores_name(0)])[index].abs()
    return theory.ExplainingAway(
        measured,
        theory.explaining_away_local(pattern, value, measure.jacobian(seen, index), loss),
        theory.explaining_away_global(pattern, value, lipschitz, loss),
        theory.explaining_away_loose(_radius(seen), lipschitz, loss),
    )


def _lipschitz_and_loss(
    measure: ReadoutMeasure, seen: Observation, index: Int[Tensor, "m"]
) -> tuple[Float[Tensor, "heads"], Float[Tensor, "m one"]]:
    """The global Lipschitz constant of each head, and the loss of each example."""
    model = seen.model
    lipschitz = theory.lipschitz_products(*readout_matrices(model, measure.heads), mlp_residual=bypasses_mlp(model))
    return lipschitz, theory.example_loss(seen.logits[index], seen.batch.targets[index])[:, None]


def _from_embeddings(
    measure: ReadoutMeasure, seen: Observation, index: Int[Tensor, "m"]
) -> tuple[Float[Tensor, "m heads"], Float[Tensor, "m heads"]]:
    """The bound as the paper states it, and for embeddings as long as they are in the batch."""
    lipschitz, loss = _lipschitz_and_loss(measure, seen, index)
    attention, tokens = seen.model.blocks[0].attn, seen.batch.tokens
    augmented = torch.cat([attention.W_V, attention.b_V[:, None]], 1)
    stretch, stretch_augmented = (theory.spectral_norm(matrix).max() for matrix in (attention.W_V, augmented))
    of_positions = position_embeddings(seen.model, tokens.shape[1])
    squares = (seen.model.embed.W_E + of_positions[:, None]).square().sum(-1)
    longest = squares[torch.arange(tokens.shape[1], device=tokens.device), tokens].max()
    return (
        theory.explaining_away_paper(stretch, lipschitz, loss),
        theory.explaining_away_paper(stretch_augmented, lipschitz, loss, length=(longest + 1).sqrt()),
    )


def _radius(seen: Observation) -> Float[Tensor, ""]:
    """The largest value norm in the batch."""
    return values_of(seen.model, seen.batch.tokens).norm(dim=-1).max()


def _largest_ratio(smaller: Float[Tensor, "*_"], larger: Float[Tensor, "*_"]) -> Float[Tensor, ""]:
    """The largest quotient; 0/0 counts as 0, and any other number over 0 as infinite."""
    return torch.where(smaller > 0, smaller / larger, 0.0).max()


@spec
class LipschitzBounds(ReadoutMeasure):
    """How steep the map from the pooled value z to the logits is, and can be (Def. 4.2, Eqs. 23, 30): a vector.

    `local` is the mean, `steepest` the largest norm of the Jacobian over examples. The others are global Lipschitz
    constants, averaged over heads: `centred` ≤ `products` ≤ `factors` (see `bayesticket.theory`). Large bounds mean a
    capacity to fit noise; they shrink with the MLP's norm. Costs as much as `ExplainingAway`, for the same models.
    """

    def reads(self, model: HookedTransformer) -> tuple[str, ...]:
        """The input of the ReLU."""
        return (mlp_pre_name(0),)

    def labels(self, model: HookedTransformer) -> tuple[str, ...]:
        """What the entries are."""
        return ("local", "steepest", "centred", "products", "factors")

    def value(self, seen: Observation) -> Float[Tensor, "5"]:
        """The local and global constants."""
        require_unedited(seen, "LipschitzBounds")
        weights, mlp_residual = readout_matrices(seen.model, self.heads), bypasses_mlp(seen.model)
        local = theory.lipschitz_local(self.jacobian(seen, self.index(seen)))
        bounds = (theory.lipschitz_centred, theory.lipschitz_products, theory.lipschitz_factors)
        return torch.stack(
            [local.mean(), local.max(), *(bound(*weights, mlp_residual=mlp_residual).mean() for bound in bounds)]
        )
