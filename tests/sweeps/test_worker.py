"""One job: it ends as `train` would, whatever interrupts it, and never mistakes a damaged directory for a run."""

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
from bayesticket.runs import RunDirectory, Training, train_config
from bayesticket.sweeps import Job, worker
from bayesticket.sweeps.progress import Progress, read_progress
from bayesticket.sweeps.worker import Outcome, train_job, train_pickled


@pytest.fixture
def alive_file(tmp_path: Path) -> Path:
    path = tmp_path / "alive"
    path.touch()
    return path


def stop_at(epoch: int, alive_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the alive file when that epoch is reported."""
    report = worker.ProgressReporter.__call__

    def reporting(self, reached, record):
        if reached == epoch:
            alive_file.unlink(missing_ok=True)
        report(self, reached, record)

    monkeypatch.setattr(worker.ProgressReporter, "__call__", reporting)


def test_a_job_leaves_what_train_does_and_nothing_else(store, alive_file):
    job = small_job(store, intervention=bt.KLPrior(strength=0.5))
    assert train_job(job, alive_file) == Outcome("complete")
    assert_as_uninterrupted(job)
    assert leftovers(store) == []
    before = {path: path.stat().st_mtime_ns for path in job.store.iterdir()}
    assert train_job(job, alive_file) == Outcome("complete")
    assert {path: path.stat().st_mtime_ns for path in job.store.iterdir()} == before
    assert leftovers(store) == []


@pytest.mark.parametrize("epoch", [0, 5, 15])
def test_it_stops_with_a_checkpoint_when_the_alive_file_is_removed_and_resumes_to_the_bit(
    store, alive_file, monkeypatch, epoch
):
    job = small_job(store, checkpoint_every=1000)
    with monkeypatch.context() as patch:
        stop_at(epoch, alive_file, patch)
        assert train_job(job, alive_file, poll_every=0.0).kind == "stopped"
    assert (job.store / "checkpoint.safetensors").exists()
    assert json.loads((job.store / "run.json").read_text())["status"] == "interrupted"
    alive_file.touch()
    epochs = []
    monkeypatch.setattr(worker.ProgressReporter, "__call__", lambda self, reached, record: epochs.append(reached))
    assert train_job(job, alive_file).kind == "complete"
    assert epochs[0] == epoch + 5, "it started from the beginning"
    assert_as_uninterrupted(job)


def test_it_stops_after_any_epoch_and_not_only_where_it_records(store, alive_file, monkeypatch):
    take_epoch = Training.take_epoch

    def taking(self):
        take_epoch(self)
        if self.epoch == 7:
            alive_file.unlink()

    job = small_job(store, record_every=1000, checkpoint_every=1000)
    with monkeypatch.context() as patch:
        patch.setattr(Training, "take_epoch", taking)
        assert train_job(job, alive_file, poll_every=0.0).kind == "stopped"
    assert (job.store / "checkpoint.safetensors").exists()
    alive_file.touch()
    taken = []
    with monkeypatch.context() as patch:
        patch.setattr(Training, "take_epoch", lambda self: (taken.append(self.epoch), take_epoch(self)))
        assert train_job(job, alive_file).kind == "complete"
    assert taken[0] == 7, "it started from the beginning"
    assert_as_uninterrupted(job)


def test_it_starts_nothing_without_an_alive_file(store, alive_file):
    alive_file.unlink()
    assert train_job(small_job(store / "deep"), alive_file) == Outcome("stopped")
    assert not store.exists()


def test_a_run_that_another_process_trains_is_left_alone(store, alive_file):
    job = small_job(store)
    store.mkdir()
    with FileLock(RunDirectory(job.store).lock_path):
        assert train_job(job, alive_file) == Outcome("busy")
        assert not job.store.exists()
    assert RunDirectory(job.store).lock_path.exists(), "as a killed process leaves it"
    assert train_job(job, alive_file) == Outcome("complete")
    assert leftovers(store) == []


def test_it_reports_its_progress(store, alive_file, monkeypatch):
    job, correct = small_job(store), []

    class Checking(worker.ProgressReporter):
        def __call__(self, epoch, record):
            super().__call__(epoch, record)
            accuracies = (record[f"{half}_accuracy"] for half in ("train", "test", "unseen"))
            expected = Progress(epoch, *accuracies)
            correct.append(read_progress(job.store) == expected)

    monkeypatch.setattr(worker, "ProgressReporter", Checking)
    outcome = train_job(job, alive_file, report_every=0.0)
    assert outcome.error == ""
    assert correct == [True] * 5


def test_it_reports_no_more_often_than_asked(store, alive_file, monkeypatch):
    written = []
    monkeypatch.setattr(worker, "write_progress", lambda store, progress: written.append(progress.epoch))
    train_job(small_job(store), alive_file, report_every=1000.0)
    assert written == [0]


def test_a_progress_file_that_cannot_be_written_stops_nothing(store, alive_file, monkeypatch):
    write = Path.write_text

    def full(self, *given, **options):
        if ".progress" in self.name:
            raise OSError(28, "No space left on device")
        return write(self, *given, **options)

    monkeypatch.setattr(Path, "write_text", full)
    job = small_job(store)
    assert train_job(job, alive_file) == Outcome("complete")
    assert_as_uninterrupted(job)


# What goes wrong in training --------------------------------------------------------------------------------------


def test_a_run_that_diverges_is_kept_and_not_trained_again(store, alive_file, monkeypatch):
    job = small_job(store, intervention=Spoiling())
    diverged = train_job(job, alive_file)
    assert diverged.kind == "diverged"
    assert "not finite at epoch 11" in diverged.error
    assert_as_uninterrupted(job)
    assert bt.Run.load(job.store).status == "failed"
    assert leftovers(store) == []
    monkeypatch.setattr(worker, "train_config", lambda *given, **options: pytest.fail("it was trained again"))
    assert train_job(job, alive_file).kind == "diverged"


@pytest.mark.parametrize(
    ("intervention", "said"),
    [(Raising(), "ZeroDivisionError: a mistake in two lines"), (Refusing(), "colour: got 'red'; accepted: 'blue'")],
)
def test_an_error_becomes_an_outcome_of_one_line_with_its_traceback(store, alive_file, intervention, said):
    outcome = train_job(small_job(store, intervention=intervention), alive_file)
    assert (outcome.kind, outcome.error) == ("failed", said)
    assert outcome.traceback.startswith("Traceback")


def test_another_run_in_a_runs_directory_is_set_aside(store, alive_file):
    job, other = small_job(store), small_job(store, seed=1)
    train_job(other, alive_file)
    shutil.move(other.store, job.store)
    outcome = train_job(job, alive_file)
    assert outcome.kind == "complete"
    assert f"got the run {other.store.name}; accepted: {job.store.name}" in outcome.notes[0]
    assert_same(bt.Run.load(job.store), uninterrupted(job.config))
    assert_same(bt.Run.load(f"{job.store}.damaged"), uninterrupted(other.config))


def test_a_job_that_cannot_be_unpickled_fails_by_itself(alive_file):
    outcome = train_pickled(b"cnowhere\nMine\n.", alive_file)
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
def test_a_truncated_file_is_named_set_aside_and_the_run_trained_again(
    store, alive_file, monkeypatch, state, name, share
):
    intervention = bt.KLPrior(torch.full((5,), 0.2), strength=0.3)  # a tensor, so that there is a file of them
    job = small_job(store, intervention=intervention + Spoiling() if state == "diverged" else intervention)
    if state == "stopped":
        with monkeypatch.context() as patch:
            stop_at(10, alive_file, patch)
            assert train_job(job, alive_file, poll_every=0.0).kind == "stopped"
        alive_file.touch()
    else:
        assert train_job(job, alive_file).kind == state
    truncate(job.store / name, share)
    damaged = {path.name: path.read_bytes() for path in job.store.iterdir()}
    outcome = train_job(job, alive_file)
    assert outcome.kind == ("diverged" if state == "diverged" else "complete")
    (note,) = outcome.notes
    aside = store / f"{job.store.name}.damaged"
    assert note.startswith(f"{job.store / name}: truncated, damaged or foreign (")
    assert note.endswith(f"set aside as {aside}, and trained again")
    assert "\n" not in note
    assert {path.name: path.read_bytes() for path in aside.iterdir()} == damaged
    assert_as_uninterrupted(job)


def test_what_is_set_aside_never_replaces_what_was_set_aside_before(store, alive_file):
    job = small_job(store)
    for n in range(3):
        train_job(job, alive_file)
        truncate(job.store / "curves.parquet", 0.5)
        (job.store / "mine").write_text(str(n))
    train_job(job, alive_file)
    asides = [store / f"{job.store.name}.damaged{suffix}" for suffix in ("", "-2", "-3")]
    assert [(aside / "mine").read_text() for aside in asides] == ["0", "1", "2"]
    assert_as_uninterrupted(job)


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), PermissionError(13, "denied"), MemoryError()])
def test_a_read_error_of_the_system_is_not_taken_for_damage(store, alive_file, monkeypatch, error):
    job = small_job(store)
    train_job(job, alive_file)

    def fail(*given, **options):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("pandas.read_parquet", fail)
        outcome = train_job(job, alive_file)
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
    """Fills a disk but for some bytes; returns the file that fills it."""
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
def test_a_full_disk_loses_no_finished_run_and_training_resumes_when_there_is_room(small_disk, alive_file, room):
    finished, job = small_job(small_disk), small_job(small_disk, seed=1)
    assert train_job(finished, alive_file).kind == "complete"
    filler = fill(small_disk, but=room)
    outcome = train_job(job, alive_file)
    assert outcome.kind == "failed"
    assert "No space left on device" in outcome.error
    assert "\n" not in outcome.error
    assert "of this error" not in outcome.error, "nobody here has that error"
    assert_as_uninterrupted(finished)
    assert list(small_disk.rglob("*.partial")) == []
    filler.unlink()
    assert train_job(job, alive_file) == Outcome("complete")
    assert_as_uninterrupted(job)
    assert_as_uninterrupted(finished)
    assert leftovers(small_disk) == []


@pytest.mark.parametrize("intervention", [None, Spoiling()])
def test_a_run_that_cannot_be_saved_has_failed_however_it_ended(store, alive_file, monkeypatch, intervention):
    def full(*given, **options):
        raise OSError(28, "No space left on device")

    job = small_job(store, intervention=intervention)
    with monkeypatch.context() as patch:
        patch.setattr(files, "save_file", full)
        outcome = train_job(job, alive_file)
    assert outcome.kind == "failed"
    assert "could not be" in outcome.error
    assert train_job(job, alive_file).kind == ("complete" if intervention is None else "diverged")
    assert_as_uninterrupted(job)


# Threads ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_jobs_side_by_side_in_threads_have_one_torch_thread_each_and_restore_the_number_before(
    store, alive_file, two_threads, monkeypatch
):
    short, long = small_job(store, "short", epochs=10), small_job(store, "long", epochs=40)
    ended, n_threads = threading.Event(), []
    report = worker.ProgressReporter.__call__

    def reporting(self, epoch, record):
        if self.store == long.store and epoch == 20:
            ended.wait(30)
            n_threads.append(torch.get_num_threads())
            with ThreadPoolExecutor(1) as new:  # what holds for the whole process
                n_threads.append(new.submit(torch.get_num_threads).result())
        report(self, epoch, record)

    monkeypatch.setattr(worker.ProgressReporter, "__call__", reporting)

    def first(job: Job) -> str:
        kind = train_job(job, alive_file).kind
        ended.set()
        return kind

    with ThreadPoolExecutor(2) as threads:
        kinds = [threads.submit(train_job, long, alive_file), threads.submit(first, short)]
        assert kinds[1].result() == "complete"
        assert kinds[0].result().kind == "complete"
    assert n_threads == [1, 1]
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    for job in (short, long):
        assert_as_uninterrupted(job)


def test_models_are_built_alike_in_many_threads(store, alive_file):
    jobs = [small_job(store, f"seed {seed}", seed=seed, epochs=1) for seed in range(12)]
    with ThreadPoolExecutor(6) as threads:
        for outcome in threads.map(lambda job: train_job(job, alive_file), jobs):
            assert outcome.kind == "complete"
    for job in jobs:
        assert_as_uninterrupted(job)


def test_a_job_with_a_teacher_is_described_alike_after_pickling(store, alive_file):
    import pickle

    job = small_job(store, intervention=bt.KLPrior(teacher(), strength=0.3))
    assert train_pickled(pickle.dumps(job), alive_file).kind == "complete"
    assert_as_uninterrupted(job)
    assert train_config(job.config, store=job.store).epoch == 20


def test_a_link_to_itself_is_damage_like_any_other(store, alive_file):
    job = small_job(store, epochs=20)
    assert train_job(job, alive_file).kind == "complete"
    weights = job.store / "weights.safetensors"
    weights.unlink()
    weights.symlink_to(weights)
    outcome = train_job(job, alive_file)
    assert (outcome.kind, len(outcome.notes)) == ("complete", 1)
    assert "set aside" in outcome.notes[0]
