"""The scorecard: every claim under the statement of the paper that it is part of, with its verdict in both models."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bayesticket.figures import Cell, Table
from bayesticket.paper import OF_BOTH_MODELS, find_figure
from bayesticket.paper.figure import STANDARD_NAME, VERDICTS, Claim, PaperFigure, diverged_runs
from bayesticket.paper.results import Results, names_in, read_results

STATEMENTS: Mapping[str, str] = {
    "Theorem 4.3": "to generalise takes attention on every informative position, and a controlled norm of the MLP "
    "(with Eq. 27, Cor. 4.5 and the feature margin)",
    "Lemma 5.1": "the training loss bounds the gradient in attention, which vanishes with it",
    "Section 5.1": "the four phases, and how long the plateau lasts (with Eq. 5)",
    "Theorem 5.2": "a KL prior toward the oracle removes the plateau",
    "Props. B.1 and B.2": "optimisers with weight decay contract norms",
    "Conjecture E.1": "on the plateau the attention scores contract",
    "Conjecture E.2": "several heads satisfy the structural condition together",
}
"""The statements that claims are about, and what they say; all other claims are about their figure."""
Model = Literal["minimal model", "standard layer"]
MODELS: tuple[Model, Model] = ("minimal model", "standard layer")


@dataclass(frozen=True)
class Judged:
    """A figure, its results, and its claims as they are judged by these."""

    figure: PaperFigure
    results: Results
    claims: Sequence[Claim]

    @property
    def model(self) -> Model:
        """The model of its runs."""
        return MODELS[self.figure.residual]

    @property
    def anchors(self) -> list[str]:
        """The anchor of each claim on a page."""
        return [f"{self.figure.name}-claim-{n}" for n in range(1, len(self.claims) + 1)]


def judged_in(place: Path) -> list[Judged]:
    """The figures whose results are in a directory, judged by these."""
    figures = [(find_figure(name), read_results(place, name)) for name in names_in(place)]
    return [Judged(figure, results, figure.claims(results.runs)) for figure, results in figures]


@dataclass(frozen=True)
class Row:
    """A claim in each model in which it was judged."""

    claims: Mapping[Model, tuple[Claim, str]]
    """The claim with its verdict, and the anchor of its details."""
    module: str
    """The figure, without its model."""
    unjudged: Mapping[Model, str]
    """Why there is no verdict, in each other model."""

    @property
    def text(self) -> str:
        """What is claimed, and by whom where that is not the paper."""
        claim, _ = next(iter(self.claims.values()))
        return claim.said if claim.by == "the paper" else f"{claim.said} ({claim.by})"


def scorecard(judged: Iterable[Judged]) -> dict[str, list[Row]]:
    """The claims by what they are about: the statements of the paper, in their order, and then its figures."""
    found: dict[str, dict[tuple[str, str], dict[Model, tuple[Claim, str]]]] = {about: {} for about in STATEMENTS}
    figures: dict[str, dict[Model, Judged]] = {}
    for each in judged:
        figures.setdefault(module := each.figure.name.removesuffix(STANDARD_NAME), {})[each.model] = each
        for claim, anchor in zip(each.claims, each.anchors, strict=True):
            found.setdefault(claim.about, {}).setdefault((module, claim.said), {})[each.model] = (claim, anchor)
    return {
        f"{about}: {STATEMENTS[about]}" if about in STATEMENTS else about: [
            Row(each, module, {model: _why(figures[module], module, model) for model in MODELS if model not in each})
            for (module, _), each in claims.items()
        ]
        for about, claims in found.items()
        if claims
    }


def _why(figures: Mapping[Model, Judged], module: str, model: Model) -> str:
    """Why a claim of a figure has no verdict in a model."""
    if model not in figures:
        return "not run" if module in OF_BOTH_MODELS else "–"
    if any(diverged_runs(each.results.runs) for each in figures.values()):
        return "–"  # all that the figure claims is one claim then, in a row of its own
    return "its results lack a curve that this needs"


def scorecard_table(judged: Iterable[Judged]) -> Table:
    """The scorecard as a table whose verdicts link to the details of their claims."""
    rows, headings = [], {}
    for heading, claims in scorecard(judged).items():
        headings[len(rows)] = heading
        rows += [[row.text, *(_verdict(row, model) for model in MODELS)] for row in claims]
    return Table(("claim", *MODELS), rows, wordy=True, headings=headings)


def _verdict(row: Row, model: Model) -> str | Cell:
    if model not in row.claims:
        return row.unjudged[model]
    claim, anchor = row.claims[model]
    return Cell(VERDICTS[claim.verdict], link=anchor)


def tally(claims: Iterable[Claim]) -> str:
    """How many claims have each verdict.

    >>> tally(Claim("", (), "", verdict) for verdict in ("partly", "undecided", "partly"))
    '◐ 2 partly, ? 1 undecided'
    """
    verdicts = [claim.verdict for claim in claims]
    written = {verdict: text.split(" ", 1) for verdict, text in VERDICTS.items() if verdict in verdicts}
    return ", ".join(f"{sign} {verdicts.count(verdict)} {word}" for verdict, (sign, word) in written.items())
