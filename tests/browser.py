"""A page as Chromium shows it, without a network: what it says of itself, its faults, and a picture of it."""

import html
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from markupsafe import escape

CHROMIUM = os.environ.get("BROWSER_PATH") or shutil.which("chromium") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed, nor named by BROWSER_PATH")
HEIGHT = 3000
"""Pixels of the page that are shown and kept as a picture."""
BEFORE = """<script>
window.faults = [];
window.addEventListener("error", (event) => window.faults.push(event.message));
window.addEventListener("unhandledrejection", (event) => window.faults.push(String(event.reason)));
console.error = (...said) => window.faults.push(said.join(" "));
</script>"""
AFTER = """<script>
window.addEventListener("load", () => setTimeout(async () => {
  const width = document.documentElement.clientWidth;
  const said = (found) => `${found.tagName} ${found.textContent.trim().slice(0, 40)}`;
  const inside = (element) => element.closest("script, style, noscript, .plotly-graph-div");
  const scrolls = (element) => element
    && (getComputedStyle(element).overflowX !== "visible" || scrolls(element.parentElement));
  const wide = [...document.body.querySelectorAll("*")].filter((element) => !inside(element)
    && element.getBoundingClientRect().right > width + 1 && !scrolls(element.parentElement)).map(said);
  const figures = [...document.querySelectorAll(".plotly-graph-div")];
  const empty = (figure) => !figure.querySelector(".cartesianlayer :is(.trace, .hm image)");
  const undrawn = figures.filter(empty).map((figure) => figure.id);
  const cut = figures.flatMap((figure) => {
    const box = (figure.closest(".figure") ?? figure).getBoundingClientRect();
    return [...figure.querySelectorAll("svg text")].filter((text) => {
      const { left, right, top, bottom, width } = text.getBoundingClientRect();
      return width && (left < box.left - 1 || right > box.right + 1 || top < box.top - 1 || bottom > box.bottom + 1);
    }).map(said);
  });
  const names = performance.getEntriesByType("resource").map((each) => each.name);
  const requested = names.filter((name) => /^https?:/.test(name));
  const page = { width: document.documentElement.scrollWidth, figures: figures.length, undrawn, wide, cut, requested };
  const seen = await (async () => { %s })();
  const shown = document.createElement("pre");
  shown.id = "seen";
  shown.style.display = "none";
  shown.textContent = JSON.stringify({ seen, faults: window.faults, ...page });
  parent.document.body.append(shown);
}, 500));
</script>"""


def look_at(page: Path, script: str = "", *, width: int = 1200, name: str = "") -> dict:
    """What a script returns when it is run in the loaded page, and what is wrong with the page.

    `faults` are errors of its scripts, `requested` addresses in the network, `undrawn` figures without a curve or
    matrix, `wide` elements that reach over the page's edge, and `cut` words that reach over the edge of their figure.
    With a name, a picture of the page is written into the directory that the environment variable SCREENSHOTS names.

    The page is shown in a frame, since a window of Chromium's is at least 500 pixels wide.
    """
    head, _, body = page.read_text(encoding="utf-8").replace("<head>", f"<head>{BEFORE}", 1).rpartition("</body>")
    text = escape(f"{head}{AFTER % script}</body>{body}")
    shown = f'<iframe width="{width}" height="{HEIGHT}" style="border: 0" srcdoc="{text}"></iframe>'
    probed = page.with_name(f"probed-{width}-{page.name}")  # beside the page, whose relative links go on to work
    probed.write_text(f'<!DOCTYPE html><meta charset="utf-8"><body style="margin: 0">{shown}', encoding="utf-8")
    with tempfile.TemporaryDirectory() as profile:
        command = [
            str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-extensions",
            "--host-resolver-rules=MAP * ~NOTFOUND", f"--window-size={max(width, 500)},{HEIGHT}",
            "--virtual-time-budget=15000", f"--user-data-dir={profile}", *_picture(name, width), "--dump-dom",
            probed.resolve().as_uri(),
        ]  # fmt: skip
        dumped = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    probed.unlink()
    found = re.search(r'<pre id="seen"[^>]*>(\{.*?)</pre>', dumped, flags=re.DOTALL)
    assert found, "the script did not end"
    return json.loads(html.unescape(found[1]))


def _picture(name: str, width: int) -> list[str]:
    if not name or "SCREENSHOTS" not in os.environ:
        return []
    directory = Path(os.environ["SCREENSHOTS"])
    directory.mkdir(parents=True, exist_ok=True)
    return [f"--screenshot={directory.resolve() / f'{name}-{width}.png'}"]


def require_sound(shown: dict, width: int) -> None:
    """Asserts that a page loads without a network or an error, draws its figures, and overflows nowhere."""
    assert not shown["faults"], shown["faults"]
    assert not shown["requested"], shown["requested"]
    assert not shown["undrawn"], shown["undrawn"]
    assert not shown["wide"], shown["wide"]
    assert not shown["cut"], shown["cut"]
    assert shown["width"] <= width, shown["width"]
