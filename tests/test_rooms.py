"""The rooms: what may import what, and how large a file may be."""

import ast
import functools
from pathlib import Path

import pytest

import bayesticket

HOUSE = Path(bayesticket.__file__).parent
ORDER = (
    *("errors", "seeding", "files", "threads", "notices", "notebooks"),
    *("specs", "schedules", "tasks", "model", "attention", "theory", "optim", "interventions", "measures"),
    *("runs", "sweeps", "analysis", "figures", "paper", "cli", "__main__"),
)
"""Imports go down this list: a room may import those that stand before it."""
LATE = {
    # Methods of runs that open a room above theirs, whose libraries (plotly, scipy) are heavy.
    ("runs/run.py", "analysis"),
    ("runs/run.py", "figures"),
    # A run that is over is set up again to be measured, and training gives a run.
    ("runs/run.py", "runs"),
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
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


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

    walk(parsed(path), False)
    return found


def rooms_of(modules: set[str]) -> set[str]:
    parts = [module.split(".") for module in modules if module.split(".")[0] == "bayesticket"]
    return {each[1] for each in parts if len(each) > 1}


def test_imports_go_down_the_list_of_rooms():
    upward = {
        (name_of(path), room)
        for path in FILES
        if room_of(path) != "__init__"
        for room in rooms_of(imports(path, inside_functions=False))
        if ORDER.index(room) > ORDER.index(room_of(path))
    }
    assert upward == set()


def test_imports_inside_functions_are_of_heavy_libraries_or_listed():
    files = {name_of(path): imports(path, inside_functions=True) for path in FILES if room_of(path) != "cli"}
    assert {(name, room) for name, modules in files.items() for room in rooms_of(modules)} == LATE
    others = {(name, module.split(".")[0]) for name, modules in files.items() for module in modules}
    assert {(name, module) for name, module in others if module not in HEAVY | {"bayesticket"}} == set()


def test_only_the_model_room_imports_transformer_lens():
    outside = {
        name_of(path)
        for path in FILES
        for inside_functions in (True, False)
        for module in imports(path, inside_functions=inside_functions)
        if room_of(path) != "model" and module.startswith("transformer_lens")
    }
    assert outside == set()


def test_no_room_imports_a_private_name_of_another():
    private = {
        (name_of(path), alias.name)
        for path in FILES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bayesticket.")
        for alias in node.names
        if (node.module or "").split(".")[1] != room_of(path) and alias.name.startswith("_")
    }
    assert private == set()


def test_a_file_can_be_read_in_one_sitting():
    lengths = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert {name: length for name, length in lengths.items() if length > 340} == {}


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
