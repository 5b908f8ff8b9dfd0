"""The quick start: what it says follows from the numbers, and what was begun goes on."""

import itertools
import math
import multiprocessing
import sys
from pathlib import Path

import pandas as pd
import pytest

from bayesticket.cli.quickstart import (
    LABELS,
    configurations,
    findings,
    quickstart,
    readme_picture,
    rows_of,
    table_of,
    write_report,
)
from bayesticket.errors import BayesticketError
from bayesticket.runs import Run, train_config
from bayesticket.sweeps import Job
from bayesticket.sweeps.worker import Outcome

module = sys.modules["bayesticket.sweeps.sweep"]


def in_this_process(jobs: list[Job], **options: object) -> dict[str, Outcome]:
    for job in jobs:
        train_config(job.config, store=job.store, progress=False)
    return {job.name: Outcome("complete") for job in jobs}


def refuse_to_train(jobs: list[Job], **options: object) -> dict[str, Outcome]:
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


def test_a_run_at_chance_is_stopped_at_epoch_1500_and_one_that_groks_before_is_not():
    rule = configurations(epochs=3000, seed=0, p=113)["none"].stop_when
    assert rule is not None
    for last, expected in ((0.009, 1500), (0.99, math.inf)):
        records = [
            {"epoch": float(epoch), "train_accuracy": 0.3, "test_accuracy": last if epoch >= 1140 else 0.009}
            for epoch in range(0, 1501, 20)
        ]
        stops = [rule.stop_epoch(records[:n]) for n in range(1, len(records) + 1)]
        assert min(stops) == expected


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

    def test_unseen_accuracy_is_named_where_there_is_one(self, runs: dict[str, Run]):
        shown = f"({runs['kl'].curves['unseen_accuracy'].iloc[-1]:.1%} on unseen pairs)"
        assert shown in findings(runs)[3]
        run = Run(**{**vars(runs["kl"]), "curves": runs["kl"].curves.assign(unseen_accuracy=float("nan"))})
        assert "unseen" not in findings({**runs, "kl": run})[3]
        assert rows_of({"kl": run})[0][4] == "–"

    def test_nothing_memorised(self, runs: dict[str, Run]):
        never = {arm: outcome(run, None, None) for arm, run in runs.items()}
        assert findings(never)[2].startswith("Without a prior the model did not memorise in 1,000 epochs and did not")
        assert [row[1] for row in rows_of(never)] == ["never"] * 3


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
            assert cells[4] == f"{run.curves['unseen_accuracy'].iloc[-1]:.1%}"
            assert cells[6].startswith(f"at {run.epoch:,}, ")
            assert float(cells[5].split("/")[0]) == pytest.approx(
                run.curves["informative_mass_least"].iloc[-1], abs=1e-3
            )

    def test_table_says_what_ended_a_run(self, runs: dict[str, Run]):
        def end(run: Run, status: str) -> str:
            return rows_of({"none": Run(**{**vars(run), "status": status})})[0][6]

        never, grokked = outcome(runs["none"], 100, None), outcome(runs["none"], 100, 500)
        assert end(never, "stopped") == "at 1,000, stalled"
        assert end(never, "finished") == end(grokked, "finished") == "at 1,000, last epoch"
        assert end(grokked, "stopped") == "at 1,000, after grokking"

    def test_page_says_what_was_found_and_how_it_was_made(self, runs: dict[str, Run], tmp_path: Path):
        text = write_report(runs, tmp_path / "index.html").read_text(encoding="utf-8")
        said = text[text.index("<body>") :]
        for sentence in findings(runs):
            assert sentence in said
        assert said.count("A run ends 300 epochs after it has grokked.") == 1
        assert "no more than 2 percentage points in the last 1,500 epochs is stopped. The last epoch is 20." in said
        for phrase in (
            "ModularAddition(p=7)",
            "of unseen pairs",
            "no residual path",
            "strength=1.0",
            "AdamW, lr 0.001",
            "transformer-lens",
            "d_model 64",
            "stop_after_grok=300, stop_when=Stalls(over=1500, by=0.02, memorised=0.0)",
        ):
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
        monkeypatch.setattr(module, "train_jobs", in_this_process)
        first = quickstart(tmp_path / "out", epochs=20, p=7)
        assert "KL to the oracle" in capsys.readouterr().out
        assert first.page == tmp_path / "out" / "index.html"
        first.page.unlink()
        monkeypatch.setattr(module, "train_jobs", refuse_to_train)
        second = quickstart(tmp_path / "out", epochs=20, p=7)
        assert second.page.exists()
        for arm in LABELS:
            pd.testing.assert_frame_equal(first.runs[arm].curves, second.runs[arm].curves)

    def test_refuses_other_runs_before_it_trains(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(module, "train_jobs", in_this_process)
        quickstart(tmp_path, epochs=10, p=5)
        monkeypatch.setattr(module, "train_jobs", refuse_to_train)
        with pytest.raises(BayesticketError, match=r"different run \(task is .*5"):
            quickstart(tmp_path, epochs=10, p=7)

    def test_interrupt_says_in_one_line_how_to_continue(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ):
        def interrupted(jobs: list[Job], **options: object) -> dict[str, Outcome]:
            raise KeyboardInterrupt

        monkeypatch.setattr(module, "train_jobs", interrupted)
        with pytest.raises(SystemExit) as exit_:
            quickstart(tmp_path, epochs=10, p=5)
        assert exit_.value.code == 130
        (line,) = capsys.readouterr().out.splitlines()
        assert "run the same command again" in line

    def test_a_run_that_fails_is_named_and_the_others_are_kept(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ):
        def fail(jobs: list[Job], **options: object) -> dict[str, Outcome]:
            outcomes = in_this_process([job for job in jobs if "oracle" not in job.name])
            return {job.name: outcomes.get(job.name, Outcome("failed", "the disk is full")) for job in jobs}

        trained: list[str] = []

        def train(jobs: list[Job], **options: object) -> dict[str, Outcome]:
            trained.extend(job.name for job in jobs)
            return in_this_process(jobs)

        monkeypatch.setattr(module, "train_jobs", fail)
        with pytest.raises(BayesticketError, match=r"^KL to the oracle, seed 0: the disk is full; what was saved"):
            quickstart(tmp_path, epochs=10, p=5)
        assert not (tmp_path / "index.html").exists()
        monkeypatch.setattr(module, "train_jobs", train)
        assert set(quickstart(tmp_path, epochs=10, p=5).runs) == set(LABELS)
        assert trained == ["KL to the oracle, seed 0"]

    def test_in_real_processes(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
        done = quickstart(tmp_path, epochs=20, p=5, workers=2)
        assert {arm: run.status for arm, run in done.runs.items()} == dict.fromkeys(LABELS, "finished")
        assert all((run.made_with or {})["threads"] == "1" for run in done.runs.values())
        assert multiprocessing.active_children() == []
        shown = capfd.readouterr().err.splitlines()
        assert shown[0] == "training 3 runs, at most 20 epochs each"
        assert "3 of 3 done" in shown[-1]
        assert {path.name for path in (tmp_path / "runs").iterdir()} == {run.id for run in done.runs.values()}
