"""The rules of a page's claims: one that several claims share is numbered and said once, others stand in their rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bayesticket.paper.figure import Claim


@dataclass(frozen=True)
class Rules:
    """The rules that several claims share, by name, as they concern one figure of a page."""

    general: Mapping[str, str]
    """Those of several figures of the page."""
    own: Mapping[str, str]
    """Those of this figure alone."""

    def of(self, claim: Claim) -> tuple[str, list[str]]:
        """The rules of a claim of the figure: the text of those that are its alone, and the names of the others."""
        names = {text: name for name, text in {**self.general, **self.own}.items()}
        alone = " ".join(text for text in claim.rules if text not in names)
        return alone, [names[text] for text in claim.rules if text in names]


def shared_rules(claims: Sequence[Sequence[Claim]]) -> list[Rules]:
    """Numbers the rules that several claims of a page share, given the claims of each of its figures.

    >>> one, other = (Claim(said, ("Few do.", "All do."), "", "undecided") for said in ("A.", "B."))
    >>> first, second = shared_rules([[one], [other, Claim("C.", ("Few do.", "Most do."), "", "undecided")]])
    >>> first.general, first.of(one)
    ({'Rule 1': 'Few do.', 'Rule 2': 'All do.'}, ('', ['Rule 1', 'Rule 2']))
    """
    by_figure = [[text for claim in judged for text in claim.rules] for judged in claims]
    every = [text for texts in by_figure for text in texts]
    shared = [text for text in dict.fromkeys(every) if every.count(text) > 1]
    general = [text for text in shared if sum(text in texts for texts in by_figure) > 1]
    own = [[text for text in shared if text in texts and text not in general] for texts in by_figure]
    numbers = {text: n for n, text in enumerate([*general, *(text for texts in own for text in texts)], 1)}

    def named(texts: Iterable[str]) -> dict[str, str]:
        return {f"Rule {numbers[text]}": text for text in texts}

    return [Rules(named(general), named(texts)) for texts in own]
