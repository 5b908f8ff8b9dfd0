"""The base of all tasks: what a task gives, how its examples are split, and how they are written out as text."""

import abc
import dataclasses
import math
from typing import Literal, final, get_args

import torch
from jaxtyping import Int
from torch import Tensor

from bayesticket.errors import refuse, refuse_case, require_choice, require_integer, require_number
from bayesticket.notebooks import html_lines
from bayesticket.seeding import seeded_generator
from bayesticket.specs import Spec
from bayesticket.tasks.examples import Examples, Split

SplitBy = Literal["example", "orbit"]
"""What a split is drawn by: single examples, or whole orbits of them."""


class AbstractTask(Spec, abc.ABC):
    """Sequences with a target each.

    A task of your own derives from it, with the decorator `@bayesticket.spec`, and gives the three sizes and
    `examples`. `position_labels` and `symbol`, by which sequences are written out, have defaults.
    """

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
        """All examples of the task; equal seeds give equal examples."""

    @property
    def n_examples(self) -> int:
        """The number of all examples."""
        return self.require_fitting(self.examples(0)).n

    def __str__(self) -> str:
        """What one types for the task, and its size.

        >>> from bayesticket.tasks import ModularAddition
        >>> print(ModularAddition(p=7))
        ModularAddition(p=7): 49 examples of 5 positions, 9 tokens, 7 targets
        """
        sizes = f"{self.n_examples:,} examples of {self.n_positions} positions"
        return f"{self!r}: {sizes}, {self.d_vocab:,} tokens, {self.d_vocab_out:,} targets"

    def _repr_html_(self) -> str:
        """What a notebook shows: the task, its positions, and how large it is."""
        size = str(self).removeprefix(repr(self)).removeprefix(": ")
        return html_lines(repr(self), " ".join(self.position_labels), *([size] if size else []))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        # A notebook without HTML shows a task on its own as `print` does, and as one types it inside of something else.
        return {"text/plain": str(self), "text/html": self._repr_html_()}

    def orbits_of(self, examples: Examples) -> Int[Tensor, "n"]:
        """A number for each example, equal for examples that a symmetry of the task maps onto each other.

        A model that reads its operands alike answers `(b, a)` as soon as it has memorised `(a, b)`, without having
        learned the rule. By default a task has no symmetries, and each example has an orbit of its own.

        >>> from bayesticket.tasks import ModularAddition
        >>> task = ModularAddition(p=2)  # 0 + 0, 0 + 1, 1 + 0, 1 + 1
        >>> task.orbits_of(task.examples(seed=0))
        tensor([0, 1, 1, 2])
        """
        return torch.arange(examples.n, device=examples.tokens.device)

    def inputs_of(self, examples: Examples) -> Int[Tensor, "n k"]:
        """What the target of each example is a function of: by default the whole sequence.

        By it an example of another task is recognised as an input that training has seen, however long its sequence
        is.

        >>> from bayesticket.tasks import ModularAddition
        >>> short, long = ModularAddition(p=7), ModularAddition(p=7, n_distractors=4)
        >>> torch.equal(short.inputs_of(short.examples(seed=0)), long.inputs_of(long.examples(seed=0)))
        True
        """
        return examples.tokens

    def redraw(self, examples: Examples, *, seed: int) -> Examples:
        """The same examples with new random distractors; by default there are none, and nothing changes."""
        require_integer("seed", seed, least=0)
        return examples

    @property
    def position_labels(self) -> tuple[str, ...]:
        """What stands at each position; its number where that differs from sequence to sequence.

        >>> from bayesticket.tasks import ModularAddition, Task
        >>> ModularAddition(p=7).position_labels
        ('a', '+', 'b', 'noise', '=')
        >>> Task(tokens=[[3, 1, 9]], targets=[3], informative=[True, False, False]).position_labels
        ('0', '1', 'query')
        """
        return (*map(str, range(self.n_positions - 1)), "query")

    def symbol(self, token: int) -> str:
        """How a token is written; its number by default."""
        return str(token)

    @final
    def show(self, tokens: Int[Tensor, "T"]) -> str:
        """One sequence written out as text.

        >>> from bayesticket.tasks import ModularAddition
        >>> task = ModularAddition(p=7)
        >>> task.show(torch.tensor([3, 7, 4, 6, 8]))
        '3 + 4 6 ='
        """
        if tuple(tokens.shape) != (self.n_positions,):
            raise refuse("tokens", tuple(tokens.shape), f"one sequence, of shape ({self.n_positions},)")
        for token in tokens.tolist():
            if not 0 <= token < self.d_vocab:
                raise refuse("tokens", token, f"whole numbers from 0 to {self.d_vocab - 1}")
        return " ".join(map(self.symbol, tokens.tolist()))

    @final
    def split(self, train_fraction: float = 0.3, seed: int = 0, by: SplitBy = "example") -> Split:
        """Shuffles the `n` examples; the first `⌊train_fraction · n⌋` are for training, the others for testing.

        With `by="orbit"` whole orbits are shuffled, as many as fit into that number, so that no test example is the
        mirror of a training example. `test.unseen` says of which test examples that holds.

        >>> from bayesticket.tasks import ModularAddition
        >>> split = ModularAddition(p=7).split(train_fraction=0.5)
        >>> len(split.train), len(split.test), int(split.test.unseen.sum())
        (24, 25, 10)
        >>> split = ModularAddition(p=7).split(train_fraction=0.5, by="orbit")
        >>> len(split.train), len(split.test), int(split.test.unseen.sum())
        (24, 25, 25)
        """
        require_number("train_fraction", train_fraction, above=0.0, below=1.0)
        require_integer("seed", seed, least=0)
        require_choice("by", by, get_args(SplitBy))
        examples = self.require_fitting(self.examples(seed))
        orbit, generator = self._orbit_numbers(examples), seeded_generator(seed, "split")
        n_train = _n_train(train_fraction, examples.n)
        if by == "example":
            order = torch.randperm(examples.n, generator=generator, device="cpu").to(orbit.device)
        else:
            order, n_train = _order_of_orbits(orbit, n_train, generator)
        origin = torch.arange(examples.n, device=order.device)
        examples = dataclasses.replace(examples, origin=origin, n_whole=examples.n, orbit=orbit)
        train, test = examples.select(order[:n_train]), examples.select(order[n_train:])
        unseen = ~torch.isin(orbit[order[n_train:]], orbit[order[:n_train]])
        return Split(train, dataclasses.replace(test, unseen=unseen))

    @final
    def require_fitting(self, examples: Examples, method: str = "examples") -> Examples:
        """What a method of the task returned; raises unless it has the length and the vocabularies of the task."""
        kind = type(self).__name__
        if not isinstance(examples, Examples):
            raise refuse(f"{kind}.{method}", examples, "bayesticket.Examples(tokens, targets, informative)")
        for size in ("n_positions", "d_vocab", "d_vocab_out"):
            require_integer(f"{kind}.{size}", getattr(self, size), least=1)
        if examples.n_positions != self.n_positions:
            accepted = f"{self.n_positions}, as {kind}.n_positions says"
            raise refuse_case(f"{kind}.{method}", f"sequences of {examples.n_positions} positions", accepted)
        for name, size in (("tokens", "d_vocab"), ("targets", "d_vocab_out")):
            if (most := int(getattr(examples, name).max())) >= (below := getattr(self, size)):
                accepted = f"0 to {below - 1}, as {kind}.{size} is {below}"
                raise refuse_case(f"{kind}.{method}", f"{name} up to {most}", accepted)
        return examples

    def _orbit_numbers(self, examples: Examples) -> Int[Tensor, "n"]:
        """The orbits, numbered from 0."""
        given = self.orbits_of(examples)
        if not isinstance(given, Tensor) or given.shape != (examples.n,) or given.is_floating_point():
            shown = tuple(given.shape) if isinstance(given, Tensor) else given
            raise refuse("orbits", shown, f"a whole number for each of the {examples.n} examples")
        return torch.unique(given, return_inverse=True)[1]


