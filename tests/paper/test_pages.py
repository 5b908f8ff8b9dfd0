"""Pages say what the runs show in sentences that hold of any number of them, and lead from a verdict to its runs."""

import json
import re
from html import unescape
from pathlib import Path

import pytest
from markupsafe import escape
from stories import arms_of, runs_of, story
from worlds import every_arm, worlds_of

import bayesticket as bt
from bayesticket.paper import MODULES, NAMES, OF_BOTH_MODELS, find_figure, report
from bayesticket.paper.figure import SHARES, SMOKE, VERDICTS, Claim, Scale
from bayesticket.paper.readings import AT_BOTH, BY_UNSEEN
from bayesticket.paper.report import claim_table, write_figure_page, write_report
from bayesticket.paper.results import SHIPPED, Results, names_in, read_results, training_command, write_results
from bayesticket.paper.rules import shared_rules
from bayesticket.paper.scorecard import Judged
from bayesticket.runs import Header, describe_config
from bayesticket.specs import spec_id

PINNED = Path(__file__).with_name("verdicts.json")
"""The verdict on every claim, from the results that come with the library; this file run as a script writes it."""
README = Path(__file__).parents[2] / "README.md"
"""It counts these verdicts in a table, which the script writes too."""
TABLE = re.compile(r"^\| what is asked (.*\n\|)*.*\n", re.MULTILINE)
KEPT = names_in(SHIPPED)
FIRST = KEPT[0]
"""The first figure whose results come with the library."""


def verdicts_by_claim(claims):
    return {claim.said: claim.verdict for claim in claims}


@pytest.fixture(scope="module")
def shipped():
    return {name: read_results(SHIPPED, name) for name in KEPT}


@pytest.mark.parametrize("name", KEPT)
def test_the_verdict_of_every_claim_is_pinned_and_its_runs_are_named(name, shipped):
    results = shipped[name]
    claims = find_figure(name).claims(results.runs)
    assert verdicts_by_claim(claims) == json.loads(PINNED.read_text(encoding="utf-8"))[name]
    for claim in claims:
        assert claim.arms
        assert results.ids(claim) == {
            arm: [results.headers[arm, seed].id for seed in results.runs.seeds] for arm in claim.arms
        }, "one id for each seed, by arm"
    assert not any(STILTED.search(claim.measured) for claim in claims)


def verdict_table(pinned):
    """How many claims of each figure have which verdict, in both models, as the README has it."""
    lines = ["| what is asked | minimal model | standard layer |", "|---|---|---|"]
    for module in MODULES:
        both = f"{module}-standard" if module in OF_BOTH_MODELS else None
        cells = " | ".join("–" if name is None else counted(pinned.get(name)) for name in (module, both))
        lines.append(f"| [{find_figure(module).title}](docs/paper/{module}.md) | {cells} |")
    return "\n".join(lines) + "\n"


def counted(verdicts):
    if verdicts is None:
        return "not run yet"
    given = list(verdicts.values())
    return " ".join(f"{text[0]} {given.count(verdict)}" for verdict, text in VERDICTS.items() if verdict in given)


def test_the_readme_counts_these_verdicts():
    table = verdict_table(json.loads(PINNED.read_text(encoding="utf-8")))
    assert table in README.read_text(encoding="utf-8"), "run: python tests/paper/test_pages.py"


# In words ---------------------------------------------------------------------------------------------------------

