"""A page as Chromium shows it, without a network: what it says of itself, and the errors it met."""

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from markupsafe import escape

CHROMIUM = os.environ.get("BROWSER_PATH") or shutil.which("chromium") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed, nor named by BROWSER_PATH")
BEFORE = """<script>
window.faults = [];
window.addEventListener("error", (event) => window.faults.push(event.message));
console.error = (...said) => window.faults.push(said.join(" "));
</script>"""
AFTER = """<script>
window.addEventListener("load", () => setTimeout(async () => {
  const seen = await (async () => { %s })();
  const width = document.documentElement.scrollWidth;
  const shown = document.createElement("pre");
  shown.id = "seen";
  shown.textContent = JSON.stringify({ seen, width, faults: window.faults });
  parent.document.body.append(shown);
}, 300));
</script>"""


def look_at(page: Path, script: str, *, width: int = 1200) -> dict:
    """What a script returns when it is run in the loaded page, the page's width, and its errors.

    The page is shown in a frame, since a window of Chromium's is at least 500 pixels wide.
    """
    text = page.read_text(encoding="utf-8").replace("<head>", f"<head>{BEFORE}", 1)
    text = escape(text.replace("</body>", f"{AFTER % script}</body>"))
    frame = f'<body style="margin: 0"><iframe width="{width}" height="2000" style="border: 0" srcdoc="{text}"></iframe>'
    probed = page.with_name(f"probed-{page.name}")
    probed.write_text(f'<!DOCTYPE html><meta charset="utf-8">{frame}', encoding="utf-8")
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-extensions",
        "--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1300,2000", "--virtual-time-budget=15000",
        f"--user-data-dir={page.parent / 'profile'}", "--dump-dom", probed.resolve().as_uri(),
    ]  # fmt: skip
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    found = re.search(r'<pre id="seen">(\{.*?)</pre>', shown, flags=re.DOTALL)
    assert found, "the script did not end"
    return json.loads(html.unescape(found[1]))
