"""How training stops before its last epoch: rules as data, functions, progress, and what stays of an unfinished run."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from jobs import assert_same

import bayesticket as bt
from bayesticket.runs import Training, configure
from bayesticket.specs import spec_id

TOKENS = torch.randint(0, 5, (200, 3), generator=torch.Generator().manual_seed(0))
COPYING = bt.Task(tokens=TOKENS, targets=TOKENS[:, 0], informative=torch.tensor([True, False, False]))
OPTIONS = {"model": bt.Architecture(d_model=16, d_mlp=32), "lr": 1e-2, "record_every": 5, "seed": 1}
EPOCHS = 150


def copying(epochs: int = EPOCHS, **options) -> bt.Run:
    return bt.train(COPYING, epochs=epochs, **OPTIONS, **options)


@pytest.fixture(scope="module")
def whole() -> bt.Run:
    return copying()


@pytest.fixture(autouse=True)
def in_a_place_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def header(path) -> dict:
    return json.loads((path / "run.json").read_text())


# Rules --------------------------------------------------------------------------------------------------------------


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
    assert spec_id(loaded.config) != spec_id(configure(task=COPYING, epochs=EPOCHS, **OPTIONS))
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()
    assert_same(copying(stop_when=rule, store=tmp_path / "run"), run)
    assert "cut_short" not in header(tmp_path / "run")


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
    runs = bt.sweep(
        COPYING, bt.grid(stop_when=rules), seeds=[0], store=tmp_path / "runs", epochs=10, model=OPTIONS["model"]
    )
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


# Functions ----------------------------------------------------------------------------------------------------------


def stopping(epoch, record):
    if epoch == 20:
        raise bt.StopTraining


CUTS = {
    "function": {"stop_when": lambda record: record["epoch"] == 20},
    "true": {"progress": lambda epoch, record: epoch == 20},
    "raised": {"progress": stopping},
}


@pytest.mark.parametrize("case", CUTS)
def test_a_function_ends_a_run_which_is_then_stopped(case, whole):
    run = copying(**CUTS[case])
    assert (run.status, run.epoch, run.cut_short) == ("stopped", 21, True)
    assert run.curves.index.tolist() == [0, 5, 10, 15, 20, 21]
    pd.testing.assert_frame_equal(run.curves.loc[:20], whole.curves.loc[:20], check_exact=True)
    assert run.id == whole.id


@pytest.mark.parametrize("case", CUTS)
def test_a_run_cut_short_loads_and_its_rest_can_be_trained(case, whole, tmp_path):
    store = tmp_path / "run"
    cut = copying(**CUTS[case], store=store)
    assert (header(store)["status"], header(store)["cut_short"]) == ("stopped", True)
    assert_same(bt.Run.load(store), cut)
    assert bt.Run.load(store).cut_short
    assert_same(copying(store=store), whole)
    assert "cut_short" not in header(store)
    assert_same(bt.Run.load(store), whole)


def test_asking_the_same_function_again_trains_nothing(tmp_path):
    options = CUTS["function"] | {"store": tmp_path / "run"}
    assert_same(copying(**options), copying(**options))


def test_a_function_that_stops_at_the_last_record_changes_nothing(whole):
    assert_same(copying(stop_when=lambda record: record["epoch"] == EPOCHS), whole)
    assert_same(copying(progress=lambda epoch, record: epoch == EPOCHS), whole)


def test_what_progress_returns_counts_only_if_it_is_true(whole):
    assert_same(copying(progress=lambda epoch, record: (epoch, record)), whole)


@pytest.mark.parametrize("where", ["progress", "stop_when"])
@pytest.mark.parametrize("with_store", [True, False])
def test_an_exception_in_a_function_keeps_the_run_and_is_raised(where, with_store, whole, tmp_path):
    def mistake(*given):
        record = given[-1]
        if where == "progress":
            given[0] == 20 and 1 / 0
        return record.get("epoch") == 20 and bool(1 / 0)

    store = tmp_path / "run" if with_store else None
    with pytest.raises(ZeroDivisionError) as caught:
        copying(**{where: mistake}, store=store)
    (note,) = caught.value.__notes__
    assert note.startswith("bayesticket: interrupted after epoch 21; continue with bayesticket.resume(")
    place = tmp_path / note.split("'")[1]
    assert header(place)["status"] == "interrupted"
    assert_same(bt.resume(place), whole)


def test_an_exception_at_the_last_record_loses_nothing(whole, tmp_path):
    def mistake(epoch, record):
        if epoch == EPOCHS:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        copying(progress=mistake, store=tmp_path / "run")
    assert "the run is complete" in caught.value.__notes__[0]
    assert_same(bt.Run.load(tmp_path / "run"), whole)


# What there is so far -----------------------------------------------------------------------------------------------


def interrupt(epoch, record):
    if epoch == 20:
        raise KeyboardInterrupt


def test_an_interrupted_run_says_so_and_can_be_read(whole, tmp_path):
    store = tmp_path / "run"
    with pytest.raises(bt.Interrupted) as caught:
        copying(store=store, progress=interrupt)
    assert (header(store)["status"], header(store)["epoch"]) == ("interrupted", 21)
    with pytest.raises(bt.BayesticketError, match=r"not finished; accepted: bt\.resume\(.*\), or partial=True"):
        bt.Run.load(store)
    partial = bt.Run.load(store, partial=True)
    assert_same(partial, caught.value.run)
    pd.testing.assert_frame_equal(partial.curves, whole.curves.loc[:20], check_exact=True)
    assert partial.plot() is not None
    assert (partial.model(TOKENS) == caught.value.run.model(TOKENS)).all()
    assert_same(bt.resume(store), whole)
    assert_same(bt.Run.load(store, partial=True), whole)


def test_a_run_that_is_being_trained_or_was_killed_can_be_read(whole, tmp_path, monkeypatch):
    original, seen = Training.take_epoch, []

    def look(self):
        original(self)
        if self.epoch in (3, 22):
            try:
                seen.append(bt.Run.load(tmp_path / "run", partial=True))
            except bt.BayesticketError as error:
                seen.append(str(error))

    monkeypatch.setattr(Training, "take_epoch", look)
    copying(store=tmp_path / "run", checkpoint_every=8)
    early, late = seen
    assert early.startswith("path: got a run without a checkpoint in")
    assert (late.status, late.epoch, late.curves.index.tolist()) == ("running", 16, [0, 5, 10, 15])
    pd.testing.assert_frame_equal(late.curves, whole.curves.loc[:15], check_exact=True)


def test_what_is_out_of_date_is_not_read(whole, tmp_path):
    store = tmp_path / "run"
    copying(store=store, progress=lambda epoch, record: epoch == 10)

    with pytest.raises(bt.Interrupted):
        copying(store=store, progress=interrupt)
    assert not (store / "curves.parquet").exists()
    assert bt.Run.load(store, partial=True).epoch == 21
    assert_same(bt.resume(store), whole)


def test_a_callback_may_do_with_its_record_what_it_likes():
    def spoil(epoch, record):
        record.pop("epoch", None)
        record["test_loss"] = -1.0
        return np.True_ if epoch >= 20 else np.False_

    run = bt.train(bt.ModularAddition(p=5), model=bt.Architecture(d_model=8, d_mlp=8), epochs=40, progress=spoil)
    assert (run.curves["test_loss"] > 0).all()
    assert (run.status, run.epoch) == ("stopped", 21)
