"""Sparse parity, answered alone or as the last of a sequence's tokens, each of which is predicted."""

from typing import ClassVar, final

from jaxtyping import Int
from torch import Tensor

from bayesticket.errors import refuse, require_integer
from bayesticket.specs import spec
from bayesticket.tasks.layout import Layout
from bayesticket.tasks.symbolic import AbstractSymbolicTask

MOST_BITS = 100_000
"""Longer sequences are a slip: attention over them fits into no memory."""


@final
@spec
class SparseParity(AbstractSymbolicTask):
    """`n` bits and `=`, answered by the parity of `k` of them; the other bits are the distractors.

    If positions are fixed, the informative bits stand at `⌊i·n/k⌋`, `i = 0 … k − 1`.

    >>> task = SparseParity(n=40, k=3)
    >>> task.layout.home, task.n_positions, len(task.examples(seed=0))
    ((0, 13, 26), 41, 12769)
    """

    n: int = 40
    k: int = 3

    commutative: ClassVar[bool] = True

    @property
    def layout(self) -> Layout:
        """Bits without operators; the distractor bits are part of the input."""
        return _layout(self)

    def answer(self, operands: Int[Tensor, "n k"]) -> Int[Tensor, "n"]:
        """The exclusive or of the informative bits."""
        return operands.sum(dim=1) % 2

    def require_sizes(self) -> None:
        """Raises BayesticketError unless `1 ≤ k ≤ n`, with random distractors."""
        _require_sizes(self)


@final
@spec
class AutoregressiveParity(AbstractSymbolicTask):
    """`n` bits, `=` and the parity of `k` of the bits, each token to be predicted from those before it.

    The model reads the bits and `=`, and is asked for the next token at each of these `n + 1` positions: the next bit,
    `=` after the last bit, and the parity at `=`. All are part of the loss. Accuracy, oracle and measures are about the
    parity, since random bits cannot be known. The informative bits stand where they stand in `SparseParity`.

    >>> task = AutoregressiveParity(n=4, k=2)
    >>> examples = task.examples(seed=0)
    >>> task.show(examples.tokens[8]), [task.symbol(token) for token in examples.targets[8].tolist()]
    ('1 0 0 0 =', ['0', '0', '0', '=', '1'])
    >>> examples.queries, examples.answerable, task.d_vocab_out
    ((0, 1, 2, 3, 4), (4,), 3)
    """

    n: int = 40
    k: int = 3

    commutative: ClassVar[bool] = True
    asks_next_token: ClassVar[bool] = True

    @property
    def layout(self) -> Layout:
        """Bits without operators; the distractor bits are part of the input."""
        return _layout(self)

    def answer(self, operands: Int[Tensor, "n k"]) -> Int[Tensor, "n"]:
        """The exclusive or of the informative bits, which is what follows `=`."""
        return operands.sum(dim=1) % 2

    def require_sizes(self) -> None:
        """Raises BayesticketError unless `1 ≤ k ≤ n`, with random distractors."""
        _require_sizes(self)


def _layout(task: SparseParity | AutoregressiveParity) -> Layout:
    return Layout(
        n_values=2,
        n_operands=task.k,
        n_noise=task.n - task.k,
        separated=False,
        home=tuple(i * task.n // task.k for i in range(task.k)),
        noise_is_input=True,
        noise_tokens=task.noise_tokens(),
    )


def _require_sizes(task: SparseParity | AutoregressiveParity) -> None:
    require_integer("n", task.n, least=1, most=MOST_BITS)
    require_integer("k", task.k, least=1)
    if task.k > task.n:
        raise refuse("k", task.k, f"at most the number of bits, n={task.n}")
    if task.distractors == "constant":
        accepted = f"'random', since with constant distractors there are only 2^k = {2**task.k} sequences"
        raise refuse("distractors", task.distractors, accepted)
