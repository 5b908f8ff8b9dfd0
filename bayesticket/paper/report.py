"""Pages about the figures, one each or all in one report, written from results without any training."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

import pandas as pd

from bayesticket.analysis import median_time
from bayesticket.errors import refuse
from bayesticket.figures import Cell, Fold, Notes, Section, Table, write_page
from bayesticket.files import require_directory, require_path
from bayesticket.paper import NAMES
from bayesticket.paper.figure import VERDICTS, PaperFigure, Scale, arm_names, curves_of
from bayesticket.paper.findings import TERMS, findings, mirror_figure
from bayesticket.paper.prediction import HEADING, prediction_sections
from bayesticket.paper.readings import TEST, THRESHOLD, UNSEEN
from bayesticket.paper.results import SHIPPED, Results, names_in
from bayesticket.paper.rules import Rules, shared_rules
from bayesticket.paper.scorecard import MODELS, Judged, judged_in, scorecard_table, tally
from bayesticket.paper.settings import brief, config_of, settings
from bayesticket.paper.unjudged import UNJUDGED, unjudged_table
from bayesticket.paper.words import across
from bayesticket.runs import Header
from bayesticket.specs import JSON


def write_figure_page(figure: PaperFigure, results: Results, path: str | os.PathLike[str]) -> Path:
    """Writes the page of one figure; returns its path."""
    judged = Judged(figure, results, figure.claims(results.runs))
    sections = figure_sections(judged, *shared_rules([judged.claims]))
    return write_page(path, figure.title, [*sections, Section(HOW, [_times([results])], _settings([results]))])


def write_report(directory: str | os.PathLike[str] | None = None, out: str | os.PathLike[str] = "report.html") -> Path:
    """Writes one page about all figures whose results are in a directory; returns its path.

    It opens with the findings and the scorecard; the details of each figure are folded away. Without a directory it is
    about the results at the paper's scale that come with the library.
    """
    page = require_path("out", out, "the path of the page to be written")
    require_directory("out", page.parent)
    place = SHIPPED if directory is None else require_path("results", directory, "a directory with results")
    if not names_in(place):
        made = f"a directory with results, such as {NAMES[0]}.json, which “bayesticket reproduce {NAMES[0]}” writes"
        raise refuse("results", str(place), made)
    judged = judged_in(place)
    results = [each.results for each in judged]
    rules = shared_rules([each.claims for each in judged])
    beyond = [Section("", [BEYOND], unjudged_table())]
    folds = [Fold("Claims that no experiment can judge", _counted(len(UNJUDGED), "claim"), beyond)]
    if general := rules[0].general:
        said = [Section("", [], Notes(general))]
        folds.append(Fold("Rules of several figures", _counted(len(general), "rule"), said))
    folds += [
        Fold(each.figure.title, tally(each.claims), figure_sections(each, of_figure))
        for each, of_figure in zip(judged, rules, strict=True)
    ]
    if predictions := prediction_sections(results):
        folds.append(Fold(HEADING, "grokking or never, and when", predictions))
    folds.append(Fold(HOW, _different(results), [Section("", [_times(results)], _settings(results))]))
    opening = [*_findings(judged), Section("Scorecard", _scored(judged), scorecard_table(judged)), Section("", READING)]
    return write_page(page, "What the paper's figures show when they are run again", [*opening, *folds])


HOW = "How it was made"
BEYOND = "Where the paper says it, and why no run can agree or disagree with it."
SMALL = "Some of these runs are not of the paper's scale, so the findings may differ from those at full scale."
READING = (
    "Below are the details: of each claim what was measured, its rules, and the runs that it rests on.",
    "In square brackets are 95% intervals, with “open” for an end that the runs do not determine. In parentheses, "
    "after a median, are the least and the largest value. A claim by “a control” is not the paper's: it tests one "
    "that is.",
)


def _findings(judged: Sequence[Judged]) -> list[Section]:
    """The findings and their figure, as far as there are results for them."""
    results = {each.figure.name: each.results for each in judged}
    said, drawn = findings(results), mirror_figure(results)
    if not said:
        return []
    shown = [] if drawn is None else [Section("", [drawn[0]], drawn[1])]
    small = [SMALL] if not all(_is_full(each.figure, each.results) for each in judged) else []
    return [Section("Findings", [TERMS, *small], Notes(said)), *shown]


def _scored(judged: Sequence[Judged]) -> list[str]:
    """How many claims of each model have each verdict, of how many runs, and what is missing."""
    by_model = {model: [claim for each in judged if each.model == model for claim in each.claims] for model in MODELS}
    counts = [
        f"{model}, {_counted(len(claims), 'claim')}: {tally(claims)}." for model, claims in by_model.items() if claims
    ]
    results = [each.results for each in judged]
    epochs = sum(header.epoch for header in _distinct(results))
    missing = [name for name in NAMES if name not in {each.figure.name for each in judged}]
    return [
        " ".join(text[0].upper() + text[1:] for text in counts),
        f"They rest on {_different(results)}, {epochs:,} epochs in all. Each verdict follows from rules, and links to "
        "these and to what was measured.",
        *([f"Not run yet: {', '.join(missing)}."] if missing else []),
    ]


def figure_sections(judged: Judged, rules: Rules) -> list[Section]:
    """The sections about one figure: what was run, pictures, claims with verdicts, and every arm in numbers."""
    figure, results = judged.figure, judged.results
    pictures = figure.draw(results.runs)
    return [
        Section("", [figure.description, *figure.notes, _scale(figure, results)]),
        *(Section("", [caption], picture) for caption, picture in pictures.items()),
        Section("", [_where(results)], claim_table(judged, rules)),
        *([Section("", ["Rules of several of these claims:"], Notes(rules.own))] if rules.own else []),
        Section("", ["Every arm in numbers; medians of grokking times are Kaplan and Meier's, with 95% intervals."],
                arm_table(results)),
        Section("", ["What the arms differ in; all else is at the end of the page."], differences(results)),
    ]  # fmt: skip


def claim_table(judged: Judged, rules: Rules) -> Table:
    """The claims of a figure with verdicts, what was measured, the ids of the runs, and rules."""
    rows = []
    for claim in judged.claims:
        ids = judged.results.ids(claim)
        lines = [f"{arm}: {', '.join(each)}" for arm, each in ids.items()]
        measured = Cell(claim.account, summary=_counted(sum(map(len, ids.values())), "run"), folded=lines)
        alone, shared = rules.of(claim)
        rows.append([VERDICTS[claim.verdict], claim.said, claim.by, measured, Cell(alone, notes=shared)])
    columns = ("verdict", "claim", "by", "measured", "rules")
    return Table(columns, rows, wordy=True, named_by=1, anchors=judged.anchors)


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
    moduli, epochs, seeds = _scale_of(results)
    full = Scale()
    modulus = f"p = {_listed(moduli)}, at" if moduli else "At"
    said = f"{modulus} most {_listed(epochs)} epochs, {_counted(seeds, 'seed')}."
    if _is_full(figure, results):
        return said
    return f"{said} That is not the paper's scale (p = {full.p}, {full.epochs:,} epochs, {figure.n_seeds(full)} seeds)."


def _scale_of(results: Results) -> tuple[list[int], list[int], int]:
    """The moduli, if the task has any, the numbers of epochs, and how many seeds."""
    configs: list[dict] = [config_of(header) for header in results.headers.values()]
    moduli = sorted({config["task"]["p"] for config in configs if "p" in config["task"]})
    return moduli, sorted({config["epochs"] for config in configs}), len(results.runs.seeds)


def _is_full(figure: PaperFigure, results: Results) -> bool:
    full = Scale()
    (moduli, epochs, seeds), usual = _scale_of(results), {config.epochs for config in figure.arms(full).values()}
    return (moduli or [full.p], epochs) == ([full.p], sorted(usual)) and seeds >= figure.n_seeds(full)


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


def _times(results: Sequence[Results]) -> str:
    seconds = sum(header.seconds for header in _distinct(results))
    return (
        f"{_different(results)} took {seconds / 3600:.2f} hours of training in all, each on one thread; two at a time "
        f"that is {seconds / 7200:.2f} hours on two cores, and longer beside other programs."
    )


def _different(results: Iterable[Results]) -> str:
    return _counted(len(_distinct(results)), "different run")


def _settings(results: Sequence[Results]) -> Table:
    return Table(("setting", "value"), settings(_distinct(results)), wordy=True)


def _distinct(results: Iterable[Results]) -> list[Header]:
    found: dict[str, Header] = {}
    for result in results:
        found |= result.by_id
    return list(found.values())
