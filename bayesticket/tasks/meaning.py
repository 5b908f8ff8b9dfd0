"""Whether two tasks mean the same by their tokens, and by their positions."""

from collections.abc import Sequence

from bayesticket.errors import refuse_case
from bayesticket.tasks.base import AbstractTask


def differing_token(task: AbstractTask, own: AbstractTask, n_tokens: int | None = None) -> tuple[int, str, str] | None:
    """The first token of a task that means something else in another one: the token, and how each writes it; or None.

    Tasks that write all their tokens as numbers say nothing of what these mean, and agree with any other.

    >>> from bayesticket.tasks import ModularAddition
    >>> differing_token(ModularAddition(p=7), ModularAddition(p=5))
    (5, '5', '+')
    """
    if task == own or not (_has_signs(task) and _has_signs(own)):
        return None
    for token in range(task.d_vocab if n_tokens is None else min(n_tokens, task.d_vocab)):
        known = own.symbol(token) if token < own.d_vocab else "nothing"
        if (symbol := task.symbol(token)) != known:
            return token, symbol, known
    return None


def _has_signs(task: AbstractTask) -> bool:
    return any(task.symbol(token) != str(token) for token in range(task.d_vocab))


def places_in(task: AbstractTask, other: AbstractTask, field: str) -> tuple[int, ...]:
    """Where the positions of a task stand in the sequences of another, by what stands there; raises unless it is plain.

    It is where the labels of the one are found among those of the other, in their order, in one way only, and none of
    them is the number of a position, whose content differs between sequences.

    >>> from bayesticket.tasks import ModularAddition
    >>> places_in(ModularAddition(p=7, n_distractors=0), ModularAddition(p=7, n_distractors=3), "positions")
    (0, 1, 2, 6)
    """
    own, labels = task.position_labels, other.position_labels
    shown = f"sequences '{' '.join(own)}' in '{' '.join(labels)}'"
    if any(label.isdigit() for label in (*own, *labels)):
        accepted = "positions=(…) as numbers, as what stands at a position differs between sequences"
        raise refuse_case(field, shown, accepted)
    found = _embeddings(own, labels)
    if len(found) != 1:
        ways = "no way" if not found else "more than one way"
        example = f", such as {found[0]}" if found else ""
        raise refuse_case(field, f"{shown}, which fit in {ways}", f"positions=(…) as numbers{example}")
    return found[0]


def _embeddings(labels: Sequence[str], others: Sequence[str]) -> list[tuple[int, ...]]:
    """The first and the last way in which labels are found among others, in order: one where these are the same."""
    first = _earliest(labels, others)
    if first is None:
        return []
    backwards = _earliest(labels[::-1], others[::-1])
    assert backwards is not None
    last = tuple(len(others) - 1 - place for place in reversed(backwards))
    return list(dict.fromkeys((first, last)))


def _earliest(labels: Sequence[str], others: Sequence[str]) -> tuple[int, ...] | None:
    """The places of labels among others, in order, each as early as it can be."""
    places: list[int] = []
    for label in labels:
        start = places[-1] + 1 if places else 0
        at = next((place for place in range(start, len(others)) if others[place] == label), None)
        if at is None:
            return None
        places.append(at)
    return tuple(places)
