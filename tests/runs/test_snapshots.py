"""Snapshots: the run as it was on its way, kept to the bit, and measured afterwards as it would have been recorded."""

import functools
import os
import pickle
import signal

import pandas as pd
import pytest
import torch
from helpers import Killed, die_at, refused
from jobs import Held
from programs import running, wait_until
from small_runs import COPYING, QUICK, SMALL, TASK, assert_same, interrupt_at, own_model, small_run

import bayesticket as bt
from bayesticket.cli.main import main
from bayesticket.runs import as_plan, snapshots
from bayesticket.runs.snapshots import SnapshotPlan

EVERY = bt.Every(10)
KEPT = [0, 10, 20, 30, 40]


# When they are taken ----------------------------------------------------------------------------------------------


def test_epochs_are_spread_as_asked_and_come_in_order():
    assert list(bt.LogSpaced(60).epochs_of(10_000))[-1] == 10_000
    assert 45 < len(bt.LogSpaced(60).epochs_of(10_000)) < 61, "early ones fall together"
    assert list(bt.LogSpaced(2).epochs_of(1)) == [0, 1]
    assert as_plan([30, 10, 10]) == bt.At((30, 10, 10))
    assert list(bt.At((30, 10, 10)).epochs_of(40)) == [10, 30]
    assert as_plan(range(3)) == bt.At((0, 1, 2))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("Every(10)", "snapshots: got 'Every(10)'"),
        (bt.Every, "snapshots: got <class"),
        ([], "at least one epoch"),
        ([3, -1], "snapshots: got -1"),
        ([2.5], "snapshots: got 2.5"),
        ([41], "snapshots: got epoch 41; accepted: epochs of the run, from 0 to 40"),
        (10, "snapshots: got 10"),
    ],
)
def test_what_is_no_plan_is_refused_before_anything_is_trained(given, said, tmp_path):
    refused(lambda: small_run(snapshots=given, store=tmp_path / "run"), said)
    assert not (tmp_path / "run").exists()


def test_plans_need_numbers():
    refused(lambda: bt.Every(0), "epochs: got 0")
    refused(lambda: bt.LogSpaced(1), "n: got 1")


# What they hold ---------------------------------------------------------------------------------------------------


def test_a_run_is_the_same_with_snapshots_and_without(tmp_path):
    plain, kept = small_run(), small_run(snapshots=EVERY, store=tmp_path / "run")
    assert_same(plain, kept)
    assert plain.id == kept.id
    assert list(kept.snapshots) == KEPT
    assert len(kept.snapshots) == len(KEPT)
    assert dict(plain.snapshots) == {}
    assert repr(kept.snapshots) == "Snapshots(0, 10, 20, 30, 40)"


def test_the_model_at_an_epoch_is_that_of_a_run_that_ended_there(tmp_path):
    run = small_run(snapshots=EVERY, store=tmp_path / "run")
    for loaded in (run, bt.Run.load(tmp_path / "run")):
        for epoch in (10, 30):
            shorter = small_run(epochs=epoch)
            for name, parameter in loaded.at(epoch).named_parameters():
                assert torch.equal(parameter, shorter.weights[name]), name
        assert torch.equal(loaded.at(40).W_E, run.model.W_E)


def test_an_epoch_without_a_snapshot_is_refused_or_the_nearest_is_taken():
    run = small_run(snapshots=[0, 10, 30])
    refused(lambda: run.at(11), "epoch: got 11, of which there is no snapshot; accepted: 0, 10, 30, 40")
    assert [run.nearest_epoch(epoch) for epoch in (0, 19, 20, 21, 500)] == [0, 10, 10, 30, 40]
    assert torch.equal(run.at(11, nearest=True).W_E, run.at(10).W_E)
    refused(lambda: run.at(-1), "epoch: got -1")
    refused(lambda: small_run().at(5), "accepted: 40")
    with pytest.raises(KeyError):
        run.snapshots[11]


