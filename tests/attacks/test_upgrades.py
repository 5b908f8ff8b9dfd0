"""A store goes on to be used after an upgrade, in both directions, and every part of a run says what trained it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers import Killed, die_at, refused, reseal

import bayesticket as bt
from bayesticket.runs import versions as versions_module

TASK, SMALL = bt.ModularAddition(p=5), bt.Architecture(d_model=8, d_mlp=8)
ROOT = Path(bt.__file__).parent.parent
WORK = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import bayesticket as bt

task, model, store = bt.ModularAddition(p=5), bt.Architecture(d_model=8, d_mlp=8), Path(sys.argv[1])
with ThreadPoolExecutor(1) as executor:
    options = {"model": model, "epochs": 20, "store": store / "store", "executor": executor}
    runs = bt.sweep(task, {"none": None}, seeds=[0, 1], **options)
bt.train(task, model=model, epochs=20, store=store / "plain", progress=False)
bt.train(task, model=model, epochs=20, store=store / "other", progress=False, cooldown=3)
print(runs.curves["id"].to_numpy().ravel().tolist(), float(runs.curves["test_loss"].sum()))
"""


@pytest.fixture(scope="module")
def newer(tmp_path_factory):
    """The library with one more option of training, whose default changes nothing."""
    place = tmp_path_factory.mktemp("newer")
    shutil.copytree(ROOT / "bayesticket", place / "bayesticket", ignore=shutil.ignore_patterns("__pycache__", "data"))
    replaced = {
        "runs/config.py": ("    warmup: int = 10\n", "    warmup: int = 10\n    cooldown: int = 0\n"),
        "runs/train.py": ("    warmup: int = 10,\n", "    warmup: int = 10,\n    cooldown: int = 0,\n"),
    }
    for name, (old, new) in replaced.items():
        path = place / "bayesticket" / name
        assert old in path.read_text(), name
        path.write_text(
            path.read_text().replace(old, new, 1).replace("warmup=warmup,", "warmup=warmup, cooldown=cooldown,")
        )
    return place


def set_versions(monkeypatch, **changed):
    now = versions_module.versions() | {name.replace("_", "-"): value for name, value in changed.items()}
    monkeypatch.setattr(versions_module, "versions", lambda: now)
    monkeypatch.setattr("bayesticket.runs.loop.versions", lambda: now)


def test_stores_of_an_older_and_a_newer_library(newer, tmp_path, threads):
    options = {"seeds": [0, 1], "model": SMALL, "epochs": 20, "store": tmp_path / "store", "executor": threads}
    runs = bt.sweep(TASK, {"none": None}, **options)
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    called = [sys.executable, "-c", WORK, str(tmp_path)]
    done = subprocess.run(called, capture_output=True, text=True, cwd=newer)
    # The newer one takes the runs of the older for what they are, and trains none of them again.
    expected = f"{runs.curves['id'].to_numpy().ravel().tolist()} {float(runs.curves['test_loss'].sum())}"
    assert (done.stdout.strip(), done.stderr) == (expected, "")
    assert {path: path.stat().st_mtime_ns for path in written} == written
    # The older one reads what the newer has trained with options that it knows.
    plain = bt.Run.load(tmp_path / "plain")
    whole = bt.train(TASK, model=SMALL, epochs=20, progress=False)
    assert plain.id == whole.id
    pd.testing.assert_frame_equal(plain.curves, whole.curves, check_exact=True)
    assert bt.resume(tmp_path / "plain").id == whole.id
    # What it does not know, it names, and which version does.
    header = json.loads((tmp_path / "other" / "run.json").read_text())
    header["made_with"]["bayesticket"] = "99.0"
    reseal(tmp_path / "other", header)
    newer_only = bt.Run.load(tmp_path / "other")
    pd.testing.assert_frame_equal(newer_only.curves, whole.curves, check_exact=True)
    said = f"it was written by bayesticket 99.0, and this is {bt.__version__}"
    refused(lambda: newer_only.config, "TrainConfig field: got 'cooldown'", said)
    refused(lambda: bt.resume(tmp_path / "other"), "TrainConfig field: got 'cooldown'", said)


def test_a_run_of_two_versions_keeps_both_and_says_so(tmp_path, monkeypatch, caplog):
    store = tmp_path / "run"
    with monkeypatch.context() as patch:
        die_at(12, patch)
        with pytest.raises(Killed):
            bt.train(TASK, model=SMALL, epochs=20, store=store, checkpoint_every=5, progress=False)
    set_versions(monkeypatch, torch="99.0")
    run = bt.resume(store, progress=False)
    assert "until epoch 10, from which it goes on" in caplog.text
    assert ", not 99.0" in caplog.text
    for one in (run, bt.Run.load(store)):
        (part,) = one.earlier
        assert part.until == 10
        assert part.made_with["torch"] != "99.0"
        assert one.made_with["torch"] == "99.0"


def test_what_is_loaded_with_another_version_is_said_once(tmp_path, monkeypatch, caplog):
    for seed in (0, 1):
        bt.train(TASK, model=SMALL, epochs=5, seed=seed, store=tmp_path / str(seed), progress=False)
    assert not caplog.text
    set_versions(monkeypatch, python="4.0")
    for seed in (0, 1):
        bt.Run.load(tmp_path / str(seed))
    assert caplog.text.count("not 4.0; a new one's last bits may differ from it") == 1


def test_a_sweep_may_ask_for_one_version(tmp_path, monkeypatch, threads):
    def swept(**options):
        arms = {"none": None}
        return bt.sweep(TASK, arms, seeds=[0], store=tmp_path, model=SMALL, epochs=5, executor=threads, **options)

    swept()
    swept(same_versions=True)
    set_versions(monkeypatch, numpy="9.9")
    np.testing.assert_array_equal(swept().curves["test_loss"].isnull(), False)
    refused(lambda: swept(same_versions=True), "same_versions: got none, seed 0, with numpy ", "not 9.9; accepted: a ")


@pytest.fixture
def threads():
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as executor:
        yield executor
