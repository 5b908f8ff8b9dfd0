"""Runs that are killed or interrupted: what is left resumes to the bit, and one line says how."""

import functools
import json
import os
import signal
import subprocess
import sysconfig
import time

import pytest
import torch
from helpers import Killed, die_at
from jobs import Held
from programs import running, wait_until
from small_runs import SMALL, TASK, assert_same, interrupt_at, own_model, plain, small_run

import bayesticket as bt
from bayesticket.runs import (
    RunDirectory,
    TrainConfig,
    Training,
    configure,
    describe_config,
)
from bayesticket.runs.checkpoint import restore_checkpoint
from bayesticket.specs import spec_id

# Killed -----------------------------------------------------------------------------------------------------------

CASES = {
    "adamw": {},
    "sgd": {"optimizer": "sgd", "momentum": 0.9},
    "muon": {"optimizer": "muon"},
    "lion": {"optimizer": "lion"},
    "batches": {"batch_size": 6},
    "noise": {"intervention": bt.GradientNoise(bt.KLPrior())},
    "schedule": {"intervention": bt.KLPrior(strength=bt.Anneal(1.0, 0.0, last=24))},
    "projection": {"intervention": bt.NormMatch(radius=5.0)},
    "redraw": {"task": bt.ModularAddition(p=7, redraw_each_epoch=True)},
    "steps of a warmup": {"measures": [bt.Contraction()], "warmup": 40, "record_every": 5},
}


@functools.cache
def uninterrupted(case):
    return bt.train(**options_of(case))


def options_of(case):
    return {"task": TASK, "model": SMALL, "epochs": 24, "lr": 3e-3, "seed": 2} | CASES[case]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("killed_at", [1, 21])
def test_a_run_killed_at_any_epoch_resumes_to_the_bit(tmp_path, case, killed_at, monkeypatch):
    options, whole = options_of(case), uninterrupted(case)
    die_at(killed_at, monkeypatch)
    with pytest.raises(Killed):
        bt.train(**options, store=tmp_path / "run", checkpoint_every=5)
    monkeypatch.undo()
    assert (tmp_path / "run" / "checkpoint.safetensors").exists() == (killed_at > 5)
    resumed = bt.resume(tmp_path / "run")
    assert_same(resumed, whole)
    assert_same(bt.Run.load(tmp_path / "run"), whole)
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()
    assert_same(bt.train(**options, store=tmp_path / "run"), whole)


HELD = {"intervention": bt.KLPrior(strength=0.5) + Held(after=45), "epochs": 60}


def train_held(store):
    small_run(**HELD, store=store, checkpoint_every=20)


def test_kill_minus_nine_and_resume_equals_the_uninterrupted_run(tmp_path, monkeypatch):
    store = tmp_path / "run"
    monkeypatch.setenv("HELD_UNTIL", str(tmp_path / "gate"))
    with running(train_held, store) as program:
        wait_until(lambda: (store / "checkpoint.safetensors").exists())
        os.kill(program.pid, signal.SIGKILL)
        program.process.join()
    monkeypatch.delenv("HELD_UNTIL")
    assert json.loads((store / "run.json").read_text())["status"] == "running"
    with pytest.raises(bt.BayesticketError, match="resume"):
        bt.Run.load(store)
    assert_same(bt.resume(store), small_run(**HELD))


# Ctrl-C -----------------------------------------------------------------------------------------------------------

LONG = {"intervention": bt.KLPrior(strength=0.5), "epochs": 100_000}


def train_until_interrupted(directory):
    os.chdir(directory)
    try:
        small_run(**LONG, progress=lambda epoch, record: epoch == 50 and (directory / "under way").touch())
    except KeyboardInterrupt as interrupted:
        (directory / "said").write_text(str(interrupted))


