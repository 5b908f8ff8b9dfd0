"""The base of all tasks: what a task gives, how its examples are split, and how they are written out as text."""

import abc
import dataclasses
import math
from typing import final

import torch
from jaxtyping import Int
from torch import Tensor

from bayesticket.errors import refuse, require_number
from bayesticket.seeding import seeded_generator
from bayesticket.specs import Spec
from bayesticket.tasks.examples import Examples, Split, require_informative_rows, require_seed


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

    def redraw(self, examples: Examples, *, seed: int) -> Examples:
        """The same examples with new random distractors; by default there are none, and nothing changes."""
        require_seed(seed)
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
    def split(self, train_fraction: float = 0.3, seed: int = 0) -> Split:
        """Shuffles the `n` examples; the first `⌊train_fraction · n⌋` are for training, the others for testing.

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


def _n_train(train_fraction: float, n: int) -> int:
    # In binary floating point 0.29 · 100 is 28.999…, where the user means 29.
    n_train = math.floor(train_fraction * n + 1e-9)
    if not 0 < n_train < n:
        accepted = f"a fraction of the {n} examples that leaves some on both sides; it would train on {n_train}"
        raise refuse("train_fraction", train_fraction, f"{accepted} and test on {n - n_train}")
    return n_train
