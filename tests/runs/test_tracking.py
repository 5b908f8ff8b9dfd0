"""Trackers are told every record of a run, once and in order, and cost it nothing when they fail."""

import pickle
import sys
from types import ModuleType, SimpleNamespace

import pytest
from helpers import Killed, die_at, refused
from jobs import Noting
from programs import running
from small_runs import SMALL, TASK, assert_same, interrupt_at, plain, small_run

import bayesticket as bt


class Module:
    """What wandb is to a tracker: `init` gives a run, which is logged to and finished."""

    def __init__(self, *, own_run: bool = True):
        self.own_run, self.runs = own_run, []

    def __deepcopy__(self, memo):
        return self

    def init(self, **options):
        self.runs.append(SimpleNamespace(options=options, logged=[], finished=False))
        return SimpleNamespace(log=self.log, finish=self.finish) if self.own_run else None

    def log(self, values, step):
        self.runs[-1].logged.append((step, values))

    def finish(self):
        self.runs[-1].finished = True


@pytest.mark.parametrize("own_run", [True, False])
def test_a_module_is_told_the_settings_every_record_and_the_end(own_run):
    module = Module(own_run=own_run)
    run = small_run(tracker=bt.Tracker(module, project="grokking"), seed=3)
    (seen,) = module.runs
    assert seen.options["project"] == "grokking"
    assert seen.options["name"] == run.id
    assert seen.options["config"]["seed"] == 3
    assert seen.options["config"]["task.p"] == 7
    assert [step for step, _ in seen.logged] == run.curves.index.tolist()
    for step, values in seen.logged:
        assert values == run.curves.loc[step].to_dict()
    assert seen.finished


def test_what_is_given_comes_before_what_is_filled_in():
    module = Module()
    small_run(tracker=bt.Tracker(module, name="mine", config={"a": 1}), epochs=1)
    assert module.runs[0].options == {"name": "mine", "config": {"a": 1}}


def test_a_tracker_is_no_part_of_what_a_run_is():
    tracked = small_run(tracker=bt.Tracker(Module()))
    assert_same(tracked, plain())
    assert tracked.id == plain().id


def test_each_run_has_a_copy_of_the_tracker():
    class CountingTracker:
        begun = 0

        def start(self, config):
            self.begun += 1

        def record(self, epoch, values):
            assert self.begun == 1

        def finish(self, run):
            pass

    own = CountingTracker()
    for _ in range(2):
        small_run(tracker=own, epochs=1)
    assert own.begun == 0


def lines_of(directory, run):
    return (directory / run.id).read_text().splitlines()


def test_a_run_that_goes_on_is_told_from_its_first_record(tmp_path, monkeypatch):
    die_at(25, monkeypatch)
    with pytest.raises(Killed):
        small_run(store=tmp_path / "run", checkpoint_every=15, tracker=Noting(tmp_path))
    monkeypatch.undo()
    run = bt.resume(tmp_path / "run", tracker=Noting(tmp_path))
    before, after = (lines_of(tmp_path, run)[slice(*span)] for span in ((0, 5), (5, None)))
    assert before == ["start", *(f"{epoch} {run.curves['train_loss'][epoch]}" for epoch in (0, 10, 20)), "interrupted"]
    assert after == ["start", *(f"{epoch} {loss}" for epoch, loss in run.curves["train_loss"].items()), "finished"]


def test_a_tracker_is_told_how_a_run_ended(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(bt.Interrupted) as interrupted:
        small_run(tracker=Noting(tmp_path), progress=interrupt_at(20))
    assert lines_of(tmp_path, interrupted.value.run)[-1] == "interrupted"
    with pytest.raises(bt.NonFiniteLoss) as failed:
        small_run(lr=1e30, max_grad_norm=None, warmup=5, tracker=Noting(tmp_path))
    assert lines_of(tmp_path, failed.value.run)[-1] == "failed"
    stopped = small_run(stop_when=lambda record: record["epoch"] >= 10, tracker=Noting(tmp_path), seed=5)
    assert lines_of(tmp_path, stopped)[-1] == "stopped"


@pytest.mark.parametrize("method", ["start", "record", "finish"])
def test_a_tracker_that_raises_is_left_out_with_one_line(method, caplog):
    def fail(*given):
        raise ConnectionError("no network")

    class Broken:
        start = record = finish = lambda *given: None

    setattr(Broken, method, fail)
    assert_same(small_run(tracker=Broken()), plain())
    assert caplog.text.count(f"tracker: {method} failed (ConnectionError: no network); training goes on") == 1


@pytest.mark.parametrize("given", ["wandb", Noting, SimpleNamespace(start=print)])
def test_what_is_no_tracker_is_refused(given, tmp_path):
    refused(lambda: small_run(tracker=given), "tracker: got ", "an object with start, record and finish")
    refused(lambda: bt.sweep(TASK, {"none": None}, seeds=[0], store=tmp_path, tracker=given), "tracker: got ")


def test_what_is_no_module_is_refused():
    refused(lambda: bt.Tracker(SimpleNamespace(init=print)), "module: got ", "it has no log and no finish")


def test_every_run_of_a_sweep_is_told_from_its_worker(tmp_path):
    (tmp_path / "told").mkdir()
    arms = {"none": None, "kl": bt.KLPrior()}
    options = {"model": SMALL, "epochs": 10, "store": tmp_path / "runs", "workers": 2}
    runs = bt.sweep(TASK, arms, seeds=range(2), **options, tracker=Noting(tmp_path / "told"))
    for arm in arms:
        for seed in range(2):
            run = runs.run(arm, seed)
            losses = [f"{epoch} {loss}" for epoch, loss in run.curves["train_loss"].items()]
            assert lines_of(tmp_path / "told", run) == ["start", *losses, "finished"]


def test_a_module_goes_to_workers_by_its_name(monkeypatch):
    module, told = ModuleType("a_module_like_wandb"), Module()
    module.init, module.log, module.finish = told.init, told.log, told.finish
    monkeypatch.setitem(sys.modules, "a_module_like_wandb", module)
    tracker = pickle.loads(pickle.dumps(bt.Tracker(module, project="grokking")))
    small_run(tracker=tracker, epochs=10)
    assert [step for step, _ in told.runs[0].logged] == [0, 10]


def train_with_wandb(directory):
    import wandb

    tracker = bt.Tracker(wandb, project="grokking", mode="offline", dir=str(directory))
    small_run(tracker=tracker, epochs=10, store=directory / "run")


def test_wandb_offline(tmp_path, monkeypatch):
    """In a process of its own, since wandb starts another one, which other tests might take for theirs."""
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with running(train_with_wandb, tmp_path) as program:
        program.process.join()
    (kept,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    content = kept.read_bytes()
    assert b"train_accuracy" in content
    assert bt.Run.load(tmp_path / "run").id.encode() in content


def test_tensorboard_where_it_is_installed_and_where_not(tmp_path, monkeypatch, caplog):
    written = {}

    class SummaryWriter:
        def __init__(self, directory):
            self.values = written.setdefault(directory, [])

        def add_scalar(self, name, value, epoch):
            self.values.append((name, value, epoch))

        def close(self):
            self.values.append("closed")

    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    run = small_run(tracker=bt.TensorBoard(tmp_path), epochs=10)
    ((directory, values),) = written.items()
    assert directory == str(tmp_path / run.id)
    assert ("test_loss", run.curves["test_loss"][10], 10) in values
    assert values[-1] == "closed"
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    small_run(tracker=bt.TensorBoard(tmp_path), epochs=1)
    assert "tracker: got TensorBoard, which is not installed; accepted: pip install tensorboard" in caplog.text