def assert_continues_from(directory, message):
    """That a message names an epoch, and that the state in a directory is that of a run of so many epochs."""
    assert message.startswith("interrupted after epoch ")
    checkpointed = int(message.split()[3].rstrip(";").replace(",", ""))
    # The run is too long to be resumed: the state that it would go on from is compared with a shorter run.
    config = configure(task=TASK, model=SMALL, lr=3e-3, **LONG)
    assert json.loads((directory / "run.json").read_text())["config"] == describe_config(config)[0]
    training = Training(config)
    restore_checkpoint(training, *RunDirectory(directory).read_checkpoint())
    assert training.epoch == checkpointed >= 50
    whole = small_run(**LONG | {"epochs": checkpointed})
    for name, parameter in training.model.named_parameters():
        assert torch.equal(parameter, whole.weights[name])


def test_ctrl_c_leaves_a_resumable_state_and_one_line(tmp_path, capfd):
    with running(train_until_interrupted, tmp_path) as program:
        wait_until((tmp_path / "under way").exists)
        os.kill(program.pid, signal.SIGINT)
        assert program.wait() == 0
    message = (tmp_path / "said").read_text()
    assert "bayesticket.resume(" in message
    assert "\n" not in message
    assert capfd.readouterr().err == ""
    assert_continues_from(tmp_path / message.split("'")[1], message)


def test_ctrl_c_at_the_command_line_leaves_a_resumable_state_and_says_how_to_go_on(tmp_path):
    """In a new interpreter, as it is started from a terminal."""
    command = [f"{sysconfig.get_path('scripts')}/bayesticket", "train", "--store", "run", "--checkpoint-every", "50"]
    command += ["--task", "ModularAddition(p=7)", "--model", "Architecture(d_model=16, d_mlp=32)", "--lr", "3e-3"]
    command += ["--intervention", "KLPrior(strength=0.5)", "--epochs", "100000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_until((tmp_path / "run" / "checkpoint.safetensors").exists)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    message = errors.strip().splitlines()[-1].removeprefix("bayesticket: ")
    assert message.endswith("continue with: bayesticket resume run")
    assert "Traceback" not in output + errors
    assert_continues_from(tmp_path / "run", message)


def test_two_interruptions_in_one_process_leave_the_handler_as_it_was():
    before = signal.getsignal(signal.SIGINT)
    small_run(epochs=10)
    assert signal.getsignal(signal.SIGINT) is before

    def interrupt(epoch, record):
        if epoch == 20:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0)

    with pytest.raises(bt.Interrupted) as caught:
        small_run(progress=interrupt, store=None)
    assert caught.value.run.status == "interrupted"
    assert caught.value.run.curves.index.tolist() == [0, 10, 20]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("batch_size", [None, 6])
def test_a_run_killed_at_its_last_record_resumes_to_the_bit(tmp_path, batch_size, monkeypatch):
    task = bt.ModularAddition(p=7, redraw_each_epoch=True)
    options = {"model": SMALL, "epochs": 20, "lr": 3e-3, "batch_size": batch_size}
    whole, record = bt.train(task, **options), Training.record

    def die(self):
        if self.epoch == 20:
            raise Killed
        record(self)

    monkeypatch.setattr(Training, "record", die)
    with pytest.raises(Killed):
        bt.train(task, **options, store=tmp_path / "run", checkpoint_every=5)
    monkeypatch.setattr(Training, "record", record)
    assert_same(bt.resume(tmp_path / "run"), whole)


