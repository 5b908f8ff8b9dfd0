"""Checks a built site: every file that a page names in a link, a picture or a script exists, and so does every anchor."""

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """What a page links to, and the anchors that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes links and anchors."""
        for name, value in attrs:
            if name in ("href", "src") and value is not None:
                self.links.append(value)
            elif name in ("id", "name") and value:
                self.anchors.add(value)


@cache
def read(path: Path) -> Page:
    """A page, parsed."""
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def broken_links(site: Path) -> list[str]:
    """Links that lead nowhere within a site, each with its page; addresses outside are left alone."""
    broken = []
    for path in sorted(site.rglob("*.html")):
        for link in sorted(set(read(path).links)):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = path.parent / unquote(parts.path) if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            exists = target.is_file()
            anchor = unquote(parts.fragment)
            if exists and anchor and target.suffix == ".html":
                exists = anchor in read(target.resolve()).anchors
            if not exists:
                broken.append(f"{path.relative_to(site)}: {link}")
    return broken


if __name__ == "__main__":
    found = broken_links(Path(sys.argv[1]))
    if found:
        sys.exit("links that lead nowhere:\n" + "\n".join(found))
