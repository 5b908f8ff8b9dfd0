"""Training: its options, what is recorded, what one seed decides, and what is trained."""

import inspect
import math
from dataclasses import dataclass, fields
from typing import Unpack, get_type_hints

import pandas as pd
import pytest
import torch
from small_runs import SMALL, TASK, assert_same, plain, small_run

import bayesticket as bt
from bayesticket.runs import (
    Options,
    SharedOptions,
    TrainConfig,
    Training,
    configure,
    option_names,
    train_config,
)
from bayesticket.specs import field_names
from bayesticket.sweeps import Grid


def test_the_signature_of_train_is_the_configuration():
    parameters = dict(inspect.signature(bt.train).parameters)
    for name in ("store", "checkpoint_every", "snapshots", "threads", "progress", "tracker"):
        parameters.pop(name)
    settings = {name for kind in (bt.AdamW, bt.SGD, bt.Muon, bt.Lion) for name in field_names(kind)}
    assert set(parameters) == {field.name for field in fields(TrainConfig)} | settings
    default = TrainConfig()
    for name, parameter in parameters.items():
        if name in settings or name in ("model", "intervention", "loss"):
            assert parameter.default is None, name
        elif name not in ("task", "optimizer"):
            assert parameter.default == getattr(default, name), name
    assert bt.as_optimizer(parameters["optimizer"].default) == default.optimizer


def test_the_options_that_are_passed_on_are_those_of_train():
    library = (bt.AdamW, bt.SGD, bt.Muon, bt.Lion)
    settings = {name for kind in library for name in field_names(kind)}
    known, taken = get_type_hints(Options), get_type_hints(bt.train)
    assert set(known) == {*field_names(TrainConfig), *settings} <= set(option_names())
    for name, hint in known.items():
        assert hint == taken[name] or name in ("stop_when",), name
    assert set(get_type_hints(SharedOptions)) == set(known) - {"task", "seed"}
    for function in (bt.sweep, Grid.configs):
        assert inspect.signature(function).parameters["options"].annotation == Unpack[SharedOptions]
    assert inspect.signature(configure).parameters["options"].annotation == Unpack[Options]


def test_the_defaults_are_the_papers():
    config = TrainConfig()
    assert config.task == bt.ModularAddition(p=113)
    assert config.optimizer == bt.AdamW(lr=1e-3, weight_decay=1.0, betas=(0.9, 0.999))
    assert (config.epochs, config.warmup, config.loss) == (10_000, 10, bt.CrossEntropy())
    assert TrainConfig(warmup=0).warmup == 0
    assert (config.max_grad_norm, config.batch_size, config.train_fraction) == (1.0, None, 0.3)
    assert (config.model.d_model, config.model.n_heads, config.model.d_mlp) == (64, 1, 256)


def test_the_default_record():
    run = small_run(measures=[bt.AttentionEntropy()])
    assert sorted(run.curves) == [
        "attention_entropy",
        "attention_gradient",
        "informative_mass_least",
        "informative_mass_mean",
        "kl_to_oracle",
        "mlp_norm",
        "test_accuracy",
        "test_loss",
        "train_accuracy",
        "train_loss",
        "unseen_accuracy",
        "unseen_loss",
    ]
    assert run.curves.index.name == "epoch"
    assert run.curves.index.tolist() == [0, 10, 20, 30, 40]
    assert run.curves["train_loss"].loc[40] < run.curves["train_loss"].loc[0]


def test_the_last_record_is_that_of_the_trained_model():
    run = small_run(epochs=35)
    assert run.curves.index[-1] == 35
    split = TASK.split()
    for half, batch in (("train", split.train), ("test", split.test)):
        values = bt.measure(run.model, batch, bt.Loss(), bt.Accuracy(), bt.KLToOracle(), bt.MLPNorm())
        assert values["loss"] == pytest.approx(run.curves[f"{half}_loss"].iloc[-1], rel=1e-5)
        assert values["accuracy"] == pytest.approx(run.curves[f"{half}_accuracy"].iloc[-1])
    values = bt.measure(run.model, split.train, bt.KLToOracle(), bt.MLPNorm(), bt.AttentionGradient())
    for name, value in values.items():
        assert value == pytest.approx(run.curves[name].iloc[-1], rel=1e-4), name


