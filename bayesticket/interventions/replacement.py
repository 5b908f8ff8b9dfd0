"""Which parts of a recipe replace the same attention pattern."""

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bayesticket.attention import AttentionSite
from bayesticket.errors import BayesticketError
from bayesticket.tasks import Examples

if TYPE_CHECKING:
    from bayesticket.interventions.base import Intervention


class Replaced(NamedTuple):
    """Attention that a part of a recipe replaces; None stands for every query, or for every head."""

    part: int
    name: str
    layer: int
    query: int | None
    head: int | None


def require_one_replacement(parts: Sequence["Intervention"], batch: Examples | None = None) -> None:
    """Raises where two parts replace the same attention.

    Query −1 and query 4 are the same in sequences of five positions; this is only known where a batch is given.
    """
    found = [replaced for number, part in enumerate(parts) for replaced in _replaced_by(number, part, batch)]
    for one, other in itertools.combinations(found, 2):
        if one.part != other.part and _overlap(one, other):
            raise BayesticketError(
                f"intervention: got {one.name} and {other.name}, which both replace the pattern of layer {one.layer}; "
                f"accepted: one of them for each head"
            )


def _replaced_by(number: int, part: "Intervention", batch: Examples | None) -> Iterator[Replaced]:
    if part.replaces == "nothing" or not isinstance(part, AttentionSite):
        return
    queries: list[int | None] = [part.position]
    if part.replaces == "pattern":
        queries = [None]
    elif batch is not None:
        queries = [site.position % batch.n_positions for site in part.at_queries(batch)]
    for layer, query in itertools.product(part.layers, queries):
        for head in [None] if part.heads is None else part.heads:
            yield Replaced(number, type(part).__name__, layer, query, head)


def _overlap(one: Replaced, other: Replaced) -> bool:
    if one.layer != other.layer:
        return False
    pairs = ((one.query, other.query), (one.head, other.head))
    return all(None in pair or pair[0] == pair[1] for pair in pairs)
