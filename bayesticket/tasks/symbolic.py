"""The paper's five tasks (Table 1), with random or constant distractors and fixed or drawn positions."""

import abc
import dataclasses
import functools
import itertools
import math
from typing import Literal, final, get_args

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from bayesticket.errors import refuse, refuse_name, require_integer
from bayesticket.seeding import seeded_generator
from bayesticket.specs import spec
from bayesticket.tasks.base import AbstractTask, Examples, require_seed

Distractors = Literal["random", "constant"]
Positions = Literal["fixed", "random"]

MOST_ENUMERATED = 65_536
"""A task with more inputs than these draws `n_samples` of them instead of listing them all."""


@final
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Layout:
    """Which symbols a sequence holds, as which tokens, and where: operands, operators, noise, then `=`.

    The operands are tokens `0 … n_values − 1`; the operator (if they are `separated` by one) and `=` follow;
    after these come the constant distractor `%`, or the noise's own alphabet.

    >>> layout = Layout(n_values=113, n_operands=2, n_noise=1, separated=True, home=(0, 2))
    >>> layout.n_positions, layout.operator_token, layout.equals_token, layout.d_vocab
    (5, 113, 114, 115)
    """

    n_values: int
    n_operands: int
    n_noise: int
    separated: bool
    home: tuple[int, ...]
    """The informative positions when they are fixed."""
    noise_is_input: bool = False
    """Whether sequences that differ in noise alone are different inputs."""
    noise_tokens: Literal["operands", "own", "constant"] = "operands"

    @property
    def n_operators(self) -> int:
        """One between each two operands, if any."""
        return self.n_operands - 1 if self.separated else 0

    @property
    def n_positions(self) -> int:
        """Operands, operators, noise, and the query `=`."""
        return self.n_operands + self.n_operators + self.n_noise + 1

    @property
    def n_digits(self) -> int:
        """How many operand values tell one input from another."""
        return self.n_operands + (self.n_noise if self.noise_is_input else 0)

    @property
    def operator_token(self) -> int:
        """The token right after the operands' alphabet."""
        return self.n_values

    @property
    def equals_token(self) -> int:
        """The token at the query."""
        return self.n_values + int(self.separated)

    @property
    def first_noise_token(self) -> int:
        """The token that noise value 0 is written as."""
        return 0 if self.noise_tokens == "operands" else self.equals_token + 1

    @property
    def d_vocab(self) -> int:
        """Operands' alphabet, operator, `=`, and what only the noise uses."""
        extra = {"operands": 0, "own": self.n_values, "constant": 1}
        return self.equals_token + 1 + extra[self.noise_tokens]

    def fixed_positions(self, n: int) -> Bool[Tensor, "n T"]:
        """The informative positions `home`, for each of `n` sequences."""
        informative = torch.zeros(n, self.n_positions, dtype=torch.bool)
        informative[:, list(self.home)] = True
        return informative

    def random_positions(self, n: int, generator: torch.Generator) -> Bool[Tensor, "n T"]:
        """For each of `n` sequences a uniformly drawn subset of the positions before the query."""
        # Float64, so that ties, which a sort would resolve in favour of early positions, do not occur.
        keys = torch.rand(n, self.n_positions - 1, generator=generator, dtype=torch.float64)
        chosen = keys.argsort(dim=1)[:, : self.n_operands]
        return torch.zeros(n, self.n_positions, dtype=torch.bool).scatter(1, chosen, True)

    def noise_positions(self, informative: Bool[Tensor, "n T"]) -> Bool[Tensor, "n T"]:
        """What is left when operands, operators and the query have taken their positions."""
        free = self._free_positions(informative)
        return free & (free.cumsum(dim=1) > self.n_operators)

    def assemble(
        self, operands: Int[Tensor, "n k"], noise: Int[Tensor, "n m"], informative: Bool[Tensor, "n T"]
    ) -> Int[Tensor, "n T"]:
        """Writes operands to the informative positions, operators and then noise to the others, in order.

        >>> layout = Layout(n_values=7, n_operands=2, n_noise=1, separated=True, home=(0, 2))
        >>> layout.assemble(torch.tensor([[3, 4]]), torch.tensor([[6]]), layout.fixed_positions(1))
        tensor([[3, 7, 4, 6, 8]])
        """
        n = len(operands)
        operators = torch.full((n, self.n_operators), self.operator_token)
        fillers = torch.cat([operators, noise + self.first_noise_token], dim=1)
        tokens = torch.full((n, self.n_positions), self.equals_token)
        tokens = tokens.masked_scatter(informative, operands)
        return tokens.masked_scatter(self._free_positions(informative), fillers)

    def _free_positions(self, informative: Bool[Tensor, "n T"]) -> Bool[Tensor, "n T"]:
        free = ~informative
        free[:, -1] = False
        return free


