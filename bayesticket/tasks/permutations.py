"""The composition of permutations."""

import functools
import itertools
import math
from typing import ClassVar, final

import torch
from einops import reduce
from jaxtyping import Int
from torch import Tensor

from bayesticket.errors import refuse, require_integer
from bayesticket.specs import spec
from bayesticket.tasks.symbolic import AbstractExpression


@final
@spec
class PermutationComposition(AbstractExpression):
    """`σ ∘ τ noise =`, answered by the permutation `(σ∘τ)(i) = σ(τ(i))` of `n` things.

    Operands and targets are the numbers of the `n!` permutations in lexicographic order.

    >>> task = PermutationComposition(n=3)
    >>> task.answer(torch.tensor([[1, 2]]))  # (0, 2, 1) ∘ (1, 0, 2) = (2, 0, 1)
    tensor([4])
    """

    n: int = 5

    operator: ClassVar[str] = "∘"

    @property
    def n_values(self) -> int:
        """The `n!` permutations."""
        return math.factorial(self.n)

    def value_symbol(self, value: int) -> str:
        """A permutation as its row of images `σ(0) σ(1) …`.

        >>> PermutationComposition(n=3).value_symbol(4)
        '201'
        """
        return "".join(map(str, _permutations(self.n)[value].tolist()))

    def answer(self, operands: Int[Tensor, "n 2"]) -> Int[Tensor, "n"]:
        """The number of `σ∘τ`."""
        table = _permutations(self.n).to(operands.device)
        outer, inner = table[operands[:, 0]], table[operands[:, 1]]
        composed = outer.gather(1, inner)
        # Read as numbers in base n, the permutations of the table increase, so that a search finds the composed one.
        place_values = self.n ** torch.arange(self.n - 1, -1, -1, device=operands.device)
        increasing, wanted = (reduce(rows * place_values, "row i -> row", "sum") for rows in (table, composed))
        return torch.searchsorted(increasing, wanted)

    def require_sizes(self) -> None:
        """Raises BayesticketError unless `n` is a whole number from 2 to 8."""
        require_integer("n", self.n, least=2)
        if self.n > 8:
            raise refuse("n", self.n, "a whole number from 2 to 8: the vocabulary holds n! permutations")


@functools.cache
def _permutations(n: int) -> Int[Tensor, "_ n"]:
    """All permutations of `n` things in lexicographic order."""
    return torch.tensor(list(itertools.permutations(range(n))), device="cpu")
