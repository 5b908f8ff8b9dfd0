"""The glossary: paragraphs that begin with a word in bold become entries of a Sphinx glossary, for search and links."""

import re

from sphinx.application import Sphinx

ENTRY = re.compile(r"^\*\*(?P<word>.+?)\*\* (?P<text>.+?)(?=\n\n|\Z)", re.DOTALL | re.MULTILINE)


def as_glossary(app: Sphinx, page: str, source: list[str]) -> None:
    """Rewrites the page before it is parsed; the file itself stays plain Markdown."""
    if page != "glossary":
        return
    found = list(ENTRY.finditer(source[0]))
    entries = [f"{entry['word']}\n  {' '.join(entry['text'].split())}\n" for entry in found]
    source[0] = source[0][: found[0].start()] + "```{glossary}\n" + "\n".join(entries) + "```\n"


def setup(app: Sphinx) -> dict[str, object]:
    """Called by Sphinx."""
    app.connect("source-read", as_glossary)
    return {"parallel_read_safe": True}
