"""The quick start: what it says follows from the numbers, and what was begun goes on."""

import itertools
import multiprocessing
import signal
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import torch

from bayesticket import quickstart as module
from bayesticket.errors import BayesticketError
from bayesticket.quickstart import (
    LABELS,
    configurations,
    findings,
    quickstart,
    readme_picture,
    rows_of,
    table_of,
    write_report,
)
from bayesticket.run import Run
from bayesticket.train import resume, train_config
from bayesticket.workers import Bars, Job, Lines, Message, Team, work


@pytest.fixture(autouse=True)
def undisturbed() -> Iterator[None]:
    """A worker run in this process changes its threads and signals."""
    threads, handler = torch.get_num_threads(), signal.getsignal(signal.SIGINT)
    yield
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, handler)


def in_this_process(jobs: list[Job], *, workers: int) -> None:
    for job in jobs:
        job.store.parent.mkdir(exist_ok=True)
        train_config(job.config, store=job.store, progress=False)


def refuse_to_train(jobs: list[Job], *, workers: int) -> None:
    raise AssertionError("there is nothing to train")


def outcome(run: Run, memorised: int | None, grokked: int | None) -> Run:
    """The same run with other accuracies."""
    epochs = range(0, 1010, 10)
    curves = pd.concat([run.curves.iloc[-1:]] * len(epochs)).set_index(pd.Index(epochs, name="epoch"))
    for column, reached in (("train_accuracy", memorised), ("test_accuracy", grokked)):
        curves[column] = 0.1
        if reached is not None:
            curves.loc[reached:, column] = 0.995
    return Run(run.description, run.tensors, run.weights, curves, 1000, made_with=run.made_with)


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    configs = configurations(epochs=20, seed=3, p=7)
    return {arm: train_config(config, progress=False) for arm, config in configs.items()}


def test_arms_differ_in_the_prior_alone():
    configs = configurations(epochs=50, seed=1, p=11)
    assert list(configs) == list(LABELS)
    priors = {arm: repr(config.intervention) for arm, config in configs.items()}
    assert len(set(priors.values())) == 3
    for config in configs.values():
        assert (config.task.d_vocab_out, config.epochs, config.seed, config.stop_after_grok) == (11, 50, 1, 300)


class TestFindings:
    @pytest.mark.parametrize(("none", "kl", "adversarial"), list(itertools.product([None, 500, 800], repeat=3)))
    def test_are_true_whatever_the_outcome(
        self, runs: dict[str, Run], none: int | None, kl: int | None, adversarial: int | None
    ):
        grokked = {"none": none, "kl": kl, "adversarial": adversarial}
        changed = {arm: outcome(runs[arm], 100, epoch) for arm, epoch in grokked.items()}
        headline, seed, *accounts = findings(changed)
        assert "one seed (seed 3)" in seed
        for account, epoch in zip(accounts, grokked.values(), strict=True):
            assert "memorised at epoch 100 " in account
            assert ("did not grok in 1,000 epochs" if epoch is None else f"and grokked at epoch {epoch}") in account
        assert ("earlier" in headline) == (none is not None and kl is not None and kl < none)
        assert ("later" in headline) == (none is not None and kl is not None and kl > none)
        assert ("it mattered where" in headline) == (kl is not None and adversarial is None)
        assert ("the one without a prior did not" in headline) == (kl is not None and none is None)
        assert ("toward the oracle did not" in headline) == (kl is None and none is not None)
        assert headline.startswith("Neither") == (kl is None and none is None)
        assert ("toward the distractors grokked" in headline) == (adversarial is not None)

    def test_nothing_memorised(self, runs: dict[str, Run]):
        never = {arm: outcome(run, None, None) for arm, run in runs.items()}
        assert findings(never)[2].startswith("Without a prior the model did not memorise in 1,000 epochs and did not")
        assert [row[1] for row in rows_of(never)] == ["not in 1,000 epochs"] * 3


