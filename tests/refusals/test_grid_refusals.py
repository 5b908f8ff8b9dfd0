"""Grids refuse what is no axis in one line, before anything is made."""

import pytest

import bayesticket as bt

TASK = bt.ModularAddition(p=5)


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ({}, "grid: got no axes; accepted: at least one, such as lr=[3e-4, 1e-3]"),
        ({"lr": []}, "lr: got []; accepted: at least one value"),
        ({"intervention": {}}, "intervention: got {}; accepted: at least one value"),
        ({"lr": [0.1, 0.2, 0.1]}, "lr: got [0.1, 0.2, 0.1]; accepted: values that are all different"),
        ({"epochs": [1, 1.0]}, "epochs: got [1, 1.0]; accepted: values that are all different"),
        ({"weight_decy": [0.1]}, "axis: got 'weight_decy'; accepted: 'task', 'intervention', "),
        ({"weight_decy": [0.1]}, "Closest: 'weight_decay'"),
        ({"seed": [0, 1]}, "seed: got seeds as an axis of the grid; accepted: seeds=range(5) in the call of sweep"),
        ({"grok_threshold": [0.9]}, "grok_threshold: got thresholds as an axis; accepted: runs.grok_epochs(threshold)"),
        ({"lr": 0.1}, "lr: got 0.1; accepted: values by label"),
        ({"optimizer": "adamw"}, "optimizer: got 'adamw'; accepted: values by label"),
        ({"intervention": [bt.KLPrior()]}, "intervention: got [KLPrior()]; accepted: values by label"),
        ({"batch_size": [None, 5]}, "batch_size: got [None, 5]; accepted: values by label"),
        ({"lr": [True]}, "lr: got [True]; accepted: values by label"),
        ({"lr": [float("nan")]}, "lr: got [nan]; accepted: values by label"),
        ({"model": {"a": None, 3: None}}, "model: got ['a', 3]; accepted: labels that are all strings, or all numbers"),
        ({"model": {None: None}}, "model: got [None]; accepted: labels that are all strings, or all numbers"),
        (
            {"intervention": {"kl": "kl"}},
            "intervention['kl']: got 'kl'; accepted: an Intervention, several joined by +",
        ),
    ],
)
def test_a_bad_axis_is_one_line(axes: dict, said: str):
    with pytest.raises(bt.BayesticketError) as caught:
        bt.grid(**axes)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("axes", "options", "said"),
    [
        ({"lr": [0.1]}, {"lr": 0.2}, "lr: got an axis of the sweep and an option of the same name; accepted: one of"),
        ({"task": {"5": TASK}}, {}, "task: got an axis of the sweep and an option of the same name; accepted: one of"),
        ({"lr": [0.1]}, {"task": None}, "task: got None; accepted: a task"),
        ({"lr": [0.1]}, {"epocs": 3}, "option: got 'epocs'; accepted: 'intervention', 'model', "),
        ({"lr": [0.1]}, {"seed": 3}, "option: got 'seed'; accepted: "),
        ({"lr": [0.1, -1]}, {}, "lr: got -1; accepted: a finite number > 0"),
        ({"optimizer": ["adamw", "adam"]}, {}, "optimizer: got 'adam'; accepted: "),
        ({"task": {"5": 5}}, {"task": None}, "task: got 5; accepted: a task"),
    ],
)
def test_a_grid_that_cannot_be_trained_is_one_line(tmp_path, axes: dict, options: dict, said: str):
    given = {"task": TASK} | options
    with pytest.raises(bt.BayesticketError) as caught:
        bt.sweep(given.pop("task"), bt.grid(**axes), seeds=[0], store=tmp_path / "store", **given)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
