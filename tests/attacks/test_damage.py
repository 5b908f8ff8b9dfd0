"""A file that is not the one that was written is damage: named, refused, and in a sweep set aside and trained again."""

import random
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from attacking import times
from helpers import refused
from hypothesis import given, settings
from hypothesis import strategies as st

import bayesticket as bt
from bayesticket.runs import RunDirectory, TrainConfig, Training
from bayesticket.runs.checkpoint import checkpoint_of
from bayesticket.specs import spec_id

TASK, SMALL = bt.ModularAddition(p=5), bt.Architecture(d_model=8, d_mlp=8)
TARGET = torch.tensor([0.25, 0.25, 0.5, 0.0, 0.0])
CONFIG = TrainConfig(task=TASK, model=SMALL, intervention=bt.KLPrior(target=TARGET), epochs=20)
FILES = ["run.json", "curves.parquet", "weights.safetensors", "tensors.safetensors"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A complete run with a tensor; copied by whoever changes it."""
    return bt.runs.train_config(CONFIG, progress=False).save(tmp_path_factory.mktemp("runs") / "run")


def flip(path, generator):
    """Flips one bit of a file."""
    content = bytearray(path.read_bytes())
    place = generator.randrange(8 * len(content))
    content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("seed", range(times(12)))
def test_a_flipped_bit_is_refused_and_can_still_be_looked_at(saved, tmp_path, name, seed):
    copied = shutil.copytree(saved, tmp_path / "copied")
    flip(copied / name, random.Random(seed))
    with pytest.raises(bt.BayesticketError) as caught:
        bt.Run.load(copied)
    assert str(copied / name) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_damaged_can_still_be_looked_at(saved, tmp_path):
    copied, run = shutil.copytree(saved, tmp_path / "copied"), bt.Run.load(saved)
    content = bytearray((copied / "weights.safetensors").read_bytes())
    content[-1] ^= 1
    (copied / "weights.safetensors").write_bytes(content)
    with pytest.raises(bt.BayesticketError, match="other bytes than were written"):
        bt.Run.load(copied)
    looked_at = bt.Run.load(copied, damaged=True)
    changed = sum(int((looked_at.weights[name] != run.weights[name]).sum()) for name in run.weights)
    assert changed == 1
    pd.testing.assert_frame_equal(looked_at.curves, run.curves)


def interrupted(path: Path, config: TrainConfig) -> RunDirectory:
    """The directory of a run that was killed after a checkpoint at its first epoch."""
    training, directory = Training(config), RunDirectory(path)
    training.take_epoch()
    directory.begin(training.as_run("running").header(), training.tensors)
    directory.write_checkpoint(*checkpoint_of(training))
    return directory


@pytest.mark.parametrize("seed", range(times(12)))
def test_a_flipped_bit_in_a_checkpoint_is_refused(tmp_path, seed):
    directory = interrupted(tmp_path / "run", CONFIG)
    flip(directory.checkpoint_path, random.Random(seed))
    with pytest.raises(bt.BayesticketError) as caught:
        bt.resume(directory.path, progress=False)
    assert str(directory.checkpoint_path) in str(caught.value)


@pytest.mark.parametrize("name", FILES[1:3])
def test_a_file_of_another_run_is_not_believed(saved, tmp_path, name):
    copied = shutil.copytree(saved, tmp_path / "copied")
    other = bt.train(TASK, model=SMALL, seed=1, epochs=20, progress=False).save(tmp_path / "other")
    shutil.copy(other / name, copied / name)
    with pytest.raises(bt.BayesticketError, match=f"{name}: truncated, damaged or foreign"):
        bt.Run.load(copied)


@pytest.mark.parametrize("name", ["run.json", "weights.safetensors"])
def test_a_sweep_sets_damage_aside_and_trains_again(tmp_path, name):
    def swept():
        return bt.sweep(TASK, {"kl": CONFIG.intervention}, seeds=[0], store=tmp_path, model=SMALL, epochs=20, workers=1)

    runs, directory = swept(), tmp_path / spec_id(CONFIG)
    before = (directory / "weights.safetensors").read_bytes()
    if name == "run.json":  # it still parses, and says another seed
        text = (directory / name).read_text()
        (directory / name).write_text(text.replace('"type": "TrainConfig"', '"type": "TrainConfig", "seed": 3'))
    else:
        flip(directory / name, random.Random(0))
    again = swept()
    assert (directory / "weights.safetensors").read_bytes() == before
    np.testing.assert_array_equal(runs.curves["test_loss"], again.curves["test_loss"])
    assert (tmp_path / f"{directory.name}.damaged" / name).exists()
    assert len(list(tmp_path.glob("[!.]*"))) == 2


@settings(max_examples=times(40), deadline=None)
@given(st.data())
def test_another_number_in_run_json_is_noticed(saved, tmp_path_factory, data):
    copied = shutil.copytree(saved, tmp_path_factory.mktemp("copied") / "run")
    text = (copied / "run.json").read_text()
    digits = [place for place, sign in enumerate(text) if sign.isdigit()]
    place, sign = data.draw(st.sampled_from(digits)), data.draw(st.sampled_from("0123456789"))
    if sign != text[place]:
        (copied / "run.json").write_text(text[:place] + sign + text[place + 1 :])
        with pytest.raises(bt.BayesticketError, match=r"run\.json"):
            bt.Run.load(copied)


@pytest.mark.parametrize("seed", range(times(12)))
def test_a_flipped_bit_in_the_tensors_of_an_interrupted_run_is_refused(tmp_path, seed):
    directory = interrupted(tmp_path / "run", CONFIG)
    flip(directory.tensors_path, random.Random(seed))
    for call in (lambda: bt.resume(directory.path, progress=False), lambda: bt.Run.load(directory.path, partial=True)):
        with pytest.raises(bt.BayesticketError) as caught:
            call()
        assert str(directory.tensors_path) in str(caught.value)


def test_a_checkpoint_of_another_run_is_not_believed(tmp_path):
    for seed in (0, 1):
        interrupted(tmp_path / f"{seed}", TrainConfig(task=TASK, model=SMALL, seed=seed))
    shutil.copy(tmp_path / "1" / "checkpoint.safetensors", tmp_path / "0")
    for call in (lambda: bt.Run.load(tmp_path / "0", partial=True), lambda: bt.resume(tmp_path / "0", progress=False)):
        refused(call, "checkpoint.safetensors: state: got '", "accepted: a checkpoint of this configuration")
    assert bt.Run.load(tmp_path / "1", partial=True).config.seed == 1
