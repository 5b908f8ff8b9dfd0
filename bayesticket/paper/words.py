"""Counts and epochs in words, for what was measured; every sentence reads well of no run, one, or several."""

from collections.abc import Sequence
from statistics import median


def so_many(n: int, of: int, noun: str = "run", which: str = "") -> str:
    """How many of these runs, to begin a sentence with or to follow “in”.

    >>> [so_many(n, 5) for n in (0, 1, 5)]
    ['none of 5 runs', '1 of 5 runs', 'all 5 runs']
    >>> so_many(1, 1), so_many(0, 1), so_many(0, 0)
    ('the only run', '0 of 1 run', 'no run')
    >>> so_many(2, 3, "seed", "that memorised")
    '2 of 3 seeds that memorised'
    """
    tail = f" {which}" if which else ""
    if of == 0:
        return f"no {noun}{tail}"
    if of == 1:
        return f"the only {noun}{tail}" if n else f"0 of 1 {noun}{tail}"
    counted = "none of" if n == 0 else "all" if n == of else f"{n} of"
    return f"{counted} {of} {noun}s{tail}"


def across(values: Sequence[float | None], form: str = ",.0f") -> str:
    """The median over runs, and the least and the largest value, as text.

    >>> across([1000, 3000, 2000]), across([1000, None, 1000]), across([])
    ('2,000 (from 1,000 to 3,000)', '1,000', 'none')
    """
    known = [value for value in values if value is not None]
    if not known:
        return "none"
    low, middle, high = (format(value, form) for value in (min(known), median(known), max(known)))
    return middle if low == high else f"{middle} (from {low} to {high})"


def when(epochs: Sequence[float | None], which: str = "") -> str:
    """In how many runs something happened, and at which epoch; None where it did not.

    >>> when([60, None, 500])
    'in 2 of 3 runs, at epoch 280 (from 60 to 500)'
    >>> when([1300]), when([None] * 5), when([])
    ('in the only run, at epoch 1,300', 'in none of 5 runs', 'in no run')
    """
    known = [epoch for epoch in epochs if epoch is not None]
    found = f"in {so_many(len(known), len(epochs), which=which)}"
    return f"{found}, at epoch {across(known)}" if known else found


def listed(texts: Sequence[str], joined_by: str = "and") -> str:
    """Texts one after the other, as a sentence lists them.

    >>> listed(["one"]), listed(["one", "two", "three"]), listed(["one", "two"], "or")
    ('one', 'one, two and three', 'one or two')
    """
    *others, last = texts
    return f"{', '.join(others)} {joined_by} {last}" if others else last


def sentences(*texts: str) -> str:
    """Texts as sentences: each with a capital and a full stop, the empty ones left out.

    >>> sentences("none of 5 runs grokked", "", "all 5 runs memorised")
    'None of 5 runs grokked. All 5 runs memorised.'
    """
    return " ".join(f"{text[0].upper()}{text[1:]}." for text in texts if text)
