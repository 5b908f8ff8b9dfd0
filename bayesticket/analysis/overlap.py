"""How much two tickets overlap: the Jaccard distance of the sets of weights that they keep."""

from bayesticket.analysis.tickets import Ticket, require_fit, require_ticket
from bayesticket.errors import refuse


def jaccard_distance(a: Ticket, b: Ticket) -> float:
    """The Jaccard distance of two tickets, `1 − |A ∩ B| / |A ∪ B|`, with A and B the weights that each keeps.

    It is 0 for equal tickets, 1 for tickets that share no weight, and about `1 − k / (2 − k)` for two that each keep a
    random fraction k. Two tickets that keep nothing are equal.

    >>> import torch
    >>> ticket, other = (Ticket({"W": torch.tensor(kept)}) for kept in ([True, True, False], [True, False, True]))
    >>> round(jaccard_distance(ticket, other), 3)
    0.667
    """
    n_both, n_either = (sum(counts) for counts in zip(*_overlap(a, b).values(), strict=True))
    return _distance(n_both, n_either)


def jaccard_by_matrix(a: Ticket, b: Ticket) -> dict[str, float]:
    """The Jaccard distance of two tickets in each matrix.

    >>> import torch
    >>> ticket = Ticket({"W": torch.tensor([True, False])})
    >>> jaccard_by_matrix(ticket, ticket)
    {'W': 0.0}
    """
    return {name: _distance(*counts) for name, counts in _overlap(a, b).items()}


def _overlap(a: Ticket, b: Ticket) -> dict[str, tuple[int, int]]:
    """The number of weights that both tickets keep, and that at least one keeps, in each matrix."""
    for field, given in (("a", a), ("b", b)):
        require_ticket(field, given)
    if a.masks.keys() != b.masks.keys():
        raise refuse("b.masks", sorted(b.masks), f"masks of the same matrices as those of a, {sorted(a.masks)}")
    require_fit("b.masks", b, a.masks)
    pairs = {name: (mask, b.masks[name].to(mask.device)) for name, mask in a.masks.items()}
    return {name: (int((one & other).sum()), int((one | other).sum())) for name, (one, other) in pairs.items()}


def _distance(n_both: int, n_either: int) -> float:
    return 1 - n_both / n_either if n_either else 0.0
