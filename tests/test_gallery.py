"""The gallery: every example has a page that was made from the script as it is, without anything from a network."""

import ast
import hashlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "gallery"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_has_a_page_that_was_made_from_it_as_it_is(example):
    made_from = PAGES / f"{example.name}.md5"
    command = f"make gallery ONLY={example.stem}"
    assert made_from.exists(), f"{example.stem} has no page; run: {command}"
    digest = hashlib.md5(example.read_text(encoding="utf-8").encode()).hexdigest()
    assert made_from.read_text(encoding="utf-8") == digest, f"{example.stem} has changed; run: {command}"
    assert (PAGES / f"{example.stem}.rst").exists()
    assert (PAGES / "images" / "thumb" / f"sphx_glr_{example.stem}_thumb.png").stat().st_size > 1000


def test_the_overview_has_every_example_in_order():
    listed = re.findall(r":doc:`/gallery/(\w+)`", (PAGES / "index.rst").read_text(encoding="utf-8"))
    assert listed == [example.stem for example in EXAMPLES], (
        "make docs writes the overview of all, make gallery of some"
    )


def test_no_page_is_about_an_example_that_is_gone():
    assert {path.name.removesuffix(".py.md5") for path in PAGES.glob("*.md5")} == {path.stem for path in EXAMPLES}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_begins_with_a_question(example):
    said = ast.get_docstring(ast.parse(example.read_text(encoding="utf-8")))
    assert said is not None
    title, line, *_ = said.splitlines()
    assert title.endswith("?")
    assert len(line) >= len(title)
    assert set(line) == {"="}


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.rst")), ids=lambda path: path.stem)
def test_pages_hold_no_plotly_and_ask_no_network_for_it(page):
    text = page.read_text(encoding="utf-8")
    assert len(text) < 3_000_000
    assert not re.search(r'<script[^>]*src="', text)
    assert "Traceback" not in text
