"""Rules that stop training before its last epoch, as data."""

import math
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest
from jobs import assert_same
from small_runs import COPYING, QUICK, SMALL

import bayesticket as bt
from bayesticket.runs import Training, configure
from bayesticket.specs import spec_id

EPOCHS = 150


def copying(epochs: int = EPOCHS, **options) -> bt.Run:
    return bt.train(COPYING, epochs=epochs, **QUICK, **options)


@pytest.fixture(scope="module")
def whole() -> bt.Run:
    return copying()


def first(holds: pd.Series) -> int:
    return int(holds.index[holds][0])


@pytest.mark.parametrize("patience", [0, 7, 20])
def test_a_run_stops_some_epochs_after_a_curve_has_reached_a_threshold(whole, patience):
    run = copying(stop_when=bt.Reaches("test_accuracy", 0.9, patience=patience))
    reached = first(whole.curves["test_accuracy"] >= 0.9)
    assert (run.status, run.epoch, run.cut_short) == ("stopped", max(reached + patience, reached + 1), False)
    shared = [epoch for epoch in run.curves.index if epoch in whole.curves.index and epoch < run.epoch]
    assert shared[-1] >= reached
    pd.testing.assert_frame_equal(run.curves.loc[shared], whole.curves.loc[shared], check_exact=True)


def test_a_threshold_can_be_reached_from_above(whole):
    run = copying(stop_when=bt.Reaches("train_loss", 0.5, direction="down"))
    assert run.epoch == first(whole.curves["train_loss"] <= 0.5) + 1
    assert run.curves["train_loss"].iloc[0] > 0.5


@pytest.mark.parametrize(("by", "over"), [(0.0, 20), (0.05, 20), (0.05, 60)])
def test_a_run_stops_where_it_has_memorised_and_a_curve_has_stalled(whole, by, over):
    curves = whole.curves.loc[: EPOCHS - 1]

    def stalled(epoch: int) -> bool:
        before, since = (
            curves.loc[: epoch - over, "test_accuracy"],
            curves.loc[epoch - over + 1 : epoch, "test_accuracy"],
        )
        memorised = curves.loc[epoch, "train_accuracy"] >= 0.9
        return bool(memorised and len(before) and since.max() <= before.max() + by)

    expected = next(epoch for epoch in curves.index if stalled(epoch)) + 1
    run = copying(stop_when=bt.Stalls("test_accuracy", over=over, by=by, memorised=0.9))
    assert (run.status, run.epoch) == ("stopped", expected)


def records(accuracies, memorised=1.0):
    """Records of every tenth epoch."""
    return [
        {"epoch": 10 * place, "train_accuracy": memorised, "test_accuracy": accuracy}
        for place, accuracy in enumerate(accuracies)
    ]


def test_a_rule_stops_at_once_unless_told_to_wait():
    assert bt.Reaches("test_accuracy", 0.9).stop_epoch(records([0.9])) == 0
    assert bt.Reaches("test_accuracy", 0.9).stop_epoch(records([0.9, 0.89])) == math.inf
    assert bt.Reaches("test_accuracy", 0.9, patience=30).stop_epoch(records([0.1, 0.9])) == 40


def test_to_stall_is_to_improve_by_no_more_than_the_margin_since_the_border():
    rule = bt.Stalls("test_accuracy", over=20, by=0.1)
    assert rule.stop_epoch(records([0.2, 0.25, 0.29])) == 20
    assert rule.stop_epoch(records([0.2, 0.25, 0.31])) == math.inf
    assert rule.stop_epoch(records([0.2, 0.31])) == math.inf  # nothing was recorded 20 epochs before
    assert rule.stop_epoch(records([math.nan, 0.2, 0.9])) == math.inf
    assert rule.stop_epoch(records([0.2, math.nan, math.nan])) == 20
    assert bt.Stalls("test_accuracy", over=1).stop_epoch(records([0.2, 0.2])) == 10


def test_a_run_has_memorised_where_training_accuracy_is_at_least_so_much():
    for memorised, stops in ((0.99, True), (1.0, True), (0.98, False), (math.nan, False)):
        assert math.isfinite(bt.Stalls(over=10).stop_epoch(records([0.2, 0.2], memorised))) == stops