@spec(kw_only=True)
class AbstractSymbolicTask(AbstractTask):
    """A function of `k` symbols, written out as a sequence with distractors.

    - `distractors`: `"random"` symbols, or the `"constant"` symbol `%`.
    - `positions`: where the informative symbols stand, `"fixed"` or `"random"`, drawn per sequence. They keep
      their order. Random distractors among random positions are drawn from an alphabet of their own: were
      they written like operands, nothing would tell the two apart and the target would not be a function of
      the sequence.
    - `redraw_each_epoch`: whether training draws the random distractors anew before every epoch.
    - `n_samples`: how many distinct inputs are drawn when there are too many (over 65,536) to list them all.
    """

    distractors: Distractors = "random"
    positions: Positions = "fixed"
    redraw_each_epoch: bool = False
    n_samples: int = 12_769

    def __post_init__(self) -> None:
        _require_name("distractors", self.distractors, get_args(Distractors))
        _require_name("positions", self.positions, get_args(Positions))
        self._require_sizes()
        require_integer("n_distractors", self.layout.n_noise, least=0)
        self._require_redrawable()
        self._require_samples()

    @property
    @abc.abstractmethod
    def layout(self) -> Layout:
        """The symbols of a sequence and their tokens."""

    @abc.abstractmethod
    def answer(self, operands: Int[Tensor, "n k"]) -> Int[Tensor, "n"]:
        """The function to be learnt."""

    @abc.abstractmethod
    def _require_sizes(self) -> None:
        """Refuses fields from which no layout can be made."""

    @property
    def n_positions(self) -> int:
        """The length `T` of each sequence; the query `=` is the last position."""
        return self.layout.n_positions

    @property
    def d_vocab(self) -> int:
        """The number of distinct tokens a sequence may hold."""
        return self.layout.d_vocab

    @property
    def d_vocab_out(self) -> int:
        """The number of distinct targets, which are values of the same kind as the operands."""
        return self.layout.n_values

    def examples(self, seed: int) -> Examples:
        """All examples of the task; inputs, distractors and positions are drawn by `seed` alone."""
        require_seed(seed)
        layout = self.layout
        with torch.device("cpu"):
            digits = self._inputs(seed)
            operands, noise = digits[:, : layout.n_operands], digits[:, layout.n_operands :]
            if not layout.noise_is_input:
                noise = self._draw_noise(len(digits), seeded_generator(seed, "distractors"))
            informative = self._informative(len(digits), seed)
            tokens = layout.assemble(operands, noise, informative)
            return Examples(tokens, self.answer(operands), informative)

    def redraw(self, examples: Examples, *, seed: int) -> Examples:
        """The same operands, targets and positions with random distractors drawn anew.

        >>> task = ModularAddition(p=7)
        >>> first = task.examples(seed=0)
        >>> again = task.redraw(first, seed=1)
        >>> (first.tokens != again.tokens).any(dim=0)
        tensor([False, False, False,  True, False])
        """
        require_seed(seed)
        if examples.n_positions != self.n_positions:
            raise refuse("examples", examples, f"examples of this task, with n_positions={self.n_positions}")
        layout = self.layout
        with torch.device("cpu"):
            noise = self._draw_noise(examples.n, seeded_generator(seed, "redraw")) + layout.first_noise_token
        where = layout.noise_positions(examples.informative)
        tokens = examples.tokens.masked_scatter(where, noise.to(examples.tokens.device))
        return dataclasses.replace(examples, tokens=tokens)

    def _inputs(self, seed: int) -> Int[Tensor, "n digits"]:
        n_values, n_digits = self.layout.n_values, self.layout.n_digits
        if n_values**n_digits <= MOST_ENUMERATED:
            return _all_rows(n_values, n_digits)
        return _distinct_rows(n_values, n_digits, n=self.n_samples, generator=seeded_generator(seed, "inputs"))

    def _draw_noise(self, n: int, generator: torch.Generator) -> Int[Tensor, "n m"]:
        n_kinds = 1 if self.distractors == "constant" else self.layout.n_values
        return torch.randint(n_kinds, (n, self.layout.n_noise), generator=generator)

    def _informative(self, n: int, seed: int) -> Bool[Tensor, "n T"]:
        if self.positions == "random":
            return self.layout.random_positions(n, seeded_generator(seed, "positions"))
        return self.layout.fixed_positions(n)

    def _noise_tokens(self) -> Literal["operands", "own", "constant"]:
        if self.distractors == "constant":
            return "constant"
        return "own" if self.positions == "random" else "operands"

    def _require_redrawable(self) -> None:
        if not isinstance(self.redraw_each_epoch, bool):
            raise refuse("redraw_each_epoch", self.redraw_each_epoch, "True or False")
        if self.redraw_each_epoch and (self.distractors == "constant" or self.layout.n_noise == 0):
            raise refuse("redraw_each_epoch", True, "False, as there are no random distractors to redraw")
        if self.redraw_each_epoch and self.layout.noise_is_input and self.layout.n_digits < 32:
            accepted = "False below 32 bits: bits drawn anew would soon repeat the examples held out"
            raise refuse("redraw_each_epoch", True, accepted)

    def _require_samples(self) -> None:
        require_integer("n_samples", self.n_samples, least=1)
        n_values, n_digits = self.layout.n_values, self.layout.n_digits
        if n_values**n_digits > MOST_ENUMERATED and self.n_samples > n_values**n_digits:
            accepted = f"at most the number of distinct inputs, {n_values}^{n_digits} = {n_values**n_digits}"
            raise refuse("n_samples", self.n_samples, accepted)


