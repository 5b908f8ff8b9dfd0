"""Checks a built site: its links, pictures and scripts lead somewhere, and every public name is in its reference."""

import importlib
import re
import sys
import zlib
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

SCRIPT = re.compile(r"(<script[^>]*>).*?(?=</script>)", re.DOTALL)
"""A script, whose text may be megabytes of a figure's numbers."""


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
    page.feed(SCRIPT.sub(r"\1", path.read_text(encoding="utf-8")))
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


def described(site: Path) -> set[str]:
    """The names of Python objects in a site's inventory."""
    _, _, _, _, packed = (site / "objects.inv").read_bytes().split(b"\n", 4)
    entries = [line.split() for line in zlib.decompress(packed).decode("utf-8").splitlines()]
    return {name for name, kind, *_ in entries if kind.startswith("py:")}


def missing_names(site: Path) -> list[str]:
    """Public names without an entry: those of `bayesticket` and of its rooms, but for what is another library's."""
    library = importlib.import_module("bayesticket")
    wanted = {f"bayesticket.{name}" for name in library.__all__}
    for name in library.__all__:
        module = getattr(library, name)
        for public in getattr(module, "__all__", []) if isinstance(module, type(library)) else []:
            if str(getattr(getattr(module, public), "__module__", "bayesticket")).startswith("bayesticket"):
                wanted.add(f"bayesticket.{name}.{public}")
    return sorted(wanted - described(site))


def main(site: Path) -> None:
    """Exits with what is wrong, if anything is."""
    found = broken_links(site)
    if found:
        sys.exit("links that lead nowhere:\n" + "\n".join(found))
    if missing := missing_names(site):
        sys.exit("public names that the reference lacks:\n" + "\n".join(missing))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