STILTED = re.compile(r"of 0 |\bin no run|\bnone[.;,]|\bno epoch|\bis none|\bnan\b|\b1 (runs|seeds)|all [01] |  |\.\.")
"""What a count of nothing, or of one, would look like if it were put into a sentence as it is."""
LIVES = {
    "nothing happens": {"memorised": None},
    "memorised at the end": {"memorised": 10_000},
    "memorised": {},
    "grokked": {"grokked": 4000},
    "condensed and grokked": {"grokked": 4000, "kl_to_oracle": lambda epochs: 1.0 * (epochs < 1000)},
}


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize(
    ("lives", "n_seeds"),
    [((life,), 1) for life in LIVES]
    + [(("condensed and grokked",), 2)]
    + [(("nothing happens", "condensed and grokked"), n_seeds) for n_seeds in (2, 3)],
    ids=str,
)
def test_what_was_measured_reads_well_of_any_number_of_runs(name, n_seeds, lives):
    figure = find_figure(name)
    tables = [story(**LIVES[lives[seed % len(lives)]]) for seed in range(n_seeds)]
    for claim in figure.judge(runs_of(dict.fromkeys(every_arm(figure), tables))):
        assert not STILTED.search(claim.account), claim.account
        for line in claim.account.splitlines():
            assert line.endswith(".")
            assert line == line.strip()
        assert all(rule.endswith(".") for rule in claim.rules)


def test_texts_are_not_taken_for_lists_of_letters():
    with pytest.raises(bt.BayesticketError, match=r"^rules: got 'Few do\.'; accepted: a tuple of texts"):
        Claim("A.", "Few do.", "None.", "undecided")
    with pytest.raises(bt.BayesticketError, match=r"^arms: got 'kl'; accepted: a tuple"):
        Claim("A.", ("Few do.",), "None.", "undecided", arms="kl")


# On the page ------------------------------------------------------------------------------------------------------


def test_a_rule_of_several_claims_is_numbered_and_others_stand_in_their_row():
    claims = [find_figure(name).claims(worlds_of(name)[0]) for name in ("fig1", "fig4", "fig5")]
    rules = shared_rules(claims)
    assert set(rules[0].general.values()) == {SHARES, BY_UNSEEN}
    assert AT_BOTH in rules[1].own.values()
    numbers = [*rules[0].general, *(name for each in rules for name in each.own)]
    assert numbers == [f"Rule {n}" for n in range(1, len(numbers) + 1)]
    for judged, of_figure in zip(claims, rules, strict=True):
        for claim in judged:
            alone, names = of_figure.of(claim)
            said = [alone, *({**of_figure.general, **of_figure.own}[name] for name in names)]
            assert sorted(" ".join(said).split()) == sorted(" ".join(claim.rules).split()), "nothing is lost"


def test_a_report_comes_from_the_library_alone_and_names_what_has_not_been_run(library_report):
    written, printed = library_report
    assert printed.strip() == str(written)
    page = written.read_text(encoding="utf-8")
    assert "Their weights are not among the results that this page was made from." in page
    missing = [name for name in NAMES if name not in KEPT]
    assert f"Not run yet: {', '.join(missing)}." in page
    results = read_results(SHIPPED, FIRST)
    arm, ids = next(iter(results.ids(Claim("", (), "", "undecided")).items()))
    assert f"{arm}: {', '.join(ids)}" in page
    assert set(re.findall(r'<a href="#(rule-\d+)">', page)) == set(re.findall(r'<div id="(rule-\d+)">', page))
    assert "not the paper's scale" not in unescape(page), "results that come with the library are of that scale"


def test_rules_are_said_once_on_a_page(tmp_path):
    figure, runs = find_figure("fig1"), worlds_of("fig1")[0]
    page = write_figure_page(figure, Results(runs, headers_at("fig1", Scale())), tmp_path / "page.html")
    text = page.read_text(encoding="utf-8")
    assert text.count(escape(SHARES)) == 1
    assert escape("without a residual path") in text
    assert f"Read otherwise: {escape(next(iter(figure.claims(runs)[0].readings)))}" in text


def test_the_verdict_stands_first_in_its_row(shipped):
    figure, results = find_figure("fig5-standard"), shipped["fig5-standard"]
    claims = figure.claims(results.runs)
    table = claim_table(Judged(figure, results, claims), *shared_rules([claims]))
    assert table.columns[0] == "verdict"
    assert [row[0] for row in table.rows] == [VERDICTS[claim.verdict] for claim in claims]


