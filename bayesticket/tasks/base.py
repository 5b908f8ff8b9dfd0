"""Tasks: sequences, what is to be answered at their last position, and where the answer can be read."""

import abc
import dataclasses
import functools
import math
from typing import final

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from bayesticket.errors import BayesticketError, refuse, require_integer, require_number
from bayesticket.seeding import seeded_generator
from bayesticket.specs import Spec, spec


def uniform_over(positions: Bool[Tensor, "n T"], dtype: torch.dtype | None = None) -> Float[Tensor, "n T"]:
    """Weights that are equal on the marked positions of a sequence, 0 elsewhere, and sum to 1.

    >>> uniform_over(torch.tensor([[True, False, True]]))
    tensor([[0.5000, 0.0000, 0.5000]])
    """
    marked = positions.to(dtype or torch.get_default_dtype())
    return marked / marked.sum(-1, keepdim=True)


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Examples:
    """Sequences, what is to be answered at their last position, and where the answer can be read.

    >>> import torch
    >>> tokens, targets = torch.tensor([[3, 7, 4, 9, 8]]), torch.tensor([0])
    >>> examples = Examples(tokens, targets, torch.tensor([[True, False, True, False, False]]))
    >>> examples, examples.oracle
    (Examples(n=1, n_positions=5), tensor([[0.5000, 0.0000, 0.5000, 0.0000, 0.0000]]))
    """

    tokens: Int[Tensor, "n T"]
    targets: Int[Tensor, "n"]
    informative: Bool[Tensor, "n T"]
    origin: Int[Tensor, "n"] | None = None
    """Where each example stands among all examples of its task, for halves of a split."""
    n_whole: int | None = None
    """How many examples the task has in all."""

    @property
    def n(self) -> int:
        """The number of examples."""
        return self.tokens.shape[0]

    @property
    def n_positions(self) -> int:
        """The length `T` of each sequence; the query is the last position."""
        return self.tokens.shape[1]

    @functools.cached_property
    def oracle(self) -> Float[Tensor, "n T"]:
        """The oracle posterior: `α*_i = 1/k` at the `k` informative positions, 0 elsewhere."""
        return uniform_over(self.informative)

    def select(self, index: Int[Tensor, "m"] | Bool[Tensor, "n"] | slice) -> "Examples":
        """The examples at `index`, in its order."""
        origin = None if self.origin is None else self.origin[index]
        return Examples(self.tokens[index], self.targets[index], self.informative[index], origin, self.n_whole)

    def to(self, device: torch.device | str) -> "Examples":
        """The same examples on `device`."""
        origin = None if self.origin is None else self.origin.to(device)
        moved = (self.tokens.to(device), self.targets.to(device), self.informative.to(device))
        return Examples(*moved, origin, self.n_whole)

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        return f"Examples(n={self.n}, n_positions={self.n_positions})"


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """The two disjoint halves of a task's examples.

    >>> from bayesticket.tasks import ModularAddition
    >>> ModularAddition(p=113).split(train_fraction=0.3, seed=0)
    Split(train=Examples(n=3830, n_positions=5), test=Examples(n=8939, n_positions=5))
    """

    train: Examples
    test: Examples


class AbstractTask(Spec, abc.ABC):
    """Sequences with a target each; frozen dataclasses derive from it."""

    redraw_each_epoch: bool = False
    """Whether training calls `redraw` before every epoch."""

    @property
    @abc.abstractmethod
    def n_positions(self) -> int:
        """The length `T` of each sequence; the query is the last position."""

    @property
    @abc.abstractmethod
    def d_vocab(self) -> int:
        """The number of distinct tokens a sequence may hold."""

    @property
    @abc.abstractmethod
    def d_vocab_out(self) -> int:
        """The number of distinct targets."""

    @abc.abstractmethod
    def examples(self, seed: int) -> Examples:
        """All examples of the task, a function of `seed` alone."""

    def redraw(self, examples: Examples, *, seed: int) -> Examples:
        """The same operands, targets and positions; random distractors, if there are any, drawn anew."""
        require_seed(seed)
        return examples

    @final
    def split(self, train_fraction: float = 0.3, seed: int = 0) -> Split:
        """Shuffles the examples and gives the first `⌊train_fraction · n⌋` to training.

        >>> from bayesticket.tasks import ModularAddition
        >>> split = ModularAddition(p=7).split(train_fraction=0.5)
        >>> len(split.train), len(split.test)
        (24, 25)
        """
        require_number("train_fraction", train_fraction, above=0.0, below=1.0)
        require_seed(seed)
        examples = self.examples(seed)
        require_informative_rows(examples.informative)
        n_train = _n_train(train_fraction, examples.n)
        order = torch.randperm(examples.n, generator=seeded_generator(seed, "split"), device="cpu")
        order = order.to(examples.tokens.device)
        origin = torch.arange(examples.n, device=order.device)
        examples = dataclasses.replace(examples, origin=origin, n_whole=examples.n)
        return Split(train=examples.select(order[:n_train]), test=examples.select(order[n_train:]))