def test_a_loss_stalls_where_it_falls_no_more():
    records = [{"epoch": 10 * i, "train_accuracy": 1.0, "test_loss": loss} for i, loss in enumerate([3, 2, 1, 2, 2.5])]
    rule = bt.Stalls("test_loss", over=20, direction="down")
    assert [rule.stop_epoch(records[: i + 1]) for i in range(5)] == [math.inf] * 4 + [40]
    assert bt.Stalls("test_loss", over=20).stop_epoch(records[:3]) == 20  # rising would have been the improvement
    forgetful = [record | {"train_accuracy": 0.5} for record in records]
    assert rule.stop_epoch(forgetful) == math.inf
    assert bt.Stalls("test_loss", over=20, direction="down", memorised=0.0).stop_epoch(forgetful) == 40


def test_a_curve_that_is_undefined_neither_reaches_nor_stalls():
    records = [{"epoch": 10 * i, "train_accuracy": 1.0, "unseen_accuracy": math.nan} for i in range(9)]
    assert bt.Reaches("unseen_accuracy", 0.1).stop_epoch(records) == math.inf
    assert bt.Stalls("unseen_accuracy", over=20).stop_epoch(records) == math.inf


def test_a_rule_and_grokking_stop_at_whichever_comes_first(whole):
    grokked = whole.grok_epoch()
    assert copying(stop_after_grok=3, stop_when=bt.Reaches("test_loss", -1.0, direction="down")).epoch == grokked + 3
    early = bt.Reaches("train_loss", 10.0, direction="down")
    assert copying(stop_after_grok=3, stop_when=early).epoch == 1


def test_a_rule_is_part_of_what_a_run_is(tmp_path):
    rule = bt.Stalls("test_accuracy", over=20, memorised=0.9)
    run = copying(stop_when=rule, store=tmp_path / "run")
    loaded = bt.Run.load(tmp_path / "run")
    assert loaded.config.stop_when == rule
    assert spec_id(loaded.config) != spec_id(configure(task=COPYING, epochs=EPOCHS, **QUICK))
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()
    assert_same(copying(stop_when=rule, store=tmp_path / "run"), run)
    assert "cut_short" not in (tmp_path / "run" / "run.json").read_text()


def test_a_stopped_run_that_was_killed_resumes_to_the_bit(tmp_path, monkeypatch):
    options = {"stop_when": bt.Reaches("test_accuracy", 0.9, patience=20)}
    whole, original = copying(**options), Training.take_epoch

    def die(self):
        if self.epoch == whole.epoch - 3:
            raise SystemExit
        original(self)

    monkeypatch.setattr(Training, "take_epoch", die)
    with pytest.raises(SystemExit):
        copying(**options, store=tmp_path / "run", checkpoint_every=4)
    monkeypatch.undo()
    assert_same(bt.resume(tmp_path / "run"), whole)


def test_a_sweep_takes_a_rule_and_its_axes(tmp_path):
    rules = {"never": None, "early": bt.Reaches("train_loss", 10.0, direction="down")}
    options = {"seeds": [0], "store": tmp_path / "runs", "epochs": 10, "model": SMALL}
    with ThreadPoolExecutor(1) as executor:
        runs = bt.sweep(COPYING, bt.grid(stop_when=rules), **options, executor=executor)
    assert runs.curves["status"].sel(stop_when="early").item() == "stopped"
    assert runs.curves["trained"].values.flatten().tolist() == [10, 1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: copying(stop_when=bt.Reaches("test_acuracy")),
            r"stop_when\.curve: got 'test_acuracy'.*Closest: 'test_ac",
        ),
        (lambda: copying(stop_when=bt.Reaches("weight_norms[x]")), r"stop_when\.curve: got 'weight_norms\[x\]'"),
        (
            lambda: copying(stop_when=lambda record: None),
            r"stop_when: got None; accepted: a function that returns True",
        ),
        (lambda: bt.Stalls(over=0), r"over: got 0; accepted: a whole number of at least 1"),
    ],
)
def test_rules_that_cannot_be_followed_are_refused(make, message):
    with pytest.raises(bt.BayesticketError, match=message):
        make()


def test_an_entry_of_a_vector_is_looked_for_at_the_first_record():
    run = copying(stop_when=bt.Reaches("weight_norms[embed.W_E]", 0.0), measures=[bt.WeightNorms()])
    assert run.epoch == 1
    with pytest.raises(bt.BayesticketError, match=r"stop_when\.curve: got 'weight_norms\[W_E\]'"):
        copying(stop_when=bt.Reaches("weight_norms[W_E]", 0.0), measures=[bt.WeightNorms()])