@spec(kw_only=True)
class AbstractExpression(AbstractSymbolicTask):
    """Operands with an operator between each two, then `n_distractors` of noise: `a + b noise =`."""

    n_distractors: int = 1

    def _expression(self, *, n_values: int, n_operands: int) -> Layout:
        return Layout(
            n_values=n_values,
            n_operands=n_operands,
            n_noise=self.n_distractors,
            separated=True,
            home=tuple(range(0, 2 * n_operands, 2)),
            noise_tokens=self._noise_tokens(),
        )


@final
@spec
class ModularAddition(AbstractExpression):
    """`a + b noise =`, answered by `(a + b) mod p`; the other options are those of `AbstractSymbolicTask`.

    >>> task = ModularAddition(p=113)
    >>> task.n_positions, task.d_vocab, len(task.examples(seed=0))
    (5, 115, 12769)
    """

    p: int = 113

    @property
    def layout(self) -> Layout:
        """Two numbers with `+` between them."""
        return self._expression(n_values=self.p, n_operands=2)

    def answer(self, operands: Int[Tensor, "n 2"]) -> Int[Tensor, "n"]:
        """The sum modulo `p`."""
        return operands.sum(dim=1) % self.p

    def _require_sizes(self) -> None:
        require_integer("p", self.p, least=2)


@final
@spec
class ModularMultiplication(AbstractExpression):
    """`a × b noise =`, answered by `a · b mod p`, zero included.

    >>> ModularMultiplication(p=5).examples(seed=0).targets.view(5, 5)[3]
    tensor([0, 3, 1, 4, 2])
    """

    p: int = 113

    @property
    def layout(self) -> Layout:
        """Two numbers with `×` between them."""
        return self._expression(n_values=self.p, n_operands=2)

    def answer(self, operands: Int[Tensor, "n 2"]) -> Int[Tensor, "n"]:
        """The product modulo `p`."""
        return operands.prod(dim=1) % self.p

    def _require_sizes(self) -> None:
        require_integer("p", self.p, least=2)


@final
@spec
class KOperandAddition(AbstractExpression):
    """`a + b + … noise =`, answered by the sum of the `k` operands modulo `p`.

    >>> task = KOperandAddition(k=3)
    >>> task.n_positions, len(task.examples(seed=0))
    (7, 12769)
    """

    k: int = 3
    p: int = 113

    @property
    def layout(self) -> Layout:
        """`k` numbers with `+` between each two."""
        return self._expression(n_values=self.p, n_operands=self.k)

    def answer(self, operands: Int[Tensor, "n k"]) -> Int[Tensor, "n"]:
        """The sum modulo `p`."""
        return operands.sum(dim=1) % self.p

    def _require_sizes(self) -> None:
        require_integer("k", self.k, least=1)
        require_integer("p", self.p, least=2)


