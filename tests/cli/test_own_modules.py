"""Classes of one's own from the command line: imported by name, recorded in the header, never imported by loading."""

import json
import os
import shlex
import signal
import sys

import pytest

import bayesticket as bt
from bayesticket.cli.main import main
from bayesticket.runs import Training
from bayesticket.specs import Spec

MODULE = """
import bayesticket as bt


@bt.spec
class Halved(bt.Intervention):
    factor: float = 0.5

    def gradients(self, context, gradients):
        return {name: self.factor * gradient for name, gradient in gradients.items()}
"""
SMALL = ["--task", "ModularAddition(p=5)", "--model", "Architecture(d_model=8, d_mlp=8)", "--epochs", "10"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A current directory with a module, as it is for a user who starts a command there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    (tmp_path / "halving.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("import nothing_of_the_kind")
    (tmp_path / "raising.py").write_text("1 / 0")
    yield tmp_path
    forget()


def forget():
    """Makes the process one that has not imported the module."""
    sys.modules.pop("halving", None)
    Spec.kinds.pop("Halved", None)


@pytest.mark.parametrize("by", ["flag", "file"])
def test_a_class_of_an_imported_module_is_trained_and_its_module_recorded(by, here):
    given = ["--import", "halving"]
    if by == "file":
        (here / "run.toml").write_text('import = ["halving"]')
        given = ["--config", "run.toml"]
    assert main(["train", *given, *SMALL, "--intervention", "Halved(factor=0.25)", "--store", "run"]) == 0
    run = bt.Run.load("run")
    assert repr(run.config.intervention) == "Halved(factor=0.25)"
    header = json.loads((here / "run" / "run.json").read_text())
    assert header["made_with"]["classes"] == "halving.Halved"
    assert "halving" not in json.dumps(header["config"])  # so that the id does not depend on where the class stands


def test_loading_elsewhere_imports_nothing_and_names_the_module(here, capsys):
    assert main(["train", "--import", "halving", *SMALL, "--intervention", "Halved()", "--store", "run"]) == 0
    forget()
    run = bt.Run.load("run")
    assert len(run.curves) == 2
    with pytest.raises(bt.BayesticketError, match=r"type: got 'Halved'; accepted: .*; import halving first"):
        _ = run.config
    assert "halving" not in sys.modules
    capsys.readouterr()
    assert main(["resume", "run"]) == 2
    assert "import halving first" in capsys.readouterr().err
    assert main(["resume", "run", "--import", "halving"]) == 0
    assert "Run(finished after 10 epochs" in capsys.readouterr().out


def test_the_hint_after_ctrl_c_names_the_module(here, monkeypatch, capsys):
    take_epoch = Training.take_epoch

    def interrupted(self):
        take_epoch(self)
        if self.epoch == 3:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Training, "take_epoch", interrupted)
    given = ["--import", "halving", *SMALL, "--intervention", "Halved() + KLPrior()", "--store", "a run"]
    assert main(["train", *given]) == 130
    hint = capsys.readouterr().err.strip().splitlines()[-1].partition("continue with: ")[2]
    assert hint.endswith(" --import halving")
    monkeypatch.setattr(Training, "take_epoch", take_epoch)
    forget()
    assert main(shlex.split(hint)[1:]) == 0
    assert "finished after 10 epochs" in capsys.readouterr().out


def test_runs_of_the_librarys_own_classes_record_no_module(here):
    assert main(["train", *SMALL, "--store", "run"]) == 0
    assert "classes" not in json.loads((here / "run" / "run.json").read_text())["made_with"]


def test_a_sweep_trains_an_imported_class_in_other_processes(here, capsys):
    (here / "halves.toml").write_text(
        """
        import = ["halving"]
        task = "ModularAddition(p=5)"
        model = "Architecture(d_model=8, d_mlp=8)"
        epochs = 10
        seeds = [0, 3]
        workers = 1
        store = "store"

        [grid.intervention]
        none = "none"
        half = "Halved()"
        """
    )
    assert main(["sweep", "halves.toml"]) == 0
    said = capsys.readouterr().out
    assert "half: 0 of 2 grokked" in said
    assert "kept in store, curves in store/halves.html" in said
    page = (here / "store" / "halves.html").read_text()
    assert "Halved()" in page
    assert "seed 3" in page
    assert len([path for path in (here / "store").iterdir() if path.is_dir()]) == 4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "import: got 'nowhere'; accepted: a module in "),
        ("halving.py", "import: got 'halving.py'; accepted: the name without .py, 'halving'"),
        ("a module", "import: got 'a module'; accepted: names of modules"),
        ("broken", "import: broken imports nothing_of_the_kind, which is not installed"),
        ("raising", "import: raising raised ZeroDivisionError: division by zero"),
    ],
)
def test_a_module_that_cannot_be_imported_is_one_line(name, message, here, capsys):
    assert main(["train", "--import", name, *SMALL]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
