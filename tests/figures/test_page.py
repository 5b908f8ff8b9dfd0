"""A page holds all it needs."""

import html.parser
import re
from pathlib import Path

import pytest
import torch

from bayesticket.figures import Cell, Fold, Notes, Section, Table, plot_patterns, plot_runs, write_page
from bayesticket.runs import Run


class _Links(html.parser.HTMLParser):
    """Collects what a page would load or lead to, its scripts and its styles."""

    def __init__(self):
        super().__init__()
        self.links: list[str] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": []}
        self.inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]):
        self.inside = tag if tag in self.texts else self.inside
        wanted = ("src", "href", "srcset", "data", "action", "poster", "style")
        self.links += [value for name, value in attrs if name in wanted and value and tag not in ("div", "span")]
        if tag == "script":
            self.texts["script"].append("")

    def handle_endtag(self, tag: str):
        self.inside = "" if tag == self.inside else self.inside

    def handle_data(self, data: str):
        if self.inside == "script":
            self.texts["script"][-1] += data
        elif self.inside:
            self.texts[self.inside].append(data)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, runs: dict[str, Run]) -> Path:
    path = tmp_path_factory.mktemp("page") / "new" / "index.html"
    sections = [
        Section("One & <two>", ["5 < 6", "more"], plot_runs(runs)),
        Section("Pattern", [], plot_patterns({"oracle": torch.ones(2) / 2}, ["</script>", "="])),
        Section("Numbers", [], Table(("arm", "<b>"), [("none", "1"), ("kl", "2")])),
    ]
    return write_page(path, "Title", sections)


class TestPage:
    def test_loads_nothing(self, page: Path):
        parser = _Links()
        parser.feed(page.read_text(encoding="utf-8"))
        assert parser.links == []
        assert not re.search(r"url\(|@import|https?:", "".join(parser.texts["style"]))
        library, *own = parser.texts["script"]
        assert len(library) > 1_000_000, "plotly.js stands first"
        assert len(own) == 3, "two figures and the page's own; a label cannot end a script"
        assert not re.search(r"https?:|//", "".join(own))

    def test_holds_the_library_once_and_every_section(self, page: Path):
        text = page.read_text(encoding="utf-8")
        assert text.count("plotly.js v") == 1
        assert "<h2>One &amp; &lt;two&gt;</h2>" in text
        assert "<p>5 &lt; 6</p>" in text
        assert '<th scope="row">kl</th><td>2</td>' in text
        assert '<th scope="col">&lt;b&gt;</th>' in text
        assert text.count("Plotly.newPlot(") >= 2
        assert [path.name for path in page.parent.iterdir()] == ["index.html"]

    def test_notes_are_said_once_and_linked_to(self, tmp_path: Path):
        cell = Cell("5 < 6", notes=["Rule 1", "Rule 2"])
        sections = [
            Section("", [], Table(("a", "b"), [("x", cell)])),
            Section("", [], Notes({"Rule 1": "Few & far", "Rule 2": "none"})),
        ]
        text = write_page(tmp_path / "page.html", "Title", sections).read_text(encoding="utf-8")
        assert '<td>5 &lt; 6 <a href="#rule-1">Rule 1</a>, <a href="#rule-2">Rule 2</a></td>' in text
        assert '<div id="rule-1"><dt>Rule 1</dt><dd>Few &amp; far</dd></div>' in text

    def test_lines_are_folded_under_their_summary(self, tmp_path: Path):
        cell = Cell("so", summary="2 runs", folded=["a: 1", "<b>: 2"])
        page = write_page(tmp_path / "page.html", "Title", [Section("", [], Table(("a", "b"), [("x", cell)]))])
        expected = "<td>so<details><summary>2 runs</summary>a: 1\n&lt;b&gt;: 2</details></td>"
        assert expected in page.read_text(encoding="utf-8")

    def test_rows_of_a_table_with_many_columns_are_cards_on_a_narrow_screen(self, tmp_path: Path):
        tables = [Table(("a", "b & c", "d"), [("1", "2", "3")], wordy=True), Table(("a", "b"), [("1", "2")])]
        page = write_page(tmp_path / "page.html", "Title", [Section("", [], table) for table in tables])
        text = page.read_text(encoding="utf-8")
        assert '<div class="table wordy cards"' in text
        first = '<th scope="row" role="rowheader" data-label="a">1</th>'
        assert f'{first}<td role="cell" data-label="b &amp; c">2</td>' in text, "a card says what a value is"
        assert '<div class="table" role="region" aria-label="table"><table>' in text
        assert '<th scope="row">1</th><td>2</td>' in text

    def test_headings_divide_the_rows_of_a_table_into_groups_and_cells_link_to_rows(self, tmp_path: Path):
        rows = [["x", Cell("1", link="row-b")], ["y", "2"], ["z", "3"]]
        table = Table(("a", "b"), rows, anchors=("row-a", "row-b", "row-c"), headings={0: "One", 2: "Two < 3"})
        text = write_page(tmp_path / "page.html", "Title", [Section("", [], table)]).read_text(encoding="utf-8")
        groups = text.partition("<tbody>")[2].partition("</table>")[0].split("<tbody>")
        assert [each.count("<tr") for each in groups] == [3, 2], "each group is a part of the table"
        assert '<th scope="rowgroup" colspan="2">Two &lt; 3</th>' in groups[1]
        assert '<tr id="row-a"><th scope="row">x</th><td><a href="#row-b">1</a></td>' in groups[0]
        assert '<tr id="row-b"><th scope="row">y</th>' in groups[0]

    def test_sections_are_folded_under_a_heading_and_figures_have_names_of_their_own(
        self, tmp_path: Path, runs: dict[str, Run]
    ):
        folds = [Fold(f"{name} & more", "2 < 3", [Section("", [name], plot_runs(runs))]) for name in ("one", "two")]
        sections = [Section("Open", [], plot_runs(runs)), *folds]
        text = write_page(tmp_path / "page.html", "Title", sections).read_text(encoding="utf-8")
        assert '<details class="fold"><summary><h2>one &amp; more</h2> <span>2 &lt; 3</span></summary>' in text
        names = re.findall(r'<div id="(figure-\d+)" class="plotly-graph-div"', text)
        assert names == ["figure-0", "figure-1", "figure-2"]
        assert text.count("const reveal") == 1, "links open folds"
        without = write_page(tmp_path / "other.html", "Title", sections[:1]).read_text(encoding="utf-8")
        assert "const reveal" not in without

    def test_without_figures_is_small(self, tmp_path: Path):
        page = write_page(tmp_path / "page.html", "Title", [Section("Text", ["one"])])
        assert page.stat().st_size < 10_000