def test_a_directory_without_results_is_refused_in_one_line(tmp_path):
    with pytest.raises(
        bt.BayesticketError, match=r"results: .*accepted: .* which “bayesticket reproduce fig1” writes$"
    ):
        write_report(tmp_path, tmp_path / "report.html")


# From a verdict to its runs ---------------------------------------------------------------------------------------


def headers_at(name, scale):
    return {
        key: Header(describe_config(config)[0], "finished", config.epochs, 1.0, {})
        for key, config in find_figure(name).configs(scale).items()
    }


@pytest.mark.parametrize(
    ("scale", "options"),
    [
        (Scale(), ""),
        (Scale(seeds=2, epochs=50), " --seeds 2 --epochs 50"),
        (SMOKE, " --smoke"),
        (Scale(seeds=3, epochs=60, p=7, record_every=10), " --smoke --seeds 3"),
    ],
)
def test_the_command_that_trains_results_again_is_named(scale, options):
    headers = headers_at("fig1", scale)
    assert training_command("fig1", headers) == f"bayesticket reproduce fig1{options} --store runs"
    assert {header.id for header in headers.values()} == {
        spec_id(config) for config in find_figure("fig1").configs(scale).values()
    }


def test_the_command_is_found_where_arms_are_trained_for_different_times():
    assert training_command("decay", headers_at("decay", Scale())) == "bayesticket reproduce decay --store runs"


def test_no_command_is_named_where_none_trains_these_very_runs():
    assert training_command("fig1", headers_at("fig1", Scale(p=11))) == ""
    assert training_command("fig1", headers_at("fig1", Scale(record_every=10))) == ""
    assert training_command("mine", headers_at("fig1", Scale())) == ""


def test_runs_of_results_have_no_weights_and_say_how_to_get_them(tmp_path):
    runs, headers = worlds_of("fig1")[0], headers_at("fig1", Scale())
    write_results(Results(runs, headers), tmp_path, "fig1")
    read = read_results(tmp_path, "fig1").runs
    own = headers["constant distractors", 0].id
    for some in (read, read.sel(seed=[0, 1])):
        with pytest.raises(bt.BayesticketError) as caught:
            some.run("constant distractors", 0)
        assert str(caught.value) == (
            "run: got runs that were read from results, which hold curves but no weights; accepted: runs loaded from a "
            f"store; “bayesticket reproduce fig1 --store runs” trains them, this one into runs/{own}"
        )


def test_an_arm_that_was_not_run_is_refused(shipped):
    with pytest.raises(
        bt.BayesticketError, match=r"^arms: got 'random'; accepted: 'no prior, random distractors', 'KL"
    ):
        shipped["fig5-standard"].ids(Claim("", (), "", "undecided", arms=("random",)))


def test_a_page_of_runs_in_a_store_says_where_they_are(tmp_path):
    runs = arms_of(dict.fromkeys(find_figure("fig1").arms(Scale()), 4000))
    place = (runs.curves["directory"].dims, [[f"/store/{arm}-{seed}" for seed in range(5)] for arm in range(2)])
    stored = bt.Runs(runs.curves.assign_coords(directory=place))
    results = Results(stored, headers_at("fig1", Scale()))
    page = write_figure_page(find_figure("fig1"), results, tmp_path / "page.html")
    assert "Each is in /store, in a directory of this name, with its weights." in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("out", ["~no user of this name/x.html", "a\0b", "x" * 300 + ".html", ""])
def test_where_a_report_cannot_be_written_is_said_before_anything_is_read(out, monkeypatch):
    monkeypatch.setattr(report, "judged_in", lambda *given: pytest.fail("results were read"))
    with pytest.raises(bt.BayesticketError, match=r"^out: got "):
        report.write_report(out=out)


if __name__ == "__main__":
    pinned = {name: verdicts_by_claim(find_figure(name).claims(read_results(SHIPPED, name).runs)) for name in KEPT}
    table = TABLE.sub(lambda _: verdict_table(pinned), README.read_text(encoding="utf-8"), count=1)
    README.write_text(table, encoding="utf-8")
    PINNED.write_text(json.dumps(pinned, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
