"""The reference: a page for each room, with every public name and its docstring; nothing is listed by hand.

The names are those of the stub `bayesticket/__init__.pyi`, which users import from `bayesticket`, and of each room's
`__all__`. A name that several rooms export is described once, and found under each.
"""

import ast
import functools
import importlib
import inspect
import json
from dataclasses import dataclass, field
from pathlib import Path

import site_markdown
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.inspect import stringify_signature

import bayesticket
from bayesticket.specs import Spec

FOLDER = Path(__file__).parents[1] / "reference"
ABOUT = """\
Reference
=========

Every public name, by room. What users import from ``bayesticket`` stands first on each page; the rest is imported from
the room, as in ``from bayesticket.theory import kl_divergence``.

.. toctree::
   :maxdepth: 1

"""


@dataclass
class Room:
    """A room and its public names: those that are imported from `bayesticket`, and its others."""

    name: str
    top: list[str] = field(default_factory=list)
    own: list[str] = field(default_factory=list)


def rooms() -> list[Room]:
    """All rooms with public names, in the order of the stub."""
    stub = Path(bayesticket.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    imports = [node for node in ast.parse(stub).body if isinstance(node, ast.ImportFrom)]
    found = {alias.name: Room(alias.name) for node in imports if node.module is None for alias in node.names}
    for node in imports:
        if node.module:
            name = node.module.partition(".")[0]
            found.setdefault(name, Room(name)).top += [alias.name for alias in node.names]
    for room in found.values():
        module = importlib.import_module(f"bayesticket.{room.name}")
        public = getattr(module, "__all__", []) or defined_in(module)
        room.own = sorted((name for name in public if name not in room.top), key=str.lower)
    return [found[name] for name in sorted(found)]


def defined_in(module: object) -> list[str]:
    """The public functions and classes that a module without `__all__` defines itself."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__  # type: ignore[attr-defined]
    ]


def public_names() -> dict[str, str]:
    """Every public name, and the one under which it is described."""
    described = {f"bayesticket.{name}": f"bayesticket.{name}" for room in rooms() for name in room.top}
    by_object = {id(getattr(bayesticket, name.rpartition(".")[2])): name for name in described}
    homes = []
    for room in rooms():
        module = importlib.import_module(f"bayesticket.{room.name}")
        for name in room.own + [top for top in room.top if top in getattr(module, "__all__", ())]:
            value, full = getattr(module, name), f"bayesticket.{room.name}.{name}"
            if id(value) in by_object and callable(value):
                described[full] = by_object[id(value)]
            else:
                homes.append((full, value))
    at_home = {id(value): full for full, value in homes if callable(value) and full.rpartition(".")[0] in home(value)}
    for full, value in homes:
        described[full] = at_home.get(id(value), full) if callable(value) else full
    return {full: name for full, name in described.items() if not foreign(full)}


def home(value: object) -> str:
    """The module that defines a function or class."""
    return str(getattr(value, "__module__", ""))


def value_of(full: str) -> object:
    """The object that a public name stands for."""
    module, _, name = full.rpartition(".")
    return getattr(importlib.import_module(module), name)


def foreign(full: str) -> bool:
    """Whether a name is only passed on from another library, as `bayesticket.model.HookPoint` is."""
    value = value_of(full)
    return (inspect.isclass(value) or inspect.isfunction(value)) and not home(value).startswith("bayesticket")


def write_pages(app: Sphinx) -> None:
    """Writes the pages before Sphinx reads them; what has not changed is left alone."""
    FOLDER.mkdir(exist_ok=True)
    described = public_names()
    index = ABOUT
    for room in rooms():
        index += f"   {room.name}\n"
        write(FOLDER / f"{room.name}.rst", page_of(room, described))
    write(FOLDER / "index.rst", index)


def write(path: Path, text: str) -> None:
    """Writes a file unless it is there as it should be."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def page_of(room: Room, described: dict[str, str]) -> str:
    """The page of a room."""
    module = f"bayesticket.{room.name}"
    parts = [underlined(module, "="), f".. automodule:: {module}\n"]
    for heading, names in (("From bayesticket", [f"bayesticket.{name}" for name in room.top]),
                           (f"From {module}", [f"{module}.{name}" for name in room.own])):  # fmt: skip
        shown = [name for name in names if described.get(name) == name]
        if shown:
            parts.append(underlined(heading, "-"))
            parts += [entry(name) for name in shown]
    return "\n".join(parts)


def underlined(heading: str, line: str) -> str:
    """A heading of reStructuredText."""
    return f"{heading}\n{line * len(heading)}\n"


def entry(full: str) -> str:
    """The description of a name, and the examples that use it."""
    value = value_of(full)
    kind = "class" if inspect.isclass(value) else "function" if inspect.isroutine(value) else "data"
    if kind == "class" and issubclass(value, BaseException):  # type: ignore[arg-type]
        kind = "exception"
    members = "   :members:\n   :show-inheritance:\n" if kind in ("class", "exception") else ""
    hidden = "   :no-value:\n" if kind == "data" and len(repr(value)) > 200 else ""
    scripts = "".join(f"   {script}\n" for script in examples_with(full))
    gallery = (
        f".. rubric:: Examples with this\n   :class: examples\n\n.. minigallery::\n\n{scripts}\n" if scripts else ""
    )
    return f".. auto{kind}:: {full}\n{members}{hidden}\n{gallery}"


@functools.cache
def uses() -> dict[str, set[str]]:
    """The examples that use a name, by its shortest form, from what sphinx-gallery has noted of each.

    Of a class it notes the bases too, after the class itself; only the first is what the example names.
    """
    found: dict[str, set[str]] = {}
    for noted in (FOLDER.parent / "gallery").glob("*.codeobj.json"):
        script = f"../examples/{noted.name.removesuffix('.codeobj.json')}.py"
        for first, *_ in json.loads(noted.read_text(encoding="utf-8")).values():
            found.setdefault(f"{first['module_short']}.{first['name']}", set()).add(script)
    return found


def examples_with(full: str) -> list[str]:
    """The examples that use a name, or a method of it; those that are still there."""
    scripts = {script for name, each in uses().items() if f"{name}.".startswith(f"{full}.") for script in each}
    return sorted(script for script in scripts if (FOLDER.parent / script).exists())


def signature_of(
    app: Sphinx, what: str, name: str, obj: object, options: object, signature: str | None, returns: str | None
) -> tuple[str, None] | None:
    """The fields of a specification as its signature; its `__new__`, which Sphinx would show, takes anything."""
    if not (inspect.isclass(obj) and issubclass(obj, Spec)):
        return None
    found = inspect.signature(obj.__init__)
    own = found.replace(parameters=list(found.parameters.values())[1:], return_annotation=inspect.Signature.empty)
    return stringify_signature(own, unqualified_typehints=True), None


def add_aliases(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Lets every other name of an object lead to its description, also in the inventory."""
    domain = env.domains.python_domain
    for full, name in public_names().items():
        if full not in domain.objects and name in domain.objects:
            target = domain.objects[name]
            domain.objects[full] = target._replace(aliased=True)
    return []


def setup(app: Sphinx) -> dict[str, object]:
    """Called by Sphinx."""
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-process-docstring", site_markdown.convert)
    app.connect("autodoc-process-signature", signature_of)
    app.connect("env-updated", add_aliases)
    return {"parallel_read_safe": True}
