"""The report opens with findings and scorecard; what is folded is found by links, on phones and on paper."""

import re
from html import unescape

import pytest
from browser import look_at, needs_browser, require_sound
from worlds import results_of, worlds_of

from bayesticket.paper import find_figure
from bayesticket.paper.figure import VERDICTS
from bayesticket.paper.findings import findings
from bayesticket.paper.report import write_report
from bayesticket.paper.results import read_results, write_results
from bayesticket.paper.scorecard import tally
from bayesticket.paper.unjudged import UNJUDGED

RUN = {"fig1": 0, "fig1-standard": 2, "controls": 0, "controls-standard": 1}
"""Figures, and which of its made-up worlds each is in."""
N_FIGURES = 1 + 2 * 1 + 2 * 4
"""That of the findings, and those of the figures."""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    directory = tmp_path_factory.mktemp("results")
    for name, world in RUN.items():
        write_results(results_of(worlds_of(name.removesuffix("-standard"))[world]), directory, name)
    return directory


@pytest.fixture(scope="module")
def page(place):
    return write_report(place, place / "report.html")


@pytest.fixture(scope="module")
def text(page):
    return unescape(re.sub(r"<script.*?</script>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL))


@pytest.fixture(scope="module")
def claims(place):
    """The claims of each figure."""
    return {name: find_figure(name).claims(read_results(place, name).runs) for name in RUN}


def test_the_report_opens_with_findings_then_has_the_scorecard_and_then_what_is_folded(text, place):
    said = findings({name: read_results(place, name) for name in RUN})
    parts = ("<h2>Findings</h2>", *said.values(), "<h2>Scorecard</h2>", '<details class="fold">')
    places = [text.index(part) for part in parts]
    assert len(said) == 3
    assert places == sorted(places)
    figures = [each.start() for each in re.finditer('class="plotly-graph-div"', text)]
    assert [figure < text.index("<h2>Scorecard</h2>") for figure in figures] == [True] + [False] * (N_FIGURES - 1)


def test_findings_explain_their_words_once_and_say_where_runs_are_fewer_than_the_papers(text, tmp_path):
    small = "Some of these runs are not of the paper's scale"
    assert text.count("those (a, b) whose mirror image (b, a) is not in training either") == 1
    assert small not in text
    write_results(results_of(worlds_of("controls")[0].sel(seed=[0, 1])), tmp_path, "controls")
    assert small in unescape(write_report(tmp_path, tmp_path / "report.html").read_text(encoding="utf-8"))


def test_verdicts_of_the_scorecard_lead_to_the_details_of_their_claims(text, claims):
    scorecard, details = text.split("<h2>Scorecard</h2>")[1].split("</table>", 1)
    for name in RUN:
        for number, claim in enumerate(claims[name], 1):
            anchor = f"{name}-claim-{number}"
            assert f'<a href="#{anchor}">{VERDICTS[claim.verdict]}</a>' in scorecard
            row = re.search(rf'<tr id="{anchor}".*?</tr>', details, flags=re.DOTALL)
            assert row, anchor
            assert claim.said in row[0]
            assert f">{VERDICTS[claim.verdict]}</td>" in row[0]
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(ids)


def test_what_is_folded_says_what_it_is_and_how_many_claims_have_which_verdict(text, claims):
    folds = dict(re.findall(r'<details class="fold"><summary><h2>(.*?)</h2> <span>(.*?)</span>', text))
    assert {find_figure(name).title: tally(claims[name]) for name in RUN}.items() <= folds.items()
    assert next(iter(folds)) == "Claims that no experiment can judge"
    assert all(each.reason in text for each in UNJUDGED)
    assert {"Rules of several figures", "How it was made"} < set(folds)


# In a browser -----------------------------------------------------------------------------------------------------

SIZES = """
for (const each of document.querySelectorAll("details")) each.open = true;
const measured = () => [...document.querySelectorAll(".plotly-graph-div")].map((plot) => {
  const drawn = plot.querySelector(".main-svg").getBoundingClientRect();
  return [plot.clientWidth, plot.clientHeight, Math.round(drawn.width), Math.round(drawn.height)];
});
const fits = ([width, height, ...drawn]) => Math.abs(width - drawn[0]) <= 1 && Math.abs(height - drawn[1]) <= 1;
const pause = (time) => new Promise((done) => setTimeout(done, time));
await pause(1500);
for (let waited = 0; waited < 5000 && !measured().every(fits); waited += 250) await pause(250);
const boxes = measured();
return { boxes, page: document.documentElement.scrollWidth };
"""
NOT_LAID_OUT = "<head><style>details:not([open]) > :not(summary) { display: none }</style>"
"""As in browsers that do not lay out what is folded away."""


@needs_browser
@pytest.mark.parametrize("head", ["<head>", NOT_LAID_OUT], ids=["laid out", "not laid out"])
@pytest.mark.parametrize("width", [1200, 400])
def test_figures_that_were_folded_away_fit_the_page_when_they_are_opened(page, width, head):
    other = page.with_name("other.html")
    other.write_text(page.read_text(encoding="utf-8").replace("<head>", head, 1), encoding="utf-8")
    shown = look_at(other, SIZES, width=width, name="folds")
    require_sound(shown, width)
    assert shown["figures"] == N_FIGURES == len(shown["seen"]["boxes"])
    for box in shown["seen"]["boxes"]:
        assert box[:2] == pytest.approx(box[2:], abs=1)
        assert box[0] > 0.75 * width
    assert shown["seen"]["page"] <= width


FOLLOW = """
const link = document.querySelector('a[href="#controls-standard-claim-2"]');
const [target, other] = ["controls-standard-claim-2", "fig1-claim-1"].map((id) => document.getElementById(id));
const shown = () => { const { top } = target.getBoundingClientRect(); return top >= 0 && top < innerHeight; };
const open = (element) => element.closest("details").open;
const before = [open(target), open(other)];
location.hash = link.getAttribute("href");
await new Promise((done) => setTimeout(done, 800));
const first = [open(target), open(other), shown()];
target.closest("details").open = false;
link.addEventListener("click", (event) => event.preventDefault()); // a frame would go to the page around it
link.click();
await new Promise((done) => setTimeout(done, 800));
const again = [open(target), shown()];
target.closest("details").open = false;
window.dispatchEvent(new HashChangeEvent("hashchange"));
const elsewhere = open(target);
const summary = document.querySelector(".fold > summary");
summary.focus();
return { before, first, again, elsewhere, reached: document.activeElement === summary };
"""


@needs_browser
def test_a_link_opens_what_its_target_is_folded_into(page):
    seen = look_at(page, FOLLOW, width=400)["seen"]
    assert seen["before"] == [False, False]
    assert seen["first"] == [True, False, True]
    assert seen["again"] == [True, True], "also where the address stays the same"
    assert seen["elsewhere"], "also in browsers that do not open it by themselves"
    assert seen["reached"], "a fold can be reached by the keyboard"


PRINT = """
const open = () => [...document.querySelectorAll("details")].map((each) => each.open);
document.querySelector(".fold").open = true;
const before = open();
window.dispatchEvent(new Event("beforeprint"));
await new Promise((done) => setTimeout(done, 300));
const printed = open();
window.dispatchEvent(new Event("afterprint"));
return { before, printed, after: open() };
"""


@needs_browser
def test_on_paper_nothing_is_folded_away_and_afterwards_all_is_as_it_was(page):
    seen = look_at(page, PRINT)["seen"]
    assert all(seen["printed"])
    assert seen["before"] == seen["after"]
    assert seen["before"].count(True) == 1
