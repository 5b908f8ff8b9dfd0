"""Functions that stop a run, exceptions in them, and what can be read of a run so far."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import refused
from jobs import assert_same
from small_runs import COPYING, QUICK, TOKENS, plain

import bayesticket as bt
from bayesticket.runs import RunDirectory, Training
from bayesticket.runs.checkpoint import checkpoint_of, restore_checkpoint

EPOCHS = 30


def copying(epochs: int = EPOCHS, **options) -> bt.Run:
    return bt.train(COPYING, epochs=epochs, **QUICK, **options)


@pytest.fixture(scope="module")
def whole() -> bt.Run:
    return copying()


def header(path) -> dict:
    return json.loads((path / "run.json").read_text())


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


def test_weights_beside_a_run_that_is_under_way_are_not_its_results(tmp_path):
    """As when a process is killed while it saves: the header says "running" until all is written."""
    RunDirectory(tmp_path / "run").begin(replace(plain().header(), status="running"), {})
    (tmp_path / "run" / "weights.safetensors").write_bytes(b"half of them")
    refused(lambda: bt.Run.load(tmp_path / "run"), "got a run that is not finished")


def test_a_checkpoint_with_a_curve_of_another_length_is_refused(tmp_path):
    training = Training(plain().config)
    training.take_epoch()
    tensors, note = checkpoint_of(training)
    tensors["curves/train_loss"] = torch.zeros(5, dtype=torch.float64)
    with pytest.raises(bt.BayesticketError, match="curves: got a length of another size; accepted: 1 records"):
        restore_checkpoint(Training(plain().config), tensors, note)


def test_a_callback_may_do_with_its_record_what_it_likes():
    def spoil(epoch, record):
        record.pop("epoch", None)
        record["test_loss"] = -1.0
        return np.True_ if epoch >= 20 else np.False_

    run = bt.train(bt.ModularAddition(p=5), model=bt.Architecture(d_model=8, d_mlp=8), epochs=40, progress=spoil)
    assert (run.curves["test_loss"] > 0).all()
    assert (run.status, run.epoch) == ("stopped", 21)
