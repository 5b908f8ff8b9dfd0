"""The site's own parts: docstrings, downloads, the reference, and the check of what was built."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

import bayesticket as bt
from bayesticket.paper import MODULES, find_figure

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def extensions(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_ext"))
    monkeypatch.syspath_prepend(str(ROOT / "tools"))


def restructured(*lines):
    import site_markdown

    given = list(lines)
    site_markdown.convert(None, "function", "name", None, None, given)
    return "\n".join(given).strip()


def test_code_of_docstrings_gets_two_backticks_and_the_rest_is_no_markup():
    assert restructured("`α_i | β` of `x`s, |x| and s_i, *not* x_") == (
        "``α_i | β`` of ``x``\\ s, \\|x\\| and s\\_i, *not* x\\_"
    )


def test_doctests_tables_lists_and_indented_lines_of_docstrings_stay_what_they_are():
    assert restructured("Says:", "", "    a ≤ b", "", "End.", ">>> f(`1`)", "1") == (
        "Says:\n\n::\n\n    a ≤ b\n\nEnd.\n\n>>> f(`1`)\n1"
    )
    assert restructured("Two:", "- one", "- `two`") == "Two:\n\n- one\n- ``two``"
    assert restructured("| a | b |", "|---|---|", "| `c` | d |").splitlines()[-2:] == ["   * - ``c``", "     - d"]


def test_the_reference_has_every_public_name_of_the_library_and_of_its_rooms():
    import site_reference

    names = site_reference.public_names()
    pages = {room.name: site_reference.page_of(room, names) for room in site_reference.rooms()}
    text = "\n".join(pages.values())
    for name in names.values():
        assert text.count(f":: {name}\n") == 1, name
    assert {f"bayesticket.{name}" for name in bt.__all__ if name not in pages} <= set(names)
    assert {f"bayesticket.theory.{name}" for name in bt.theory.__all__} <= set(names)
    assert names["bayesticket.interventions.kl_divergence"] == "bayesticket.theory.kl_divergence"
    assert names["bayesticket.interventions.KLPrior"] == "bayesticket.KLPrior"


@pytest.mark.parametrize("repository", ["", "owner/name"])
def test_notebooks_install_the_library_and_pages_lead_to_colab_where_the_repository_is_known(
    tmp_path, monkeypatch, repository
):
    import site_gallery

    (tmp_path / "examples").mkdir()
    script = '"""\nWhy?\n====\n\nSo.\n"""\n\nimport sys\n\n# %%\n# See :class:`~bayesticket.KLPrior`.\n\nsys.argv\n'
    (tmp_path / "examples" / "why.py").write_text(script, encoding="utf-8")
    monkeypatch.setattr(site_gallery, "EXAMPLES", tmp_path / "examples")
    monkeypatch.setattr(site_gallery, "PAGES", tmp_path)
    options = {"last_notebook_cell": None, "pypandoc": False, "promote_jupyter_magic": False, "notebook_images": False}
    app = SimpleNamespace(config=SimpleNamespace(repository=repository, sphinx_gallery_conf=options))
    site_gallery.write_notebooks(app)
    cells = json.loads((tmp_path / "why.ipynb").read_text(encoding="utf-8"))["cells"]
    first = "".join(cells[0]["source"])
    assert ("%pip" in first) == ("git+https://github.com/owner/name" in first) == bool(repository)
    assert any("`bayesticket.KLPrior`" in "".join(cell["source"]) for cell in cells)

    source = [".. rst-class:: sphx-glr-example-title\n\nWhy?\n====\n\nSo.\n\n.. _sphx_glr_download_why:\n\nzip\n"]
    site_gallery.add_downloads(app, "gallery/why", source)
    assert "zip" not in source[0]
    assert ":download:`Script <why.py>`" in source[0]
    assert ("colab.research.google.com/github/owner/name/blob/gh-pages/gallery/why.ipynb" in source[0]) == bool(
        repository
    )


def test_the_site_is_not_built_from_examples_that_have_changed(tmp_path, monkeypatch):
    import site_gallery
    from sphinx.errors import ExtensionError

    (tmp_path / "why.py").write_text("1", encoding="utf-8")
    monkeypatch.setattr(site_gallery, "EXAMPLES", tmp_path)
    monkeypatch.setattr(site_gallery, "PAGES", tmp_path)
    app = SimpleNamespace(config=SimpleNamespace(sphinx_gallery_conf={"plot_gallery": False}))
    with pytest.raises(ExtensionError, match="make gallery ONLY=why"):
        site_gallery.require_pages(app)
    (tmp_path / "why.py.md5").write_text("c4ca4238a0b923820dcc509a6f75849b", encoding="utf-8")
    site_gallery.require_pages(app)


def test_links_of_a_built_site_that_lead_nowhere_are_found(tmp_path):
    from check_site import broken_links

    (tmp_path / "a.html").write_text('<a href="b.html#here">', encoding="utf-8")
    (tmp_path / "b.html").write_text('<p id="here"><a href="https://example.org/x">', encoding="utf-8")
    assert broken_links(tmp_path) == []
    (tmp_path / "c.html").write_text('<a href="b.html#there"><img src="d.png"><a href="#top">', encoding="utf-8")
    assert broken_links(tmp_path) == ["c.html: #top", "c.html: b.html#there", "c.html: d.png"]


def test_the_workflow_says_which_repository_it_publishes():
    text = (ROOT / ".github" / "workflows" / "site.yml").read_text(encoding="utf-8")
    assert "SITE_REPOSITORY: ${{ github.repository }}" in text
    assert "make docs" in text


@pytest.mark.parametrize("name", MODULES)
def test_every_figure_of_the_paper_has_a_page_with_its_title_and_results(name):
    text = (ROOT / "docs" / "paper" / f"{name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {find_figure(name).title}\n")
    assert f"```{{paper-figure}} {name}\n```" in text
    assert f"\npaper/{name}\n" in (ROOT / "docs" / "results.md").read_text(encoding="utf-8")


def test_there_is_no_page_of_a_figure_that_does_not_exist():
    assert {page.stem for page in (ROOT / "docs" / "paper").glob("*.md")} == set(MODULES)


def test_a_page_is_made_again_when_results_of_its_figure_are_added_or_change(tmp_path):
    from sphinx.application import Sphinx

    (tmp_path / "index.md").write_text("# Page\n\n```{paper-figure} fig6\n```\n", encoding="utf-8")
    config = {"extensions": ["myst_parser", "site_results"]}
    app = Sphinx(tmp_path, None, tmp_path / "out", tmp_path / "trees", "dummy", config, status=None, warning=None)
    app.build()
    files = {Path(each).name for each in app.env.dependencies["index"]}
    assert {"fig6.json", "fig6-standard.json"} <= files
