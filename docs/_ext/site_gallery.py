"""The gallery: examples are run by `make gallery`, and the site shows what they left in docs/gallery.

Committed are, of each example, its page, the digest of the script that the page was made from, the names that it uses,
its thumbnail, and pages that it has written itself, such as films. Scripts and notebooks to download are written
whenever the site is built.
"""

import re
import shutil
from pathlib import Path

import plotly.graph_objects as go
from site_figures import figure_html
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx_gallery.notebook import jupyter_notebook, save_notebook
from sphinx_gallery.py_source_parser import split_code_and_text_blocks
from sphinx_gallery.utils import get_md5sum

EXAMPLES = Path(__file__).parents[2] / "examples"
PAGES = Path(__file__).parents[1] / "gallery"
INSTALL = """\
# Installs the library. PyTorch is there already in Colab; elsewhere this brings the build that pip's index has.
%pip install --quiet "git+https://github.com/{repository}"
"""
COLAB = "https://colab.research.google.com/github/{repository}/blob/gh-pages/gallery/{name}.ipynb"
HEADER = re.compile(r"\.\. only:: html\n\n    \.\. note::\n.*?(?=\.\. rst-class:: sphx-glr-example-title)", re.DOTALL)
TITLE = re.compile(r"^(?P<title>.+)\n(=+)\n", re.MULTILINE)
FOOTER = re.compile(r"^\.\. _sphx_glr_download_.*\Z", re.DOTALL | re.MULTILINE)


def at_full_scale(gallery_conf: dict, script_vars: dict) -> list[str]:
    """The arguments that examples are run with."""
    return ["--full"]


def prepare_example(gallery_conf: dict, script: str) -> None:
    """Shows figures as pieces of the site's pages."""
    go.Figure._repr_html_ = figure_html  # type: ignore[method-assign]


def stale_pages() -> list[str]:
    """Names of the examples whose page was not made from the script as it is."""
    stale = []
    for script in sorted(EXAMPLES.glob("*.py")):
        made_from = PAGES / f"{script.name}.md5"
        if not made_from.exists() or made_from.read_text(encoding="utf-8") != get_md5sum(script, mode="t"):
            stale.append(script.stem)
    return stale


def require_pages(app: Sphinx) -> None:
    """Raises where an example has changed since its page was made: the site is built without training."""
    stale = [] if app.config.sphinx_gallery_conf["plot_gallery"] else stale_pages()
    if stale:
        commands = ", ".join(f"make gallery ONLY={name}" for name in stale)
        raise ExtensionError(f"examples that have changed since they were run for the gallery; run them: {commands}")


def write_notebooks(app: Sphinx) -> None:
    """Writes the notebook of each example; where the repository is known, its first cell installs the library."""
    repository = app.config.repository
    options = dict(app.config.sphinx_gallery_conf)
    options["first_notebook_cell"] = INSTALL.format(repository=repository) if repository else None
    for script in EXAMPLES.glob("*.py"):
        blocks = split_code_and_text_blocks(str(script))[1]
        notebook = jupyter_notebook(blocks, options, PAGES)
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = [without_roles(text) for text in cell["source"]]
        save_notebook(notebook, PAGES / f"{script.stem}.ipynb")


def without_roles(text: str) -> str:
    """Text with Sphinx' references as code.

    >>> without_roles("See :class:`~bayesticket.KLPrior`.")
    'See `bayesticket.KLPrior`.'
    """
    return re.sub(r":[\w:]+:`~?([^`]+)`", r"`\1`", text)


def add_downloads(app: Sphinx, page: str, source: list[str]) -> None:
    """Puts the downloads below the title of an example's page, in place of sphinx-gallery's note and footer."""
    if not (page.startswith("gallery/") and (EXAMPLES / f"{Path(page).name}.py").exists()):
        return
    name = Path(page).name
    links = [f":download:`Script <{name}.py>`", f":download:`Notebook <{name}.ipynb>`"]
    if app.config.repository:
        address = COLAB.format(repository=app.config.repository, name=name)
        links.append(f"`Open in Colab <{address}>`__")
    downloads = "\n".join([".. container:: downloads", "", f"   {' '.join(links)}", "", ""])
    source[0] = FOOTER.sub("", HEADER.sub("", source[0]))
    source[0] = TITLE.sub(lambda title: f"{title[0]}\n{downloads}\n", source[0], count=1)


def copy_files(app: Sphinx, error: Exception | None) -> None:
    """Copies notebooks, to which Colab's addresses lead, and pages that examples have written, beside their pages."""
    if error is None and app.builder.format == "html":
        for file in [*PAGES.glob("*.ipynb"), *PAGES.glob("*.html")]:
            shutil.copyfile(file, Path(app.outdir) / "gallery" / file.name)


def setup(app: Sphinx) -> dict[str, object]:
    """Called by Sphinx."""
    app.add_config_value("repository", "", "env")
    app.connect("builder-inited", require_pages, priority=400)  # before sphinx-gallery, which would overwrite pages
    app.connect("builder-inited", write_notebooks, priority=600)
    app.connect("source-read", add_downloads)
    app.connect("build-finished", copy_files)
    return {"parallel_read_safe": True}