@final
@spec
class Task(AbstractTask):
    """A user's own data: `tokens` (n, T), `targets` (n,), and `informative` positions (T,) or (n, T).

    Tensors, arrays and nested lists are taken, integers of any width; all are copied. The vocabularies hold
    `max + 1` of what occurs, unless `d_vocab` and `d_vocab_out` say otherwise.

    >>> task = Task(tokens=[[3, 1, 9], [2, 2, 9]], targets=[3, 2], informative=[True, False, False])
    >>> task
    Task(n=2, n_positions=3, d_vocab=10, d_vocab_out=4)
    """

    tokens: npt.ArrayLike
    targets: npt.ArrayLike
    informative: npt.ArrayLike
    d_vocab: int | None = None  # type: ignore[assignment]
    d_vocab_out: int | None = None  # type: ignore[assignment]

    def __post_init__(self):
        tokens = _integers("tokens", self.tokens, shape=("n", "T"))
        targets = _integers("targets", self.targets, shape=("n",)).to(tokens.device)
        if len(targets) != len(tokens):
            raise refuse("targets", targets.shape, f"one for each of the {len(tokens)} rows of tokens")
        checked = {
            "tokens": tokens,
            "targets": targets,
            "informative": _informative_rows(self.informative, tokens),
            "d_vocab": _vocabulary("tokens", tokens, "d_vocab", self.d_vocab),
            "d_vocab_out": _vocabulary("targets", targets, "d_vocab_out", self.d_vocab_out),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def n_positions(self) -> int:
        """The length `T` of each sequence; the query is the last position."""
        return self.tokens.shape[1]  # type: ignore[union-attr]

    def examples(self, seed: int) -> Examples:
        """The data as they were given, whatever the seed."""
        require_seed(seed)
        return Examples(self.tokens, self.targets, self.informative)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        sizes = ("n_positions", "d_vocab", "d_vocab_out")
        shown = ", ".join(f"{size}={getattr(self, size)}" for size in sizes)
        return f"Task(n={self.examples(0).n}, {shown})"


def _n_train(train_fraction: float, n: int) -> int:
    # 0.29 · 100 is 28.999… in binary; the fraction that was typed means 29.
    n_train = math.floor(train_fraction * n + 1e-9)
    if not 0 < n_train < n:
        accepted = f"a fraction of the {n} examples that leaves some on both sides; it would train on {n_train}"
        raise refuse("train_fraction", train_fraction, f"{accepted} and test on {n - n_train}")
    return n_train


def require_seed(seed: int) -> None:
    """Refuses all but a whole number from 0 that torch's generators take."""
    require_integer("seed", seed, least=0)
    if seed >= 2**63:
        raise refuse("seed", seed, "a whole number below 2**63")


def require_informative_rows(informative: Bool[Tensor, "n T"]) -> None:
    """Refuses sequences without an informative position."""
    empty = (~informative.any(dim=1)).nonzero()
    if len(empty):
        row = int(empty[0])
        accepted = "at least one informative position in each row"
        raise BayesticketError(f"informative: row {row} marks no position; accepted: {accepted}")


def _tensor(field: str, given: object, accepted: str) -> Tensor:
    """A copy of the data as a tensor, so that later changes to what was given change nothing here."""
    try:
        return given.detach().clone() if isinstance(given, Tensor) else torch.as_tensor(np.array(given))
    except (TypeError, ValueError, RuntimeError) as error:
        raise refuse(field, type(given).__name__, accepted) from error


def _integers(field: str, given: object, *, shape: tuple[str, ...]) -> Tensor:
    axes = f"({shape[0]},)" if len(shape) == 1 else f"({', '.join(shape)})"
    accepted = f"a non-empty tensor or array of integers, of shape {axes}"
    tensor = _tensor(field, given, accepted)
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise refuse(field, tensor.dtype, accepted)
    if tensor.ndim != len(shape) or tensor.numel() == 0:
        raise refuse(field, tuple(tensor.shape), accepted)
    return tensor.to(torch.int64)


def _informative_rows(given: object, tokens: Int[Tensor, "n T"]) -> Bool[Tensor, "n T"]:
    n, n_positions = tokens.shape
    accepted = f"a tensor or array of booleans, of shape ({n_positions},) or ({n}, {n_positions})"
    informative = _tensor("informative", given, accepted)
    if informative.dtype != torch.bool:
        raise refuse("informative", informative.dtype, accepted)
    if tuple(informative.shape) not in ((n_positions,), (n, n_positions)):
        raise refuse("informative", tuple(informative.shape), accepted)
    informative = informative.to(tokens.device).expand(n, n_positions).contiguous()
    require_informative_rows(informative)
    return informative


def _vocabulary(field: str, values: Int[Tensor, "..."], size_field: str, size: int | None) -> int:
    least, most = int(values.min()), int(values.max())
    if least < 0:
        raise refuse(field, least, "whole numbers from 0")
    if size is None:
        return most + 1
    require_integer(size_field, size, least=1)
    if most >= size:
        raise refuse(field, most, f"whole numbers from 0 to {size - 1}, as {size_field}={size}")
    return size
