"""Sums and products modulo p."""

from typing import ClassVar, final

from jaxtyping import Int
from torch import Tensor

from bayesticket.errors import require_integer
from bayesticket.specs import spec
from bayesticket.tasks.symbolic import AbstractExpression


@final
@spec
class ModularAddition(AbstractExpression):
    """`a + b noise =`, answered by `(a + b) mod p`; the other options are those of `AbstractSymbolicTask`.

    >>> task = ModularAddition(p=113)
    >>> task.n_positions, task.d_vocab, len(task.examples(seed=0))
    (5, 115, 12769)
    """

    p: int = 113

    operator: ClassVar[str] = "+"
    commutative: ClassVar[bool] = True

    @property
    def n_values(self) -> int:
        """The numbers below `p`."""
        return self.p

    def answer(self, operands: Int[Tensor, "n 2"]) -> Int[Tensor, "n"]:
        """The sum modulo `p`."""
        return operands.sum(dim=1) % self.p

    def require_sizes(self) -> None:
        """Raises BayesticketError unless `p` is a whole number of at least 2."""
        require_integer("p", self.p, least=2, most=10**9)


@final
@spec
class ModularMultiplication(AbstractExpression):
    """`a × b noise =`, answered by `a · b mod p`, zero included.

    >>> ModularMultiplication(p=5).examples(seed=0).targets.view(5, 5)[3]
    tensor([0, 3, 1, 4, 2])
    """

    p: int = 113

    operator: ClassVar[str] = "×"
    commutative: ClassVar[bool] = True

    @property
    def n_values(self) -> int:
        """The numbers below `p`."""
        return self.p

    def answer(self, operands: Int[Tensor, "n 2"]) -> Int[Tensor, "n"]:
        """The product modulo `p`."""
        return operands.prod(dim=1) % self.p

    def require_sizes(self) -> None:
        """Raises BayesticketError unless `p` is a whole number of at least 2."""
        require_integer("p", self.p, least=2, most=10**9)


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

    operator: ClassVar[str] = "+"
    commutative: ClassVar[bool] = True

    @property
    def n_values(self) -> int:
        """The numbers below `p`."""
        return self.p

    @property
    def n_operands(self) -> int:
        """`k` numbers."""
        return self.k

    def answer(self, operands: Int[Tensor, "n k"]) -> Int[Tensor, "n"]:
        """The sum modulo `p`."""
        return operands.sum(dim=1) % self.p

    def require_sizes(self) -> None:
        """Raises BayesticketError unless `k` is at least 1 and `p` at least 2."""
        require_integer("k", self.k, least=1)
        require_integer("p", self.p, least=2, most=10**9)
