"""What a new interpreter imports: nothing heavy until it is needed, and then no more than TransformerLens does."""

import ast
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import bayesticket as bt

HOUSE = Path(bt.__file__).parent
PROGRAM = """
import json, sys

HEAVY = ("torch", "numpy", "transformer_lens", "pandas", "plotly", "scipy", "scipy.stats", "xarray", "kaleido")
seen = {}


def look(after):
    seen[after] = [name for name in HEAVY if name in sys.modules]


import bayesticket.sweeps.process
look("a process of a sweep")
import bayesticket as bt
bt.__version__; dir(bt)
look("the library")
from bayesticket.cli.main import main
main(["--help"]); main(["nonsense"])
look("help")
import torch, transformer_lens
look("transformer_lens")
bt.train; bt.measure; bt.Run
look("training")
rooms = [bt.theory.kl_divergence.__module__, bt.analysis.__name__, bt.__version__]
look("rooms")
print(json.dumps([seen, rooms]))
"""


@pytest.fixture(scope="module")
def fresh() -> tuple[dict[str, set[str]], list[str]]:
    """One new interpreter: the heavy modules it has after each step, and what it finds in the library."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    seen, rooms = json.loads(done.stdout.splitlines()[-1])
    return {step: set(names) for step, names in seen.items()}, rooms


@pytest.mark.parametrize("step", ["a process of a sweep", "the library", "help"])
def test_what_comes_first_is_light(fresh, step):
    assert fresh[0][step] == set()


def test_the_library_imports_nothing_heavy_that_transformer_lens_does_not(fresh):
    seen, _ = fresh
    assert seen["transformer_lens"] >= {"torch", "transformer_lens"}
    assert seen["training"] == seen["transformer_lens"]


def test_scipys_statistics_are_loaded_only_when_they_are_used(fresh):
    assert "scipy.stats" not in fresh[0]["rooms"]
    # TransformerLens loads other parts of scipy; the room itself loads none on import.
    for path in (HOUSE / "analysis").glob("*.py"):
        for statement in ast.parse(path.read_text()).body:
            assert not (isinstance(statement, ast.Import | ast.ImportFrom) and "scipy" in ast.unparse(statement)), path


def test_rooms_and_version_are_reached_from_the_library(fresh):
    assert fresh[1] == ["bayesticket.theory.divergence", "bayesticket.analysis", version("bayesticket")]
    rooms = {path.name for path in HOUSE.iterdir() if (path / "__init__.py").exists()}
    assert rooms - {"cli"} <= set(bt.__all__)
