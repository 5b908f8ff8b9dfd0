"""Examples: sequences, what is to be answered at their last position, and where the answer can be read."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Literal, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from bayesticket.errors import BayesticketError, refuse, refuse_case, require_integer


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

    Raises BayesticketError unless tokens and targets are integers from 0, `informative` is boolean, has the shape of
    the tokens and marks a position in each row, and all have a row for each of at least one example.

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
    """In a half of a split: the index of each example among all examples of the task."""
    n_whole: int | None = None
    """In a half of a split: the number of all examples of the task."""
    orbit: Int[Tensor, "n"] | None = None
    """In a half of a split: a number for each example, the same for examples that a symmetry of the task maps onto
    each other, such as (a, b) and (b, a) in a sum."""
    unseen: Bool[Tensor, "n"] | None = None
    """In the test half: whether training has no example of the same orbit."""
    position_ids: Int[Tensor, "n T"] | None = None
    """In training with `Architecture(positions="drawn")`: the position embedding that each token gets, by its index."""

    def __post_init__(self):
        for name in ("tokens", "targets"):
            # Indexing takes narrow integers for masks, and cross-entropy takes no others than these.
            object.__setattr__(self, name, _checked(name, getattr(self, name), "integers").to(torch.int64))
        n, n_positions = _checked_shape("tokens", self.tokens, (None, None))
        _checked_shape("targets", self.targets, (n,))
        _checked_shape("informative", _checked("informative", self.informative, "booleans"), (n, n_positions))
        for name in ("origin", "orbit", "unseen"):
            if (given := getattr(self, name)) is not None:
                _checked_shape(name, _checked(name, given, "booleans" if name == "unseen" else "integers"), (n,))
        if self.position_ids is not None:
            _checked_shape("position_ids", _checked("position_ids", self.position_ids, "integers"), (n, n_positions))
            if (least := int(self.position_ids.min())) < 0:
                raise refuse("Examples.position_ids", least, "whole numbers from 0")
        if self.n_whole is not None:
            require_integer("Examples.n_whole", self.n_whole, least=0)
        for name in ("tokens", "targets"):
            if (least := int(getattr(self, name).min())) < 0:
                raise refuse(f"Examples.{name}", least, "whole numbers from 0")
        require_informative_rows(self.informative, "Examples.informative")

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
        return self._with_each(lambda tensor: tensor[index])

    def to(self, device: torch.device | str) -> "Examples":
        """The same examples on `device`."""
        return self._with_each(lambda tensor: tensor.to(device))

    def _with_each(self, change: Callable[[Tensor], Tensor]) -> "Examples":
        changed = object.__new__(Examples)  # not checked again: training by batches does this at every step
        for name in (field.name for field in dataclasses.fields(self)):
            value = getattr(self, name)
            object.__setattr__(changed, name, change(value) if isinstance(value, Tensor) else value)
        return changed

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        return f"Examples(n={self.n}, n_positions={self.n_positions})"


def _checked(name: str, given: object, kind: Literal["integers", "booleans"]) -> Tensor:
    """What was given for a field; raises unless it is a tensor of that kind."""
    if not isinstance(given, Tensor):
        raise refuse(f"Examples.{name}", given, f"a tensor of {kind}")
    is_integer = not (given.is_floating_point() or given.is_complex() or given.dtype == torch.bool)
    if not (is_integer if kind == "integers" else given.dtype == torch.bool):
        raise refuse_case(f"Examples.{name}", f"a tensor of {given.dtype}", f"a tensor of {kind}")
    return given


def _checked_shape(name: str, given: Tensor, shape: tuple[int | None, ...]) -> torch.Size:
    """The shape of a field; raises unless it is as expected."""
    same = len(given.shape) == len(shape) and all(b in (a, None) for a, b in zip(given.shape, shape, strict=True))
    if not same or (name == "tokens" and not given.numel()):
        rows = "(n, T), one row for each of at least one example"
        as_tokens = f"{shape}, as the tokens have"
        words = {"tokens": rows, "informative": as_tokens, "position_ids": as_tokens}
        accepted = words.get(name, f"({shape[0]},), one entry for each row of tokens")
        raise refuse_case(f"Examples.{name}", f"a tensor of shape {tuple(given.shape)}", f"shape {accepted}")
    return given.shape


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


def require_informative_rows(informative: Bool[Tensor, "n T"], field: str = "informative") -> None:
    """Raises BayesticketError if some sequence has no informative position."""
    empty = (~informative.any(dim=1)).nonzero()
    if len(empty):
        row = int(empty[0])
        accepted = "at least one informative position in each row"
        raise BayesticketError(f"{field}: row {row} marks no position; accepted: {accepted}")
