"""Every Python snippet of the README, and of the library on one page, runs as printed, in order, only smaller."""

import re
from pathlib import Path

import pytest

import bayesticket as bt
from bayesticket.cli.expressions import kind_names

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
OVERVIEW = (ROOT / "docs" / "overview.md").read_text(encoding="utf-8")


def smaller(code):
    return code.replace("p=113", "p=7").replace("epochs=10_000", "epochs=20").replace("epochs=100", "epochs=20")


def run_snippets(text, path):
    names = {"__name__": "readme"}
    for snippet in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(compile(smaller(snippet), path, "exec"), names)
    return names


def test_the_snippet_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run_snippets(README, "README.md")
    assert isinstance(names["run"], bt.Run)
    assert names["runs"].axes == ("intervention",)
    assert (tmp_path / "film.html").exists()


def test_every_snippet_of_the_overview_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run_snippets(OVERVIEW, "overview.md")
    assert isinstance(names["run"], bt.Run)
    assert isinstance(names["grid"], bt.Runs)
    assert names["grid"].axes == ("intervention", "lr", "optimizer")
    assert names["logits"].shape == (len(names["split"].test), 5, 7)


def public(kind):
    """The classes of a kind that users import from bt."""
    return {name for name in kind_names(kind) if name in bt.__all__} - {"Recipe"}


@pytest.mark.parametrize("table", ["interventions", "measures", "tasks"])
def test_the_tables_name_everything_there_is(table):
    page = (ROOT / "docs" / f"{table}.md").read_text(encoding="utf-8")
    kind = {"interventions": bt.Intervention, "measures": bt.Measure, "tasks": bt.AbstractTask}[table]
    assert public(kind) <= set(re.findall(r"`(\w+)\(", page))


@pytest.mark.parametrize("kind", [bt.Optimizer, bt.LossFunction])
def test_every_optimiser_and_loss_is_named(kind):
    sentence = OVERVIEW.split("Optimisers are ")[1].split("One of your own")[0]
    assert public(kind) <= set(re.findall(r"`(\w+)`", sentence))


def test_what_is_said_of_the_constraints_is_so():
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert re.fullmatch(r"torch==[\d.]+\n?", constraints)  # a version, and no build
