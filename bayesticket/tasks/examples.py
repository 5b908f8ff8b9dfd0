"""Examples: sequences, what is to be answered at their last position or at several, and where answers can be read."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from bayesticket.errors import BayesticketError, refuse, refuse_case, require_integer


def uniform_over(positions: Bool[Tensor, "*n T"], dtype: torch.dtype | None = None) -> Float[Tensor, "*n T"]:
    """Weights that are equal on the marked positions of a sequence, 0 elsewhere, and sum to 1; 0 where none is marked.

    >>> uniform_over(torch.tensor([[True, False, True], [False, False, False]]))
    tensor([[0.5000, 0.0000, 0.5000],
            [0.0000, 0.0000, 0.0000]])
    """
    marked = positions.to(dtype or torch.get_default_dtype())
    return marked / marked.sum(-1, keepdim=True).clamp_min(1)


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Examples:
    """Sequences, what is to be answered at their last position, and where the answer can be read.

    With `queries` answers are read at these positions: `targets` is then (n, q) and `informative` (n, q, T). A query
    without informative positions asks for what the sequence does not tell, such as the next random bit: its answer is
    part of the loss, while accuracy, priors and measures are about the `answerable` queries.

    Raises BayesticketError unless tokens and targets are integers from 0, `informative` is boolean, has the shape of
    the tokens and marks a position in each row, and all have a row for each of at least one example. Of several queries
    each has informative positions in all sequences or in none, none after itself, and at least one query has some.

    >>> import torch
    >>> tokens, targets = torch.tensor([[3, 7, 4, 9, 8]]), torch.tensor([0])
    >>> examples = Examples(tokens, targets, torch.tensor([[True, False, True, False, False]]))
    >>> examples, examples.oracle
    (Examples(n=1, n_positions=5), tensor([[0.5000, 0.0000, 0.5000, 0.0000, 0.0000]]))
    >>> last = examples.informative[:, None]
    >>> Examples(tokens, torch.tensor([[9, 0]]), torch.cat([~last & False, last], 1), queries=(2, 4)).answerable
    (4,)
    """

    tokens: Int[Tensor, "n T"]
    targets: Int[Tensor, "n *q"]
    informative: Bool[Tensor, "n *q T"]
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
    queries: tuple[int, ...] | None = None
    """The positions at which answers are read, in order; None for the last position alone."""
    whole: "Examples | None" = None
    """In what `at` gives: the examples of which one query is looked at."""

    def __post_init__(self):
        for name in ("tokens", "targets"):
            # Indexing takes narrow integers for masks, and cross-entropy takes no others than these.
            object.__setattr__(self, name, _checked(name, getattr(self, name), "integers").to(torch.int64))
        n, n_positions = _checked_shape("tokens", self.tokens, (None, None))
        object.__setattr__(self, "queries", as_queries(self.queries, n_positions, "Examples.queries"))
        asked = () if self.queries is None else (len(self.queries),)
        _checked_shape("targets", self.targets, (n, *asked))
        _checked_shape("informative", _checked("informative", self.informative, "booleans"), (n, *asked, n_positions))
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
        require_informative_rows(self.informative, "Examples.informative", self.queries)

    @property
    def n(self) -> int:
        """The number of examples."""
        return self.tokens.shape[0]

    @property
    def n_positions(self) -> int:
        """The length `T` of each sequence; the query is the last position, unless there are `queries`."""
        return self.tokens.shape[1]

    @functools.cached_property
    def oracle(self) -> Float[Tensor, "n *q T"]:
        """The oracle posterior: `α*_i = 1/k` at the `k` informative positions, 0 elsewhere.

        It has the shape of `informative`; a query without informative positions has a row of zeros.
        """
        return uniform_over(self.informative)

    @functools.cached_property
    def answerable(self) -> tuple[int, ...]:
        """The queries whose answers can be read off the sequence: those with informative positions."""
        if self.queries is None:
            return (self.n_positions - 1,)
        known = self.informative[0].any(-1).tolist()
        return tuple(query for query, is_known in zip(self.queries, known, strict=True) if is_known)

    @property
    def asks_last_alone(self) -> bool:
        """Whether the last position is the only one at which an answer is read."""
        return self.queries is None or self.queries == (self.n_positions - 1,)

    def answered(self, logits: Float[Tensor, "n *q outputs"]) -> tuple[Float[Tensor, "m outputs"], Int[Tensor, "m"]]:
        """Logits and targets of all answers that can be known, one row for each example and answerable query."""
        if self.queries is None:
            return logits, self.targets
        chosen = [self.queries.index(query) for query in self.answerable]
        return logits[:, chosen].flatten(0, 1), self.targets[:, chosen].flatten()

    def at(self, query: int) -> "Examples":
        """The same as ordinary examples of one answerable query: the sequences up to it, its targets, and its oracle.

        A causal model answers at a query from the sequence up to it, as it answers at the last position of a shorter
        sequence. So whatever is said about the last position can be asked of each query.

        >>> import torch
        >>> informative = torch.tensor([[[True, False, False], [False, True, True]]])
        >>> asked = Examples(torch.tensor([[5, 3, 4]]), torch.tensor([[2, 1]]), informative, queries=(1, 2))
        >>> asked.at(1).tokens, asked.at(1).targets, asked.at(1).oracle
        (tensor([[5, 3]]), tensor([2]), tensor([[1., 0.]]))
        """
        position = self.position_of(query)
        if self.queries is None:
            return self
        slot, until = self.queries.index(position), slice(position + 1)
        ids = None if self.position_ids is None else self.position_ids[:, until]
        seen = {"tokens": self.tokens[:, until], "targets": self.targets[:, slot], "position_ids": ids}
        seen |= {"informative": self.informative[:, slot, until], "queries": None, "whole": self}
        return self._changed({field.name: getattr(self, field.name) for field in dataclasses.fields(self)} | seen)

    def position_of(self, query: int) -> int:
        """The position of an answerable query, where −1 stands for the only one; raises for any other position."""
        known = self.answerable
        if query == -1 and len(known) == 1:
            return known[0]
        if query == -1:
            accepted = f"one of them, by query={known[-1]} or batch.at({known[-1]})"
            raise refuse_case("query", f"none, where a task asks at the positions {known}", accepted)
        is_whole = isinstance(query, int) and not isinstance(query, bool)
        is_position = is_whole and -self.n_positions <= query < self.n_positions
        if not is_position or query % self.n_positions not in known:
            accepted = f"{' or '.join(map(str, known))}, where the answer can be read off the sequence"
            raise refuse("query", query, accepted)
        return query % self.n_positions

    def select(self, index: Int[Tensor, "m"] | Bool[Tensor, "n"] | slice) -> "Examples":
        """The examples at `index`, in its order."""
        return self._with_each(lambda tensor: tensor[index])

    def to(self, device: torch.device | str) -> "Examples":
        """The same examples on `device`."""
        return self._with_each(lambda tensor: tensor.to(device))

    def _with_each(self, change: Callable[[Tensor], Tensor]) -> "Examples":
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if self.whole is not None:
            fields["whole"] = self.whole._with_each(change)
        return self._changed(
            {name: change(value) if isinstance(value, Tensor) else value for name, value in fields.items()}
        )

    @staticmethod
    def _changed(fields: Mapping[str, object]) -> "Examples":
        changed = object.__new__(Examples)  # not checked again: training by batches does this at every step
        for name, value in fields.items():
            object.__setattr__(changed, name, value)
        return changed

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        asked = "" if self.queries is None else f", n_queries={len(self.queries)}"
        return f"Examples(n={self.n}, n_positions={self.n_positions}{asked})"


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
        if name in ("targets", "informative") and len(shape) == (2 if name == "targets" else 3):
            words[name] = f"{shape}, with an entry for each query"
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


def as_queries(given: object, n_positions: int, field: str = "queries") -> tuple[int, ...] | None:
    """Queries as a tuple; raises unless they are positions of a sequence in ascending order, or None."""
    if given is None:
        return None
    accepted = f"None, or positions of the sequence in ascending order, 0 to {n_positions - 1}"
    if isinstance(given, Tensor | np.ndarray):
        given = given.tolist()
    if not isinstance(given, Sequence) or isinstance(given, str) or not 0 < len(given) <= n_positions:
        raise refuse(field, given, accepted)
    queries = tuple(given)
    whole = all(isinstance(query, int) and not isinstance(query, bool) for query in queries)
    if not whole or sorted(set(queries)) != list(queries) or queries[0] < 0 or queries[-1] >= n_positions:
        raise refuse(field, given, accepted)
    return queries


def require_informative_rows(
    informative: Bool[Tensor, "n *q T"], field: str = "informative", queries: tuple[int, ...] | None = None
) -> None:
    """Raises BayesticketError if some sequence has no informative position; of several queries see `Examples`."""
    if queries is None:
        _require_marked(informative, field, "at least one informative position in each row")
        return
    for slot, query in enumerate(queries):
        at_query = informative[:, slot]
        if at_query.any():
            accepted = f"a position in each row, or in none, where nothing tells what to answer at query {query}"
            _require_marked(at_query, f"{field}[:, {slot}]", accepted)
        if at_query[:, query + 1 :].any():
            later = int(at_query.any(0).nonzero().max())
            raise refuse_case(field, f"position {later} for the query at {query}", "positions up to the query")
    if not informative.any():
        raise refuse_case(field, "no position for any query", "at least one query with informative positions")


def _require_marked(informative: Bool[Tensor, "n T"], field: str, accepted: str) -> None:
    empty = (~informative.any(dim=1)).nonzero()
    if len(empty):
        raise BayesticketError(f"{field}: row {int(empty[0])} marks no position; accepted: {accepted}")
