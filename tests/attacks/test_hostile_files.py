"""A run whose files agree with each other, and are nonsense: one line, at once, and without filling the memory."""

import hashlib
import json
import math
import os
import resource
import shutil
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import torch
from helpers import refused, reseal
from safetensors.torch import load_file, save_file

import bayesticket as bt
from bayesticket.files import json_digest

TASK, SMALL = bt.ModularAddition(p=5), bt.Architecture(d_model=8, d_mlp=8)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A complete run of 100 epochs, which no test changes."""
    run = bt.train(TASK, model=SMALL, epochs=100, progress=False)
    return run.save(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def copied(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "copied")


def use(path):
    """Everything that is done with a run that is loaded."""
    run = bt.Run.load(path)
    return repr(run), run.config, run.model


def refused_at_once(path, *said):
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused(lambda: use(path), str(path), *said)
    assert time.perf_counter() - began < 5  # no measurement: what is allocated or waited for takes far longer
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000


HEADERS = {
    "an epoch of 10^18": {"epoch": 10**18},
    "a negative epoch": {"epoch": -3},
    "more epochs than were asked for": {"epoch": 101},
    "seconds that are no number": {"seconds": math.nan},
    "infinite seconds": {"seconds": math.inf},
    "an earlier part that is none": {"earlier": [3]},
    "a status that is none": {"status": "splendid"},
    "versions of two lines": {"made_with": {"torch": "2.0\nbayesticket: all is well"}},
    "versions that are numbers": {"made_with": {"torch": 2}},
    "threads that nobody can count": {"made_with": {"threads": "-1"}},
}


@pytest.mark.parametrize("changes", HEADERS.values(), ids=HEADERS)
def test_headers(copied, changes):
    reseal(copied, json.loads((copied / "run.json").read_text()) | changes)
    refused_at_once(copied, "run.json")


def test_the_id_of_another_run(copied):
    header = json.loads((copied / "run.json").read_text())
    header = {name: value for name, value in header.items() if name != "sha256"} | {"id": "0" * 12}
    (copied / "run.json").write_text(json.dumps(header | {"sha256": json_digest(header)}))
    refused_at_once(copied, "run.json: id: got '000000000000'; accepted: ")


CONFIGS = {
    "a width of 10^9": {"model": {"type": "Architecture", "d_model": 10**9}},
    "10^7 layers": {"model": {"type": "Architecture", "d_model": 8, "d_mlp": 8, "n_layers": 10**7}},
    "a hidden layer of 10^12": {"model": {"type": "Architecture", "d_model": 8, "d_mlp": 10**12}},
    "a task of 10^9": {"task": {"type": "ModularAddition", "p": 10**9}},
}


@pytest.mark.parametrize("changes", CONFIGS.values(), ids=CONFIGS)
def test_sizes_that_the_weights_do_not_have(copied, changes):
    header = json.loads((copied / "run.json").read_text())
    header["config"] |= changes
    reseal(copied, header)
    refused_at_once(copied, "weights: got ")


@pytest.mark.parametrize("changes", [{"d_model": 10**9}, {"n_layers": 10**7}, {"n_ctx": 10**9}, {"d_vocab": 10**12}])
def test_sizes_of_a_model_of_ones_own(tmp_path, changes):
    model = bt.build_model(TASK, d_model=8, d_mlp=8)
    saved = bt.train(TASK, model=model, epochs=1, progress=False).save(tmp_path / "own")
    header = json.loads((saved / "run.json").read_text())
    header["config"]["model"]["config"] |= changes
    reseal(saved, header)
    refused_at_once(saved)


def curves(epochs, value=0.5):
    index = pd.Index(epochs, name="epoch", dtype="int64")
    return pd.DataFrame({"train_accuracy": value, "test_accuracy": value}, index=index, dtype="float64")


CURVES = {
    "reversed": curves(range(100, -1, -10)),
    "doubled": curves([0, 10, 20, 20, 40, 50, 60, 70, 80, 90, 100]),
    "cut": curves(range(0, 60, 10)),
    "with a hole": curves([0, 10, 20, 30, 40, 60, 70, 80, 90, 100]),
    "without the first": curves([10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 101]),
    "negative": curves([-10, *range(10, 101, 10)]),
    "all NaN": curves(range(0, 101, 10), math.nan),
    "an accuracy of 3": curves(range(0, 101, 10), 3.0),
    "empty": curves([]),
    "of another epoch": curves(range(0, 101, 10)).rename_axis("step"),
}


@pytest.mark.parametrize("table", CURVES.values(), ids=CURVES)
def test_curves(copied, table):
    table.to_parquet(copied / "curves.parquet")
    reseal(copied)
    refused_at_once(copied, "curves.parquet")


def test_a_column_of_lists_is_not_read(copied, monkeypatch):
    table = curves(range(0, 101, 10)).assign(more=[[0.0] * 1000] * 11)
    table.to_parquet(copied / "curves.parquet")
    reseal(copied)
    monkeypatch.setattr(pd, "read_parquet", lambda *given: pytest.fail("it was read"))
    refused_at_once(copied, "curves.parquet: columns: got ", "'more': 'list<")


@pytest.mark.parametrize("name", ["curves.parquet", "weights.safetensors"])
def test_a_file_of_another_size_is_not_read(copied, name, monkeypatch):
    os.truncate(copied / name, 2**33)
    digest = hashlib.file_digest
    unread = lambda file, kind: pytest.fail("it was read") if file.name.endswith(name) else digest(file, kind)  # noqa: E731
    monkeypatch.setattr(hashlib, "file_digest", unread)
    refused_at_once(copied, name, "other bytes than were written with the run")


def test_more_rows_than_there_were_epochs(copied):
    zeros = pa.array(np.zeros(1_000_000, dtype="int64"))
    batch = pa.table({"epoch": zeros, "train_accuracy": zeros.cast("float64"), "test_accuracy": zeros.cast("float64")})
    with parquet.ParquetWriter(copied / "curves.parquet", batch.schema) as writer:
        for _ in range(50):
            writer.write_table(batch)
    reseal(copied)
    refused_at_once(copied, "curves.parquet", "rows: got 50,000,000; accepted: 11 records of 100 epochs")


WEIGHTS = {
    "one is missing": lambda weights: weights.pop("embed.W_E"),
    "one is NaN": lambda weights: weights["embed.W_E"].fill_(math.nan),
    "one entry is infinite": lambda weights: weights["embed.W_E"][0].fill_(math.inf),
    "one is transposed": lambda weights: weights.update({"embed.W_E": weights["embed.W_E"].T.contiguous()}),
    "one too many": lambda weights: weights.update(more=torch.zeros(3)),
    "all are missing": lambda weights: weights.clear(),
}


@pytest.mark.parametrize("change", WEIGHTS.values(), ids=WEIGHTS)
def test_weights(copied, change):
    weights = load_file(copied / "weights.safetensors")
    change(weights)
    save_file(weights, copied / "weights.safetensors")
    reseal(copied)
    refused_at_once(copied, "weights")


def test_a_key_twice(copied):
    text = (copied / "run.json").read_text()
    (copied / "run.json").write_text(text.replace('"epoch": 100', '"epoch": 100, "epoch": 100'))
    refused_at_once(copied, "run.json: content: got 'epoch'; accepted: every key once")


@pytest.mark.parametrize("name", ["run.json", "curves.parquet", "weights.safetensors"])
def test_a_pipe_in_the_place_of_a_file(copied, name):
    (copied / name).unlink()
    os.mkfifo(copied / name)
    refused_at_once(copied, name, "what is no file")


def test_a_run_json_of_gigabytes(copied):
    os.truncate(copied / "run.json", 2**33)
    refused_at_once(copied, "8,589,934,592 bytes")


@pytest.mark.parametrize("epochs", [[99, 98], [98, 98], [-1], [10**18], ["a"], [0.5], None])
def test_records_of_a_checkpoint(tmp_path, epochs):
    from bayesticket.runs import RunDirectory, TrainConfig, Training
    from bayesticket.runs.checkpoint import checkpoint_of

    training, directory = Training(TrainConfig(task=TASK, model=SMALL)), RunDirectory(tmp_path / "run")
    training.take_epoch()
    directory.begin(training.as_run("running").header(), {})
    tensors, note = checkpoint_of(training)
    state = json.loads(note["state"]) | {"recorded_at": epochs, "epoch": 100}
    directory.write_checkpoint(tensors, {"state": json.dumps(state)})
    refused(lambda: bt.Run.load(directory.path, partial=True), "recorded_at: got ")
    refused(lambda: bt.resume(directory.path, progress=False), "recorded_at: got ")


def test_nothing_that_a_run_names_is_executed(copied):
    header = json.loads((copied / "run.json").read_text())
    header["config"]["intervention"] = {"type": "os.system", "command": f"touch {copied / 'owned'}"}
    reseal(copied, header)
    refused_at_once(copied, "got 'os.system'")
    assert not (copied / "owned").exists()


def test_sixty_thousand_keys_of_which_one_is_twice(copied):
    keys = ", ".join(f'"k{number}": 0' for number in [*range(60_000), 59_999])
    (copied / "run.json").write_text(f"{{{keys}}}")
    refused_at_once(copied, "run.json: content: got 'k59999'; accepted: every key once")


def test_a_path_that_is_too_long():
    refused(lambda: bt.Run.load("/".join(["a" * 200] * 30)), "shorter than 4,000 bytes")


def test_a_teacher_without_finite_weights():
    teacher = bt.build_model(TASK, d_model=8, d_mlp=8)
    with torch.no_grad():
        teacher.W_E.fill_(math.nan)
    said = "teacher: got a model whose embed.W_E is not finite"
    refused(lambda: bt.train(TASK, bt.KLPrior(target=teacher), model=SMALL, epochs=1), said)
    refused(lambda: bt.measure(bt.build_model(TASK), TASK.split().test, bt.KLToTarget(target=teacher)), said)
