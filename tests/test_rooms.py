"""The rooms: what may import what, and how large a file may be."""

import ast
import functools
from pathlib import Path

import pytest

import bayesticket

HOUSE = Path(bayesticket.__file__).parent
ORDER = (
    *("errors", "seeding", "files", "threads", "notices"),
    *("specs", "schedules", "tasks", "model", "attention", "theory", "optim", "interventions", "measures"),
    *("runs", "sweeps", "analysis", "figures", "paper", "cli"),
)
"""Imports go down this list: a room may import those that stand before it."""
LATE = {
    # Methods of runs that open a room above theirs, whose libraries (plotly, scipy) are heavy.
    ("runs/run.py", "analysis"),
    ("runs/run.py", "figures"),
    ("sweeps/dataset.py", "analysis"),
    ("sweeps/dataset.py", "figures"),
    # A target may be the path of a saved run, and a run is made of interventions.
    ("attention/targets.py", "runs"),
    # A process of a sweep handles signals long before it has imported what it trains with.
    ("sweeps/process.py", "sweeps"),
}
"""Imports inside a function that go up the list, by file and room."""
HEAVY = {"plotly", "scipy", "pandas", "pyarrow", "xarray", "resource", "importlib"}
FILES = sorted(path for path in HOUSE.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(HOUSE).as_posix()


def room_of(path: Path) -> str:
    return path.relative_to(HOUSE).parts[0].removesuffix(".py")


def imported_modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


@functools.cache
def imports(path: Path, *, inside_functions: bool) -> set[str]:
    """Modules that a file imports at the top, or inside functions; what only type checkers see does not count."""
    found: set[str] = set()

    def walk(node: ast.AST, inside: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if is_type_checking(child):
                continue
            if inside == inside_functions:
                found.update(imported_modules(child))
            walk(child, inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))

    walk(ast.parse(path.read_text(encoding="utf-8")), False)
    return found


def rooms_of(modules: set[str]) -> set[str]:
    parts = [module.split(".") for module in modules if module.split(".")[0] == "bayesticket"]
    return {each[1] for each in parts if len(each) > 1}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_go_down_the_list_of_rooms(path):
    room = room_of(path)
    if room == "__init__":
        return
    upward = {each for each in rooms_of(imports(path, inside_functions=False)) if ORDER.index(each) > ORDER.index(room)}
    assert not upward


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_inside_functions_are_of_heavy_libraries_or_listed(path):
    room = room_of(path)
    modules = imports(path, inside_functions=True)
    for each in rooms_of(modules):
        assert room == "cli" or (name_of(path), each) in LATE, each
    own = {module.split(".")[0] for module in modules} - {"bayesticket"}
    assert room == "cli" or own <= HEAVY


def test_every_listed_exception_is_needed():
    late = {(name_of(path), room) for path in FILES for room in rooms_of(imports(path, inside_functions=True))}
    assert late >= LATE


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_only_the_model_room_imports_transformer_lens(path):
    modules = imports(path, inside_functions=False) | imports(path, inside_functions=True)
    assert room_of(path) == "model" or not any(module.startswith("transformer_lens") for module in modules)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_room_imports_a_private_name_of_another(path):
    room = room_of(path)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bayesticket."):
            assert (node.module or "").split(".")[1] == room or not any(a.name.startswith("_") for a in node.names)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_can_be_read_in_one_sitting(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 340


@pytest.mark.parametrize("room", [room for room in ORDER if (HOUSE / room).is_dir()])
def test_every_room_has_a_sign(room):
    sign = ast.get_docstring(ast.parse((HOUSE / room / "__init__.py").read_text(encoding="utf-8")))
    assert sign is not None
    assert len(sign.split()) >= 12


def test_no_two_test_files_define_a_class_of_one_name():
    """The library refuses the second, and which comes second depends on the process that happens to run both."""
    files: dict[str, set[str]] = {}
    for path in Path(__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                files.setdefault(node.name, set()).add(path.name)
    assert {name: found for name, found in files.items() if len(found) > 1} == {}