def test_a_snapshot_is_read_once_and_only_where_it_is_asked_for(tmp_path, monkeypatch):
    small_run(snapshots=EVERY, store=tmp_path / "run")
    read, seen = snapshots.read_sealed, []
    monkeypatch.setattr(
        snapshots, "read_sealed", lambda path, **options: seen.append(path.name) or read(path, **options)
    )
    run = bt.Run.load(tmp_path / "run")
    assert (10 in run.snapshots, 11 in run.snapshots, run.nearest_epoch(12), len(run.snapshots)) == (True, False, 10, 5)
    assert seen == []
    run.at(10)
    assert seen == ["00000010.safetensors"]


def test_a_teacher_may_be_a_run_at_an_epoch():
    run = small_run(snapshots=[20])
    taught = small_run(intervention=bt.KLPrior(run.at(20)), epochs=5)
    assert taught.status == "finished"


def test_snapshots_in_memory_are_copied_with_the_run(tmp_path):
    run = small_run(snapshots=EVERY)
    run.save(tmp_path / "saved")
    again = bt.Run.load(tmp_path / "saved")
    assert list(again.snapshots) == KEPT
    assert torch.equal(again.at(20).W_E, run.at(20).W_E)
    again.save(tmp_path / "saved")
    assert list(pickle.loads(pickle.dumps(run)).snapshots) == KEPT


# Measured afterwards ----------------------------------------------------------------------------------------------


@bt.spec
class Leaking(bt.Intervention):
    """What the MLP gives grows with every step: an edit whose state training changes."""

    def init(self, context):
        return {"leak": torch.zeros(())}

    def edits(self, context):
        return [("blocks.0.hook_mlp_out", lambda tensor, hook: tensor * (1 + context.state["leak"]))]

    def project(self, context):
        context.state["leak"] = context.state["leak"] + 0.02