@final
@spec
class PermutationComposition(AbstractExpression):
    """`σ ∘ τ noise =`, answered by the permutation `(σ∘τ)(i) = σ(τ(i))` of `n` things.

    Tokens and targets number the `n!` permutations in lexicographic order.

    >>> task = PermutationComposition(n=3)
    >>> task.answer(torch.tensor([[1, 2]]))  # (0, 2, 1) ∘ (1, 0, 2) = (2, 0, 1)
    tensor([4])
    """

    n: int = 5

    @property
    def layout(self) -> Layout:
        """Two permutations with `∘` between them."""
        return self._expression(n_values=math.factorial(self.n), n_operands=2)

    def answer(self, operands: Int[Tensor, "n 2"]) -> Int[Tensor, "n"]:
        """The number of `σ∘τ`."""
        table = _permutations(self.n).to(operands.device)
        composed = table[operands[:, 0]].gather(1, table[operands[:, 1]])
        # Read as numbers in base n, permutations in lexicographic order are in increasing order.
        place_values = self.n ** torch.arange(self.n - 1, -1, -1, device=operands.device)
        return torch.searchsorted((table * place_values).sum(dim=1), (composed * place_values).sum(dim=1))

    def _require_sizes(self) -> None:
        require_integer("n", self.n, least=2)
        if self.n > 8:
            raise refuse("n", self.n, "a whole number from 2 to 8: the vocabulary holds n! permutations")


@final
@spec
class SparseParity(AbstractSymbolicTask):
    """`n` bits and `=`, answered by the parity of `k` of them; the other bits are the distractors.

    With fixed positions the informative bits stand at `⌊i·n/k⌋`, `i = 0 … k − 1`.

    >>> task = SparseParity(n=40, k=3)
    >>> task.layout.home, task.n_positions, len(task.examples(seed=0))
    ((0, 13, 26), 41, 12769)
    """

    n: int = 40
    k: int = 3

    @property
    def layout(self) -> Layout:
        """Bits without operators; a distractor bit is part of the input."""
        return Layout(
            n_values=2,
            n_operands=self.k,
            n_noise=self.n - self.k,
            separated=False,
            home=tuple(i * self.n // self.k for i in range(self.k)),
            noise_is_input=True,
            noise_tokens=self._noise_tokens(),
        )

    def answer(self, operands: Int[Tensor, "n k"]) -> Int[Tensor, "n"]:
        """The exclusive or of the informative bits."""
        return operands.sum(dim=1) % 2

    def _require_sizes(self) -> None:
        require_integer("n", self.n, least=1)
        require_integer("k", self.k, least=1)
        if self.k > self.n:
            raise refuse("k", self.k, f"at most the number of bits, n={self.n}")
        if self.distractors == "constant":
            accepted = f"'random': with constant ones only 2^k = {2**self.k} sequences would exist"
            raise refuse("distractors", self.distractors, accepted)


def _all_rows(n_values: int, n_digits: int) -> Int[Tensor, "n digits"]:
    """Every row of `n_digits` values, the last one changing fastest."""
    place_values = n_values ** torch.arange(n_digits - 1, -1, -1)
    return torch.arange(n_values**n_digits).unsqueeze(1) // place_values % n_values


def _distinct_rows(n_values: int, n_digits: int, *, n: int, generator: torch.Generator) -> Int[Tensor, "n digits"]:
    """The first `n` distinct rows of an endless uniform draw: a uniform sample without repeats."""
    rows: dict[bytes, None] = {}
    while len(rows) < n:
        drawn = torch.randint(n_values, (n, n_digits), generator=generator)
        rows.update(dict.fromkeys(row.tobytes() for row in drawn.numpy()))
    kept = b"".join(itertools.islice(rows, n))
    return torch.from_numpy(np.frombuffer(kept, dtype=np.int64).reshape(n, n_digits).copy())


@functools.cache
def _permutations(n: int) -> Int[Tensor, "_ n"]:
    """All permutations of `n` things in lexicographic order."""
    return torch.tensor(list(itertools.permutations(range(n))), device="cpu")


def _require_name(field: str, given: object, names: tuple[str, ...]) -> None:
    if not isinstance(given, str) or given not in names:
        raise refuse_name(field, given, names)