@pytest.mark.parametrize("batch_size", [None, 6])
def test_recording_leaves_training_alone(batch_size):
    often, seldom = (small_run(record_every=every, batch_size=batch_size) for every in (1, 20))
    for name in often.weights:
        assert torch.equal(often.weights[name], seldom.weights[name])
    shared = seldom.curves.index
    pd.testing.assert_frame_equal(often.curves.loc[shared], seldom.curves, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("intervention", [None, bt.KLPrior(strength=0.5), bt.FrozenAttention()])
def test_a_record_during_training_is_the_record_of_a_pass_of_its_own(intervention):
    going_on, ended = (small_run(intervention=intervention, epochs=epochs, dtype="float64") for epochs in (40, 20))
    assert ended.curves["attention_gradient"].loc[20] > 0 or isinstance(intervention, bt.FrozenAttention)
    pd.testing.assert_series_equal(going_on.curves.loc[20], ended.curves.loc[20], rtol=1e-10, atol=1e-14)


def test_one_seed_decides_everything_and_nothing_global_does():
    torch.manual_seed(1)
    first = small_run(seed=5)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    again = small_run(seed=5)
    assert torch.equal(torch.get_rng_state(), state)
    assert_same(first, again)
    assert not first.curves.equals(small_run(seed=6).curves)


@pytest.mark.parametrize("purpose", ["init", "split", "batch"])
def test_the_seeds_can_be_set_apart(purpose):
    options = {"batch_size": 6, "epochs": 10}
    base = small_run(seed=1, **options)
    assert_same(base, small_run(seed=2, init_seed=1, split_seed=1, batch_seed=1, **options))
    other = small_run(seed=1, **{f"{purpose}_seed": 3}, **options)
    same_start = base.curves["mlp_norm"].loc[0] == other.curves["mlp_norm"].loc[0]
    assert same_start == (purpose != "init")
    assert not base.curves.equals(other.curves)


def test_an_architecture_and_the_same_model_given_train_alike():
    model = bt.build_model(TASK, d_model=16, d_mlp=32, seed=4)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    given, built = small_run(model=model, seed=4), small_run(seed=4)
    pd.testing.assert_frame_equal(given.curves, built.curves, check_exact=True)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]), "the user's model is left as it was"
    assert not torch.equal(given.model.W_E, model.W_E)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "muon", "lion"])
def test_every_optimiser_learns(optimizer):
    run = small_run(
        model=bt.Architecture(d_model=16, d_mlp=32, residual=True),
        optimizer=optimizer,
        epochs=100,
        lr={"sgd": 0.3, "lion": 1e-3}.get(optimizer, 3e-3),
        weight_decay=0.01,
    )
    assert run.curves["train_loss"].iloc[-1] < 0.8 * run.curves["train_loss"].iloc[0]


def test_precision_can_be_chosen():
    run = small_run(dtype="float64")
    assert run.model.W_E.dtype == torch.float64
    close = small_run(loss=bt.CrossEntropy("float64"))
    assert close.model.W_E.dtype == torch.float32
    assert close.curves["train_loss"].iloc[-1] == pytest.approx(run.curves["train_loss"].iloc[-1], rel=1e-3)
    # A float32 number has 24 binary digits; a float64 loss has more.
    assert close.curves["train_loss"].iloc[-1] != float(torch.tensor(close.curves["train_loss"].iloc[-1]).float())


def test_weights_are_held_from_before_the_first_step():
    run = small_run(intervention=bt.NormMatch(radius=4.0))
    torch.testing.assert_close(torch.tensor(run.curves["mlp_norm"].to_numpy()), torch.full((5,), 4.0).double())
    mask = torch.rand(16, 32) > 0.5
    run = small_run(intervention=bt.TicketMask({"blocks.0.mlp.W_in": mask}))
    assert (run.weights["blocks.0.mlp.W_in"][~mask] == 0).all()
    assert run.curves["mlp_norm"].loc[0] < plain().curves["mlp_norm"].loc[0]


def test_distractors_can_be_drawn_anew_in_every_epoch():
    fixed, redrawn = (
        small_run(),
        bt.train(bt.ModularAddition(p=7, redraw_each_epoch=True), model=SMALL, epochs=40, lr=3e-3),
    )
    assert fixed.curves["test_loss"].loc[0] == redrawn.curves["test_loss"].loc[0]
    assert fixed.curves["train_loss"].iloc[-1] != redrawn.curves["train_loss"].iloc[-1]


