"""The cyclic group that a batch computes in: the numbers modulo p under addition, or the nonzero ones under products.

A function on a cyclic group of n elements is a sum of n characters, the waves `e^{2πiwx/n}`. The numbers modulo p are
such a group under addition. For a prime p so are the nonzero ones under multiplication: every number is a power `g^x`
of the smallest primitive root g, and the exponents x, the discrete logarithms, add modulo n = p − 1.
"""

from dataclasses import dataclass
from functools import cache

import torch
from einops import rearrange
from jaxtyping import Bool, Int
from torch import Tensor

from bayesticket.errors import BayesticketError, refuse_case
from bayesticket.model import HookedTransformer
from bayesticket.tasks import Examples


@dataclass(frozen=True)
class Group:
    """A batch as addition in a cyclic group."""

    order: int
    """The number of elements, n."""
    tokens: Int[Tensor, "order"]
    """The token of each element; it is also the output that stands for the element."""
    inside: Bool[Tensor, "n"] | None
    """Which examples are about elements of the group; None for all."""
    operands: Int[Tensor, "m k"]
    """The operands of these examples, as elements."""
    results: Int[Tensor, "m"]
    """Their targets, as elements."""

    def of_elements(self, rows: Tensor) -> Tensor:
        """Of rows with one for each example, those of examples about elements of the group."""
        return rows if self.inside is None else rows[self.inside]


def group_of(reader: str, batch: Examples, p: int) -> Group:
    """The group in which the targets of a batch are a function of the tokens at the informative positions.

    Addition, where the target is a sum of whole multiples of the operands modulo p, such as `a + b`, `a − b` or
    `2a + 3b + 1`; multiplication, where it is their product modulo a prime p: then examples with a zero are left out.
    Raises for anything else.
    """
    batch = batch.at(-1)
    operands, targets = operands_of(reader, batch), batch.targets
    if not len(batch):
        raise _refused(reader, "no examples")
    if p // 2 < 2:
        raise _refused(reader, f"p = {p}, which has fewer than two frequencies")
    if (largest := max(int(operands.max()), int(targets.max()))) >= p:
        raise _refused(reader, f"token {largest} at an informative position or as a target, while p = {p}")
    identity = torch.arange(p, device=targets.device)
    if bool((operands.sum(1) % p == targets).all()):
        return Group(p, identity, None, operands, targets)
    if is_prime(p) and bool((_product(operands, p) == targets).all()):
        return _multiplicative(operands, targets, p)
    if (wrong := nonlinear_example(operands, targets, p)) is None:
        return Group(p, identity, None, operands, targets)
    numbers = " and ".join(map(str, operands[wrong].tolist()))
    raise _refused(reader, f"an example with {numbers} and target {int(targets[wrong])}, modulo {p}")


def require_group(reader: str, model: HookedTransformer, batch: Examples) -> None:
    """Raises unless a batch computes in a cyclic group whose elements the model reads and answers."""
    group_of(reader, batch, p := model.cfg.d_vocab_out)
    if model.cfg.d_vocab < p:
        raise _refused(reader, f"a model with {model.cfg.d_vocab} tokens and {p} outputs")


def operands_of(reader: str, batch: Examples) -> Int[Tensor, "n k"]:
    """The tokens at the informative positions, from left to right, wherever these are."""
    batch = batch.at(-1)
    counts = batch.informative.sum(1)
    if len(batch) and bool((counts != counts[0]).any()):
        raise _refused(reader, f"{int(counts.min())} to {int(counts.max())} informative positions in a sequence")
    return rearrange(batch.tokens[batch.informative], "(n k) -> n k", n=len(batch))


def _refused(reader: str, what: str) -> BayesticketError:
    accepted = (
        "a batch over the numbers modulo p = d_vocab_out, as many operands in each sequence: the target is a sum of "
        "whole multiples of the tokens at the informative positions, as in ModularAddition, or their product modulo a "
        "prime, as in ModularMultiplication; no other group, such as permutations"
    )
    return refuse_case(reader, what, accepted)


def _product(operands: Int[Tensor, "n k"], p: int) -> Int[Tensor, "n"]:
    product = torch.ones_like(operands[:, 0])
    for operand in operands.T:
        product = product * operand % p
    return product


def _multiplicative(operands: Int[Tensor, "n k"], targets: Int[Tensor, "n"], p: int) -> Group:
    powers = torch.tensor(powers_of_root(p), device=targets.device)
    logarithms = torch.zeros(p, dtype=torch.int64, device=targets.device)
    logarithms[powers] = torch.arange(p - 1, device=targets.device)
    inside = targets != 0
    return Group(p - 1, powers, inside, logarithms[operands[inside]], logarithms[targets[inside]])


@cache
def is_prime(p: int) -> bool:
    """Whether a number is prime.

    >>> [p for p in range(12) if is_prime(p)]
    [2, 3, 5, 7, 11]
    """
    return p > 1 and all(p % divisor for divisor in range(2, int(p**0.5) + 1))


@cache
def powers_of_root(p: int) -> tuple[int, ...]:
    """The powers `1, g, g², …` of the smallest primitive root of a prime: every nonzero number modulo p once.

    >>> powers_of_root(7)
    (1, 3, 2, 6, 4, 5)
    """
    for root in range(1, p):
        powers = tuple(pow(root, x, p) for x in range(p - 1))
        if len(set(powers)) == p - 1:
            return powers
    raise refuse_case("p", f"{p}", "a prime")


def nonlinear_example(operands: Int[Tensor, "n k"], targets: Int[Tensor, "n"], p: int) -> int | None:
    """An example by which the target is no sum of whole multiples of the operands and 1 modulo p; None without any.

    The multiples are found by elimination on differences from the first example, with steps that can be inverted
    modulo p.

    >>> a = torch.tensor([[0, 0], [1, 0], [0, 1], [3, 2]])
    >>> nonlinear_example(a, (a[:, 0] - 2 * a[:, 1] + 4) % 7, 7), nonlinear_example(a, a.prod(1), 7)
    (None, 3)
    """
    rows = torch.cat([operands - operands[0], (targets - targets[0])[:, None]], 1) % p
    invertible = torch.gcd(torch.arange(p, device=rows.device), torch.tensor(p)) == 1
    for column in range(operands.shape[1]):
        found = invertible[rows[:, column]].nonzero()
        if not len(found):
            continue
        pivot = rows[found[0, 0]]
        pivot = pivot * pow(int(pivot[column]), -1, p) % p
        rows = (rows - rows[:, column, None] * pivot) % p
    wrong = rows.any(1).nonzero()
    return int(wrong[0, 0]) if len(wrong) else None
