"""Runs the examples at full scale and writes their pages and thumbnails: all that have changed, or those named."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from plotly.offline import get_plotlyjs
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
DOCS, EXAMPLES = ROOT / "docs", ROOT / "examples"
CARD = re.compile(r'<div class="figure-card">.*?</script>', re.DOTALL)
FRAME = re.compile(r'<iframe src="([\w.-]+)"')
SIZE = (800, 450)
PAGE = (
    '<!DOCTYPE html><meta charset="utf-8"><style>body {{ margin: 0 }} .modebar {{ display: none }}</style>'
    "<script>{plotly}</script>{drawn}"
)


def run_examples(names: list[str]) -> None:
    """Runs examples by sphinx-gallery, which writes their pages: those named, or all whose page is out of date."""
    others = [script.stem for script in EXAMPLES.glob("*.py") if names and script.stem not in names]
    options = {
        "sphinx_gallery_conf.plot_gallery": True,
        "sphinx_gallery_conf.run_stale_examples": bool(names),
        "sphinx_gallery_conf.ignore_pattern": rf"^({'|'.join(others)})\.py$" if others else "^$",
    }
    build = ROOT / "build" / "gallery"
    Sphinx(DOCS, DOCS, build, build, "dummy", confoverrides=options)  # it runs them when it is made
    for page in EXAMPLES.glob("*.html"):  # such as a film
        shutil.copyfile(page, DOCS / "gallery" / page.name)


def take_thumbnail(name: str, browser: str) -> None:
    """Takes a picture of the first figure of an example's page, or else of a page that it has written and shows."""
    text = (DOCS / "gallery" / f"{name}.rst").read_text(encoding="utf-8")
    target = DOCS / "gallery" / "images" / "thumb" / f"sphx_glr_{name}_thumb.png"
    if card := CARD.search(text):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.html"
            drawn = re.sub(r"height:\s*\d+px", f"height:{SIZE[1]}px", card[0], count=1)
            page.write_text(PAGE.format(plotly=get_plotlyjs(), drawn=drawn), encoding="utf-8")
            photograph(page, target, browser)
    elif framed := FRAME.search(text):
        photograph(DOCS / "gallery" / framed[1], target, browser)
    else:
        print(f"{name} shows no figure; its thumbnail is sphinx-gallery's own")


def photograph(page: Path, target: Path, browser: str) -> None:
    """Takes a picture of a page as a browser shows it."""
    with tempfile.TemporaryDirectory() as profile:
        command = [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=5000",
            f"--user-data-dir={profile}", f"--window-size={SIZE[0]},{SIZE[1]}", f"--screenshot={target}", page.as_uri(),
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=120)


def main(names: list[str]) -> None:
    """Runs what is to be run, and takes the thumbnails of what was."""
    unknown = [name for name in names if not (EXAMPLES / f"{name}.py").exists()]
    if unknown:
        known = ", ".join(sorted(script.stem for script in EXAMPLES.glob("*.py")))
        sys.exit(f"no example is called {', '.join(unknown)}; there are: {known}")
    browser = os.environ.get("BROWSER_PATH") or shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("thumbnails need Chromium: install it, or set BROWSER_PATH to one")
    before = {path: path.stat().st_mtime_ns for path in (DOCS / "gallery").glob("*.rst")}
    run_examples(names)
    for script in sorted(EXAMPLES.glob("*.py")):
        page = DOCS / "gallery" / f"{script.stem}.rst"
        if page.exists() and before.get(page) != page.stat().st_mtime_ns:
            take_thumbnail(script.stem, browser)


if __name__ == "__main__":
    main(sys.argv[1:])
