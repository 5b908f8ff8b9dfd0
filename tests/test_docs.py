"""Every Python snippet of the pages in docs/ runs as printed, in order, only smaller; links and code names exist."""

import importlib.util
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

import bayesticket as bt
from bayesticket.model import Positions

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def snippets(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def run_all(page: Path, names: dict, smaller=lambda code: code) -> dict:
    for snippet in snippets(page):
        exec(compile(smaller(snippet), page.name, "exec"), names)
    return names


def test_every_snippet_about_extending_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run_all(ROOT / "docs" / "extending.md", {"__name__": "extending"})
    run, capped, difference = names["run"], names["capped"], names["difference"]
    assert run.curves["dead_units"].between(0, 1).all()
    assert f"test_accuracy_by_target[{names['task'].p - 1}]" in run.curves
    assert capped.curves["mlp_norm"].iloc[-1] <= 1.15 * capped.curves["mlp_norm"].iloc[0]
    assert difference.show(difference.examples(seed=0).tokens[5]) == "0 − 5 % ="
    assert (tmp_path / "dead.html").stat().st_size > 0
    assert bt.specs.describe(names["Halving"](), {}) == {"type": "Halving@2"}


def test_every_snippet_about_runs_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wandb = ModuleType("wandb")
    wandb.__spec__ = ModuleSpec("wandb", None)
    wandb.init, wandb.log, wandb.finish = lambda **options: None, lambda values, step: None, lambda: None
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    names = run_all(ROOT / "docs" / "runs.md", {"__name__": "runs"})
    assert names["curves"].index.tolist() == list(names["run"].snapshots)
    assert len(names["of_three"]) == 3
    assert (tmp_path / "film.html").stat().st_size < 10e6
    assert (tmp_path / "run" / "snapshots" / "00000200.safetensors").exists()


def test_every_snippet_about_longer_sequences_runs():
    names = run_all(ROOT / "docs" / "length.md", {"__name__": "length"})
    run, task = names["run"], names["task"]
    assert run.evaluate(task)["accuracy"] == run.curves["test_accuracy"].iloc[-1]
    assert set(names["rooms"]) == set(get_args(Positions))
    assert len(names["arms"].axes) == 2


def test_every_snippet_about_teachers_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run_all(ROOT / "docs" / "interventions.md", {"__name__": "interventions"})
    assert names["early"].positions == (0, 1, 2, 3, 7)
    assert names["taught"].curves.filter(like="kl_to_target").notna().all(axis=None)


def test_every_snippet_about_several_answers_runs():
    names = run_all(
        ROOT / "docs" / "tasks.md", {"__name__": "tasks"}, lambda code: code.replace("epochs=50", "epochs=5")
    )
    train, asked = names["train"], names["asked"]
    assert (tuple(train.targets.shape), train.queries, train.answerable) == ((76, 9), tuple(range(9)), (8,))
    each = asked.curves[["kl_to_oracle[query=each][Q2]", "kl_to_oracle[query=each][Q5]"]].mean(axis=1)
    assert each.to_numpy() == pytest.approx(asked.curves["kl_to_oracle"].to_numpy())


def test_every_snippet_of_the_tutorial_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    smaller = {"p=59": "p=5", "1_500": "20", "range(5)": "range(2)", '"runs/tutorial"': '"runs"'}
    with ThreadPoolExecutor(1) as executor:
        sweep = bt.sweep
        monkeypatch.setattr(bt, "sweep", lambda *given, **options: sweep(*given, **options, executor=executor))
        names = run_all(
            ROOT / "docs" / "tutorial.md",
            {"__name__": "tutorial"},
            lambda code: re.sub("|".join(map(re.escape, smaller)), lambda found: smaller[found[0]], code),
        )
    assert names["runs"].axes == ("intervention",)
    assert isinstance(names["prior"], bt.Run)
    assert names["blind"].shape == (len(names["split"].test), 5)


def test_every_snippet_about_gpus_runs_on_a_cpu(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run_all(ROOT / "docs" / "gpu.md", {"__name__": "gpu"})
    assert names["run"].made_with["device"] == "cpu"


def test_every_snippet_about_sweeps_runs_except_those_on_a_cluster(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = [each for each in snippets(ROOT / "docs" / "sweeps.md") if "Client" not in each]
    assert len(code) >= 2
    names = {"__name__": "sweeps"}
    with ThreadPoolExecutor(1) as executor:
        sweep = bt.sweep
        monkeypatch.setattr(bt, "sweep", lambda *given, **options: sweep(*given, **options, executor=executor))
        for each in code:
            each = each.replace("p=113", "p=5").replace("range(5)", "range(4)")
            exec(compile(re.sub(r"\bstore=", "epochs=10, store=", each), "sweeps.md", "exec"), names)
    assert isinstance(names["runs"], bt.Runs)


def test_the_figure_of_the_page_about_figures_is_drawn_and_judged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run_all(ROOT / "docs" / "figures.md", {"__name__": "figures"})
    figure, small = names["figure"], names["Scale"](seeds=1, epochs=10, p=5, record_every=5)
    with ThreadPoolExecutor(1) as executor:
        runs = names["sweep_configs"](figure.configs(small), store="runs", executor=executor)
    page = names["write_figure_page"](figure, names["collect"](runs), "late.html")
    assert [claim.verdict for claim in figure.claims(runs)] == ["undecided"]  # one seed decides nothing
    assert "A late prior still ends the plateau." in page.read_text(encoding="utf-8")


def test_the_phases_of_committed_runs_are_those_that_the_page_about_theory_says(capsys):
    run_all(ROOT / "docs" / "theory.md", {"__name__": "theory"})
    readings = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
    assert len(readings) == 5
    assert all("plateau from" in each for by_both in readings for each in by_both)
    assert all("resurgence not reached" in by_norm for _, by_norm in readings)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_and_file_that_a_page_names_is_there(page):
    text = page.read_text(encoding="utf-8")
    linked = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    named = re.findall(r"`((?:bayesticket|tests|docs|examples|tools)/[\w/.-]*\w/?)`", text)
    for path in filter(None, linked):
        if not path.startswith("reference/"):  # which the build of the site writes, and then checks its links
            assert (page.parent / path).exists(), path
    for path in named:
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.name)
def test_every_name_that_a_page_takes_from_bt_exists(page):
    for name in re.findall(r"\bbt\.(\w+)", page.read_text(encoding="utf-8")):
        assert hasattr(bt, name), name


def test_the_glossary_has_only_words_that_occur_and_each_once():
    glossary = ROOT / "docs" / "glossary.md"
    words = re.findall(r"^\*\*(.+?)\*\*", glossary.read_text(encoding="utf-8"), flags=re.MULTILINE)
    others = [page for page in PAGES if page != glossary] + list((ROOT / "bayesticket").rglob("*.py"))
    text = re.sub(r"\s+", " ", " ".join(path.read_text(encoding="utf-8") for path in others)).lower()
    assert len(words) >= 20
    assert words == sorted(set(words), key=str.lower)
    for word in words:
        assert re.search(rf"\b{re.escape(word.lower())}", text), word


def test_every_statement_of_the_page_about_theory_names_functions_and_tests_that_exist():
    text = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8").split("\n## Lemma 5.1 on trained models")[0]
    tests = " ".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "theory").glob("test_*.py"))
    entries = re.split(r"\n(?=#### \d+\. |- \*\*)", text)[1:]
    assert len(entries) > 22 + 20
    assert [entry for entry in entries if not re.search(r"`test_\w+`", entry)] == []
    named = set(re.findall(r"`(?:bt\.theory\.)?([a-z]+(?:_[a-z0-9]+)*)`", text)) - {
        "paper",
        "scaled",
        "linear_attention",
    }
    tested = {name for name in named if name.startswith("test_")}
    assert tested <= set(re.findall(r"def (test_\w+)", tests))
    assert named - tested <= set(bt.theory.__all__)
    assert len(tested) > 50
    assert len(named - tested) > 50


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.name)
def test_every_module_that_a_page_names_exists(page):
    for name in re.findall(r"`(bayesticket(?:\.\w+)+)", page.read_text(encoding="utf-8")):
        module, _, attribute = name.rpartition(".")
        found = importlib.import_module(module)
        assert hasattr(found, attribute) or importlib.util.find_spec(name), name
