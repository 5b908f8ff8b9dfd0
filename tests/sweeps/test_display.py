"""What is shown of many runs: what they say of themselves, and nothing that an earlier sweep left."""

import json
from pathlib import Path

import pytest
from jobs import small_job

from bayesticket.sweeps import Job
from bayesticket.sweeps.display import Bars, Display, Lines, State, displaying
from bayesticket.sweeps.worker import beside


@pytest.fixture
def jobs(tmp_path: Path) -> list[Job]:
    return [small_job(tmp_path, f"seed {seed}", seed=seed, epochs=1500) for seed in range(3)]


def say(job: Job, epoch: int, train: float = 1.0, test: float = 0.25) -> None:
    said = {"epoch": epoch, "train_accuracy": train, "test_accuracy": test}
    beside(job.store, "progress").write_text(json.dumps(said))


def test_only_what_has_been_said_since_counts(jobs):
    say(jobs[0], 300)
    display = Display(jobs)
    display.show({})
    assert display.at_work({}) == {}
    say(jobs[0], 310)
    beside(jobs[1].store, "progress").write_text('{"epoch": 3')
    say(jobs[2], 0)
    display.show({})
    assert display.at_work({}) == {"seed 0": State(310, 1.0, 0.25), "seed 2": State(0, 1.0, 0.25)}
    say(jobs[0], 300)
    display.show({})
    assert display.states["seed 0"].epoch == 300, "it goes on from a checkpoint"
    beside(jobs[0].store, "progress").unlink()
    display.show({"seed 2"})
    assert display.at_work({"seed 2"}) == {"seed 0": State(300, 1.0, 0.25)}


def test_lines_are_few(jobs, capsys):
    now = [0.0]
    lines = Lines(jobs, every=15.0, clock=lambda: now[0])
    for second in range(1, 40):
        now[0] = float(second)
        say(jobs[0], second * 50)
        lines.show({"seed 1"} if second >= 20 else {})
    lines.close()
    assert capsys.readouterr().err.splitlines() == [
        "training 3 runs, at most 1,500 epochs each",
        "  15 s | 0 of 3 done | seed 0: epoch 750, train 100%, test 25%",
        "  20 s | 1 of 3 done | seed 0: epoch 1,000, train 100%, test 25%",
        "  35 s | 1 of 3 done | seed 0: epoch 1,750, train 100%, test 25%",
    ]


def test_there_is_a_bar_over_all_runs_and_one_for_each_that_is_at_work(jobs, capsys):
    bars = Bars(jobs)
    say(jobs[0], 100)
    say(jobs[1], 200)
    bars.show({})
    assert {name: (bar.n, bar.total, -bar.pos) for name, bar in bars.bars.items()} == {
        "seed 0": (100, 1500, 1),
        "seed 1": (200, 1500, 2),
    }
    say(jobs[1], 50)  # from a checkpoint
    say(jobs[2], 10)
    bars.show({"seed 0"})
    assert {name: (bar.n, -bar.pos) for name, bar in bars.bars.items()} == {"seed 1": (200, 2), "seed 2": (10, 1)}
    assert (bars.total.n, bars.total.total) == (1, 3)
    bars.say("seed 1: its process was killed")
    bars.show({"seed 0", "seed 1", "seed 2"})
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
def test_what_is_shown_where(jobs, monkeypatch, on_terminal, progress, kind):
    monkeypatch.setattr("sys.stderr.isatty", lambda: on_terminal)
    with displaying(jobs, progress) as display:
        assert type(display) is kind


def test_nothing_is_shown_where_nothing_is_asked_for_but_what_has_to_be_said(jobs, capsys):
    with displaying(jobs, False) as display:
        say(jobs[0], 10)
        display.show({})
        assert capsys.readouterr().err == ""
        display.say("seed 0: its process was killed")
    assert capsys.readouterr().err == "bayesticket: seed 0: its process was killed\n"