def _order_of_orbits(orbit: Int[Tensor, "n"], n_train: int, generator: torch.Generator) -> tuple[Int[Tensor, "n"], int]:
    """The examples in a random order of their orbits, and how many of them whole orbits fill `n_train` with."""
    n_orbits = int(orbit.max()) + 1
    rank = torch.randperm(n_orbits, generator=generator, device="cpu").to(orbit.device)
    ranked = rank[orbit]
    filled = torch.bincount(ranked, minlength=n_orbits).cumsum(0)
    fitting = filled[filled <= n_train]
    if not len(fitting) or int(fitting[-1]) == len(orbit):
        accepted = f"a fraction that leaves whole orbits on both sides; there are {n_orbits}"
        raise refuse_case("train_fraction", f"room for {n_train} training examples", accepted)
    return torch.argsort(ranked, stable=True), int(fitting[-1])


def _n_train(train_fraction: float, n: int) -> int:
    # In binary floating point 0.29 · 100 is 28.999…, where the user means 29.
    n_train = math.floor(train_fraction * n + 1e-9)
    if not 0 < n_train < n:
        accepted = f"a fraction of the {n} examples that leaves some on both sides; it would train on {n_train}"
        raise refuse("train_fraction", train_fraction, f"{accepted} and test on {n - n_train}")
    return n_train
