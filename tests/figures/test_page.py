"""A page holds all it needs."""

import html.parser
import re
from pathlib import Path

import pytest
import torch

from bayesticket.figures import Section, Table, plot_patterns, plot_runs, write_page
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
        assert len(own) == 2, "a label cannot end a script"
        assert not re.search(r"https?:|//", "".join(own))

    def test_holds_the_library_once_and_every_section(self, page: Path):
        text = page.read_text(encoding="utf-8")
        assert text.count("plotly.js v") == 1
        assert "<h2>One &amp; &lt;two&gt;</h2>" in text
        assert "<p>5 &lt; 6</p>" in text
        assert "<td>kl</td><td>2</td>" in text
        assert "<th>&lt;b&gt;</th>" in text
        assert text.count("Plotly.newPlot(") >= 2
        assert [path.name for path in page.parent.iterdir()] == ["index.html"]

    def test_without_figures_is_small(self, tmp_path: Path):
        page = write_page(tmp_path / "page.html", "Title", [Section("Text", ["one"])])
        assert page.stat().st_size < 10_000
