"""A user's own data as a task."""

from typing import final

import numpy as np
import numpy.typing as npt
import torch
from einops import repeat
from jaxtyping import Bool, Int
from torch import Tensor

from bayesticket.errors import refuse, require_integer
from bayesticket.specs import spec
from bayesticket.tasks.base import AbstractTask
from bayesticket.tasks.examples import Examples, as_queries, require_informative_rows


@final
@spec
class Task(AbstractTask):
    """A user's own data: `tokens` (n, T), `targets` (n,), and `informative` positions (T,) or (n, T).

    The data may be tensors, arrays or nested lists, with integers of any width; they are copied. By default
    `d_vocab` is the largest token plus 1, and `d_vocab_out` the largest target plus 1. `orbits` (n,) has the same
    number for examples that a symmetry maps onto each other; without it each example stands alone.

    With `queries`, the positions at which answers are read in ascending order, `targets` are (n, q) and `informative`
    (q, T) or (n, q, T); a query whose row is empty asks for what the sequence does not tell. See `Examples`.

    >>> task = Task(tokens=[[3, 1, 9], [2, 2, 9]], targets=[3, 2], informative=[True, False, False])
    >>> task
    Task(n=2, n_positions=3, d_vocab=10, d_vocab_out=4)
    >>> copied = [[True, False, False], [False, True, False]]
    >>> Task(tokens=[[3, 1, 9], [2, 2, 9]], targets=[[3, 1], [2, 2]], informative=copied, queries=(1, 2))
    Task(n=2, n_positions=3, d_vocab=10, d_vocab_out=4, queries=(1, 2))
    """

    tokens: npt.ArrayLike
    targets: npt.ArrayLike
    informative: npt.ArrayLike
    d_vocab: int | None = None  # type: ignore[assignment]
    d_vocab_out: int | None = None  # type: ignore[assignment]
    orbits: npt.ArrayLike | None = None
    queries: tuple[int, ...] | None = None
    """The positions at which answers are read; None for the last position alone."""

    def __post_init__(self):
        tokens = _integers("tokens", self.tokens, shape=("n", "T"))
        queries = as_queries(self.queries, tokens.shape[1])
        targets = _integers("targets", self.targets, shape=("n",) if queries is None else ("n", "q"))
        targets = targets.to(tokens.device)
        if len(targets) != len(tokens):
            raise refuse("targets", tuple(targets.shape), f"one for each of the {len(tokens)} rows of tokens")
        if queries is not None and targets.shape[1] != len(queries):
            accepted = f"({len(tokens)}, {len(queries)}), a target for each query"
            raise refuse("targets", tuple(targets.shape), accepted)
        checked = {
            "tokens": tokens,
            "targets": targets,
            "queries": queries,
            "informative": _informative_rows(self.informative, tokens, queries),
            "d_vocab": _vocabulary("tokens", tokens, "d_vocab", self.d_vocab),
            "d_vocab_out": _vocabulary("targets", targets, "d_vocab_out", self.d_vocab_out),
            "orbits": None if self.orbits is None else _orbits(self.orbits, tokens),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def n_positions(self) -> int:
        """The length `T` of each sequence; the query is the last position, unless there are `queries`."""
        return self.tokens.shape[1]  # type: ignore[union-attr]

    def examples(self, seed: int) -> Examples:
        """The data as given; the seed changes nothing."""
        require_integer("seed", seed, least=0)
        return Examples(self.tokens, self.targets, self.informative, queries=self.queries)  # type: ignore[arg-type]

    def orbits_of(self, examples: Examples) -> Int[Tensor, "n"]:
        """The orbits that were given; without any, each example has one of its own."""
        return super().orbits_of(examples) if self.orbits is None else self.orbits  # type: ignore[return-value]

    def __str__(self) -> str:
        return repr(self)  # which has the sizes, since data cannot be typed

    def __repr__(self) -> str:
        sizes = ("n_positions", "d_vocab", "d_vocab_out")
        shown = ", ".join(f"{size}={getattr(self, size)}" for size in sizes)
        asked = "" if self.queries is None else f", queries={self.queries}"
        return f"Task(n={self.examples(0).n}, {shown}{asked})"


def _tensor(field: str, given: object, accepted: str) -> Tensor:
    """A copy of the data as a tensor, so that the caller may change the original afterwards."""
    try:
        return given.detach().clone() if isinstance(given, Tensor) else torch.as_tensor(np.array(given))
    except (TypeError, ValueError, RuntimeError, MemoryError) as error:
        raise refuse(field, given, accepted) from error


def _integers(field: str, given: object, *, shape: tuple[str, ...]) -> Tensor:
    axes = f"({shape[0]},)" if len(shape) == 1 else f"({', '.join(shape)})"
    accepted = f"a non-empty tensor or array of integers, of shape {axes}"
    tensor = _tensor(field, given, accepted)
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise refuse(field, tensor.dtype, accepted)
    if tensor.ndim != len(shape) or tensor.numel() == 0:
        raise refuse(field, tuple(tensor.shape), accepted)
    return tensor.to(torch.int64)


def _orbits(given: object, tokens: Int[Tensor, "n T"]) -> Int[Tensor, "n"]:
    orbits = _integers("orbits", given, shape=("n",)).to(tokens.device)
    if len(orbits) != len(tokens):
        raise refuse("orbits", tuple(orbits.shape), f"one for each of the {len(tokens)} rows of tokens")
    return orbits


def _informative_rows(
    given: object, tokens: Int[Tensor, "n T"], queries: tuple[int, ...] | None
) -> Bool[Tensor, "n *q T"]:
    n, n_positions = tokens.shape
    of_each = (n_positions,) if queries is None else (len(queries), n_positions)
    accepted = f"a tensor or array of booleans, of shape {of_each} or {(n, *of_each)}"
    informative = _tensor("informative", given, accepted)
    if informative.dtype != torch.bool:
        raise refuse("informative", informative.dtype, accepted)
    if tuple(informative.shape) not in (of_each, (n, *of_each)):
        raise refuse("informative", tuple(informative.shape), accepted)
    informative = informative.to(tokens.device)
    if informative.ndim == len(of_each):
        informative = repeat(informative, "... -> n ...", n=n)
    require_informative_rows(informative, queries=queries)
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
