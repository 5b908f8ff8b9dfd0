"""The scorecard has every claim once, under what it is about, with its verdict in either model."""

import re

import pytest
from worlds import results_of, worlds_of

from bayesticket.paper import MODULES, NAMES, OF_BOTH_MODELS, find_figure
from bayesticket.paper.figure import VERDICTS
from bayesticket.paper.scorecard import MODELS, STATEMENTS, Judged, scorecard, scorecard_table, tally
from bayesticket.paper.unjudged import UNJUDGED, unjudged_table

ABOUT = {
    "Theorem 4.3": {"conditions": 5},
    "Lemma 5.1": {"fig5": 2, "fig10": 1, "autoregressive": 1},
    "Section 5.1": {"fig1": 10, "decay": 3},
    "Theorem 5.2": {"fig3": 8},
    "Props. B.1 and B.2": {"decay": 2, "fig11": 1},
    "Conjecture E.1": {"fig1": 2, "decay": 1},
    "Conjecture E.2": {"fig9": 2},
    "Figure 1": {"fig1": 6},
    "Figure 2": {"fig2": 7},
    "Figure 3": {"fig3": 4},
    "Controls to Figure 3": {"controls": 3},
    "Figure 4": {"fig4": 14},
    "Figure 5": {"fig5": 1},
    "Figure 6": {"fig6": 12},
    "Figure 7": {"fig7": 10},
    "Figure 8": {"fig8": 4},
    "Figure 9": {"fig9": 3},
    "Figure 10": {"fig10": 3},
    "Figure 11": {"fig11": 4},
    "Autoregressive grokking": {"autoregressive": 4},
    "Structure without an oracle": {"practical": 7},
    "Equation 9": {"equation9": 4},
    "Specification curve": {"specification": 6},
    "Early signs": {"early": 7},
}
"""How many claims of which figure each group has."""


def judged(name, world=0):
    figure, runs = find_figure(name), worlds_of(name.removesuffix("-standard"))[world]
    return Judged(figure, results_of(runs), figure.claims(runs))


@pytest.fixture(scope="module")
def all_judged():
    return [judged(name) for name in NAMES]


def test_every_claim_stands_once_under_what_it_is_about(all_judged):
    found = scorecard(all_judged)
    groups = {heading.partition(":")[0]: rows for heading, rows in found.items()}
    assert list(groups) == list(ABOUT), "statements first, in the order of the paper, then figures"
    assert {about: len(rows) for about, rows in groups.items()} == {
        about: sum(n.values()) for about, n in ABOUT.items()
    }
    for each in all_judged:
        for claim in each.claims:
            about = claim.about.partition(":")[0]
            assert each.figure.name.removesuffix("-standard") in ABOUT[about], claim.said
            assert (claim.about in STATEMENTS) == (claim.about != each.figure.subject)
    for rows in found.values():
        for row in rows:
            models = MODELS if row.module in OF_BOTH_MODELS else MODELS[:1]
            assert list(row.claims) == list(models), "both models side by side"
            assert len({claim.said for claim, _ in row.claims.values()}) == 1


def test_a_row_has_the_verdicts_of_either_model_and_links_to_both_details():
    table = scorecard_table([judged("controls"), judged("controls-standard", 1)])
    assert table.headings == {0: "Controls to Figure 3: is it the structure?"}
    said, minimal, standard = table.rows[0]
    assert said.startswith("It is the structure that ends the plateau")
    assert said.endswith("(a control)")
    assert (minimal.text, minimal.link) == (VERDICTS["reproduced"], "controls-claim-1")
    assert (standard.text, standard.link) == (VERDICTS["not reproduced"], "controls-standard-claim-1")
    alone = scorecard_table([judged("controls-standard")])
    assert {row[1] for row in alone.rows} == {"not run"}


def test_a_claim_that_stands_for_all_of_a_figure_has_its_row():
    """Where a run diverged the figure has one claim."""
    runs = worlds_of("fig1")[0]
    failed = type(runs)(runs.curves.assign_coords(status=runs.curves["status"].where(False, "failed")))
    figure = find_figure("fig1")
    found = scorecard([Judged(figure, results_of(failed), figure.claims(failed)), judged("fig1-standard")])
    (first, *others) = found["Figure 1: the dynamics without any intervention"]
    assert first.text == "All that is claimed in fig1."
    assert list(first.claims) == ["minimal model"]
    assert first.unjudged == {"standard layer": "–"}
    assert [other.unjudged for other in others] == [{"minimal model": "–"}] * len(others)


def test_a_claim_that_needs_a_curve_which_was_not_recorded_is_told_from_one_that_was_not_run():
    whole = judged("fig5")
    curves = whole.results.runs.curves.drop_vars(["explaining_away[paper]", "explaining_away[scaled]"])
    figure, runs = find_figure("fig5-standard"), type(whole.results.runs)(curves)
    older = Judged(figure, results_of(runs), figure.claims(runs))
    assert len(older.claims) == len(whole.claims) - 1
    written = {row[0]: row[2] for row in scorecard_table([whole, older]).rows}
    (said,) = (text for text, verdict in written.items() if isinstance(verdict, str))
    assert said.startswith("The bound as the paper states it")
    assert written[said] == "its results lack a curve that this needs"
    assert {row[2] for row in scorecard_table([whole]).rows} == {"not run"}


def test_verdicts_are_counted_by_sign_and_word():
    claims = judged("fig2", 2).claims
    counted = tally(claims)
    assert sum(map(int, re.findall(r"\d+", counted))) == len(claims)
    assert re.fullmatch(r"([✔◐✘?] \d+ [a-z ]+(, |$))+", counted)


# What cannot be judged --------------------------------------------------------------------------------------------

PLACE = re.compile(r"(Abstract|Assumption|Theorem|Sections?|App\.|Def\.|Eqs?\.|Lemma|Conjecture|Figures?) ?")


def test_what_no_experiment_can_judge_says_where_it_stands_and_why_in_a_sentence():
    assert len({each.said for each in UNJUDGED}) == len(UNJUDGED) >= 15
    for each in UNJUDGED:
        assert PLACE.match(each.where), each.where
        assert each.said[0].isupper()
        assert each.said.endswith(".")
        assert each.reason.endswith(".")
        assert not re.search(r"[.;] [A-Z]", re.sub(r"\b(App|Props|Eqs?)\. ", "", each.reason)), "one sentence"
        assert len(each.reason.split()) <= 35
    assert [row[0] for row in unjudged_table().rows] == [each.said for each in UNJUDGED]


@pytest.mark.parametrize(
    "subject", ["Assumption C.1", "C.1.1", "Eqs. 47", "Lemma D.1", "E.2", "E.1", "Def. 4.2", "A.3"]
)
def test_the_known_gaps_of_the_paper_are_listed(subject):
    assert any(subject in each.where for each in UNJUDGED)


def test_what_is_judged_is_not_said_to_be_beyond_judging(all_judged):
    assert not {claim.said for each in all_judged for claim in each.claims} & {each.said for each in UNJUDGED}
    assert {name.removesuffix("-standard") for name in NAMES} == set(MODULES)
