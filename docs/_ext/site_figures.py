"""Plotly figures in pages: each is a piece of HTML, and plotly.js is loaded once, from the site's own files."""

import hashlib
from pathlib import Path

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs
from sphinx.application import Sphinx

CONTROLS = {"displayModeBar": False, "displaylogo": False, "responsive": True, "plotlyServerURL": ""}
SCRIPT = "plotly.min.js"


def figure_html(figure: go.Figure) -> str:
    """A figure as a card, as wide as its page. Equal figures give equal HTML, so that a rebuilt page stays as it is."""
    digest = hashlib.sha256(str(figure.to_json()).encode()).hexdigest()[:12]
    drawn = figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=f"figure-{digest}",
        config=CONTROLS,
        default_height=f"{figure.layout['height'] or 450}px",
    )
    return f'<div class="figure-card">{drawn}</div>'


def add_script(app: Sphinx, page: str, template: str, context: dict, doctree: object) -> None:
    """Loads plotly.js on pages that draw something, in their head: figures are drawn where they stand."""
    if "Plotly.newPlot" in context.get("body", ""):
        address = context["pathto"](f"_static/{SCRIPT}", 1)
        context["metatags"] = context.get("metatags", "") + f'<script src="{address}"></script>'


def write_script(app: Sphinx, error: Exception | None) -> None:
    """Writes plotly.js, as the installed plotly has it, beside the site's other files."""
    if error is None and app.builder.format == "html":
        (Path(app.outdir) / "_static" / SCRIPT).write_text(get_plotlyjs(), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, object]:
    """Called by Sphinx."""
    app.connect("html-page-context", add_script)
    app.connect("build-finished", write_script)
    return {"parallel_read_safe": True}
