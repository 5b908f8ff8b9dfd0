"""The pages about results: made from the results that come with the library, whenever the site is built."""

import re
from functools import cache
from pathlib import Path

import plotly.graph_objects as go
from docutils import nodes
from site_figures import figure_html
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from bayesticket.figures import Cell, Section, Table
from bayesticket.paper import NAMES, OF_BOTH_MODELS, find_figure
from bayesticket.paper.figure import STANDARD_NAME, VERDICTS, PaperFigure
from bayesticket.paper.findings import TERMS, findings
from bayesticket.paper.prediction import prediction_sections
from bayesticket.paper.report import write_report
from bayesticket.paper.results import SHIPPED
from bayesticket.paper.scorecard import Judged, judged_in, scorecard_table
from bayesticket.paper.unjudged import unjudged_table

REPORT = "report.html"
NOT_YET = "They are computed from Figures 1 to 4 and the controls, which have not been run yet."
TOO_FEW = "The results have too few settings in which runs grok, or in which they do not."


@cache
def shipped() -> list[Judged]:
    """The figures whose results come with the library."""
    return judged_in(SHIPPED)


class OfResults(SphinxDirective):
    """A directive whose page is made again where the results of a figure have changed, or were added."""

    def depend_on(self, *figures: str) -> None:
        """Notes the files of these figures; Sphinx reads a page again whose file is missing."""
        for name in figures:
            self.env.note_dependency(str(SHIPPED / f"{name}.json"))


def markdown(table: Table) -> str:
    """A table of a report as Markdown; its links lead into the report."""
    width = len(table.columns)
    lines = [table.columns, ["---"] * width]
    for number, row in enumerate(table.rows):
        if number in table.headings:
            lines.append([f"**{table.headings[number]}**", *[""] * (width - 1)])
        lines.append([_linked(cell) for cell in row])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _linked(cell: str | Cell) -> str:
    """The text of a cell, in which what Markdown would take for a mark stands for itself."""
    text = re.sub(r"([\\`*_|$<\[])", r"\\\1", cell if isinstance(cell, str) else cell.text)
    return f'<a href="{REPORT}#{cell.link}">{text}</a>' if isinstance(cell, Cell) and cell.link else text


class Findings(OfResults):
    """What the runs show, a sentence for each subject."""

    def run(self) -> list[nodes.Node]:
        """A list, or a sentence that says that there is nothing to say yet."""
        self.depend_on(*NAMES)
        said = findings({each.figure.name: each.results for each in shipped()})
        lines = [f"- **{heading}.** {text}" for heading, text in said.items()]
        return self.parse_text_to_nodes("\n".join([TERMS, "", *lines]) if said else NOT_YET)


class Scorecard(OfResults):
    """Every claim of the paper, with its verdict in both models."""

    def run(self) -> list[nodes.Node]:
        """A table."""
        self.depend_on(*NAMES)
        return self.parse_text_to_nodes(markdown(scorecard_table(shipped())))


class UnjudgedClaims(SphinxDirective):
    """The claims that no experiment can judge."""

    def run(self) -> list[nodes.Node]:
        """A table."""
        return self.parse_text_to_nodes(markdown(unjudged_table()))


class Predictions(OfResults):
    """Which measures predict grokking: tables and a figure."""

    def run(self) -> list[nodes.Node]:
        """Paragraphs, tables and a figure; a sentence where the results do not suffice."""
        self.depend_on(*NAMES)
        sections = prediction_sections(each.results for each in shipped())
        return [node for section in sections for node in self._shown(section)] or self.parse_text_to_nodes(TOO_FEW)

    def _shown(self, section: Section) -> list[nodes.Node]:
        said: list[nodes.Node] = [nodes.paragraph(text=text) for text in section.text]
        match section.content:
            case Table():
                said += self.parse_text_to_nodes(markdown(section.content))
            case go.Figure():
                said.append(nodes.raw("", figure_html(section.content), format="html"))
        return said


class PaperFigureResults(OfResults):
    """A figure of the paper in both models: what was run, its interactive pictures, what was measured."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """A section for each model that was run, or a sentence that says how to run it."""
        name = self.arguments[0]
        both = [each for each in (name, name + STANDARD_NAME) if each in NAMES]
        self.depend_on(*both)
        judged = [each for each in shipped() if each.figure.name in both]
        return [self._section(each) for each in judged] if judged else self._not_run(find_figure(name))

    def _not_run(self, figure: PaperFigure) -> list[nodes.Node]:
        said = f"No results of it come with the library yet; `bayesticket reproduce {figure.name}` trains its runs."
        return self.parse_text_to_nodes("\n\n".join([figure.about, *figure.notes, said]))

    def _section(self, judged: Judged) -> nodes.section:
        figure, name = judged.figure, judged.figure.name
        model = judged.model.capitalize() if self.arguments[0] in OF_BOTH_MODELS else "What was found"
        section = nodes.section("", nodes.title(text=model), ids=[name], names=[name])
        self.state.document.note_explicit_target(section)
        section += [nodes.paragraph(text=text) for text in (figure.description, *figure.notes)]
        for caption, picture in figure.draw(judged.results.runs).items():
            section += [nodes.paragraph(text=caption), nodes.raw("", figure_html(picture), format="html")]
        for claim in judged.claims:
            section += nodes.paragraph(
                "", "", nodes.strong(text=claim.said), nodes.Text(f" {VERDICTS[claim.verdict]}. ")
            )
            section += nodes.bullet_list(
                "", *(nodes.list_item("", nodes.paragraph(text=line)) for line in claim.account.splitlines())
            )
        return section


def write_full_report(app: Sphinx, error: Exception | None) -> None:
    """Writes the report, with rules and ids of the runs, beside the site's pages."""
    if error is None and app.builder.format == "html":
        write_report(out=Path(app.outdir) / REPORT)


def setup(app: Sphinx) -> dict[str, object]:
    """Called by Sphinx."""
    app.add_directive("findings", Findings)
    app.add_directive("scorecard", Scorecard)
    app.add_directive("predictions", Predictions)
    app.add_directive("unjudged-claims", UnjudgedClaims)
    app.add_directive("paper-figure", PaperFigureResults)
    app.connect("build-finished", write_full_report)
    return {"parallel_read_safe": True}
