"""The display of a sweep: it shows what the progress files of this sweep say, and nothing that an earlier one left."""

import json
import threading
from pathlib import Path

import pytest
from jobs import small_job

from bayesticket.runs import RunDirectory
from bayesticket.sweeps import Job
from bayesticket.sweeps.display import Bars, Display, Lines, displaying
from bayesticket.sweeps.progress import Progress, read_progress, remove_progress, write_progress


@pytest.fixture
def jobs(tmp_path: Path) -> list[Job]:
    return [small_job(tmp_path, f"seed {seed}", seed=seed, epochs=1500) for seed in range(3)]


def report(job: Job, epoch: int, train: float = 1.0, test: float = 0.25) -> None:
    write_progress(job.store, Progress(epoch, train, test))


def test_progress_is_read_back_and_removed_without_a_trace(jobs, tmp_path):
    assert read_progress(jobs[0].store) is None
    report(jobs[0], 30)
    assert read_progress(jobs[0].store) == Progress(30, 1.0, 0.25)
    assert [path.name for path in tmp_path.iterdir()] == [f".{jobs[0].store.name}.progress"]
    remove_progress(jobs[0].store)
    assert list(tmp_path.iterdir()) == []


def test_readers_never_see_a_part_of_a_progress_file(jobs):
    report(jobs[0], 0)
    done = threading.Event()

    def write_many() -> None:
        for epoch in range(1, 500):
            report(jobs[0], epoch, test=epoch / 7)
        done.set()

    writer = threading.Thread(target=write_many)
    writer.start()
    n_read = 0
    while not done.is_set():
        json.loads(RunDirectory(jobs[0].store).progress_path.read_text())
        n_read += 1
    writer.join()
    assert n_read > 10


@pytest.mark.parametrize("content", ["", '{"epoch": 3', "[]", "{}", '{"epoch": "x"}', "3"])
def test_a_progress_file_that_cannot_be_read_is_none(jobs, content):
    RunDirectory(jobs[0].store).progress_path.write_text(content)
    assert read_progress(jobs[0].store) is None


def test_what_an_earlier_sweep_left_does_not_count_as_progress(jobs):
    report(jobs[0], 300)
    display = Display(jobs)
    display.update({})
    assert display.running({}) == {}
    report(jobs[0], 310)
    RunDirectory(jobs[1].store).progress_path.write_text('{"epoch": 3')
    report(jobs[2], 0)
    display.update({})
    assert display.running({}) == {"seed 0": Progress(310, 1.0, 0.25), "seed 2": Progress(0, 1.0, 0.25)}
    report(jobs[0], 300)
    display.update({})
    assert display.latest["seed 0"].epoch == 300, "it resumes from a checkpoint"
    RunDirectory(jobs[0].store).progress_path.unlink()
    display.update({"seed 2"})
    assert display.running({"seed 2"}) == {"seed 0": Progress(300, 1.0, 0.25)}


def test_lines_are_few(jobs, capsys):
    now = [0.0]
    lines = Lines(jobs, every=15.0, clock=lambda: now[0])
    for second in range(1, 40):
        now[0] = float(second)
        report(jobs[0], second * 50)
        lines.update({"seed 1"} if second >= 20 else {})
    lines.close()
    assert capsys.readouterr().err.splitlines() == [
        "training 3 runs, at most 1,500 epochs each",
        "  15 s | 0 of 3 done | seed 0: epoch 750, train 100%, test 25%",
        "  20 s | 1 of 3 done | seed 0: epoch 1,000, train 100%, test 25%",
        "  35 s | 1 of 3 done | seed 0: epoch 1,750, train 100%, test 25%",
    ]


def test_there_is_a_bar_for_all_runs_and_one_for_each_that_is_being_trained(jobs, capsys):
    bars = Bars(jobs)
    report(jobs[0], 100)
    report(jobs[1], 200)
    bars.update({})
    assert {name: (bar.n, bar.total, -bar.pos) for name, bar in bars.bars.items()} == {
        "seed 0": (100, 1500, 1),
        "seed 1": (200, 1500, 2),
    }
    report(jobs[1], 50)  # from a checkpoint
    report(jobs[2], 10)
    bars.update({"seed 0"})
    assert {name: (bar.n, -bar.pos) for name, bar in bars.bars.items()} == {"seed 1": (200, 2), "seed 2": (10, 1)}
    assert (bars.total.n, bars.total.total) == (1, 3)
    bars.announce("seed 1: its process was killed")
    bars.update({"seed 0", "seed 1", "seed 2"})
    bars.close()
    shown = capsys.readouterr().err
    assert bars.bars == {}
    assert "runs: 100%" in shown
    assert "train 100%, test 25%" in shown
    assert "bayesticket: seed 1: its process was killed\n" in shown


@pytest.mark.parametrize(
    ("on_terminal", "progress", "kind"),
    [
        (True, None, Bars),
        (False, None, Display),
        (True, True, Bars),
        (False, True, Lines),
        (True, False, Display),
        (False, False, Display),
    ],
)
def test_progress_is_shown_where_asked_for_and_by_default_on_terminals(jobs, monkeypatch, on_terminal, progress, kind):
    monkeypatch.setattr("sys.stderr.isatty", lambda: on_terminal)
    with displaying(jobs, progress) as display:
        assert type(display) is kind


def test_without_progress_only_messages_are_printed(jobs, capsys):
    with displaying(jobs, False) as display:
        report(jobs[0], 10)
        display.update({})
        assert capsys.readouterr().err == ""
        display.announce("seed 0: its process was killed")
    assert capsys.readouterr().err == "bayesticket: seed 0: its process was killed\n"
