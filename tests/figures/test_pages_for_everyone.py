"""Quick start, report and film: one look, which everyone can read, on a screen, on a phone and on paper."""

import itertools
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import look_at, needs_browser, require_sound

import bayesticket as bt
from bayesticket.cli.quickstart import configurations
from bayesticket.cli.quickstart import write_report as write_quickstart
from bayesticket.figures import PALETTE, film
from bayesticket.figures.style import INK, ORANGE, SKY, TEST, TRAIN, UNSEEN
from bayesticket.runs import train_config

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site" / "index.html"
STYLE = (ROOT / "bayesticket" / "figures" / "page.css").read_text(encoding="utf-8")
WIDTHS = (1200, 400)


def quickstart_page(directory):
    configs = configurations(epochs=40, seed=0, p=7)
    runs = {arm: train_config(config, progress=False) for arm, config in configs.items()}
    return write_quickstart(runs, directory / "quickstart.html")


def film_page(directory):
    options = {"model": bt.Architecture(d_model=16, d_mlp=24), "epochs": 20, "snapshots": [0, 10]}
    runs = {"none": bt.train(bt.ModularAddition(p=7), **options), "kl": bt.train(bt.ModularAddition(p=7), **options)}
    return film(runs, directory / "film.html")


PAGES = ("quickstart", "report", "film")


@pytest.fixture(scope="session")
def made(tmp_path_factory, request):
    """Gives the page of a name."""

    @cache
    def make(name):
        if name == "report":
            return request.getfixturevalue("library_report")[0]
        return {"quickstart": quickstart_page, "film": film_page}[name](tmp_path_factory.mktemp("pages"))

    return make


# In a browser -----------------------------------------------------------------------------------------------------


OPEN = """
for (const each of document.querySelectorAll("details")) each.open = true;
return document.documentElement.scrollWidth;
"""


def figures_of(page):
    """How many figures a page has a place for."""
    return page.read_text(encoding="utf-8").count('class="plotly-graph-div"')


@needs_browser
@pytest.mark.parametrize(("name", "width"), [("quickstart", 1200), ("quickstart", 400), ("report", 400)])
def test_pages_load_offline_draw_every_figure_and_fit_the_screen(made, name, width):
    shown = look_at(made(name), OPEN, width=width, name=name)
    require_sound(shown, width)
    assert shown["figures"] == figures_of(made(name))
    assert shown["seen"] <= width, "what is folded away has room too"


PRINT = """
const size = () => [...document.querySelectorAll(".main-svg")].map((drawn) => drawn.getBoundingClientRect());
const open = () => document.querySelectorAll("details[open]").length;
const before = [open(), Math.max(...size().map((box) => box.width))];
window.dispatchEvent(new Event("beforeprint"));
await new Promise((done) => setTimeout(done, 300));
const boxes = size();
const printed = [open(), Math.max(...boxes.map((box) => box.width)), Math.max(...boxes.map((box) => box.height))];
window.dispatchEvent(new Event("afterprint"));
await new Promise((done) => setTimeout(done, 300));
return { before, printed, after: [open(), Math.max(...size().map((box) => box.width))],
         folded: document.querySelectorAll("details").length };
"""


@needs_browser
def test_the_report_is_sound_and_on_paper_figures_fit_a_page_and_nothing_is_folded_away(made):
    """A sheet of A4 or letter paper with margins of 1.5 cm is at least 680 × 940 pixels of CSS."""
    shown = look_at(made("report"), PRINT, name="report")
    require_sound(shown, 1200)
    assert shown["figures"] == figures_of(made("report"))
    seen = shown["seen"]
    assert seen["printed"][0] == seen["folded"] > 4
    assert seen["printed"][1] <= 680
    assert seen["printed"][2] <= 800, "with its caption it is on one page"
    assert seen["after"] == seen["before"]


def test_on_paper_figures_and_rows_are_not_cut_and_nothing_that_can_only_be_clicked_is_printed():
    printed = STYLE.split("@media print {", 1)[1]
    assert re.search(r"figure, .*tr.*\{ break-inside: avoid \}", printed)
    assert re.search(r"\.player button, \.player input \{ display: none \}", printed)


@needs_browser
@pytest.mark.skipif(not SITE.is_file(), reason="the site is not built: “make docs” writes it to build/site")
@pytest.mark.parametrize("width", WIDTHS)
def test_the_start_page_of_the_site_loads_offline_and_fits_the_screen(width):
    require_sound(look_at(SITE, width=width, name="site"), width)


# For everyone -----------------------------------------------------------------------------------------------------


SCRIPT = re.compile(r"(<script[^>]*>).*?(</script>)", flags=re.DOTALL)


