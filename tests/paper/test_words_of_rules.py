"""Every rule of every figure is seen to give each of its words."""

import pytest
from worlds import worlds_of

from bayesticket.paper import MODULES, NAMES, OF_BOTH_MODELS, find_figure
from bayesticket.paper.comparing import MATCHING
from bayesticket.paper.figure import SHARES, Scale, arm_names
from bayesticket.runs.loop import Training
from bayesticket.sweeps import Runs

ALL = {"reproduced", "partly", "not reproduced", "undecided"}
TWO = {"The measured gradient never exceeds the bound (Lemma 5.1)."}
"""What is proven holds or is broken; there is nothing in between."""


def words_of(claim):
    """The verdicts that the rules of a claim can give."""
    if claim.said in TWO:
        return ALL - {"partly"}
    several = SHARES in claim.rules or MATCHING in claim.rules or any("partly" in rule for rule in claim.rules)
    return ALL if several else ALL - {"partly"}


@pytest.mark.parametrize("module", MODULES)
def test_every_rule_gives_each_of_its_words(module):
    figure = find_figure(module)
    judged = [figure.claims(runs) for runs in worlds_of(module)]
    seen = {claim.said: set() for claim in judged[0]}
    for claims in judged:
        assert [claim.said for claim in claims] == list(seen)
        for claim in claims:
            seen[claim.said].add(claim.verdict)
    missing = {claim.said: words_of(claim) - seen[claim.said] for claim in judged[0]}
    assert {said: words for said, words in missing.items() if words} == {}


@pytest.mark.parametrize("name", NAMES)
def test_a_claim_of_the_paper_that_may_fail_says_how_else_it_was_read(name):
    figure = find_figure(name)
    for claim in figure.claims(worlds_of(name.removesuffix("-standard"))[0]):
        assert claim.readings or claim.said in TWO, claim.said
        for reading in claim.readings:
            assert reading in claim.account


@pytest.mark.parametrize("module", MODULES)
def test_what_holds_in_the_first_world_holds_by_every_rule_but_those_that_exclude_each_other(module):
    claims = find_figure(module).claims(worlds_of(module)[0])
    failed = [claim.said for claim in claims if claim.verdict != "reproduced"]
    assert failed == EXCLUDED.get(module, [])


def recorded_by(config):
    """The curves that a run of this configuration records."""
    return set(Training(config).observed())


@pytest.mark.parametrize("module", OF_BOTH_MODELS)
def test_a_figure_reads_no_curve_that_its_runs_do_not_record(module):
    """Arms that need the results of others record no less than those without a measure of their own."""
    figure, runs = find_figure(module), worlds_of(module)[0]
    tiny = Scale(seeds=1, epochs=4, p=5, record_every=2)
    records = {arm: recorded_by(config) for arm, config in figure.arms(tiny).items()}
    curves = runs.curves
    for arm in arm_names(runs):
        unknown = [name for name in curves.data_vars if arm in records and name not in records[arm]]
        curves = curves.assign({name: curves[name].where(curves["intervention"] != arm) for name in unknown})
    kept = Runs(curves.drop_vars([name for name in curves if curves[name].isnull().all()]))
    said = [[(each.said, each.verdict, each.account) for each in figure.claims(given)] for given in (runs, kept)]
    assert said[0] == said[1]


EXCLUDED: dict[str, list[str]] = {
    "decay": ["The plateau lasts at least (2/λ) log(‖θ_mem‖/r_max) (Eq. 5)."],
    "fig2": [],
}
"""Claims that others of their figure exclude: a norm that decays at the full rate waits half as long as Eq. 5 says."""
