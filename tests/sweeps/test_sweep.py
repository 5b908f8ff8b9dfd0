"""Sweeps: what is stored is not trained again, what was interrupted goes on, and all is as `train` makes it."""

import os
import random
import shutil
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from jobs import SMALL, TASK, Raising, Refusing, Spoiling, assert_same, configured, leftovers, uninterrupted
from programs import alive, running, wait_until

import bayesticket as bt
from bayesticket.runs import RunDirectory
from bayesticket.specs import spec_id
from bayesticket.sweeps import Runs, backends, job_queue, sweep

module = sys.modules["bayesticket.sweeps.sweep"]
ARMS = {"none": None, "kl": bt.KLPrior(strength=0.5)}
OPTIONS = {"model": SMALL, "epochs": 20, "record_every": 5, "lr": 3e-3}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "START_METHOD", "fork")
    monkeypatch.setattr(job_queue, "POLL_EVERY", 0.05)
    monkeypatch.setattr(job_queue, "RETRY_BUSY_AFTER", 0.2)


@pytest.fixture
def threads():
    with ThreadPoolExecutor(1) as executor:
        yield executor


def swept(store: Path, arms=ARMS, seeds=range(2), **options) -> Runs:
    return sweep(TASK, arms, seeds=seeds, store=store, **OPTIONS | options)


def assert_as_uninterrupted(runs: Runs, arms=ARMS, **options) -> None:
    """Bit for bit what `train` makes, one run after another."""
    for name, intervention in arms.items():
        for seed in runs.seeds:
            assert_same(runs.run(name, seed), uninterrupted(configured(intervention, seed=seed, **options)))


# What is stored ---------------------------------------------------------------------------------------------------


def test_what_is_complete_is_not_trained_again(store, threads, monkeypatch):
    first = swept(store, executor=threads)
    monkeypatch.setattr(module, "train_jobs", lambda *given, **options: pytest.fail("something was trained"))
    monkeypatch.setattr(os, "access", lambda *given: False)  # as in a store that may only be read
    xr.testing.assert_identical(swept(store).curves, first.curves)


def test_a_changed_configuration_is_another_run(store, threads, monkeypatch):
    trained, train_jobs = [], module.train_jobs

    def counting(jobs, **options):
        trained.append(sorted(job.name for job in jobs))
        return train_jobs(jobs, **options)

    monkeypatch.setattr(module, "train_jobs", counting)
    swept(store, executor=threads)
    swept(store, seeds=range(3), executor=threads)
    changed = swept(store, {"none": None, "kl": bt.KLPrior(strength=0.6)}, executor=threads)
    again = swept(store, executor=threads)
    assert trained == [
        ["kl, seed 0", "kl, seed 1", "none, seed 0", "none, seed 1"],
        ["kl, seed 2", "none, seed 2"],
        ["kl, seed 0", "kl, seed 1"],
    ]
    assert_as_uninterrupted(changed, {"kl": bt.KLPrior(strength=0.6)})
    assert_as_uninterrupted(again)
    assert len(list(store.iterdir())) == 8


def damping(factor):
    """A class of the user's, whose code holds what it does."""

    @bt.spec
    class Damping(bt.Intervention):
        def project(self, context):
            for weight in context.parameters.values():
                weight.data.mul_(factor)

    return Damping()


def test_a_class_of_ones_own_that_was_changed_is_another_run(store, threads):
    before = swept(store, {"damped": damping(0.9)}, executor=threads)
    after = swept(store, {"damped": damping(0.5)}, executor=threads)
    assert set(before.curves["id"].to_numpy().ravel()).isdisjoint(after.curves["id"].to_numpy().ravel())
    assert not before.curves["train_loss"].equals(after.curves["train_loss"])
    again = swept(store, {"damped": damping(0.9)}, executor=threads)
    assert again.curves.identical(before.curves)
    ticket = bt.find_ticket(after.run("damped", 0), 0.5)
    with pytest.raises(bt.BayesticketError, match="a class that has been changed since"):
        bt.retrain(after.run("damped", 0), ticket)  # the class of that name is the first again


