"""Code in prose leads somewhere: a public name to its entry in the reference, a path to its file in the repository.

Pages stay plain Markdown: `bt.KLPrior`, `KLPrior(strength=1.0)`, `run.at(500)`, `adam_ratio_bound` and
the names of tests are linked as they stand.
"""

import functools
import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.domains.python import ObjectEntry
from sphinx.util.nodes import make_refnode

ROOT = Path(__file__).parents[2]
CALL = re.compile(r"([A-Za-z_][\w.]*)(\(.*\))?", re.DOTALL)
PATH = re.compile(r"((?:bayesticket|tests|examples|tools|docs)/[\w/.-]*\w)/?")
TEST = re.compile(r"^ *def (test_\w+)", re.MULTILINE)
INSTANCES = {"Run": "run", "Runs": "runs", "Split": "split", "Ticket": "ticket", "Context": "context", "Live": "live"}
"""How objects of these classes are called throughout the pages."""


def spellings(objects: dict[str, ObjectEntry]) -> dict[str, str]:
    """Full names of public objects by the ways in which prose writes them; what would be ambiguous is left out."""
    found: dict[str, set[str]] = {}
    for full in objects:
        if not full.startswith("bayesticket.") or objects[full].aliased:
            continue
        _, *parts = full.split(".")
        ways = {full, "bt." + ".".join(parts)}
        if parts[0][0].isupper():  # a class of bt, or a method of one
            ways.add(".".join(parts))
            if parts[0] in INSTANCES and len(parts) == 2:
                ways.add(f"{INSTANCES[parts[0]]}.{parts[1]}")
        elif "_" in parts[-1].strip("_") or parts[-1][0].isupper():
            ways.add(parts[-1])
        for way in ways:
            found.setdefault(way, set()).add(full)
    for names in found.values():
        if from_top := {name for name in names if name.count(".") == 1}:
            names &= from_top
    return {way: names.pop() for way, names in found.items() if len(names) == 1}


@functools.cache
def tests() -> dict[str, str]:
    """Where each test is in the repository."""
    found = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        text = file.read_text(encoding="utf-8")
        for test in TEST.finditer(text):
            line = text.count("\n", 0, test.start(1)) + 1
            found[test[1]] = f"{file.relative_to(ROOT).as_posix()}#L{line}"
    return found


def link_code(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Turns code in prose into links."""
    objects = app.env.domains.python_domain.objects
    ways = spellings(objects)
    for code in list(doctree.findall(nodes.literal)):
        if code.parent is None or any(isinstance(each, nodes.reference | nodes.title) for each in parents(code)):
            continue
        text = code.astext()
        name, path = CALL.fullmatch(text), PATH.fullmatch(text)
        full = ways.get(name[1]) if name else None
        if full and not (objects[full].docname == page and full in ids_above(code)):
            entry = objects[full]
            code.replace_self(
                make_refnode(app.builder, page, entry.docname, entry.node_id, code.deepcopy(), title=full)
            )
        elif app.config.repository and (place := tests().get(text) or (path and (ROOT / path[1]).exists() and path[1])):
            address = f"https://github.com/{app.config.repository}/blob/HEAD/{place}"
            code.replace_self(nodes.reference("", "", code.deepcopy(), refuri=address, internal=False))


def parents(node: nodes.Node) -> list[nodes.Node]:
    """What a node stands in, from the inside."""
    found = []
    while (node := node.parent) is not None:
        found.append(node)
    return found


def ids_above(node: nodes.Node) -> set[str]:
    """Ids of the descriptions that a node stands in: an entry does not link to itself."""
    return {
        each
        for above in parents(node)
        if isinstance(above, nodes.Element)
        for child in above.children[:1]
        if isinstance(child, nodes.Element)
        for each in child.get("ids", [])
    }


def setup(app: Sphinx) -> dict[str, object]:
    """Called by Sphinx."""
    app.connect("doctree-resolved", link_code)
    return {"parallel_read_safe": True}
