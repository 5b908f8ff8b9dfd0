"""What the package declares: every import of library, tests, examples and tools, and the files of the archives."""

import ast
import functools
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

from bayesticket.paper import NAMES, find_figure
from bayesticket.paper.figure import Scale
from bayesticket.paper.results import CURVES, SHIPPED, names_in, read_results
from bayesticket.specs import spec_id

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
OWN = {"bayesticket"} | {
    path.stem for folder in ("tests", "tools", "docs/_ext") for path in (ROOT / folder).rglob("*.py")
}
"""What is imported from the repository itself; modules of tests and site import each other by their names."""


def declared(requirements: list[str]) -> set[str]:
    """Names of distributions in their normal form."""
    names = (re.match(r"[\w.-]+", requirement).group() for requirement in requirements)  # type: ignore[union-attr]
    return {normal(name) for name in names}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


NEEDED = declared(PROJECT["project"]["dependencies"])
EXTRAS = {name: declared(given) for name, given in PROJECT["project"]["optional-dependencies"].items()}


@functools.cache
def imported(path: Path) -> set[str]:
    """Top-level names that a file imports from other distributions, wherever in the file."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(str(node.module).partition(".")[0])
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("importorskip", "import_module")):
            given = node.args[0] if node.args else None
            if isinstance(given, ast.Constant):
                names.add(str(given.value).partition(".")[0])
    return names - OWN - set(sys.stdlib_module_names)


def undeclared(folder: str, allowed: set[str]) -> dict[str, set[str]]:
    """Imports that no requirement declares, with the files that have them."""
    distributions = packages_distributions()
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        for name in imported(path):
            if not allowed & {normal(each) for each in distributions.get(name, [name])}:
                found.setdefault(name, set()).add(path.relative_to(ROOT).as_posix())
    return found


def test_every_import_of_the_library_is_a_dependency():
    assert undeclared("bayesticket", NEEDED) == {}


@pytest.mark.parametrize("folder", ["tests", "examples", "tools", "docs"])
def test_every_import_outside_the_library_is_declared_in_the_dev_extra(folder):
    assert EXTRAS["dev"] >= {"bayesticket"}  # with the extras in brackets, cluster and docs
    assert "bayesticket[cluster,docs]" in PROJECT["project"]["optional-dependencies"]["dev"]
    assert undeclared(folder, NEEDED | EXTRAS["cluster"] | EXTRAS["docs"] | EXTRAS["dev"]) == {}


def test_every_extension_of_the_site_is_declared_in_the_docs_extra():
    text = (ROOT / "docs" / "conf.py").read_text(encoding="utf-8")
    listed = next(
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and "extensions" in ast.unparse(node.targets[0])
    )
    packages = {name.partition(".")[0] for name in ast.literal_eval(listed.value)} - OWN
    distributions = packages_distributions()
    found = {normal(each) for name in packages for each in distributions.get(name, [name])}
    assert {"sphinx", "sphinx-gallery", "myst-parser", "sphinx-mathjax-offline"} <= found <= EXTRAS["docs"]


def test_an_import_that_is_not_declared_is_found():
    assert "tests/programs.py" in undeclared("tests", NEEDED)["psutil"]
    assert "einops" in undeclared("bayesticket", NEEDED - {"einops"})


def test_the_source_archive_has_all_that_stands_at_the_top():
    included = {path.removeprefix("/") for path in PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]}
    assert all((ROOT / path).exists() for path in included)
    tracked = {"bayesticket", "tests", "docs", "examples", "tools", "constraints.txt", "Makefile", "LICENSE"}
    assert included >= tracked | {path.name for path in [*ROOT.glob("*.md"), *ROOT.glob("*.cff")]}


def _file(run):
    return SHIPPED / CURVES / f"{run}.parquet"


def _configs_of(name):
    figure = find_figure(name)
    return figure.configs(Scale(seeds=figure.seeds or 10)).values()


def test_the_wheel_has_the_results_that_are_there_and_nothing_else():
    assert PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"] == {"packages": ["bayesticket"]}
    assert SHIPPED.is_relative_to(ROOT / "bayesticket")
    names = names_in(SHIPPED)
    files = {path for path in SHIPPED.rglob("*") if path.is_file()}
    runs = {run for name in names for run in read_results(SHIPPED, name).by_id}
    assert files >= {SHIPPED / f"{name}.json" for name in names} | {_file(run) for run in runs}
    waiting = {spec_id(config) for name in NAMES for config in _configs_of(name)}
    assert files <= {SHIPPED / f"{name}.json" for name in names} | {_file(run) for run in runs | waiting}, (
        "each run is of a figure, or of one that is not complete"
    )
    assert sum(path.stat().st_size for path in files) < 15_000_000, "room for some 1,500 runs"


def test_the_citation_has_what_its_format_asks_for():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors", "version", "license", "abstract"} <= citation.keys()
    assert citation["version"] == PROJECT["project"]["version"]
    assert citation["license"] == PROJECT["project"]["license"]
    assert [author["name"] for author in citation["authors"]] == [a["name"] for a in PROJECT["project"]["authors"]]
    for reference in citation["references"]:
        assert {"type", "title", "authors"} <= reference.keys()


def test_the_licence_is_the_one_that_is_named():
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").startswith(f"{PROJECT['project']['license']} License")