class TestReport:
    def test_table_holds_the_numbers(self, runs: dict[str, Run]):
        first, rule, *rows = table_of(runs).splitlines()
        assert first.startswith("arm")
        assert set(rule) == {"-", "+"}
        assert len({len(line) for line in (first, rule, *rows)}) == 1
        for (arm, run), row in zip(runs.items(), rows, strict=True):
            cells = [cell.strip() for cell in row.split("|")]
            assert cells[0] == LABELS[arm]
            assert cells[3] == f"{run.curves['test_accuracy'].iloc[-1]:.1%}"
            assert float(cells[4].split("/")[0]) == pytest.approx(
                run.curves["informative_mass_least"].iloc[-1], abs=1e-3
            )

    def test_page_says_what_was_found_and_how_it_was_made(self, runs: dict[str, Run], tmp_path: Path):
        text = write_report(runs, tmp_path / "index.html").read_text(encoding="utf-8")
        said = text[text.index("<body>") :]
        for sentence in findings(runs):
            assert sentence in said
        for phrase in ("ModularAddition(p=7)", "strength=1.0", "learning rate 0.001", "transformer-lens", "d_model 64"):
            assert phrase in said

    def test_picture(self, runs: dict[str, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        asked = {}

        def draw(figure: object, **options: object) -> bytes:
            asked.update(options)
            return b"PNG"

        monkeypatch.setattr("plotly.graph_objects.Figure.to_image", draw)
        assert readme_picture(runs, tmp_path / "a.png").read_bytes() == b"PNG"
        assert (asked["width"], asked["height"], asked["scale"]) == (1200, 450, 1)


class TestQuickstart:
    def test_trains_what_is_missing_and_then_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ):
        monkeypatch.setattr(module, "train_in_processes", in_this_process)
        first = quickstart(tmp_path / "out", epochs=20, p=7)
        assert "KL to the oracle" in capsys.readouterr().out
        assert first.page == tmp_path / "out" / "index.html"
        first.page.unlink()
        monkeypatch.setattr(module, "train_in_processes", refuse_to_train)
        second = quickstart(tmp_path / "out", epochs=20, p=7)
        assert second.page.exists()
        for arm in LABELS:
            pd.testing.assert_frame_equal(first.runs[arm].curves, second.runs[arm].curves)

    def test_refuses_other_runs_before_it_trains(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(module, "train_in_processes", in_this_process)
        quickstart(tmp_path, epochs=10, p=5)
        monkeypatch.setattr(module, "train_in_processes", refuse_to_train)
        with pytest.raises(BayesticketError, match=r"different run \(task is .*5"):
            quickstart(tmp_path, epochs=10, p=7)

    def test_interrupt_says_in_one_line_how_to_continue(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ):
        def interrupted(jobs: list[Job], *, workers: int) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(module, "train_in_processes", interrupted)
        with pytest.raises(SystemExit) as exit_:
            quickstart(tmp_path, epochs=10, p=5)
        assert exit_.value.code == 130
        (line,) = capsys.readouterr().out.splitlines()
        assert "run the same command again" in line

    def test_in_real_processes(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
        done = quickstart(tmp_path, epochs=20, p=5, workers=2)
        assert {arm: run.status for arm, run in done.runs.items()} == dict.fromkeys(LABELS, "finished")
        assert all((run.made_with or {})["threads"] == "1" for run in done.runs.values())
        assert multiprocessing.active_children() == []
        assert "done" in capfd.readouterr().err


def said_by_worker(*sent: object) -> list[Message]:
    """What a worker says, run in this process, when these things wait for it."""
    ours, theirs = multiprocessing.Pipe()
    for each in sent:
        ours.send(each)
    work(theirs)
    heard = []
    while ours.poll():
        heard.append(ours.recv())
    ours.close()
    theirs.close()
    return heard


class TestWorker:
    def job(self, store: Path, *, epochs: int = 40) -> Job:
        return Job(LABELS["kl"], configurations(epochs=epochs, seed=0, p=5)["kl"], store / "runs" / "kl")

    def test_stops_with_a_checkpoint_when_it_is_told_to(self, tmp_path: Path):
        job = self.job(tmp_path)
        ready, progress, stopped = said_by_worker(job, None)
        assert (ready.kind, progress.kind, stopped.kind) == ("ready", "progress", "stopped")
        continued = resume(job.store, progress=False)
        whole = train_config(job.config, progress=False)
        pd.testing.assert_frame_equal(continued.curves, whole.curves)

    def test_leaves_when_there_is_no_work(self):
        assert [message.kind for message in said_by_worker(None)] == ["ready"]

    def test_stops_when_its_parent_is_gone(self, tmp_path: Path):
        ours, theirs = multiprocessing.Pipe()
        job = self.job(tmp_path)
        ours.send(job)
        ours.close()
        work(theirs)  # cannot even say that it is ready
        theirs.close()
        assert not job.store.exists()

    def test_reports_an_error_in_one_line(self, tmp_path: Path):
        job = self.job(tmp_path)
        in_this_process([self.job(tmp_path, epochs=10)], workers=1)
        *_, failed = said_by_worker(job)
        assert failed.kind == "failed"
        assert failed.error.startswith("KL to the oracle: store: got ")
        assert "\n" not in failed.error
        assert "Traceback" in failed.traceback


class Ended:
    """A process that has ended."""

    exitcode = -9

    def join(self) -> None: ...

    def terminate(self) -> None: ...


class TestTeam:
    jobs = (Job("none", configurations(epochs=50, seed=0, p=5)["none"], Path("none")),)

    def hear(self, *messages: Message, jobs: tuple[Job, ...] = jobs) -> list[Job | None]:
        """What a team sends to a worker that says these things and is gone."""
        team, (ours, theirs) = Team(0), multiprocessing.Pipe()
        team.workers[ours] = Ended()  # type: ignore[assignment]
        for message in messages:
            theirs.send(message)
        try:
            team.work(jobs, Lines(jobs))
            team.dismiss()
        finally:
            sent = []
            while theirs.poll():
                sent.append(theirs.recv())
            theirs.close()
        return sent

    def test_hands_out_the_jobs_and_dismisses(self):
        sent = self.hear(Message("ready"), Message("progress", "none", 10), Message("done", "none", 50))
        assert [job and job.name for job in sent] == ["none", None]

    def test_an_error_is_raised_here(self):
        with pytest.raises(BayesticketError, match="store is full") as raised:
            self.hear(Message("ready"), Message("failed", "none", error="none: store is full", traceback="Traceback …"))
        assert str(raised.value) == "none: store is full"
        assert raised.value.__notes__ == ["Traceback …"]

    def test_a_run_that_was_stopped_stops_all(self):
        with pytest.raises(KeyboardInterrupt):
            self.hear(Message("ready"), Message("stopped", "none"))

    def test_a_process_that_died_is_a_clear_error(self):
        team, (ours, theirs) = Team(0), multiprocessing.Pipe()
        team.workers[ours] = Ended()  # type: ignore[assignment]
        theirs.close()
        with pytest.raises(BayesticketError, match=r"ended by itself \(exit code -9\)"):
            team.work(self.jobs, Lines(self.jobs))


class TestProgress:
    jobs = (Job("none", configurations(epochs=50, seed=0, p=5)["none"], Path("none")),)
    messages = (
        Message("ready"),
        Message("progress", "none", 10, 0.5, 0.1),
        Message("progress", "none", 20, 0.6, 0.1),
        Message("done", "none", 30, 1.0, 1.0),
    )

    def test_lines_are_few(self, capsys: pytest.CaptureFixture[str]):
        lines = Lines(self.jobs)
        for message in self.messages:
            lines.show(message)
        lines.close()
        first, last = capsys.readouterr().err.splitlines()
        assert "at most 50 epochs: none" in first
        assert "epoch 30, done, train 100%, test 100%" in last

    def test_bars_end_where_the_run_ended(self, capsys: pytest.CaptureFixture[str]):
        bars = Bars(self.jobs)
        for message in self.messages:
            bars.show(message)
        bar = bars.bars["none"]
        assert (bar.n, bar.total) == (30, 30)
        bars.close()
        assert "none" in capsys.readouterr().err
