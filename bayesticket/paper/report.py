"""Pages about the figures, one each or all in one report, written from results without any training."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

import pandas as pd

from bayesticket.analysis import median_time
from bayesticket.errors import refuse
from bayesticket.figures import Cell, Notes, Section, Table, write_page
from bayesticket.files import require_directory, require_path
from bayesticket.paper import NAMES, find_figure
from bayesticket.paper.figure import Claim, PaperFigure, Scale, arm_names, curves_of
from bayesticket.paper.readings import TEST, THRESHOLD, UNSEEN
from bayesticket.paper.results import SHIPPED, Results, names_in, read_results
from bayesticket.paper.rules import Rules, shared_rules
from bayesticket.paper.settings import brief, config_of, settings
from bayesticket.paper.words import across
from bayesticket.runs import Header
from bayesticket.specs import JSON

VERDICTS = {
    "reproduced": "✔ reproduced",
    "partly": "◐ partly",
    "not reproduced": "✘ not reproduced",
    "undecided": "? undecided",
}


def write_figure_page(figure: PaperFigure, results: Results, path: str | os.PathLike[str]) -> Path:
    """Writes the page of one figure; returns its path."""
    claims = figure.claims(results.runs)
    sections = figure_sections("", figure, results, claims, *shared_rules([claims]))
    return write_page(path, figure.title, [*sections, *_how([results])])


def write_report(directory: str | os.PathLike[str] | None = None, out: str | os.PathLike[str] = "report.html") -> Path:
    """Writes one page about all figures whose results are in a directory; returns its path.

    Without a directory it is about the results at the paper's scale that come with the library.
    """
    page = require_path("out", out, "the path of the page to be written")
    require_directory("out", page.parent)
    place = SHIPPED if directory is None else require_path("results", directory, "a directory with results")
    found = names_in(place)
    if not found:
        made = f"a directory with results, such as {NAMES[0]}.json, which “bayesticket reproduce {NAMES[0]}” writes"
        raise refuse("results", str(place), made)
    figures = [find_figure(name) for name in found]
    results = [read_results(place, name) for name in found]
    claims = [figure.claims(result.runs) for figure, result in zip(figures, results, strict=True)]
    rules = shared_rules(claims)
    missing = [name for name in NAMES if name not in found]
    sections = [
        Section("", [*_abstract(claims, results), *([f"Not run yet: {', '.join(missing)}."] if missing else [])]),
        Section("Summary", [], summary_table(figures, claims)),
    ]
    if general := rules[0].general:
        sections.append(Section("Rules of several figures", [], Notes(general)))
    for figure, result, judged, of_figure in zip(figures, results, claims, rules, strict=True):
        sections += figure_sections(figure.title, figure, result, judged, of_figure)
    return write_page(page, "What the paper's figures show when they are run again", [*sections, *_how(results)])


def _abstract(claims: Sequence[Sequence[Claim]], results: Sequence[Results]) -> list[str]:
    verdicts = [claim.verdict for each in claims for claim in each]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in VERDICTS)
    headers = _distinct(results)
    return [
        f"{len(verdicts)} claims: {counts}. Each verdict follows from the rules that stand beside it.",
        "In square brackets are 95% intervals, with “open” for an end that the runs do not determine. In parentheses, "
        "after a median, are the least and the largest value. A claim by “a control” is not the paper's: it tests one "
        "that is.",
        f"The claims rest on {len(headers)} different runs, {sum(header.epoch for header in headers):,} epochs in all.",
    ]


def summary_table(figures: Sequence[PaperFigure], claims: Sequence[Sequence[Claim]]) -> Table:
    """Every claim with its verdict."""
    rows = [
        [VERDICTS[claim.verdict], figure.title.partition(":")[0], claim.said, claim.by]
        for figure, judged in zip(figures, claims, strict=True)
        for claim in judged
    ]
    return Table(("verdict", "figure", "claim", "by"), rows, wordy=True, named_by=2)


def figure_sections(
    heading: str, figure: PaperFigure, results: Results, claims: Sequence[Claim], rules: Rules
) -> list[Section]:
    """The sections about one figure: what was run, pictures, claims with verdicts, and every arm in numbers."""
    pictures = figure.draw(results.runs)
    return [
        Section(heading, [figure.description, *figure.notes, _scale(figure, results)]),
        *(Section("", [caption], picture) for caption, picture in pictures.items()),
        Section("", [_where(results)], claim_table(results, claims, rules)),
        *([Section("", ["Rules of several of these claims:"], Notes(rules.own))] if rules.own else []),
        Section("", ["Every arm in numbers; medians of grokking times are Kaplan and Meier's, with 95% intervals."],
                arm_table(results)),
        Section("", ["What the arms differ in; all else is at the end of the page."], differences(results)),
    ]  # fmt: skip


def claim_table(results: Results, claims: Sequence[Claim], rules: Rules) -> Table:
    """The claims of a figure with verdicts, what was measured, the ids of the runs, and rules."""
    rows = []
    for claim in claims:
        ids = results.ids(claim)
        lines = [f"{arm}: {', '.join(each)}" for arm, each in ids.items()]
        measured = Cell(claim.account, summary=_counted(sum(map(len, ids.values())), "run"), folded=lines)
        alone, shared = rules.of(claim)
        rows.append([VERDICTS[claim.verdict], claim.said, claim.by, measured, Cell(alone, notes=shared)])
    return Table(("verdict", "claim", "by", "measured", "rules"), rows, wordy=True, named_by=1)


def _where(results: Results) -> str:
    """Where the runs that are listed with the claims are, or how to get them."""
    listed = "Below what was measured, the runs are listed by id, one for each seed."
    directory = str(results.runs.curves["directory"].to_numpy().flat[0])
    if directory:
        return f"{listed} Each is in {Path(directory).parent}, in a directory of this name, with its weights."
    command = results.runs.curves.attrs.get("trained_by")
    trained = f" “{command}” trains these runs, each into a directory of this name in runs." if command else ""
    return f"{listed} Their weights are not among the results that this page was made from.{trained}"


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _scale(figure: PaperFigure, results: Results) -> str:
    """The scale of the runs in words, and whether it is the paper's."""
    configs: list[dict] = [config_of(header) for header in results.headers.values()]
    moduli = sorted({config["task"]["p"] for config in configs if "p" in config["task"]})
    epochs, seeds, full = sorted({config["epochs"] for config in configs}), len(results.runs.seeds), Scale()
    modulus = f"p = {_listed(moduli)}, at" if moduli else "At"
    said = f"{modulus} most {_listed(epochs)} epochs, {_counted(seeds, 'seed')}."
    usual = sorted({config.epochs for config in figure.arms(full).values()})
    if (moduli or [full.p], epochs, seeds) == ([full.p], usual, full.seeds):
        return said
    return f"{said} That is not the paper's scale (p = {full.p}, {full.epochs:,} epochs, {full.seeds} seeds)."


