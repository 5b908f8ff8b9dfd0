"""A store goes on to be used after an upgrade, in both directions, and every part of a run says what trained it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import Killed, die_at, refused, reseal

import bayesticket as bt
from bayesticket.runs import versions as versions_module

TASK, SMALL = bt.ModularAddition(p=5), bt.Architecture(d_model=8, d_mlp=8)
ROOT = Path(bt.__file__).parent.parent
WORK = """
import sys, bayesticket as bt
task, model = bt.ModularAddition(p=5), bt.Architecture(d_model=8, d_mlp=8)
what, store = sys.argv[1:3]
if what == "sweep":
    from concurrent.futures import ThreadPoolExecutor
    runs = bt.sweep(task, {"none": None}, seeds=[0, 1], model=model, epochs=20, store=store,
                    executor=ThreadPoolExecutor(1))
    print(sorted(map(str, runs.curves["id"].to_numpy().ravel())), float(runs.curves["test_loss"].sum()))
elif what == "train":
    bt.train(task, model=model, epochs=20, store=store, progress=False)
else:
    run = bt.Run.load(store)
    print(run.id, run.config.epochs, float(run.curves["test_loss"].sum()), float(run.model.W_E.sum()))
"""


@pytest.fixture(scope="module")
def newer(tmp_path_factory):
    """The library with one more option of training, whose default changes nothing."""
    place = tmp_path_factory.mktemp("newer")
    shutil.copytree(ROOT / "bayesticket", place / "bayesticket", ignore=shutil.ignore_patterns("__pycache__", "data"))
    replaced = {
        "runs/config.py": ("    warmup: int = 10\n", "    warmup: int = 10\n    cooldown: int = 0\n"),
    }
    for name, (old, new) in replaced.items():
        path = place / "bayesticket" / name
        assert old in path.read_text(), name
        path.write_text(path.read_text().replace(old, new, 1))
    return place


def call(place, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", WORK, *map(str, arguments)], capture_output=True, text=True, cwd=place,
        env={**os.environ, "PYTHONPATH": str(place)},
    )  # fmt: skip
    return done.stdout.strip(), done.stderr.strip()


def set_versions(monkeypatch, **changed):
    now = versions_module.versions() | {name.replace("_", "-"): value for name, value in changed.items()}
    monkeypatch.setattr(versions_module, "versions", lambda: now)
    monkeypatch.setattr("bayesticket.runs.loop.versions", lambda: now)


def test_an_older_store_is_read_and_kept_by_a_newer_library(newer, tmp_path):
    older, store = ROOT, tmp_path / "store"
    trained = call(older, "sweep", store)[0]
    files = {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}
    assert call(newer, "sweep", store)[0] == trained
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()} == files
    # What the newer one trains with its defaults, the older one reads; what it trains otherwise, it names.
    call(newer, "train", tmp_path / "plain")
    assert call(older, "load", tmp_path / "plain") == call(newer, "load", tmp_path / "plain")
    call(newer, "train", tmp_path / "other")
    header = json.loads((tmp_path / "other" / "run.json").read_text())
    header["config"]["cooldown"] = 3
    header["made_with"]["bayesticket"] = "99.0"
    reseal(tmp_path / "other", header)
    said = call(older, "load", tmp_path / "other")[1].splitlines()[-1]
    assert "got 'cooldown'" in said
    assert said.endswith(f"it was written by bayesticket 99.0, and this is {bt.__version__}")


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
