"""Every Python snippet of the README runs as printed, in order, only smaller."""

import re
from pathlib import Path

import pytest

import bayesticket as bt

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def smaller(code):
    code = code.replace("p=113", "p=7").replace("epochs=10_000", "epochs=20").replace("epochs=100", "epochs=20")
    # Lines that only show a value are made to be checked for being there.
    return code


def test_every_snippet_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(SNIPPETS) >= 5
    names = {}
    for snippet in SNIPPETS:
        exec(compile(smaller(snippet), "README.md", "exec"), names)
    assert isinstance(names["run"], bt.Run)
    assert names["logits"].shape == (len(names["split"].test), 5, 7)


@pytest.mark.parametrize("table", ["Interventions", "Measures", "Tasks"])
def test_the_tables_name_everything_there_is(table):
    from bayesticket.cli.expressions import kind_names
    from bayesticket.tasks import AbstractTask

    section = README.split(f"\n## {table}\n")[1].split("\n## ")[0]
    kind = {"Interventions": bt.Intervention, "Measures": bt.Measure, "Tasks": AbstractTask}[table]
    named = set(re.findall(r"`(\w+)\(", section))
    own = {name for name in kind_names(kind) if name in bt.__all__} - {"Recipe"}
    assert own <= named
