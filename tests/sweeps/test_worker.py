"""One job: it ends as `train` would, whatever it was interrupted by, and never takes what is damaged for a run."""

import json
import os
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from jobs import (
    Raising,
    Refusing,
    Spoiling,
    assert_as_uninterrupted,
    assert_same,
    leftovers,
    small_job,
    teacher,
    uninterrupted,
)

import bayesticket as bt
from bayesticket import files
from bayesticket.runs import Training, train_config
from bayesticket.sweeps import Job, worker
from bayesticket.sweeps.worker import Outcome, beside, train_job, train_pickled


@pytest.fixture
def going(tmp_path: Path) -> Path:
    path = tmp_path / "going"
    path.touch()
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def stop_at(epoch: int, going: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes `going` away when that epoch is reported."""
    monkeypatch.setattr(worker, "LOOK_EVERY", 0.0)
    report = worker._Reporter.__call__

    def reporting(self, reached, record):
        if reached == epoch:
            going.unlink(missing_ok=True)
        report(self, reached, record)

    monkeypatch.setattr(worker._Reporter, "__call__", reporting)


def test_a_job_leaves_what_train_does_and_nothing_else(store, going):
    job = small_job(store, intervention=bt.KLPrior(strength=0.5))
    assert train_job(job, going) == Outcome("complete")
    assert_as_uninterrupted(job)
    assert leftovers(store) == []
    before = {path: path.stat().st_mtime_ns for path in job.store.iterdir()}
    assert train_job(job, going) == Outcome("complete")
    assert {path: path.stat().st_mtime_ns for path in job.store.iterdir()} == before
    assert leftovers(store) == []


@pytest.mark.parametrize("epoch", [0, 10, 30])
def test_it_stops_with_a_checkpoint_when_it_is_told_to_and_goes_on_to_the_bit(store, going, monkeypatch, epoch):
    job = small_job(store, checkpoint_every=1000)
    with monkeypatch.context() as patch:
        stop_at(epoch, going, patch)
        assert train_job(job, going).kind == "stopped"
    assert (job.store / "checkpoint.safetensors").exists()
    assert json.loads((job.store / "run.json").read_text())["status"] == "running"
    going.touch()
    epochs = []
    monkeypatch.setattr(worker._Reporter, "__call__", lambda self, reached, record: epochs.append(reached))
    assert train_job(job, going).kind == "complete"
    assert epochs[0] == epoch + 10, "it was begun again"
    assert_as_uninterrupted(job)


def test_it_stops_after_any_epoch_and_not_only_where_it_records(store, going, monkeypatch):
    monkeypatch.setattr(worker, "LOOK_EVERY", 0.0)
    take_epoch = Training.take_epoch

    def taking(self):
        take_epoch(self)
        if self.epoch == 7:
            going.unlink()

    job = small_job(store, record_every=1000, checkpoint_every=1000)
    with monkeypatch.context() as patch:
        patch.setattr(Training, "take_epoch", taking)
        assert train_job(job, going).kind == "stopped"
    assert (job.store / "checkpoint.safetensors").exists()
    going.touch()
    taken = []
    with monkeypatch.context() as patch:
        patch.setattr(Training, "take_epoch", lambda self: (taken.append(self.epoch), take_epoch(self)))
        assert train_job(job, going).kind == "complete"
    assert taken[0] == 7, "it was begun again"
    assert_as_uninterrupted(job)


def test_it_begins_nothing_where_it_cannot_see_that_it_is_to_go_on(store, going):
    going.unlink()
    assert train_job(small_job(store / "deep"), going) == Outcome("stopped")
    assert not store.exists()


def test_a_run_that_another_process_trains_is_left_alone(store, going):
    job = small_job(store)
    store.mkdir()
    with FileLock(beside(job.store, "lock")):
        assert train_job(job, going) == Outcome("busy")
        assert not job.store.exists()
    assert beside(job.store, "lock").exists(), "as a killed process leaves it"
    assert train_job(job, going) == Outcome("complete")
    assert leftovers(store) == []


def test_it_says_how_far_it_is(store, going, monkeypatch):
    monkeypatch.setattr(worker, "PROGRESS_EVERY", 0.0)
    job, said = small_job(store), []

    class Listening(worker._Reporter):
        def __call__(self, epoch, record):
            super().__call__(epoch, record)
            said.append(json.loads(self.path.read_text()) == {
                "epoch": epoch, "train_accuracy": record["train_accuracy"], "test_accuracy": record["test_accuracy"]
            })  # fmt: skip

    monkeypatch.setattr(worker, "_Reporter", Listening)
    train_job(job, going)
    assert said == [True] * 5


def test_what_it_cannot_say_stops_nothing(store, going, monkeypatch):
    write = Path.write_text

    def full(self, *given, **options):
        if self.name.endswith(".progress"):
            raise OSError(28, "No space left on device")
        return write(self, *given, **options)

    monkeypatch.setattr(Path, "write_text", full)
    job = small_job(store)
    assert train_job(job, going) == Outcome("complete")
    assert_as_uninterrupted(job)


# What goes wrong in training --------------------------------------------------------------------------------------


def test_a_run_that_diverges_is_kept_and_not_trained_again(store, going, monkeypatch):
    job = small_job(store, intervention=Spoiling())
    diverged = train_job(job, going)
    assert diverged.kind == "diverged"
    assert "not finite at epoch 21" in diverged.error
    assert_as_uninterrupted(job)
    assert bt.Run.load(job.store).status == "failed"
    assert leftovers(store) == []
    monkeypatch.setattr(worker, "train_config", lambda *given, **options: pytest.fail("it was trained again"))
    assert train_job(job, going).kind == "diverged"


@pytest.mark.parametrize(
    ("intervention", "said"),
    [(Raising(), "ZeroDivisionError: a mistake in two lines"), (Refusing(), "colour: got 'red'; accepted: 'blue'")],
)
def test_an_error_is_an_outcome_of_one_line_with_its_traceback(store, going, intervention, said):
    outcome = train_job(small_job(store, intervention=intervention), going)
    assert (outcome.kind, outcome.error) == ("failed", said)
    assert outcome.traceback.startswith("Traceback")


def test_a_store_with_another_run_is_refused_and_left_as_it_was(store, going):
    job, other = small_job(store), small_job(store, seed=1)
    train_job(other, going)
    shutil.move(other.store, job.store)
    outcome = train_job(job, going)
    assert outcome.kind == "failed"
    assert "different run (seed is 1, not 0)" in outcome.error
    assert_same(bt.Run.load(job.store), uninterrupted(other.config))


def test_a_job_that_cannot_be_unpickled_fails_by_itself(going):
    outcome = train_pickled(b"cnowhere\nMine\n.", going)
    assert outcome.kind == "failed"
    assert outcome.error.startswith("ModuleNotFoundError: No module named 'nowhere'")


# Damage -----------------------------------------------------------------------------------------------------------

WHOLE = ["run.json", "curves.parquet", "weights.safetensors", "tensors.safetensors"]
UNFINISHED = ["run.json", "checkpoint.safetensors"]


def truncate(path: Path, share: float) -> None:
    os.truncate(path, int(share * path.stat().st_size))


@pytest.mark.parametrize("share", [0.0, 0.6])
@pytest.mark.parametrize(
    ("state", "name"),
    [*(("complete", name) for name in WHOLE), *(("stopped", name) for name in UNFINISHED), ("diverged", WHOLE[2])],
)
def test_a_truncated_file_is_named_set_aside_and_the_run_trained_again(store, going, monkeypatch, state, name, share):
    intervention = bt.KLPrior(torch.full((5,), 0.2), strength=0.3)  # a tensor, so that there is a file of them
    job = small_job(store, intervention=intervention + Spoiling() if state == "diverged" else intervention)
    if state == "stopped":
        with monkeypatch.context() as patch:
            stop_at(20, going, patch)
            assert train_job(job, going).kind == "stopped"
        going.touch()
    else:
        assert train_job(job, going).kind == state
    truncate(job.store / name, share)
    damaged = {path.name: path.read_bytes() for path in job.store.iterdir()}
    outcome = train_job(job, going)
    assert outcome.kind == ("diverged" if state == "diverged" else "complete")
    (note,) = outcome.notes
    aside = store / f"{job.store.name}.damaged"
    assert note.startswith(f"{job.store / name}: truncated, damaged or foreign (")
    assert note.endswith(f"set aside as {aside}, and trained again")
    assert "\n" not in note
    assert {path.name: path.read_bytes() for path in aside.iterdir()} == damaged
    assert_as_uninterrupted(job)


def test_what_is_set_aside_never_replaces_what_was(store, going):
    job = small_job(store)
    for n in range(3):
        train_job(job, going)
        truncate(job.store / "curves.parquet", 0.5)
        (job.store / "mine").write_text(str(n))
    train_job(job, going)
    asides = [store / f"{job.store.name}.damaged{suffix}" for suffix in ("", "-2", "-3")]
    assert [(aside / "mine").read_text() for aside in asides] == ["0", "1", "2"]
    assert_as_uninterrupted(job)


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), PermissionError(13, "denied"), MemoryError()])
def test_a_system_that_cannot_read_is_no_damage(store, going, monkeypatch, error):
    job = small_job(store)
    train_job(job, going)

    def fail(*given, **options):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("pandas.read_parquet", fail)
        outcome = train_job(job, going)
    assert outcome.kind == "failed"
    assert "curves.parquet" in outcome.error
    assert [path.name for path in store.iterdir() if path.is_dir()] == [job.store.name]
    assert_as_uninterrupted(job)


# A full disk ------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of 256 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True)
    except OSError as error:
        pytest.skip(f"NOT TESTED: a full disk; nothing can be mounted here ({error})")
    if done.returncode:
        pytest.skip(f"NOT TESTED: a full disk; nothing can be mounted here ({done.stderr.strip()})")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path, *, but: int = 0) -> Path:
    """Fills a disk, and leaves some room."""
    filler = place / "filler"
    with open(filler, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    os.truncate(filler, max(0, filler.stat().st_size - but))
    return filler


@pytest.mark.parametrize("room", [0, 8192, 16384])
def test_a_full_disk_loses_no_finished_run_and_goes_on_when_there_is_room(small_disk, going, room):
    finished, job = small_job(small_disk), small_job(small_disk, seed=1)
    assert train_job(finished, going).kind == "complete"
    filler = fill(small_disk, but=room)
    outcome = train_job(job, going)
    assert outcome.kind == "failed"
    assert "No space left on device" in outcome.error
    assert "\n" not in outcome.error
    assert "of this error" not in outcome.error, "nobody here has that error"
    assert_as_uninterrupted(finished)
    assert list(small_disk.rglob("*.partial")) == []
    filler.unlink()
    assert train_job(job, going) == Outcome("complete")
    assert_as_uninterrupted(job)
    assert_as_uninterrupted(finished)
    assert leftovers(small_disk) == []


@pytest.mark.parametrize("intervention", [None, Spoiling()])
def test_a_run_that_cannot_be_saved_has_failed_however_it_ended(store, going, monkeypatch, intervention):
    def full(*given, **options):
        raise OSError(28, "No space left on device")

    job = small_job(store, intervention=intervention)
    with monkeypatch.context() as patch:
        patch.setattr(files, "save_file", full)
        outcome = train_job(job, going)
    assert outcome.kind == "failed"
    assert "could not be" in outcome.error
    assert train_job(job, going).kind == ("complete" if intervention is None else "diverged")
    assert_as_uninterrupted(job)


# Threads ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_jobs_side_by_side_in_threads_have_one_thread_each_and_put_it_back(store, going, two_threads, monkeypatch):
    short, long = small_job(store, "short", epochs=20), small_job(store, "long", epochs=80)
    ended, n_threads = threading.Event(), []
    report = worker._Reporter.__call__

    def reporting(self, epoch, record):
        if long.store.name in self.path.name and epoch == 40:
            ended.wait(30)
            n_threads.append(torch.get_num_threads())
            with ThreadPoolExecutor(1) as new:  # what holds for the whole process
                n_threads.append(new.submit(torch.get_num_threads).result())
        report(self, epoch, record)

    monkeypatch.setattr(worker._Reporter, "__call__", reporting)

    def first(job: Job) -> str:
        kind = train_job(job, going).kind
        ended.set()
        return kind

    with ThreadPoolExecutor(2) as threads:
        kinds = [threads.submit(train_job, long, going), threads.submit(first, short)]
        assert kinds[1].result() == "complete"
        assert kinds[0].result().kind == "complete"
    assert n_threads == [1, 1]
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    for job in (short, long):
        assert_as_uninterrupted(job)


def test_models_are_built_alike_in_many_threads(store, going):
    jobs = [small_job(store, f"seed {seed}", seed=seed, epochs=1) for seed in range(12)]
    with ThreadPoolExecutor(6) as threads:
        for outcome in threads.map(lambda job: train_job(job, going), jobs):
            assert outcome.kind == "complete"
    for job in jobs:
        assert_as_uninterrupted(job)


def test_a_job_with_a_teacher_is_described_alike_after_pickling(store, going):
    import pickle

    job = small_job(store, intervention=bt.KLPrior(teacher(), strength=0.3))
    assert train_pickled(pickle.dumps(job), going).kind == "complete"
    assert_as_uninterrupted(job)
    assert train_config(job.config, store=job.store).epoch == 40