@pytest.mark.parametrize("where", ["blocks.0.hook_mlp_out", "blocks.0.mlp"])
def test_a_model_with_hooks_of_its_own_is_another_model(tmp_path, where, caplog):
    model = own_model()
    plain = spec_id(TrainConfig(task=TASK, model=model))
    if where == "blocks.0.mlp":
        model.blocks[0].mlp.register_forward_hook(lambda module, given, output: 0.5 * output)
    else:
        model.add_perma_hook(where, lambda tensor, hook: 0.5 * tensor)
    assert spec_id(TrainConfig(task=TASK, model=model)) != plain
    whole = small_run(model=model, forward="full")
    assert where in caplog.text
    store = tmp_path / "run"
    with pytest.raises(bt.Interrupted, match="continue with the same call and store="):
        small_run(model=model, forward="full", store=store, progress=interrupt_at(20))
    with pytest.raises(bt.BayesticketError, match=r"store: got .* hooks of its own on .*accepted: bayesticket\.train"):
        bt.resume(store)
    with pytest.raises(bt.BayesticketError, match="holds a different run"):
        small_run(model=own_model(), forward="full", store=store)
    assert_same(small_run(model=model, forward="full", store=store), whole)


def test_hooks_that_belong_to_an_architecture_are_no_hooks_of_its_own(tmp_path, caplog):
    model = own_model(attention="linear", residual=False)
    with pytest.raises(bt.Interrupted):
        small_run(model=model, store=tmp_path / "run", progress=interrupt_at(20))
    assert_same(bt.resume(tmp_path / "run"), small_run(model=model))
    assert "own hooks" not in caplog.text
    model.add_perma_hook("blocks.0.attn.hook_pattern", lambda pattern, hook: None)
    assert small_run(model=model, epochs=1).description["model"]["own_hooks"] == ["blocks.0.attn.hook_pattern"]


# Nothing is lost --------------------------------------------------------------------------------------------------


def test_interruptions_without_a_store_never_overwrite_each_other(tmp_path):
    for epoch in (10, 20, 30):
        with pytest.raises(bt.Interrupted) as caught:
            small_run(progress=interrupt_at(epoch))
        assert caught.value.store.exists()
    kept = sorted((tmp_path / "interrupted").iterdir())
    assert [path.name.removeprefix(kept[0].name) for path in kept] == ["", "-2", "-3"]
    for path in kept:
        assert_same(bt.resume(path), plain())


def test_an_interruption_that_cannot_be_kept_still_gives_the_run(tmp_path):
    (tmp_path / "interrupted").write_text("a file in the way")
    with pytest.raises(
        bt.Interrupted, match=r"after epoch 21; its state could not be kept \(.*Not a directory"
    ) as caught:
        small_run(progress=interrupt_at(20))
    assert caught.value.run.curves.index.tolist() == [0, 10, 20]
    assert caught.value.store is None
    assert [path.name for path in tmp_path.iterdir()] == ["interrupted"]


@pytest.mark.parametrize("with_store", [True, False])
def test_an_interruption_of_the_last_record_is_not_swallowed_and_loses_nothing(tmp_path, with_store):
    store = tmp_path / "run" if with_store else None
    with pytest.raises(bt.Interrupted, match="complete") as caught:
        small_run(store=store, progress=interrupt_at(40))
    assert_same(caught.value.run, plain())
    if store is not None:
        assert_same(bt.Run.load(store), plain())


def test_a_function_that_shows_progress_can_stop_the_run(tmp_path):
    def progress(epoch, record):
        if epoch == 20:
            raise KeyboardInterrupt

    with pytest.raises(bt.Interrupted, match="after epoch 21"):
        small_run(store=tmp_path / "run", progress=progress)
    assert_same(bt.resume(tmp_path / "run"), plain())


def test_an_interrupt_comes_before_an_error_of_the_same_moment(tmp_path):
    def both(epoch, record):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0)
        raise RuntimeError("the screen is gone")

    with pytest.raises(bt.Interrupted, match="continue with"):
        small_run(store=tmp_path / "run", progress=both)


@pytest.mark.parametrize("progress", [True, False, None])
def test_a_bar_is_shown_where_it_is_asked_for(progress, capfd):
    small_run(epochs=2, progress=progress)
    assert ("epoch" in capfd.readouterr().err) is bool(progress), "where nobody looks, none is shown unasked"


def test_an_ignored_interrupt_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert small_run(progress=interrupt_at(20)).status == "finished"
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
