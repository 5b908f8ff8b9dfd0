"""Whether the order of two gradient steps matters: the commutator defect."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from bayesticket.errors import refuse_case, require_integer, require_number
from bayesticket.measures.base import Measure, Observation, require_unedited
from bayesticket.measures.observe import run_forward
from bayesticket.model import HookedTransformer, TokenRows, choose_forward, why_full_for
from bayesticket.optim import mean_loss
from bayesticket.seeding import seeded_generator
from bayesticket.specs import spec
from bayesticket.tasks import Examples

Gradient = Callable[[Float[Tensor, "weights"]], Float[Tensor, "weights"]]
"""The gradient of a loss at given weights."""


def commutator_defect(
    first: Gradient, second: Gradient, weights: Float[Tensor, "weights"], lr: float
) -> Float[Tensor, ""]:
    """How far apart two gradient steps lead by their order, `‖θ_AB − θ_BA‖ / (‖lr g_A‖ ‖lr g_B‖)`.

    `θ_AB` is reached by a step on A, then one on B. As lr goes to 0 it becomes
    `‖H_B g_A − H_A g_B‖ / (‖g_A‖ ‖g_B‖)`, with the Hessians of both losses. Gradients that shrink by a factor, the
    Hessians staying as they are, make it larger by that factor: it rises where a loss is fitted, whatever the
    curvature. Undefined (NaN) where a gradient is 0.

    >>> curved = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    >>> commutator_defect(lambda w: curved @ w, lambda w: w, torch.tensor([1.0, 0.0]), lr=0.1)  # these commute
    tensor(0.)
    """
    by_first, by_second = first(weights), second(weights)
    one_way = by_first + second(weights - lr * by_first)
    other_way = by_second + first(weights - lr * by_second)
    return (one_way - other_way).norm() / (lr * by_first.norm() * by_second.norm())


@spec
class CommutatorDefect(Measure):
    """The median commutator defect over some pairs of minibatches: a number. See `commutator_defect`.

    Xu (2026) reports that it rises 600 to 1,600 steps before test accuracy does. It may also rise as training examples
    are memorised, since their gradients vanish: see what it says beside `train_loss`. Batches are drawn from the
    observed examples, the two of a pair without a common example; the pairs are the same at every epoch. The loss is
    the task's, without priors. Gradients are taken in float64, because the steps of a model that has memorised are
    below the rounding of its float32 weights. Interventions that edit activations are an error.

    Costs four gradients a pair, in all some seventeen steps of training at 3,830 examples: record it seldom, or measure
    it at snapshots, `run.measure(CommutatorDefect(), epochs=…)`. In a loop of one's own, measure it before the forward
    pass whose penalty is taken: its own passes run through the hooks of an attached recipe too.
    """

    pairs: int = 9
    """How many pairs of minibatches."""
    batch_size: int = 512
    """Examples in a minibatch; at most half of the observed ones."""
    lr: float = 1e-3
    """The size of the steps."""

    takes_all_queries = True

    def __post_init__(self):
        require_integer("pairs", self.pairs, least=1)
        require_integer("batch_size", self.batch_size, least=1)
        require_number("lr", self.lr, above=0)

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Raises for a single example, of which there are no two minibatches, and for a model that nothing trains."""
        if len(batch) < 2:
            raise refuse_case("CommutatorDefect: batch", f"{len(batch)} example", "at least 2")
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise refuse_case("CommutatorDefect: model", "no parameter that is trained", "at least one")

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The median; NaN of a single example, as where one test example alone is unseen."""
        if len(seen.batch) < 2:
            return torch.tensor(torch.nan)
        require_unedited(seen, "CommutatorDefect")
        losses = _Losses(seen.model, seen.loss_of)
        with torch.enable_grad(), _casting_to_float64(seen.model):
            defects = [
                commutator_defect(losses.gradient_on(one), losses.gradient_on(other), losses.weights, self.lr)
                for one, other in self._drawn(seen.batch)
            ]
        return torch.stack(defects).quantile(0.5)  # between the two middle ones, where torch.median takes the lower

    def _drawn(self, batch: Examples) -> Iterator[tuple[Examples, Examples]]:
        """The pairs of minibatches."""
        generator, size = seeded_generator(0, "commutator defect"), min(self.batch_size, len(batch) // 2)
        for _ in range(self.pairs):
            order = torch.randperm(len(batch), generator=generator).to(batch.tokens.device)
            yield batch.select(order[:size]), batch.select(order[size : 2 * size])


class _Losses(nn.Module):
    """The task's loss on a batch, as a function of a model's trained weights in one vector, in float64."""

    def __init__(self, model: HookedTransformer, loss_of: Callable[[Tensor, Tensor], Float[Tensor, ""]]):
        super().__init__()
        self.model, self.loss_of = model, loss_of
        self.precise = {name: parameter.detach().double() for name, parameter in self.named_parameters()}
        self.trained = [name for name, parameter in self.named_parameters() if parameter.requires_grad]
        self.weights = _joined(self.precise[name] for name in self.trained)

    def forward(self, batch: Examples, rows: TokenRows | None) -> Float[Tensor, ""]:
        logits = run_forward("full" if rows is None else "fast", self.model, batch, rows)
        return mean_loss(self.loss_of, logits, batch.targets)

    def gradient_on(self, batch: Examples) -> Gradient:
        """The gradient of the loss on a batch."""
        forward = choose_forward("auto", self.model, reasons=[why_full_for(batch.queries, batch.n_positions)])
        fast = forward == "fast"
        rows = TokenRows(batch.tokens, self.model.cfg.n_heads, batch.position_ids) if fast else None

        def gradient(at: Float[Tensor, "weights"]) -> Float[Tensor, "weights"]:
            parts = at.split([self.precise[name].numel() for name in self.trained])
            moved = {
                name: part.view_as(self.precise[name]).requires_grad_()
                for name, part in zip(self.trained, parts, strict=True)
            }
            loss = functional_call(self, {**self.precise, **moved}, (batch, rows))
            found = torch.autograd.grad(loss, list(moved.values()), allow_unused=True, materialize_grads=True)
            return _joined(found)

        return gradient


def _joined(tensors: Iterable[Tensor]) -> Float[Tensor, "weights"]:
    return torch.cat([tensor.flatten() for tensor in tensors])


@contextmanager
def _casting_to_float64(model: HookedTransformer) -> Iterator[None]:
    """TransformerLens casts attention to the model's dtype."""
    before, model.cfg.dtype = model.cfg.dtype, torch.float64
    try:
        yield
    finally:
        model.cfg.dtype = before
