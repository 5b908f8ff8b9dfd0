"""Every script of the gallery runs, at a size of seconds, and keeps to what the gallery asks of it."""

import ast
import runpy
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
NAMES = [script.stem for script in SCRIPTS]


@pytest.mark.parametrize("script", SCRIPTS, ids=NAMES)
@pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated:DeprecationWarning")
def test_a_script_runs_at_a_small_size(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [script.name])
    runpy.run_path(str(script), run_name="__main__")
    assert "nan" not in capsys.readouterr().out.split()


@pytest.mark.parametrize("script", SCRIPTS, ids=NAMES)
def test_a_script_is_a_short_story_with_a_question_for_a_title(script: Path):
    text = script.read_text(encoding="utf8")
    title, underline, rest = (ast.get_docstring(ast.parse(text)) or "").split("\n", 2)
    assert title.endswith("?")
    assert underline == "=" * len(title)
    assert rest.strip(), "the first paragraph is what the overview of the gallery says"
    assert len(text.splitlines()) < 100


def test_there_are_scripts_for_every_subject():
    assert len(SCRIPTS) >= 18
    assert [name[:3] for name in NAMES] == [f"{place:02}_" for place in range(1, len(NAMES) + 1)]
