"""Which parts of a recipe replace the same attention pattern."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bayesticket.attention import AttentionSite
from bayesticket.errors import BayesticketError

if TYPE_CHECKING:
    from bayesticket.interventions.base import Intervention


def require_one_replacement(parts: Sequence["Intervention"], n_positions: int | None = None) -> None:
    """Refuses parts that replace the same attention; only with the sequences' length are 4 and −1 known to be one."""
    replaced: list[tuple[str, int, int | None, int | None]] = []
    for part in parts:
        if part.replaces == "nothing" or not isinstance(part, AttentionSite):
            continue
        query = None if part.replaces == "pattern" else part.query if n_positions is None else part.query % n_positions
        heads = [None] if part.heads is None else part.heads
        places = [(type(part).__name__, layer, query, head) for layer in part.layers for head in heads]
        for name, layer, query, head in places:
            for other, *place in replaced:
                if all(None in pair or len(set(pair)) == 1 for pair in zip(place, (layer, query, head), strict=True)):
                    raise BayesticketError(
                        f"intervention: got {other} and {name}, which both replace the pattern of layer {layer}; "
                        f"accepted: one of them for each head"
                    )
        replaced += places
