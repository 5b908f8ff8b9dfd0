"""The page about results: made from the results that come with the library, whenever the site is built."""

from pathlib import Path

from docutils import nodes
from site_figures import figure_html
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from bayesticket.paper import NAMES, find_figure
from bayesticket.paper.report import VERDICTS, write_report
from bayesticket.paper.results import SHIPPED, read_results

REPORT = "report.html"


class Scorecard(SphinxDirective):
    """Every claim of the paper, with its verdict."""

    def run(self) -> list[nodes.Node]:
        """A table."""
        lines = ["| figure | claim | by | verdict |", "|---|---|---|---|"]
        for name in NAMES:
            figure = find_figure(name)
            short = figure.title.partition(":")[0]
            for claim in figure.claims(read_results(SHIPPED, name).runs):
                lines.append(f"| {short} | {claim.said} | {claim.by} | {VERDICTS[claim.verdict]} |")
        return self.parse_text_to_nodes("\n".join(lines))


class PaperFigures(SphinxDirective):
    """A section for each figure: what was run, its interactive pictures, what was measured."""

    def run(self) -> list[nodes.Node]:
        """Sections, in the order of the figures."""
        return [self._section(name) for name in NAMES]

    def _section(self, name: str) -> nodes.section:
        figure, results = find_figure(name), read_results(SHIPPED, name)
        section = nodes.section("", nodes.title(text=figure.title), ids=[name], names=[name])
        self.state.document.note_explicit_target(section)
        section += nodes.paragraph(text=figure.about)
        for caption, picture in figure.draw(results.runs).items():
            section += [nodes.paragraph(text=caption), nodes.raw("", figure_html(picture), format="html")]
        for claim in figure.claims(results.runs):
            section += nodes.paragraph(
                "", "", nodes.strong(text=claim.said), nodes.Text(f" {VERDICTS[claim.verdict]}. ")
            )
            section += nodes.bullet_list(
                "", *(nodes.list_item("", nodes.paragraph(text=line)) for line in claim.measured.splitlines())
            )
        return section


def write_full_report(app: Sphinx, error: Exception | None) -> None:
    """Writes the report, with rules and ids of the runs, beside the site's pages."""
    if error is None and app.builder.format == "html":
        write_report(out=Path(app.outdir) / REPORT)


def setup(app: Sphinx) -> dict[str, object]:
    """Called by Sphinx."""
    app.add_directive("scorecard", Scorecard)
    app.add_directive("paper-figures", PaperFigures)
    app.connect("build-finished", write_full_report)
    return {"parallel_read_safe": True}
