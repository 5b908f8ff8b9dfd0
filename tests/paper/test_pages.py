"""Pages say what the runs show in sentences that hold of any number of them, and lead from a verdict to its runs."""

import re

import pytest
from markupsafe import escape
from stories import arms_of, runs_of, story

import bayesticket as bt
from bayesticket.cli.main import main
from bayesticket.paper import NAMES, fig2, fig4, find_figure, report
from bayesticket.paper.figure import AT_BOTH, SHARES, SMOKE, Claim, Scale
from bayesticket.paper.report import VERDICTS, claim_table, write_figure_page, write_report
from bayesticket.paper.results import SHIPPED, Results, read_results, training_command
from bayesticket.paper.rules import shared_rules
from bayesticket.runs import Header, describe_config
from bayesticket.specs import spec_id

VERDICT_OF = {
    "fig1": {
        "Attention condenses before test accuracy rises (random distractors).": "undecided",
        "Test accuracy stays near chance until the divergence is small (random distractors).": "undecided",
        "The attention's gradient spikes while memorising, then collapses (random distractors).": "reproduced",
        "Before grokking the gradient rises again and attention moves to the oracle, phase 3 (random distractors).":
            "undecided",
        "Attention condenses before test accuracy rises (constant distractors).": "reproduced",
        "Test accuracy stays near chance until the divergence is small (constant distractors).": "not reproduced",
        "The attention's gradient spikes while memorising, then collapses (constant distractors).": "reproduced",
        "Before grokking the gradient rises again and attention moves to the oracle, phase 3 (constant distractors).":
            "not reproduced",
    },
    "fig2": {
        "Under norm control, attention forced onto the distractors stays at chance.": "reproduced",
        "The oracle without norm control improves, but does not generalise fully.": "reproduced",
        "Norm control and the oracle together generalise perfectly.": "partly",
        "Without norm control nothing generalises perfectly.": "reproduced",
        "Norm control alone, without a prior toward the oracle, does not generalise perfectly.": "partly",
        "The oracle does not act through the norms of W_Q and W_K: with these held small, it generalises too.":
            "undecided",
    },
    "fig3": {
        "A stronger prior groks earlier (random distractors).": "reproduced",
        "The grokking time is linear in 1/strength, down to a floor (random distractors).": "undecided",
        "A stronger prior groks earlier (constant distractors).": "reproduced",
        "The grokking time is linear in 1/strength, down to a floor (constant distractors).": "not reproduced",
    },
    "controls": {
        "It is the structure that ends the plateau, not any live gradient.": "reproduced",
        "Where attention points decides, and no gradient is needed: frozen at the oracle it groks, frozen uniform not.":
            "reproduced",
        "The prior acts by its structure and not through Adam's scaling: it does under SGD too.": "reproduced",
    },
    "fig4": {
        "The Bayesian ticket matches or outperforms the lottery ticket on fresh weights.": "reproduced",
        "It matches or outperforms the lottery ticket on the weights it was found with.": "reproduced",
        "The ticket is dominated by its routing half.": "undecided",
        "On fresh weights the lottery ticket groks earlier than the dense model.": "undecided",
        "The lottery ticket is more than sparsity: it groks earlier than a random mask.": "undecided",
        "The lottery ticket is more than a smaller norm: it groks earlier than dense weights of its norm.": "undecided",
        "Sparsity alone helps: a random mask groks earlier than the dense model.": "undecided",
        "A smaller norm alone helps: dense weights of that norm grok earlier than the dense model.": "undecided",
        "The Bayesian ticket groks earlier than the dense model.": "reproduced",
    },
    "fig5": {
        "The measured gradient never exceeds the bound (Lemma 5.1).": "reproduced",
        "The gradient is far below the bound, most of all after memorising.": "reproduced",
    },
}  # fmt: skip
"""The verdict on every claim, from the results that come with the library."""