def test_grokking_is_the_first_record_at_the_threshold_and_can_stop_the_run():
    tokens = torch.randint(0, 5, (200, 3), generator=torch.Generator().manual_seed(0))
    copying = bt.Task(tokens=tokens, targets=tokens[:, 0], informative=torch.tensor([True, False, False]))
    run = bt.train(copying, model=SMALL, epochs=3000, lr=1e-2, stop_after_grok=50, record_every=5)
    grokked = run.grok_epoch()
    assert grokked is not None
    assert run.status == "stopped"
    assert run.epoch == grokked + 50
    assert (run.curves["test_accuracy"].loc[: grokked - 1] < 0.99).all()
    assert run.curves["test_accuracy"].loc[grokked] >= 0.99
    assert run.memorised_epoch() <= grokked
    assert run.grok_epoch(threshold=0.5) <= grokked


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_record(tmp_path):
    @dataclass(frozen=True, eq=False)
    class Explode(bt.Intervention):
        def penalty(self, context, activations):
            value = math.nan if context.epoch == 23 else 0.0
            return context.parameters["unembed.b_U"].sum() * value

    with pytest.raises(bt.NonFiniteLoss, match=r"epoch 23 \(explode is nan\)") as caught:
        small_run(intervention=Explode(), store=tmp_path / "run")
    assert caught.value.run.curves.index.tolist() == [0, 10, 20]
    loaded = bt.Run.load(tmp_path / "run")
    assert loaded.status == "failed"
    assert loaded.epoch == 23
    pd.testing.assert_frame_equal(loaded.curves, caught.value.run.curves)


def test_training_from_one_configuration_is_the_same(tmp_path):
    config = configure(task=TASK, model=SMALL, epochs=40, lr=3e-3)
    assert_same(train_config(config), plain())


# What is drawn anew -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [None, 6])
def test_a_record_is_of_the_examples_that_were_drawn_last(batch_size):
    task = bt.ModularAddition(p=7, redraw_each_epoch=True)
    training = Training(configure(task=task, model=SMALL, epochs=40, lr=3e-2, batch_size=batch_size))
    for _ in range(3):
        before = training.train.batch
        training.take_epoch()
    assert not torch.equal(before.tokens, training.train.batch.tokens)
    training.record()
    drawn = training.train.batch
    assert not torch.equal(drawn.tokens, training.first_draw.tokens)
    loss = bt.measure(training.model, drawn, bt.Loss())["loss"]
    assert training.records[-1]["train_loss"] == pytest.approx(loss, rel=1e-5)


# Targets with a row for each example ------------------------------------------------------------------------------


def test_rows_of_all_examples_are_given_to_the_half_they_belong_to():
    task = bt.ModularAddition(p=7, positions="random")
    rows = task.examples(0).oracle
    given, named = (
        bt.train(task, bt.FrozenAttention(target), model=SMALL, epochs=10, lr=3e-3) for target in (rows, "oracle")
    )
    pd.testing.assert_frame_equal(given.curves, named.curves, rtol=1e-5, atol=1e-7)


def test_a_prior_needs_rows_of_the_training_examples_alone():
    task = bt.ModularAddition(p=7, positions="random")
    rows = task.split().train.oracle
    given, named = (bt.train(task, bt.KLPrior(rows if own else "oracle"), epochs=10) for own in (True, False))
    pd.testing.assert_frame_equal(given.curves, named.curves, rtol=1e-4, atol=1e-6)


# Ends of all kinds ------------------------------------------------------------------------------------------------


def test_the_last_record_is_looked_at_as_well(tmp_path):
    @dataclass(frozen=True, eq=False)
    class Spoil(bt.Intervention):
        def project(self, context):
            if context.epoch == 39:
                context.parameters["unembed.b_U"].data.fill_(math.nan)

    with pytest.raises(bt.NonFiniteLoss, match=r"epoch 40 \(task is nan\)"):
        small_run(intervention=Spoil(), store=tmp_path / "run")
    assert bt.Run.load(tmp_path / "run").curves.index.tolist() == [0, 10, 20, 30]
