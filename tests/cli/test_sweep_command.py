"""`bayesticket sweep`: the file is read as `bt.grid` takes its axes, and what is wrong with it is one line."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import bayesticket as bt
import bayesticket.cli.sweep as command
from bayesticket.cli.main import main

FILE = """
task = "ModularAddition(p=5)"
model = "Architecture(d_model=8, d_mlp=8)"
epochs = 10
seeds = 2

[grid]
lr = [3e-4, 1e-3]
optimizer = ["adamw", "Muon()"]

[grid.intervention]
none = "none"
kl = "KLPrior(strength=0.5)"
"""


@pytest.fixture
def in_threads(monkeypatch):
    """Trains in this process; the test of one's own modules uses processes, as users do."""
    asked = {}
    train = command.train_sweep

    def train_here(*given, workers, **options):
        asked.update(options, workers=workers)
        with ThreadPoolExecutor(1) as executor:
            asked["runs"] = train(*given, **options | {"progress": False}, executor=executor)
        return asked["runs"]

    monkeypatch.setattr(command, "train_sweep", train_here)
    return asked


def test_every_combination_is_trained_and_shown(tmp_path, monkeypatch, in_threads, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lrs.toml").write_text(FILE)
    assert main(["sweep", "lrs.toml", "--store", "here", "--epochs", "5", "--workers", "3"]) == 0
    runs = in_threads["runs"]
    assert in_threads["workers"] == 3
    assert runs.axes == ("lr", "optimizer", "intervention")
    assert runs.labels("lr") == [3e-4, 1e-3]
    assert runs.labels("optimizer") == ["adamw", "Muon()"]
    assert runs.seeds == [0, 1]
    assert set(runs.curves["trained"].to_numpy().ravel()) == {5}
    one = runs.run("kl", seed=1, lr=3e-4, optimizer="Muon()")
    assert one.config.intervention == bt.KLPrior(strength=0.5) + bt.Recipe()
    assert one.config.optimizer == bt.Muon(lr=3e-4)
    said = capsys.readouterr().out
    assert "Runs(lr: 2, optimizer: 2, intervention: 2, seed: 2)" in said
    assert "<NA>" in said
    page = (tmp_path / "here" / "lrs.html").read_text()
    assert page.count("plotly-graph-div") == 2  # a figure for each prior, since one shows two axes
    assert "never" in page
    assert "bayesticket sweep lrs.toml --store here --epochs 5" in page  # flags override what the file says


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "grid: got no axes; accepted: a table with an axis for each option, such as [grid.intervention]"),
        ("grid = 3", "grid: got 3; accepted: a table"),
        ("[grid]\nlrs = [1.0]", "axis: got 'lrs'; accepted: "),
        ("[grid.intervention]\nkl = 'KLPrio()'", "intervention kl: got 'KLPrio'; accepted: "),
        ("[grid]\nlr = 3", "lr: got 3; accepted: "),
        ("seed = 3\n[grid]\nlr = [1.0]", "key: got 'seed'; accepted: "),
        ("seeds = 0\n[grid]\nlr = [1.0]", "seeds: got 0; accepted: how many, at least 1, or a list of seeds"),
        ("seeds = [0, 0]\n[grid]\nlr = [1.0]", "seeds: got [0, 0]; accepted: "),
        ("store = 5\n[grid]\nlr = [1.0]", "store: got 5; accepted: the path of a directory, as text"),
        ("out = 5\n[grid]\nlr = [1.0]", "out: got 5; accepted: the path of a page, as text"),
        ("workers = 0\n[grid]\nlr = [1.0]", "workers: got 0; accepted: a whole number of at least 1"),
        ("task = 'SparseParity()'\n[grid.task]\na = 'SparseParity()'", "task: got an axis of the sweep and an option"),
        ("lr = 1.0\n[grid]\nlr = [1.0]", "lr: got an axis of the sweep and an option of the same name"),
    ],
)
def test_a_file_that_makes_no_sense_is_one_line(text, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.toml").write_text(text)
    assert main(["sweep", "a.toml"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_a_sweep_without_a_file_is_one_line(capsys):
    assert main(["sweep"]) == 2
    assert capsys.readouterr().err == "bayesticket: file: got nothing; accepted: the TOML file\n"