@pytest.fixture(scope="module")
def shipped():
    return {name: read_results(SHIPPED, name) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_the_verdict_of_every_claim_is_pinned_and_its_runs_are_named(name, shipped):
    results = shipped[name]
    claims = find_figure(name).claims(results.runs)
    assert {claim.said: claim.verdict for claim in claims} == VERDICT_OF[name]
    for claim in claims:
        assert claim.arms
        assert results.ids(claim) == {
            arm: [results.headers[arm, seed].id for seed in range(5)] for arm in claim.arms
        }, "one id for each seed, by arm"
    assert not any(STILTED.search(claim.measured) for claim in claims)


# In words ---------------------------------------------------------------------------------------------------------

STILTED = re.compile(r"of 0 |\bin no run|\bnone[.;,]|\bno epoch|\bis none|\bnan\b|\b1 (runs|seeds)|all [01] |  |\.\.")
"""What a count of nothing, or of one, would look like if it were put into a sentence as it is."""
BOUNDS = {f"explaining_away[{form}]": 1.0 for form in ("measured", "local", "global", "loose", "paper")}
BOUNDS |= {f"explaining_away[{link}]": 1.0 for link in ("measured/local", "local/global", "global/loose")}
LATER = (
    *(fig2.name_of("norm matching", prior) for prior in fig2.PRIORS),
    fig2.name_of(fig2.QK, "oracle"),
    *(fig4.LOTTERY, fig4.TRANSFER, fig4.BAYES, fig4.ROUTING, fig4.REPRESENTATION, fig4.RANDOM, fig4.NORM),
)
"""The arms of figures 2 and 4 that are configured once others are trained."""
LIVES = {
    "nothing happens": {"memorised": None},
    "memorised at the end": {"memorised": 10_000},
    "memorised": {},
    "grokked": {"grokked": 4000},
    "condensed and grokked": {"grokked": 4000, "kl_to_oracle": lambda epochs: 1.0 * (epochs < 1000)},
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("lives", "n_seeds"),
    [((life,), 1) for life in LIVES]
    + [(("condensed and grokked",), 2)]
    + [(("nothing happens", "condensed and grokked"), n_seeds) for n_seeds in (2, 3)],
    ids=str,
)
def test_what_was_measured_reads_well_of_any_number_of_runs(name, n_seeds, lives):
    figure = find_figure(name)
    arms = (*figure.arms(Scale()), *LATER)
    tables = [story(**LIVES[lives[seed % len(lives)]], **BOUNDS) for seed in range(n_seeds)]
    for claim in figure.claims(runs_of(dict.fromkeys(arms, tables))):
        assert not STILTED.search(claim.measured), claim.measured
        for line in claim.measured.splitlines():
            assert line.endswith(".")
            assert line == line.strip()
        assert all(rule.endswith(".") for rule in claim.rules)


def test_texts_are_not_taken_for_lists_of_letters():
    with pytest.raises(bt.BayesticketError, match=r"^rules: got 'Few do\.'; accepted: a tuple of texts"):
        Claim("A.", "Few do.", "None.", "undecided")
    with pytest.raises(bt.BayesticketError, match=r"^arms: got 'kl'; accepted: a tuple"):
        Claim("A.", ("Few do.",), "None.", "undecided", arms="kl")


# On the page ------------------------------------------------------------------------------------------------------


def test_a_rule_of_several_claims_is_numbered_and_others_stand_in_their_row(shipped):
    claims = [find_figure(name).claims(shipped[name].runs) for name in ("fig1", "fig2", "fig4")]
    rules = shared_rules(claims)
    assert set(rules[0].general.values()) == {SHARES}
    assert AT_BOTH in rules[2].own.values()
    numbers = [*rules[0].general, *(name for each in rules for name in each.own)]
    assert numbers == [f"Rule {n}" for n in range(1, len(numbers) + 1)]
    for judged, of_figure in zip(claims, rules, strict=True):
        for claim in judged:
            alone, names = of_figure.of(claim)
            said = [alone, *({**of_figure.general, **of_figure.own}[name] for name in names)]
            assert sorted(" ".join(said).split()) == sorted(" ".join(claim.rules).split()), "nothing is lost"


def test_a_report_comes_from_the_library_alone_and_leads_to_the_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report, "NAMES", ("fig1",))
    assert main(["report"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Their weights are not among the results that this page was made from." in page
    assert "“bayesticket reproduce fig1 --store runs” trains these runs" in page
    ids = ", ".join(read_results(SHIPPED, "fig1").ids(Claim("", (), "", "undecided"))["constant distractors"])
    assert f"<details><summary>5 runs</summary>constant distractors: {ids}</details>" in page
    links = set(re.findall(r'href="#([^"]+)"', page))
    assert links == set(re.findall(r'<div id="(rule-\d+)">', page))
    assert len(links) == 5
    assert page.count(escape(SHARES)) == 1


def test_the_verdict_stands_first_in_its_row(shipped):
    claims = find_figure("fig5").claims(shipped["fig5"].runs)
    table = claim_table(shipped["fig5"], claims, *shared_rules([claims]))
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


def test_no_command_is_named_where_none_trains_these_very_runs():
    assert training_command("fig1", headers_at("fig1", Scale(p=11))) == ""
    assert training_command("fig1", headers_at("fig1", Scale(record_every=10))) == ""
    assert training_command("mine", headers_at("fig1", Scale())) == ""


def test_shipped_runs_have_no_weights_and_say_how_to_get_them(shipped):
    for runs in (shipped["fig1"].runs, shipped["fig1"].runs.sel(seed=[0, 1])):
        with pytest.raises(bt.BayesticketError) as caught:
            runs.run("constant distractors", 0)
        assert str(caught.value) == (
            "run: got runs that were read from results, which hold curves but no weights; accepted: runs loaded from a "
            "store; “bayesticket reproduce fig1 --store runs” trains them, this one into runs/69771b9db213"
        )


def test_an_arm_that_was_not_run_is_refused(shipped):
    with pytest.raises(bt.BayesticketError, match=r"^arms: got 'random'; accepted: 'random distractors', 'constant"):
        shipped["fig1"].ids(Claim("", (), "", "undecided", arms=("random",)))


def test_a_page_of_runs_in_a_store_says_where_they_are(tmp_path):
    runs = arms_of(dict.fromkeys(find_figure("fig1").arms(Scale()), 4000))
    place = (runs.curves["directory"].dims, [[f"/store/{arm}-{seed}" for seed in range(5)] for arm in range(2)])
    stored = bt.Runs(runs.curves.assign_coords(directory=place))
    results = Results(stored, headers_at("fig1", Scale()))
    page = write_figure_page(find_figure("fig1"), results, tmp_path / "page.html")
    assert "Each is in /store, in a directory of this name, with its weights." in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("out", ["~no user of this name/x.html", "a\0b", "x" * 300 + ".html", ""])
def test_where_a_report_cannot_be_written_is_said_before_anything_is_read(out, monkeypatch):
    monkeypatch.setattr(report, "read_results", lambda *given: pytest.fail("results were read"))
    with pytest.raises(bt.BayesticketError, match=r"^out: got "):
        report.write_report(out=out)