def test_equal_options_are_the_same_run(store, threads):
    one = swept(store, {"kl": bt.KLPrior(strength=1)}, weight_decay=1, executor=threads)
    other = swept(store, {"kl": bt.KLPrior(strength=1.0)}, weight_decay=1.0, executor=threads)
    assert (one.curves["directory"] == other.curves["directory"]).all()


def test_options_that_can_be_read_once_hold_for_every_run(store, threads):
    runs = swept(store, seeds=np.arange(2), measures=iter([bt.AttentionEntropy()]), executor=threads)
    assert not runs.curves["attention_entropy"].sel(epoch=0).isnull().any()
    assert_as_uninterrupted(runs, measures=(bt.AttentionEntropy(),))


def test_arms_that_are_the_same_are_trained_once(store, threads):
    arms = {"none": None, "empty": bt.Recipe(), "kl": ARMS["kl"]}
    runs = swept(store, arms, executor=threads)
    assert len(list(store.iterdir())) == 4
    assert_as_uninterrupted(runs, arms)
    assert runs.run("none", 1).source == runs.run("empty", 1).source


def test_a_store_is_found_from_anywhere(tmp_path, threads, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told, train_jobs = [], module.train_jobs

    def listening(jobs, **options):
        told.extend(job.store.parent for job in jobs)
        return train_jobs(jobs, **options)

    monkeypatch.setattr(module, "train_jobs", listening)
    runs = swept(Path("store"), executor=threads)
    assert set(told) == {tmp_path / "store"}, "other processes may have another working directory"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert_as_uninterrupted(runs)


def test_a_run_in_the_place_of_another_is_never_taken_for_it(store, threads):
    swept(store, {"none": None}, executor=threads)
    right, wrong = (store / spec_id(configured(seed=seed)) for seed in (0, 5))
    shutil.copytree(right, wrong)
    swept(store, {"none": None}, seeds=[0, 5], executor=threads)
    assert_same(bt.Run.load(wrong), uninterrupted(configured(seed=5)))
    assert_same(bt.Run.load(f"{wrong}.damaged"), uninterrupted(configured(seed=0)))


@pytest.mark.parametrize("name", ["run.json", "curves.parquet", "weights.safetensors"])
def test_a_truncated_file_is_named_set_aside_and_run_again(store, threads, name, capsys):
    swept(store, executor=threads)
    directory = store / spec_id(configured(seed=1))
    os.truncate(directory / name, (directory / name).stat().st_size // 2)
    damaged = (directory / name).read_bytes()
    assert_as_uninterrupted(swept(store, executor=threads))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"bayesticket: none, seed 1: {directory / name}: truncated, damaged or foreign (")
    assert line.endswith(f"set aside as {directory}.damaged, and trained again")
    assert (store / f"{directory.name}.damaged" / name).read_bytes() == damaged
    assert leftovers(store) == []


# What goes wrong --------------------------------------------------------------------------------------------------


def test_a_run_that_diverges_is_kept_and_stops_nothing(store, threads, caplog, monkeypatch):
    arms = {"spoiling": Spoiling(), **ARMS}
    runs = swept(store, arms, executor=threads)
    assert_as_uninterrupted(runs, arms)
    assert runs.curves["status"].to_numpy().tolist() == [["failed"] * 2, ["finished"] * 2, ["finished"] * 2]
    assert runs.curves["trained"].to_numpy().tolist()[0] == [11, 11]
    assert np.isnan(runs.curves["test_loss"].sel(intervention="spoiling", epoch=[15, 20])).all()
    assert [record.getMessage() for record in caplog.records] == [
        f"spoiling, seed {seed} diverged: loss: not finite at epoch 11 (task is nan); "
        "what was recorded before is kept in the run"
        for seed in range(2)
    ]
    monkeypatch.setattr(module, "train_jobs", lambda *given, **options: pytest.fail("something was trained"))
    xr.testing.assert_identical(swept(store, arms).curves, runs.curves)


def test_when_all_diverge_at_once_there_is_still_a_sweep(store, threads):
    model = bt.build_model(TASK, d_model=8, d_mlp=8)
    model.unembed.b_U.data.fill_(np.inf)
    runs = swept(store, model=model, executor=threads)
    assert set(runs.curves["status"].to_numpy().flat) == {"failed"}
    assert runs.grok_epochs().isna().to_numpy().all()


def test_what_failed_is_named_the_rest_is_kept_and_calling_again_goes_on(store, threads, monkeypatch):
    arms = {"raising": Raising(), **ARMS}
    with pytest.raises(
        bt.BayesticketError, match=r"^raising, seed 0: ZeroDivisionError: .* \(and 1 more of 6 runs\); "
    ):
        swept(store, arms, executor=threads)
    monkeypatch.setattr("jobs.mistake", lambda: None)
    runs = swept(store, arms, executor=threads)
    assert_as_uninterrupted(runs, arms)
    assert leftovers(store) == []


def test_what_cannot_be_trained_is_named_before_anything_is_begun(store, threads):
    with pytest.raises(bt.BayesticketError, match=r"^refusing, seed 0: colour: got 'red'; accepted: 'blue'$"):
        swept(store, {**ARMS, "refusing": Refusing()}, executor=threads)
    assert not store.exists()


# What dies --------------------------------------------------------------------------------------------------------

LONG = {"epochs": 100, "record_every": 10}


def sweep_until_interrupted(store: Path, said: Path) -> None:
    try:
        swept(store, **LONG, checkpoint_every=10, workers=2)
    except KeyboardInterrupt as interrupt:
        said.write_text(str(interrupt))
        raise SystemExit(130) from None


def under_way(store: Path) -> list[Path]:
    return [path.parent for path in store.glob("*/checkpoint.safetensors")]


def test_ctrl_c_leaves_every_run_resumable_and_says_so_in_one_line(store, tmp_path, capfd):
    said = tmp_path / "said"
    with running(sweep_until_interrupted, store, said) as program:
        wait_until(lambda: len(under_way(store)) == 2)
        workers = program.workers()
        assert len(workers) == 2
        os.killpg(program.pid, signal.SIGINT)  # as a terminal sends it: to the parent and to all workers
        assert program.wait() == 130
        assert not any(map(alive, workers))
    n_whole = len(list(store.glob("*/weights.safetensors")))
    assert said.read_text() == (
        f"interrupted with {n_whole} of 4 runs complete in {store}; the same call goes on from there"
    )
    assert capfd.readouterr().err == ""
    assert all((path / "checkpoint.safetensors").exists() for path in store.glob("*/") if not is_ended(path))
    runs = swept(store, **LONG, checkpoint_every=10, workers=2)
    assert_as_uninterrupted(runs, **LONG)
    assert leftovers(store) == []


def is_ended(directory: Path) -> bool:
    return (directory / "weights.safetensors").exists()


@pytest.mark.parametrize("seed", range(2))
def test_kill_minus_nine_at_a_random_moment_loses_no_finished_run(store, tmp_path, seed):
    moments = random.Random(seed)
    with running(sweep_until_interrupted, store, tmp_path / "said") as program:
        for kind in ["worker", "worker", "parent"] if seed % 2 else ["worker", "all"]:
            wait_until(lambda: under_way(store) or program.process.exitcode is not None)
            time.sleep(moments.uniform(0.0, 0.3))
            workers = program.workers()
            if kind == "worker" and workers:
                moments.choice(workers).kill()
            elif kind == "parent":
                os.kill(program.pid, signal.SIGKILL)
            elif kind == "all":
                program.kill_all()
            assert_ended_runs_are_whole(store)
        program.process.join(5 if program.process.exitcode is None else 0)
        wait_until(lambda: not any(map(alive, workers)) or program.process.exitcode == 0, 20)
    runs = swept(store, **LONG, checkpoint_every=10, workers=2)
    assert_as_uninterrupted(runs, **LONG)
    assert [name for name in leftovers(store) if "lock" not in name and "progress" not in name] == []


def assert_ended_runs_are_whole(store: Path) -> None:
    expected = {
        spec_id(config): config
        for config in (configured(arm, seed=seed, **LONG) for arm in ARMS.values() for seed in range(2))
    }
    for path in store.glob("*/"):
        assert path.name in expected, "nothing was taken for damaged"
        if (path / "run.json").exists() and RunDirectory(path).status() == "finished":
            assert_same(bt.Run.load(path), uninterrupted(expected[path.name]))