SIMPLE = (bt.AttentionEntropy(layer="each"), bt.WeightNorms(), bt.KLToOracle(layer="each", half="test"), bt.Accuracy())
OF_ONE_LAYER = (*SIMPLE, bt.Loss(), bt.ExplainingAway(), bt.AttentionGradient(), bt.StructuralCondition())
CASES = {
    "prior": {"intervention": bt.KLPrior()},
    "batches": {"batch_size": 6},
    "redrawn": {"task": bt.ModularAddition(p=7, redraw_each_epoch=True)},
    "redrawn in batches": {"task": bt.ModularAddition(p=7, redraw_each_epoch=True), "batch_size": 6},
    "attention frozen": {"intervention": bt.FrozenAttention("oracle")},
    "an edit with state": {"intervention": Leaking()},
    "full forward": {"forward": "full"},
    "two layers": {"model": bt.Architecture(d_model=16, d_mlp=32, n_layers=2)},
    "double precision": {"dtype": "float64"},
    "a model of one's own": {"model": own_model(seed=3)},
    "stopped by a rule": {"stop_when": bt.Stalls("test_accuracy", over=10, memorised=0.0)},
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_measured_afterwards_is_what_recording_gives_to_the_bit(case, tmp_path):
    options = {"task": TASK, "model": SMALL, "epochs": 45, "lr": 3e-3} | CASES[case]
    measures = SIMPLE if case in ("attention frozen", "an edit with state", "two layers") else OF_ONE_LAYER
    recorded = bt.train(**options, measures=measures)
    bt.train(**options, snapshots=EVERY, store=tmp_path / "run")
    run = bt.Run.load(tmp_path / "run")
    assert set(run.snapshots) == {*(epoch for epoch in (*KEPT, 45) if epoch <= run.epoch), run.epoch}
    found = run.measure(*measures)
    assert found.index.tolist() == sorted(run.snapshots)
    pd.testing.assert_frame_equal(found, recorded.curves.loc[found.index, found.columns], check_exact=True)
    assert len(found.columns) > 5


def test_chosen_epochs_are_measured_in_order():
    run = small_run(snapshots=EVERY)
    found = run.measure(bt.AttentionEntropy(), epochs=[30, 0])
    assert found.index.tolist() == [0, 30]
    refused(lambda: run.measure(bt.AttentionEntropy(), epochs=[5]), "epoch: got 5", "accepted: 0, 10, 20, 30, 40")
    refused(lambda: run.measure(bt.AttentionEntropy(), epochs=5), "epochs: got 5", "accepted: epochs, such as")
    refused(lambda: run.measure(bt.AttentionEntropy(), epochs=[]), "epochs: got none")


def test_the_end_of_any_run_can_be_measured():
    found = small_run().measure(bt.AttentionEntropy())
    recorded = small_run(measures=[bt.AttentionEntropy()])
    pd.testing.assert_series_equal(found, recorded.curves["attention_entropy"].loc[[40]], check_exact=True)


@pytest.mark.parametrize(
    ("options", "measures", "said"),
    [
        ({}, (), "measures: got none"),
        ({}, ("accuracy",), "measures: got 'accuracy'"),
        ({}, (bt.Contraction(),), "can only be recorded"),
        ({"intervention": Leaking()}, (bt.AttentionEntropy(),), "the state of leaking/leak was not kept"),
    ],
)
def test_what_cannot_be_measured_afterwards_is_said(options, measures, said):
    run = small_run(**options)
    refused(lambda: run.measure(*measures), said)


def test_hooks_that_no_file_holds_are_not_left_out_silently():
    model = own_model()
    model.add_hook("blocks.0.hook_mlp_out", lambda tensor, hook: 2 * tensor)
    run = small_run(model=model, snapshots=EVERY)
    refused(lambda: run.measure(bt.AttentionEntropy()), "hooks of its own", "bt.measure(run.at(…), …)")


# Interrupted ------------------------------------------------------------------------------------------------------


@functools.cache
def whole() -> bt.Run:
    return small_run(snapshots=EVERY)


def assert_all_there(run):
    assert_same(run, whole())
    assert list(run.snapshots) == KEPT
    for epoch in KEPT:
        for name, weight in run.snapshots[epoch].weights.items():
            assert torch.equal(weight, whole().snapshots[epoch].weights[name])


@pytest.mark.parametrize("killed_at", [1, 10, 25])
def test_a_killed_run_goes_on_with_its_plan_whether_it_is_named_again_or_not(tmp_path, killed_at, monkeypatch):
    die_at(killed_at, monkeypatch)
    with pytest.raises(Killed):
        small_run(snapshots=EVERY, store=tmp_path / "run", checkpoint_every=15)
    monkeypatch.undo()
    assert_all_there(bt.resume(tmp_path / "run") if killed_at > 1 else small_run(store=tmp_path / "run"))


def train_held(store):
    small_run(intervention=bt.KLPrior(strength=0.5) + Held(after=25), snapshots=bt.Every(1), store=store)


def test_kill_minus_nine_leaves_whole_snapshots(tmp_path, monkeypatch):
    store = tmp_path / "run"
    monkeypatch.setenv("HELD_UNTIL", str(tmp_path / "gate"))
    with running(train_held, store) as program:
        wait_until(lambda: (store / "snapshots").is_dir() and len(list((store / "snapshots").iterdir())) > 15)
        os.kill(program.pid, signal.SIGKILL)
        program.process.join()
    monkeypatch.delenv("HELD_UNTIL")
    run = bt.resume(store)
    assert list(run.snapshots) == list(range(41))
    assert all(snapshot.weights for snapshot in run.snapshots.values())


def test_ctrl_c_keeps_those_that_were_in_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(bt.Interrupted) as caught:
        small_run(snapshots=EVERY, progress=interrupt_at(20))
    assert list(caught.value.run.snapshots) == [0, 10, 20]
    assert_all_there(bt.resume(caught.value.store))


def test_a_disk_that_is_full_costs_the_snapshot_alone(tmp_path, monkeypatch, caplog):
    write = snapshots.write_sealed

    def full(path, tensors, note):
        if path.name == "00000020.safetensors":
            raise bt.BayesticketError(f"{path}: could not be written (No space left on device)")
        return write(path, tensors, note)

    monkeypatch.setattr(snapshots, "write_sealed", full)
    run = small_run(snapshots=EVERY, store=tmp_path / "run")
    assert list(run.snapshots) == [0, 10, 30, 40]
    assert "training goes on without the snapshot of epoch 20" in caplog.text


def test_a_run_that_diverges_keeps_its_snapshots(tmp_path):
    with pytest.raises(bt.NonFiniteLoss):
        small_run(lr=1e30, max_grad_norm=None, warmup=20, snapshots=bt.Every(1), store=tmp_path / "run")
    run = bt.Run.load(tmp_path / "run")
    assert run.status == "failed"
    assert 0 in run.snapshots


# Read back --------------------------------------------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path):
    small_run(snapshots=EVERY, store=tmp_path / "run")
    return tmp_path / "run"


def test_a_damaged_snapshot_is_named_and_the_others_are_read(stored):
    path = stored / "snapshots" / "00000010.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    run = bt.Run.load(stored)
    refused(lambda: run.at(10), f"{path}: truncated, damaged or foreign (other bytes than were written)")
    run.at(20)
    damaged = bt.Run.load(stored, damaged=True).at(10)
    assert damaged.W_E.shape == run.model.W_E.shape
    path.write_bytes(b"")
    refused(lambda: run.at(10), f"{path}: truncated, damaged or foreign")


def test_a_snapshot_of_another_run_or_epoch_is_refused(stored, tmp_path):
    small_run(seed=1, snapshots=EVERY, store=tmp_path / "other")
    place = stored / "snapshots"
    (place / "00000010.safetensors").write_bytes((tmp_path / "other/snapshots/00000010.safetensors").read_bytes())
    (place / "00000020.safetensors").write_bytes((place / "00000030.safetensors").read_bytes())
    run = bt.Run.load(stored)
    refused(lambda: run.at(10), "00000010.safetensors: content: got epoch 10 of the run", f"of the run {run.id}")
    refused(lambda: run.at(20), "content: got epoch 30 of the run")


def test_files_that_are_no_snapshots_are_left_alone(stored):
    for name in ("notes.txt", ".00000010.safetensors.1f.partial", "latest.safetensors", "5.safetensors"):
        (stored / "snapshots" / name).write_text("x")
    assert list(bt.Run.load(stored).snapshots) == KEPT


# Where they are asked for -----------------------------------------------------------------------------------------


def test_a_complete_run_without_them_says_so(tmp_path, caplog):
    small_run(snapshots=[0, 10], store=tmp_path / "run")
    small_run(snapshots=[0, 10], store=tmp_path / "run")
    assert not caplog.text
    small_run(snapshots=EVERY, store=tmp_path / "run")
    assert "complete, without snapshots at epochs 20, 30; another directory gets them" in caplog.text


def test_a_sweep_keeps_them_of_every_run(tmp_path, caplog):
    arms = {"none": None, "kl": bt.KLPrior()}
    options = {"seeds": [0], "store": tmp_path, "model": SMALL, "epochs": 20, "workers": 1}
    runs = bt.sweep(TASK, arms, **options, snapshots=bt.Every(10))
    assert list(runs.run("kl", 0).snapshots) == [0, 10, 20]
    bt.sweep(TASK, arms, **options, snapshots=bt.Every(5))
    assert "2 complete runs lack snapshots that are asked for" in caplog.text
    refused(lambda: bt.sweep(TASK, arms, **options, snapshots=[30]), "snapshots: got epoch 30")


def test_the_command_line_takes_a_plan(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    flags = ["train", "--epochs", "20", "--task", "ModularAddition(p=5)", "--store", "run"]
    assert main([*flags, "--snapshots", "At((0, 7))"]) == 0
    assert list(bt.Run.load("run").snapshots) == [0, 7, 20]
    (tmp_path / "options.toml").write_text(
        'epochs = 20\nsnapshots = "Every(10)"\nseed = 1\ntask = "ModularAddition(p=5)"'
    )
    assert main(["train", "--config", "options.toml", "--store", "other"]) == 0
    assert list(bt.Run.load("other").snapshots) == [0, 10, 20]
    capsys.readouterr()
    assert main([*flags, "--snapshots", "often"]) == 2
    assert "snapshots" in capsys.readouterr().err


def test_a_plan_of_ones_own_is_one_method():
    @bt.spec
    class Squares(SnapshotPlan):
        def epochs_of(self, last):
            return [n * n for n in range(last) if n * n <= last]

    run = bt.train(COPYING, **QUICK, epochs=20, snapshots=Squares())
    assert list(run.snapshots) == [0, 1, 4, 9, 16, 20]
