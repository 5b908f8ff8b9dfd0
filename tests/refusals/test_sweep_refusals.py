"""Sweeps refuse bad input in one line, before anything is made."""

import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import bayesticket as bt
from bayesticket.runs import TrainConfig
from bayesticket.sweeps import sweep, sweep_configs

TASK = bt.ModularAddition(p=5)
SMALL = bt.Architecture(d_model=8, d_mlp=8)
GOOD = {"interventions": {"none": None}, "seeds": [0], "model": SMALL, "epochs": 1}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"interventions": None}, "interventions: got None; accepted: interventions by name, such as {"),
        ({"interventions": {}}, "interventions: got {}; accepted: interventions by name"),
        ({"interventions": [bt.KLPrior()]}, "interventions: got [KLPrior()]; accepted: interventions by name"),
        ({"interventions": bt.KLPrior()}, "interventions: got KLPrior(); accepted: interventions by name"),
        ({"interventions": {3: None}}, "interventions: got 3; accepted: interventions by name"),
        ({"interventions": {"none": None, "kl": "kl"}}, "interventions['kl']: got 'kl'; accepted: an Intervention"),
        ({"interventions": {"kl": bt.KLPrior}}, "interventions['kl']: got <class"),
        *(({"seeds": value}, "seeds: got ") for value in (5, None, "01", [], [1, 1], [0.5], [True], [-1], [[1]])),
        ({"seeds": [1, 2, 1]}, "seeds: got [1, 2, 1]; accepted: at least one whole number, none of them twice"),
        ({"epocs": 3}, "option: got 'epocs'; accepted: 'model', 'measures'"),
        ({"epocs": 3}, "Closest: 'epochs'"),
        ({"intervention": bt.KLPrior()}, "intervention: got an axis of the sweep and an option of the same name; "),
        ({"seed": 3}, "option: got 'seed'; accepted: "),
        ({"epochs": 0}, "epochs: got 0; accepted: a whole number of at least 1"),
        ({"model": "gpt2"}, "model: got 'gpt2'; accepted: a HookedTransformer"),
        ({"task": "addition"}, "task: got 'addition'; accepted: a task"),
        ({"store": ""}, "store: got ''; accepted: the path of a directory"),
        ({"store": 3}, "store: got 3; accepted: the path of a directory"),
        ({"store": "/dev/null"}, "store: got '/dev/null'; accepted: a directory that can be written to"),
        ({"store": "/dev/null/deep"}, "store: got '/dev/null/deep'; accepted: a directory that can be written to"),
        ({"executor": "dask"}, "executor: got 'dask'; accepted: None, or a concurrent.futures.Executor"),
        ({"executor": ThreadPoolExecutor}, "executor: got <class"),
        ({"executor": ThreadPoolExecutor(1), "workers": 2}, "workers: got 2; accepted: None with an executor"),
        *(({"workers": value}, "workers: got ") for value in (0, -1, 1.5, "2", True)),
        *(({"checkpoint_every": value}, "checkpoint_every: got ") for value in (0, 0.5, None)),
        *(({"progress": value}, "progress: got ") for value in (1, "bar", print)),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, options: dict, said: str):
    given = {"task": TASK, "store": tmp_path / "store"} | GOOD | options
    with pytest.raises(bt.BayesticketError) as caught:
        sweep(given.pop("task"), given.pop("interventions"), **given)
    message = str(caught.value)
    assert said in message
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == []
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], "configs: got {}; accepted: at least one configuration"),
        ([("a", 0), ("a", 1), ("b", 0)], "configs: got no ('b', 1); accepted: every arm with every seed"),
    ],
)
def test_every_arm_comes_with_every_seed(tmp_path: Path, names: list, said: str):
    with pytest.raises(bt.BayesticketError) as caught:
        sweep_configs({name: TrainConfig(seed=name[1]) for name in names}, store=tmp_path / "store")
    assert str(caught.value) == said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("configs", "said"),
    [
        (None, "configs: got None; accepted: TrainConfig objects by arm and seed"),
        ([TrainConfig()], "configs: got"),
        ({"a": TrainConfig()}, "configs: got 'a'"),
        ({("a", 0): 1}, "configs[('a', 0)]: got 1; accepted: TrainConfig objects"),
        ({("a", 0): TrainConfig(seed=7)}, "configs[('a', 0)].seed: got 7; accepted: 0, as its key says"),
    ],
)
def test_what_is_no_grid_of_configurations_is_refused(configs, said, tmp_path):
    with pytest.raises(bt.BayesticketError) as caught:
        sweep_configs(configs, store=tmp_path / "store")
    assert said in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_bad_input_is_refused_also_where_nothing_is_left_to_train(tmp_path: Path):
    with ThreadPoolExecutor(1) as executor:
        runs = sweep(TASK, store=tmp_path / "store", executor=executor, **GOOD)
    for options in ({"executor": "dask"}, {"workers": 0}, {"checkpoint_every": 0}, {"progress": 3}):
        with pytest.raises(bt.BayesticketError, match=f"^{next(iter(options))}: got "):
            sweep(TASK, store=tmp_path / "store", **GOOD | options)
    with pytest.raises(bt.BayesticketError, match=r"^intervention: got 'nnoe'; accepted: 'none'\. Closest: 'none'$"):
        runs.run("nnoe", 0)
    with pytest.raises(bt.BayesticketError, match=r"^seed: got 3; accepted: 0$"):
        runs.run("none", 3)
    with pytest.raises(bt.BayesticketError, match=r"^intervention: got \['none'\]; accepted: 'none'$"):
        runs.times(["none"])
    for threshold in (0, "all", [0.9]):
        with pytest.raises(bt.BayesticketError, match=r"^threshold: got "):
            runs.grok_epochs(threshold)
