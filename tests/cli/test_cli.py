"""The command line: options, files and flags, errors of one line."""

import json
import os
import signal
import sys
import time
from dataclasses import fields

import pytest

import bayesticket as bt
from bayesticket.cli.expressions import parse_spec
from bayesticket.cli.main import COMMANDS, USAGE, main
from bayesticket.cli.options import computed_parameters, read_train_options
from bayesticket.sweeps import backends


def test_every_public_name_is_there():
    for name in bt.__all__:
        assert getattr(bt, name) is not None


def test_train_shows_every_option_with_its_meaning(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    shown = capsys.readouterr().out
    for field in fields(bt.TrainConfig):
        assert f"--{field.name.replace('_', '-')} " in shown
    words = " ".join(shown.split())
    for one in computed_parameters():
        assert one.meaning.replace("warm-up", "warm- up") in words or one.meaning in words, one.name
    assert "(default: 10000)" in words


TOML = """
task = "ModularAddition(p=7)"
intervention = "KLPrior(strength=0.5) + NormMatch(radius=8)"
model = "Architecture(d_model=16, d_mlp=16)"
measures = ["AttentionEntropy()"]
betas = [0.9, 0.98]
epochs = 20
"""


def test_a_toml_file_sets_options_and_flags_override_it(tmp_path, capsys):
    (tmp_path / "run.toml").write_text(TOML)
    store = tmp_path / "run"
    assert main(["train", "--config", str(tmp_path / "run.toml"), "--seed", "3", "--store", str(store)]) == 0
    assert "Run(finished after 20 epochs" in capsys.readouterr().out
    run = bt.Run.load(store)
    assert run.config.seed == 3
    assert run.config.optimizer.betas == (0.9, 0.98)
    assert run.config.intervention == bt.KLPrior(strength=0.5) + bt.NormMatch(radius=8)
    assert "attention_entropy" in run.curves
    assert json.loads((store / "run.json").read_text())["made_with"]["config_file"] == TOML
    assert "<html" in (store / "curves.html").read_text()
    assert main(["train", "--config", str(tmp_path / "run.toml"), "--seed", "3", "--store", str(store)]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "'trian' is not a command; accepted: quickstart, train, resume, sweep, reproduce, report, bench"),
        (["train", "--config", "nowhere.toml"], "--config: got 'nowhere.toml'; accepted: a TOML file"),
        (["train", "--config"], "config: got too few values; accepted: --config PATH"),
        (["bench", "--quick=1"], "quick: got a value; accepted: --quick"),
        (["train", "--epochs", "1", "--store", "/dev/null/x"], "store: got '/dev/null/x'"),
        (["resume", "nowhere"], "nowhere"),
        (["reproduce", "fig19"], "fig19"),
        (["reproduce", "fig1", "--seeds", "0"], "seeds: got 0; accepted: a whole number of at least 1"),
        (["reproduce", "fig1", "--workers", "0", "--smoke"], "workers: got 0"),
        (["report", "--results", "nowhere"], "results: got 'nowhere'; accepted: a directory with results"),
    ],
)
def test_bad_input_is_one_line_on_the_error_stream(arguments, message, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


EVALUATING = """
task = "ModularAddition(p=5)"
model = "Architecture(d_model=8, d_mlp=8, n_ctx=9, positions='none')"
epochs = 5

[evaluate]
"T=9" = "ModularAddition(p=5, n_distractors=5)"
"""


def test_evaluations_are_read_from_a_table_or_from_flags_with_labels(tmp_path, capsys):
    (tmp_path / "run.toml").write_text(EVALUATING)
    long, short = (bt.ModularAddition(p=5, n_distractors=n) for n in (5, 0))
    file, flag = ["--config", str(tmp_path / "run.toml")], ["--evaluate", "T=9: ModularAddition(p=5, n_distractors=5)"]
    assert read_train_options(file).config.evaluate == {"T=9": long}
    assert read_train_options(flag).config.evaluate == {"T=9": long}
    both = [*flag, "short: ModularAddition(p=5, n_distractors=0)"]
    assert read_train_options(both).config.evaluate == {"T=9": long, "short": short}
    assert read_train_options([*file, "--evaluate", "none"]).config.evaluate is None
    assert main(["train", *file, "--store", str(tmp_path / "run")]) == 0
    assert "T=9/unseen_accuracy" in bt.Run.load(tmp_path / "run").curves


def test_unknown_keys_of_a_file_are_named(tmp_path, capsys):
    (tmp_path / "run.toml").write_text("epocs = 3")
    assert main(["train", "--config", str(tmp_path / "run.toml")]) == 2
    assert "got 'epocs'" in (error := capsys.readouterr().err)
    assert "Closest: 'epochs'" in error
    (tmp_path / "run.toml").write_text("epochs = = 3")
    assert main(["train", "--config", str(tmp_path / "run.toml")]) == 2


@pytest.mark.parametrize(
    "text",
    [
        "KLPrior(strength=__import__('os').getcwd())",
        "KLPrior",
        "[KLPrior() for _ in 'x']",
        "open('x', 'w')",
        "KLPrior().strength",
        "KLPrior(",
        "3",
    ],
)
def test_expressions_are_read_by_grammar_and_never_evaluated(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if text == "KLPrior":
        assert parse_spec(text) == bt.KLPrior()
        return
    with pytest.raises(bt.BayesticketError):
        parse_spec(text)
    assert not list(tmp_path.iterdir())


def test_an_expression_reads_what_a_specification_prints():
    for spec in (
        bt.ModularAddition(p=7, distractors="constant"),
        bt.KLPrior(strength=bt.Anneal(2.0, 0.5, last=10), head=1) + bt.QKPenalty(),
        bt.Architecture(n_heads=4, normalization_type="LN"),
        bt.KLPrior(bt.Permuted("oracle", seed=2)),
    ):
        assert parse_spec(repr(spec)) == spec


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "0"], "epochs: got 0; accepted: a whole number of at least 1"),
        (["--task", "Nothing()"], "task: got 'Nothing'; accepted: "),
        (["--intervention", "KLPrior(strength=-1)"], "strength: got -1; accepted: "),
        (["--measures", "AttentionEntropy()", "Foo()"], "measures: got 'Foo'; accepted: 'KLToOracle', "),
        (["--measures", "EffectiveRnk()"], "measures: got 'EffectiveRnk'; accepted: "),
        (["--measures"], "measures: got too few values"),
        (["--evaluate", "ModularAddition(p=5)"], "evaluate: got 'ModularAddition(p=5)'; accepted: different labels"),
        (["--evaluate", "T: ModularAddition()", "T: SparseParity()"], "evaluate: got 'T: SparseParity()'; accepted: "),
        (["--evaluate", "T: Nothing()"], "evaluate T: got 'Nothing'; accepted: 'ModularAddition', "),
        (["--evaluate", "a/b: ModularAddition()"], "evaluate: got 'a/b'; accepted: tasks by label"),
        (["--optimizer", "Adm()"], "optimizer: got 'Adm'; accepted: "),
        (["--loss", "Maximum()"], "loss: got 'Maximum'; accepted: 'CrossEntropy', 'StableMax'"),
        (["--epochs", "x"], "epochs: got 'x'; accepted: a whole number"),
        (["--stop_after_grok=1.5"], "stop_after_grok: got '1.5'; accepted: a whole number"),
        (["--lr", "fast"], "lr: got 'fast'; accepted: a number"),
        (["--lr"], "lr: got too few values; accepted: --lr FLOAT"),
        (["--betas", "0.9"], "betas: got too few values"),
        (["--forward", "fat"], "forward: got 'fat'; accepted: 'auto', 'fast', 'full'. Closest: 'fast'"),
        (["--epocs", "3"], "option: got '--epocs'; accepted: '--config', "),
        (["runs/kl"], "arguments: got 'runs/kl', which belongs to no option"),
    ],
)
def test_a_flag_that_makes_no_sense_is_one_line(arguments, message, capsys):
    assert main(["train", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"bayesticket: {message}")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "closest"),
    [
        (["train", "--epocs", "3"], "--epochs"),
        (["train", "--measures", "EffectiveRnk()"], "EffectiveRank"),
        (["train", "--task", "ModularAdition()"], "ModularAddition"),
        (["resume", "runs", "--thread", "2"], "--threads"),
        (["sweep", "a.toml", "--worker", "2"], "--workers"),
        (["bench", "--quik"], "--quick"),
        (["quickstart", "--sead", "1"], "--seed"),
    ],
)
def test_the_closest_name_is_suggested(arguments, closest, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.endswith(f"Closest: {closest!r}\n")
    assert error.count("\n") == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_the_usage_lists_every_command_and_its_help_has_no_noise(command, capsys):
    assert f"\n  {command} " in USAGE
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    shown = capsys.readouterr().out
    for noise in (">>>", "None", "()\n\n", "╭", "Args:", "_ "):
        assert noise not in shown, noise


def test_resume_writes_the_page_that_train_writes(tmp_path, capsys):
    store = tmp_path / "run"
    small = ["--task", "ModularAddition(p=5)", "--model", "Architecture(d_model=8, d_mlp=8)", "--epochs", "10"]
    assert main(["train", *small, "--store", str(store)]) == 0
    said = capsys.readouterr().out
    (store / "curves.html").unlink()
    assert main(["resume", str(store)]) == 0
    assert capsys.readouterr().out == said
    assert "<html" in (store / "curves.html").read_text()


def test_a_setting_of_the_optimiser_in_a_file_holds_for_the_optimiser_of_a_flag(tmp_path):
    (tmp_path / "run.toml").write_text("lr = 0.5")
    options = read_train_options(["--config", str(tmp_path / "run.toml"), "--optimizer", "sgd"])
    assert options.config.optimizer == bt.SGD(lr=0.5)
    assert read_train_options(["--max-grad-norm", "none"]).config.max_grad_norm is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"store = 5", "store: got 5; accepted: the path of a directory, as text"),
        (b'checkpoint_every = "often"', "checkpoint_every: got 'often'; accepted: a whole number of at least 1"),
        (b"evaluate = 5", "evaluate: got 5; accepted: a table of values by label"),
        (b"\xff\xfe", "accepted: a TOML file that can be read"),
    ],
)
def test_a_file_that_makes_no_sense_is_one_line(content, message, tmp_path, capsys):
    (tmp_path / "run.toml").write_bytes(content)
    assert main(["train", "--config", str(tmp_path / "run.toml")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_figure_is_reproduced_and_reported(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(backends, "START_METHOD", "fork")
    monkeypatch.chdir(tmp_path)
    smaller = ["--smoke", "--seeds", "1", "--epochs", "10", "--workers", "1"]
    assert main(["reproduce", "fig1", *smaller, "--store", "runs here", "--out", "pages"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "pages" / "fig1.html")
    assert len(list((tmp_path / "runs here").iterdir())) == 2
    assert main(["report", "--results", "pages", "--out", "all.html"]) == 0
    assert "Figure 1" in (tmp_path / "all.html").read_text(encoding="utf-8")


def test_quickstart_shows_every_option_with_its_meaning(capsys):
    with pytest.raises(SystemExit):
        main(["quickstart", "--help"])
    shown = capsys.readouterr().out
    for option, meaning in (("--out", "Directory for"), ("--seed", "Decides"), ("--p ", "The modulus")):
        assert option in shown
        assert meaning in shown


def test_quickstart_takes_its_directory(tmp_path, monkeypatch):

    module = sys.modules["bayesticket.sweeps.sweep"]

    asked = []

    def ask(jobs, **options):
        asked.extend(jobs)
        return {}

    monkeypatch.setattr(module, "train_jobs", ask)
    assert main(["quickstart", "--out", str(tmp_path / "here")]) == 2  # nothing was trained that could be shown
    assert {job.store.parent for job in asked} == {tmp_path / "here" / "runs"}


@pytest.mark.parametrize(("presses", "said"), [(1, "continue with: bayesticket resume "), (2, "interrupted")])
def test_ctrl_c_says_what_to_type_next(presses, said, tmp_path, monkeypatch, capsys):
    from bayesticket.runs import Training

    take_epoch = Training.take_epoch

    def interrupted(self):
        take_epoch(self)
        if self.epoch == 3:
            for _ in range(presses):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0)

    monkeypatch.setattr(Training, "take_epoch", interrupted)
    store = tmp_path / "a run"
    options = ["--task", "ModularAddition(p=5)", "--model", "Architecture(d_model=8, d_mlp=8)", "--epochs", "9"]
    assert main(["train", *options, "--store", str(store)]) == 130
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert said in line
    if presses == 1:
        assert line.endswith(f"'{store}'")
        monkeypatch.undo()
        assert main(["resume", str(store)]) == 0
        assert "finished after 9 epochs" in capsys.readouterr().out