class Elements(HTMLParser):
    """The elements of a page, each with its attributes and the text that stands in it."""

    VOID = ("meta", "input", "br", "link", "img", "hr")

    def __init__(self, page):
        super().__init__()
        self.found, self.open, self.said = [], [], []
        self.feed(SCRIPT.sub(r"\1\2", page.read_text(encoding="utf-8")))

    def handle_starttag(self, tag, attrs):
        element = {"tag": tag, "text": "", "inside": [each["tag"] for each, _ in self.open], **dict(attrs)}
        self.found.append(element)
        if tag not in self.VOID:
            self.open.append((element, len(self.said)))

    def handle_endtag(self, tag):
        element, start = self.open.pop()
        assert element["tag"] == tag, "every element is closed"
        element["text"] = "".join(self.said[start:])

    def handle_data(self, data):
        self.said.append(data)

    def of(self, tag, **attributes):
        wanted = {name.rstrip("_"): value for name, value in attributes.items()}
        return [each for each in self.found if each["tag"] == tag and wanted.items() <= each.items()]


@pytest.fixture(params=PAGES, scope="session")
def elements(request, made):
    return Elements(made(request.param))


def test_a_page_says_its_language_and_has_one_outline(elements):
    assert elements.of("html")[0]["lang"] == "en"
    assert elements.of("title")[0]["text"] == elements.of("h1")[0]["text"] != ""
    levels = [int(each["tag"][1]) for each in elements.found if re.fullmatch(r"h[1-6]", each["tag"])]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(below <= above + 1 for above, below in itertools.pairwise(levels)), "no level is left out"
    assert len(elements.of("main")) == 1


def test_every_figure_has_words_in_its_place(elements):
    figures = elements.of("div", class_="figure")
    assert len(figures) == len(elements.of("div", class_="plotly-graph-div")) > 0
    labels = [each["aria-label"] for each in figures]
    assert all(each["role"] == "img" for each in figures)
    assert all(re.search(r"(Panels|Axes|Rows|Shown): ", label) for label in labels), labels
    assert not any("<" in label for label in labels)
    assert all(each["text"].strip() for each in elements.of("figcaption"))


def test_every_table_names_its_columns_and_rows(elements):
    tables, rows = elements.of("table"), elements.of("tr")
    named = [*elements.of("th", scope="row"), *elements.of("th", scope="rowgroup")]
    assert len([row for row in rows if "tbody" in row["inside"]]) == len(named)
    assert len(elements.of("thead")) == len(tables)
    assert {each["scope"] for each in elements.of("th")} <= {"row", "rowgroup", "col"}
    assert all(each["text"].strip() for each in elements.of("th", scope="row"))
    assert all(each["aria-label"] for each in elements.of("div", role="region"))


def test_what_can_be_operated_has_a_name_and_a_state(elements):
    for summary in elements.of("summary"):
        assert summary["inside"][-1] == "details"
        assert summary["text"].strip()
    for slider in elements.of("input", type="range"):
        assert slider["aria-label"] == "moment of the run"
        assert slider["aria-valuetext"] == "epoch 0"
    for button in elements.of("button"):
        assert (button["aria-label"], button["aria-pressed"]) == ("play", "false")
    assert all(each["text"] for each in elements.of("a", href="#"))
    ids = [each["id"] for each in elements.found if each.get("id")]
    assert len(ids) == len(set(ids))


def test_only_the_film_can_be_operated(elements, request):
    is_film = request.node.callspec.params["elements"] == "film"
    assert len(elements.of("input")) == is_film


# Colours ----------------------------------------------------------------------------------------------------------


def luminance(colour):
    """The relative luminance of WCAG 2: of #fff it is 1."""
    digits = colour.lstrip("#")
    whole = digits if len(digits) == 6 else "".join(2 * digit for digit in digits)
    channels = [int(whole[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]
    return sum(weight * each for weight, each in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other="#fff"):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_that_of_wcag():
    assert contrast("#000") == pytest.approx(21)
    assert contrast("#767676") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("place", [0, 1, 2], ids=["light", "dark", "print"])
def test_words_and_focus_stand_out_from_the_page(place):
    scheme = {**variables(0), **variables(place)}
    assert contrast(scheme["ink"], scheme["paper"]) >= 7
    assert contrast(scheme["soft"], scheme["paper"]) >= 4.5
    assert contrast(scheme["focus"], scheme["paper"]) >= 3


def variables(place):
    return dict(re.findall(r"--(\w+): (#\w+)", re.findall(r":root \{([^}]*)\}", STYLE)[place]))


def test_words_and_lines_stand_out_from_a_figure():
    """3 : 1 for lines. The two light colours of Okabe and Ito's are less, so that the first arms do not have them."""
    assert contrast(INK) >= 7
    assert min(map(contrast, (TRAIN, TEST, UNSEEN))) >= 3
    assert min(map(contrast, PALETTE[:4])) >= 3
    assert {colour for colour in PALETTE[:7] if contrast(colour) < 3} == {ORANGE, SKY}


def test_pages_are_printed_on_white_and_those_who_ask_for_less_motion_get_less():
    assert variables(2)["paper"] == "#fff"
    assert ":focus-visible" in STYLE
    player = (ROOT / "bayesticket" / "figures" / "film.js").read_text(encoding="utf-8")
    assert "(prefers-reduced-motion: reduce)" in player
