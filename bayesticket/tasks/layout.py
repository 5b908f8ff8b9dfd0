"""The layout of a symbolic sequence: which symbols it holds, as which tokens, and where."""

import dataclasses
from typing import Literal, final

import torch
from jaxtyping import Bool, Int
from torch import Tensor

NoiseTokens = Literal["operands", "own", "constant"]
"""Which tokens write the noise: those of the operands, an alphabet of its own, or the one token `%`."""


@final
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Layout:
    """Which symbols a sequence holds, as which tokens, and where: operands, operators, noise, then `=`.

    The tokens `0 … n_values − 1` are the operands. Then come the operator, if the operands are `separated` by one, and
    `=`; last, the constant distractor `%` or the noise's own alphabet.

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
    noise_tokens: NoiseTokens = "operands"

    @property
    def n_operators(self) -> int:
        """One between each two operands if they are separated, else none."""
        return self.n_operands - 1 if self.separated else 0

    @property
    def n_positions(self) -> int:
        """Operands, operators, noise, and the query `=`."""
        return self.n_operands + self.n_operators + self.n_noise + 1

    @property
    def n_digits(self) -> int:
        """How many values an input consists of."""
        return self.n_operands + (self.n_noise if self.noise_is_input else 0)

    @property
    def operator_token(self) -> int:
        """The token of the operator: the first after the operands' alphabet."""
        return self.n_values

    @property
    def equals_token(self) -> int:
        """The token of `=`, which stands at the query."""
        return self.n_values + int(self.separated)

    @property
    def first_noise_token(self) -> int:
        """The token that writes the noise value 0."""
        return 0 if self.noise_tokens == "operands" else self.equals_token + 1

    @property
    def d_vocab(self) -> int:
        """The number of tokens: operands, operator, `=`, and those that only the noise uses."""
        extra = {"operands": 0, "own": self.n_values, "constant": 1}
        return self.equals_token + 1 + extra[self.noise_tokens]

    def fixed_positions(self, n: int) -> Bool[Tensor, "n T"]:
        """The informative positions `home`, for each of `n` sequences."""
        informative = torch.zeros(n, self.n_positions, dtype=torch.bool)
        informative[:, list(self.home)] = True
        return informative

    def random_positions(self, n: int, generator: torch.Generator) -> Bool[Tensor, "n T"]:
        """For each of `n` sequences a uniformly drawn subset of the positions before the query."""
        # In float64 ties do not occur; a sort would resolve them in favour of early positions.
        keys = torch.rand(n, self.n_positions - 1, generator=generator, dtype=torch.float64)
        chosen = keys.argsort(dim=1)[:, : self.n_operands]
        return torch.zeros(n, self.n_positions, dtype=torch.bool).scatter(1, chosen, True)

    def noise_positions(self, informative: Bool[Tensor, "n T"]) -> Bool[Tensor, "n T"]:
        """The positions of the noise: those without operand, operator or query."""
        free = self._free_positions(informative)
        return free & (free.cumsum(dim=1) > self.n_operators)

    def assemble(
        self, operands: Int[Tensor, "n k"], noise: Int[Tensor, "n m"], informative: Bool[Tensor, "n T"]
    ) -> Int[Tensor, "n T"]:
        """The tokens: operands at the informative positions; operators, then noise, at the others, in order.

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
