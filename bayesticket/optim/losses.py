"""Losses as data: what is minimised on the logits of all answers, penalties aside."""

import abc
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from bayesticket.errors import require_choice
from bayesticket.specs import Spec, spec

DTYPES = ("float32", "float64")


class LossFunction(Spec, abc.ABC):
    """A loss of logits and targets. To add one, write `__call__`."""

    @abc.abstractmethod
    def __call__(self, logits: Float[Tensor, "n d_vocab_out"], targets: Int[Tensor, "n"]) -> Float[Tensor, ""]:
        """The mean loss over the examples."""


@spec
class CrossEntropy(LossFunction):
    """Mean cross-entropy, `E[−log softmax(logits)_y]`.

    In float32 a cross-entropy near 1e-7 rounds to 0 and stops giving gradient; `dtype="float64"` goes on.

    >>> CrossEntropy()(torch.tensor([[0.0, 0.0]]), torch.tensor([0]))
    tensor(0.6931)
    """

    dtype: Literal["float32", "float64"] | None = None
    """Precision that it is computed in; that of the logits by default."""

    def __post_init__(self):
        require_dtype("dtype", self.dtype)

    def __call__(self, logits: Float[Tensor, "n d_vocab_out"], targets: Int[Tensor, "n"]) -> Float[Tensor, ""]:
        """The mean cross-entropy."""
        return F.cross_entropy(_in_dtype(logits, self.dtype), targets)


@spec
class StableMax(LossFunction):
    """Cross-entropy with StableMax for the softmax (Prieto et al. 2025): `−log(s(x_y) / Σ_j s(x_j))`.

    `s(x) = x + 1` for `x ≥ 0` and `1 / (1 − x)` below, so that no logit gap makes the loss underflow.

    >>> StableMax()(torch.tensor([[1.0, -1.0]]), torch.tensor([0]))
    tensor(0.2231, dtype=torch.float64)
    """

    dtype: Literal["float32", "float64"] | None = "float64"
    """Precision that it is computed in; None for that of the logits."""

    def __post_init__(self):
        require_dtype("dtype", self.dtype)

    def __call__(self, logits: Float[Tensor, "n d_vocab_out"], targets: Int[Tensor, "n"]) -> Float[Tensor, ""]:
        """The mean loss."""
        x = _in_dtype(logits, self.dtype)
        # clamped, so that neither branch divides by 0 where the other one is taken
        scale = torch.where(x >= 0, x + 1, 1 / (1 - x.clamp(max=0)))
        return F.nll_loss(scale.log() - scale.sum(-1, keepdim=True).log(), targets)


def mean_loss(
    loss: Callable[[Tensor, Tensor], Float[Tensor, ""]],
    logits: Float[Tensor, "n *q d_vocab_out"],
    targets: Int[Tensor, "n *q"],
) -> Float[Tensor, ""]:
    """The mean loss over all answers: a loss knows one row of logits and one target for each, wherever it is read.

    >>> mean_loss(CrossEntropy(), torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.int64))
    tensor(1.3863)
    """
    return loss(logits.flatten(0, -2), targets.flatten())


def require_dtype(field: str, given: object) -> None:
    """Raises unless a precision is "float32", "float64" or None."""
    if given is not None:
        require_choice(field, given, DTYPES)


def _in_dtype(logits: Tensor, dtype: str | None) -> Tensor:
    return logits if dtype is None else logits.to(getattr(torch, dtype))
