"""Grids: every combination is trained as `train` would train it, and axes that are none are named."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import xarray as xr
from jobs import SMALL, TASK, assert_same, configured, uninterrupted

import bayesticket as bt
from bayesticket.runs import TrainConfig
from bayesticket.sweeps import Runs

KL = bt.KLPrior(strength=0.5)
OPTIONS = {"model": SMALL, "epochs": 20, "record_every": 5, "lr": 3e-3}


def swept(store, axes, task: bt.AbstractTask | None = TASK, seeds=(0,), **options) -> Runs:
    given = {name: value for name, value in (OPTIONS | options).items() if name not in getattr(axes, "axes", {})}
    with ThreadPoolExecutor(1) as executor:
        return bt.sweep(task, axes, seeds=seeds, store=store, executor=executor, **given)


def test_every_combination_has_a_configuration():
    axes = bt.grid(intervention={"none": None, "kl": KL}, lr=[1e-3, 1e-2], optimizer=("adamw", "lion"))
    configs = axes.configs(TASK, seeds=[4, 0], epochs=7)
    assert list(configs)[:2] == [("none", 1e-3, "adamw", 4), ("none", 1e-3, "lion", 4)]
    assert len(configs) == 2 * 2 * 2 * 2
    for (name, lr, optimizer, seed), config in configs.items():
        chosen = {"none": bt.Recipe(), "kl": KL + None}[name]
        made = {"adamw": bt.AdamW, "lion": bt.Lion}[str(optimizer)](lr=lr)
        assert config == TrainConfig(task=TASK, intervention=chosen, optimizer=made, seed=seed, epochs=7)


def test_sequences_label_themselves():
    for rates in ([1e-3, 1e-2], (1e-3, 1e-2), np.array([1e-3, 1e-2]), iter([1e-3, 1e-2]), {1e-3: 1e-3, 1e-2: 1e-2}):
        assert dict(bt.grid(lr=rates).axes["lr"]) == {1e-3: 1e-3, 1e-2: 1e-2}
    assert dict(bt.grid(epochs=range(1, 3)).axes["epochs"]) == {1: 1, 2: 2}
    assert repr(bt.grid(lr=[1e-3], optimizer=["adamw", "sgd"])) == "Grid(lr: 0.001 × optimizer: adamw, sgd)"


def test_a_plain_sweep_is_a_grid_of_interventions(tmp_path):
    arms = {"none": None, "kl": KL}
    plain, by_grid = swept(tmp_path, arms), swept(tmp_path, bt.grid(intervention=arms))
    xr.testing.assert_identical(plain.curves, by_grid.curves)


def test_what_is_the_same_twice_is_trained_once(tmp_path):
    runs = swept(tmp_path, bt.grid(weight_decay={"as it is": 1.0, "one": 1, "less": 0.5}))
    assert len(list(tmp_path.iterdir())) == 2
    assert runs.run("as it is").source == runs.run("one").source != runs.run("less").source


def test_tasks_models_and_measures_may_be_axes(tmp_path):
    tasks = {"5": TASK, "7": bt.ModularAddition(p=7)}
    models = {"small": SMALL, "two heads": bt.Architecture(d_model=8, d_mlp=8, n_heads=2)}
    measures = {"none": (), "entropy": (bt.AttentionEntropy(),)}
    runs = swept(tmp_path, bt.grid(task=tasks, model=models, measures=measures), task=None)
    assert runs.axes == ("task", "model", "measures")
    for labels in (("5", "small", "entropy"), ("7", "two heads", "none")):
        chosen = {"task": tasks[labels[0]], "model": models[labels[1]], "measures": measures[labels[2]]}
        own = dict(zip(runs.axes, labels, strict=True))
        assert_same(runs.run(**own), uninterrupted(configured(**chosen, epochs=20)))
    recorded = ~runs.curves["attention_entropy"].isnull()
    assert not recorded.sel(measures="none").any(), "what some runs did not record is NaN there"
    assert recorded.sel(measures="entropy").all()


def test_the_model_none_is_the_default_one():
    configs = bt.grid(model={"default": None, "small": SMALL}).configs(TASK, seeds=[0])
    assert [config.model for config in configs.values()] == [bt.Architecture(), SMALL]


def test_one_intervention_may_be_common_to_a_grid():
    (config,) = bt.grid(lr=[1e-2]).configs(TASK, seeds=[0], intervention=KL).values()
    assert (config.intervention, config.optimizer) == (KL + None, bt.AdamW(lr=1e-2))


def test_learning_rates_act_on_every_optimiser():
    axes = bt.grid(optimizer={"adamw": bt.AdamW(weight_decay=0.5), "muon": bt.Muon()}, lr=[1e-2])
    made = [config.optimizer for config in axes.configs(TASK, seeds=[0]).values()]
    assert made == [bt.AdamW(lr=1e-2, weight_decay=0.5), bt.Muon(lr=1e-2)]