def _listed(numbers: Sequence[int]) -> str:
    return " or ".join(f"{number:,}" for number in numbers)


def differences(results: Results) -> Table:
    """The settings in which the arms of a figure differ, each as in the arm's first run."""
    first: dict[str, dict[str, JSON]] = {}
    for (arm, _), header in results.headers.items():
        first.setdefault(arm, config_of(header))
    names = [name for name in next(iter(first.values())) if len({str(config[name]) for config in first.values()}) > 1]
    rows = [[arm, *(brief(config[name]) for name in names)] for arm, config in first.items()]
    return Table(("arm", *names), rows, wordy=True)


def arm_table(results: Results) -> Table:
    """Each arm in numbers; where unseen accuracy was not recorded, those of test accuracy."""
    runs = results.runs
    reading = UNSEEN if bool(runs.curves[UNSEEN.curve].notnull().any("epoch").all()) else TEST
    memorised, grokked = runs.memorised_epochs(THRESHOLD), runs.grok_epochs(THRESHOLD, curve=reading.curve)
    rows = []
    for name in arm_names(runs):
        curves = curves_of(runs, name).values()
        rows.append(
            [
                name,
                _reached(memorised.loc[name]),
                f"{int(grokked.loc[name].notna().sum())} of {len(curves)}",
                str(median_time(runs.times(name, THRESHOLD, curve=reading.curve))),
                *(across([float(each[last.curve].iloc[-1]) for each in curves], ".1%") for last in (reading, TEST)),
                across(runs.sel(intervention=name).curves["trained"].to_numpy().tolist()),
            ]
        )
    columns = (
        "arm",
        "memorised, median",
        f"grokked, by {reading.accuracy}",
        "median epoch of grokking",
        *(f"last {last.accuracy}" for last in dict.fromkeys((reading, TEST))),
        "epochs trained",
    )
    if reading == TEST:
        rows = [[*row[:4], *row[5:]] for row in rows]
    return Table(columns, rows)


def _reached(epochs: pd.Series) -> str:
    known = epochs.dropna()
    if len(known) < len(epochs):
        return f"{len(known)} of {len(epochs)}"
    return f"{median(map(int, known)):,.0f}"


def _how(results: Sequence[Results]) -> list[Section]:
    headers = _distinct(results)
    seconds = sum(header.seconds for header in headers)
    times = (
        f"{len(headers)} different runs took {seconds / 3600:.2f} hours of training in all, each on one thread; "
        f"two at a time that is {seconds / 7200:.2f} hours on two cores, longer if other programs used them too."
    )
    return [
        Section("How it was made", [times], Table(("setting", "value"), settings(headers), wordy=True)),
    ]


def _distinct(results: Iterable[Results]) -> list[Header]:
    found: dict[str, Header] = {}
    for result in results:
        found |= result.by_id
    return list(found.values())
