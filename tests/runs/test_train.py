"""Training and runs: what is recorded, what one seed decides, and what survives an interruption."""

import inspect
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, fields
from typing import Unpack, get_type_hints

import pandas as pd
import pytest
import torch
from helpers import Killed, die_at

import bayesticket as bt
from bayesticket.runs import (
    Options,
    RunDirectory,
    SharedOptions,
    TrainConfig,
    Training,
    configure,
    option_names,
    train_config,
)
from bayesticket.runs.checkpoint import restore_checkpoint
from bayesticket.specs import field_names, spec_id
from bayesticket.sweeps import Grid

TASK = bt.ModularAddition(p=7)
SMALL = bt.Architecture(d_model=16, d_mlp=32)


def small_run(**options):
    return bt.train(TASK, **{"model": SMALL, "epochs": 40, "lr": 3e-3} | options)


def assert_same(run, other):
    pd.testing.assert_frame_equal(run.curves, other.curves, check_exact=True)
    assert run.weights.keys() == other.weights.keys()
    for name, weight in run.weights.items():
        assert torch.equal(weight, other.weights[name]), name
    assert (run.epoch, run.status) == (other.epoch, other.status)


def test_the_signature_of_train_is_the_configuration():
    parameters = dict(inspect.signature(bt.train).parameters)
    for name in ("store", "checkpoint_every", "threads", "progress"):
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


def test_a_deep_model_of_the_users_trains_and_is_saved(tmp_path):
    from transformer_lens import HookedTransformerConfig

    from bayesticket.model.build import hooked_transformer

    config = HookedTransformerConfig(
        n_layers=2,
        d_model=16,
        d_head=8,
        n_heads=2,
        n_ctx=6,
        d_vocab=12,
        act_fn="gelu",
        normalization_type="LN",
        device="cpu",
    )
    model = hooked_transformer(
        {k: v for k, v in config.to_dict().items() if k not in ("device", "n_params")}, seed=0, device="cpu"
    )
    run = small_run(
        model=model,
        intervention=bt.KLPrior(strength=1.0, layer=1, head=0),
        measures=[bt.KLToOracle(layer=1)],
        epochs=20,
    )
    assert run.made_with["forward"] == "full"
    assert run.curves["kl_to_oracle[layer=1]"].iloc[-1] != run.curves["kl_to_oracle[layer=each][L0]"].iloc[-1]
    loaded = bt.Run.load(run.save(tmp_path / "run"))
    tokens = TASK.split().test.tokens
    torch.testing.assert_close(loaded.model(tokens), run.model(tokens))
    assert loaded.model.cfg.n_layers == 2


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "muon", "lion"])
def test_every_optimiser_learns(optimizer):
    run = small_run(
        optimizer=optimizer, epochs=100, lr={"sgd": 0.3, "lion": 1e-3}.get(optimizer, 3e-3), weight_decay=0.01
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
    assert run.curves["mlp_norm"].loc[0] < small_run().curves["mlp_norm"].loc[0]


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


# Saving ----------------------------------------------------------------------------------------------------------


def test_a_saved_run_is_the_run(tmp_path):
    teacher = small_run(epochs=10).model
    intervention = bt.KLPrior(teacher, strength=0.3) + bt.TicketMask({"unembed.b_U": torch.rand(7) > 0.5})
    run = small_run(intervention=intervention)
    loaded = bt.Run.load(run.save(tmp_path / "deep" / "run"))
    assert_same(run, loaded)
    assert spec_id(loaded.config) == spec_id(run.config)
    assert loaded.config.task == TASK
    assert run.save(tmp_path / "deep" / "run").exists(), "saving a run over itself is no loss"
    assert sorted(path.name for path in (tmp_path / "deep" / "run").iterdir()) == [
        "curves.parquet",
        "run.json",
        "tensors.safetensors",
        "weights.safetensors",
    ]


def test_a_run_on_data_of_ones_own_is_saved(tmp_path):
    task = bt.Task(
        tokens=torch.randint(0, 5, (40, 3)),
        targets=torch.randint(0, 4, (40,)),
        informative=torch.tensor([True, False, False]),
    )
    run = bt.train(task, model=SMALL, epochs=10)
    loaded = bt.Run.load(run.save(tmp_path / "run"))
    assert loaded.config.task == task
    torch.testing.assert_close(loaded.model(task.tokens), run.model(task.tokens))


def test_a_run_with_a_class_of_the_users_loads_without_it(tmp_path):
    @dataclass(frozen=True, eq=False)
    class Mine(bt.Intervention):
        strength: float = 1.0

    directory = small_run(intervention=Mine(), epochs=10).save(tmp_path / "run")
    from bayesticket.specs import Spec

    del Spec.kinds["Mine"]
    loaded = bt.Run.load(directory)
    assert loaded.curves.index.tolist() == [0, 10]
    with pytest.raises(bt.BayesticketError, match=r"'Mine'.*import test_train first"):
        _ = loaded.config


# Interruption ----------------------------------------------------------------------------------------------------

CASES = {
    "adamw": {},
    "sgd": {"optimizer": "sgd", "momentum": 0.9},
    "muon": {"optimizer": "muon"},
    "lion": {"optimizer": "lion"},
    "batches": {"batch_size": 6},
    "noise": {"intervention": bt.GradientNoise(bt.KLPrior())},
    "schedule": {"intervention": bt.KLPrior(strength=bt.Anneal(1.0, 0.0, last=40))},
    "projection": {"intervention": bt.NormMatch(radius=5.0)},
}


@pytest.mark.parametrize("case", [*CASES, "redraw"])
@pytest.mark.parametrize("killed_at", [1, 17, 33])
def test_a_run_killed_at_any_epoch_resumes_to_the_bit(tmp_path, case, killed_at, monkeypatch):
    task = bt.ModularAddition(p=7, redraw_each_epoch=True) if case == "redraw" else TASK
    options = {"model": SMALL, "epochs": 40, "lr": 3e-3, "seed": 2, **CASES.get(case, {})}
    whole = bt.train(task, **options)

    die_at(killed_at, monkeypatch)
    with pytest.raises(Killed):
        bt.train(task, **options, store=tmp_path / "run", checkpoint_every=5)
    monkeypatch.undo()
    assert (tmp_path / "run" / "checkpoint.safetensors").exists() == (killed_at > 5)
    resumed = bt.resume(tmp_path / "run")
    assert_same(resumed, whole)
    assert_same(bt.Run.load(tmp_path / "run"), whole)
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()
    assert_same(bt.train(task, **options, store=tmp_path / "run"), whole)


SCRIPT = """
import sys
import torch
import bayesticket as bt
torch.set_num_threads(1)
try:
    bt.train(bt.ModularAddition(p=7), bt.KLPrior(strength=0.5), model=bt.Architecture(d_model=16, d_mlp=32),
             epochs=int(sys.argv[1]), lr=3e-3, store=sys.argv[2] if len(sys.argv) > 2 else None, checkpoint_every=20,
             progress=lambda epoch, record: print(epoch, flush=True))
except KeyboardInterrupt as interrupted:
    print(interrupted, flush=True)
"""


def start(*arguments, cwd=None):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
    )


def wait_for_epoch(process, epoch):
    for line in process.stdout:
        if int(line) >= epoch:
            return
    raise AssertionError(process.stderr.read())


def one_thread(function):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return function()
    finally:
        torch.set_num_threads(threads)


def test_kill_minus_nine_and_resume_equals_the_uninterrupted_run(tmp_path):
    process = start(400, tmp_path / "run")
    wait_for_epoch(process, 110)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "running"
    with pytest.raises(bt.BayesticketError, match="resume"):
        bt.Run.load(tmp_path / "run")
    resumed = one_thread(lambda: bt.resume(tmp_path / "run"))
    whole = one_thread(lambda: bt.train(TASK, bt.KLPrior(strength=0.5), model=SMALL, epochs=400, lr=3e-3))
    assert_same(resumed, whole)


@pytest.mark.parametrize("with_store", [True, False])
def test_ctrl_c_leaves_a_resumable_state_and_one_line(tmp_path, with_store):
    arguments = (100_000, tmp_path / "run") if with_store else (100_000,)
    process = start(*arguments, cwd=tmp_path)
    wait_for_epoch(process, 50)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert errors == ""
    message = output.strip().splitlines()[-1]
    assert message.startswith("interrupted after epoch ")
    assert "bayesticket.resume(" in message
    directory = tmp_path / message.split("'")[1]
    checkpointed = int(message.split()[3].rstrip(";").replace(",", ""))
    header = json.loads((directory / "run.json").read_text())
    # Shorten the run, which changes its name, to see that it goes on from where it stopped.
    config = configure(task=TASK, intervention=bt.KLPrior(strength=0.5), model=SMALL, epochs=100_000, lr=3e-3)
    from bayesticket.runs import Training, describe_config

    assert header["config"] == describe_config(config)[0]
    training = one_thread(lambda: Training(config))
    restore_checkpoint(training, *RunDirectory(directory).read_checkpoint())
    assert training.epoch == checkpointed
    whole = one_thread(lambda: bt.train(TASK, bt.KLPrior(strength=0.5), model=SMALL, epochs=checkpointed, lr=3e-3))
    for name, parameter in training.model.named_parameters():
        assert torch.equal(parameter, whole.weights[name])


def test_two_interruptions_in_one_process_leave_the_handler_as_it_was():
    before = signal.getsignal(signal.SIGINT)
    small_run(epochs=10)
    assert signal.getsignal(signal.SIGINT) is before

    def interrupt(epoch, record):
        if epoch == 20:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0)

    with pytest.raises(bt.Interrupted) as caught:
        small_run(progress=interrupt, store=None)
    assert caught.value.run.status == "interrupted"
    assert caught.value.run.curves.index.tolist() == [0, 10, 20]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.fixture(autouse=True)
def in_a_place_of_its_own(tmp_path, monkeypatch):
    """Runs that are interrupted without a store are kept below the working directory."""
    monkeypatch.chdir(tmp_path)


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
    assert_same(train_config(config), small_run())


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


@pytest.mark.parametrize("batch_size", [None, 6])
def test_a_run_killed_at_its_last_record_resumes_to_the_bit(tmp_path, batch_size, monkeypatch):
    task = bt.ModularAddition(p=7, redraw_each_epoch=True)
    options = {"model": SMALL, "epochs": 20, "lr": 3e-3, "batch_size": batch_size}
    whole, record = bt.train(task, **options), Training.record

    def die(self):
        if self.epoch == 20:
            raise Killed
        record(self)

    monkeypatch.setattr(Training, "record", die)
    with pytest.raises(Killed):
        bt.train(task, **options, store=tmp_path / "run", checkpoint_every=5)
    monkeypatch.setattr(Training, "record", record)
    assert_same(bt.resume(tmp_path / "run"), whole)


# Models of the user's ---------------------------------------------------------------------------------------------


def own_model(**options):
    return bt.build_model(TASK, d_model=16, d_mlp=32, **options)


def test_a_model_that_is_given_keeps_its_precision(tmp_path):
    double = own_model(dtype=torch.float64)
    assert small_run(model=double).model.W_E.dtype == torch.float64
    assert small_run(model=double, dtype="float32").model.W_E.dtype == torch.float32
    assert small_run().model.W_E.dtype == torch.float32
    run = small_run(model=own_model(), dtype="float64")
    loaded = bt.Run.load(run.save(tmp_path / "run"))
    assert loaded.model.W_E.dtype == torch.float64
    assert torch.equal(loaded.model.W_E, run.weights["embed.W_E"])


def test_a_tokenizer_is_not_kept(tmp_path):
    model = own_model()
    model.cfg.tokenizer_name, model.cfg.trust_remote_code = "somebody/code", True
    directory = small_run(model=model, epochs=2).save(tmp_path / "run")
    assert "somebody/code" not in (directory / "run.json").read_text()
    assert bt.Run.load(directory).model.cfg.tokenizer_name is None
    assert not bt.Run.load(directory).config.model.cfg.trust_remote_code


def test_frozen_parameters_are_part_of_the_run(tmp_path):
    model = own_model()
    plain = spec_id(TrainConfig(task=TASK, model=model))
    model.embed.W_E.requires_grad_(False)
    assert spec_id(TrainConfig(task=TASK, model=model)) != plain
    run = small_run(model=model)
    assert torch.equal(run.weights["embed.W_E"], model.W_E)
    loaded = bt.Run.load(run.save(tmp_path / "run"))
    assert [name for name, p in loaded.model.named_parameters() if not p.requires_grad] == ["embed.W_E"]
    assert spec_id(loaded.config) == spec_id(run.config)


def interrupt_at(epoch):
    def progress(reached, record):
        if reached == epoch:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0)

    return progress


@pytest.mark.parametrize("where", ["blocks.0.hook_mlp_out", "blocks.0.mlp"])
def test_a_model_with_hooks_of_its_own_is_another_model(tmp_path, where, caplog):
    model = own_model()
    plain = spec_id(TrainConfig(task=TASK, model=model))
    if where == "blocks.0.mlp":
        model.blocks[0].mlp.register_forward_hook(lambda module, given, output: 0.5 * output)
    else:
        model.add_perma_hook(where, lambda tensor, hook: 0.5 * tensor)
    assert spec_id(TrainConfig(task=TASK, model=model)) != plain
    whole = small_run(model=model, forward="full")
    assert where in caplog.text
    store = tmp_path / "run"
    with pytest.raises(bt.Interrupted, match="continue with the same call and store="):
        small_run(model=model, forward="full", store=store, progress=interrupt_at(20))
    with pytest.raises(bt.BayesticketError, match=r"store: got .* hooks of its own on .*accepted: bayesticket\.train"):
        bt.resume(store)
    with pytest.raises(bt.BayesticketError, match="holds a different run"):
        small_run(model=own_model(), forward="full", store=store)
    assert_same(small_run(model=model, forward="full", store=store), whole)


def test_hooks_that_belong_to_an_architecture_are_no_hooks_of_its_own(tmp_path, caplog):
    model = own_model(attention="linear", residual=False)
    with pytest.raises(bt.Interrupted):
        small_run(model=model, store=tmp_path / "run", progress=interrupt_at(20))
    assert_same(bt.resume(tmp_path / "run"), small_run(model=model))
    assert "own hooks" not in caplog.text
    model.add_perma_hook("blocks.0.attn.hook_pattern", lambda pattern, hook: None)
    assert small_run(model=model, epochs=1).description["model"]["own_hooks"] == ["blocks.0.attn.hook_pattern"]


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


# Nothing is lost --------------------------------------------------------------------------------------------------


def test_interruptions_without_a_store_never_overwrite_each_other(tmp_path):
    for epoch in (10, 20, 30):
        with pytest.raises(bt.Interrupted) as caught:
            small_run(progress=interrupt_at(epoch))
        assert caught.value.store.exists()
    kept = sorted((tmp_path / "interrupted").iterdir())
    assert [path.name.removeprefix(kept[0].name) for path in kept] == ["", "-2", "-3"]
    for path in kept:
        assert_same(bt.resume(path), small_run())


def test_an_interruption_that_cannot_be_kept_still_gives_the_run(tmp_path):
    (tmp_path / "interrupted").write_text("a file in the way")
    with pytest.raises(
        bt.Interrupted, match=r"after epoch 21; its state could not be kept \(.*Not a directory"
    ) as caught:
        small_run(progress=interrupt_at(20))
    assert caught.value.run.curves.index.tolist() == [0, 10, 20]
    assert caught.value.store is None
    assert [path.name for path in tmp_path.iterdir()] == ["interrupted"]


def test_less_of_a_run_is_not_saved_over_more(tmp_path):
    with pytest.raises(bt.Interrupted) as caught:
        small_run(progress=interrupt_at(20))
    partial, whole = caught.value.run, small_run()
    partial.save(tmp_path / "run")
    whole.save(tmp_path / "run")
    with pytest.raises(bt.BayesticketError, match=r"path: got .* holds 40 epochs of this run \(finished\)"):
        partial.save(tmp_path / "run")
    assert_same(bt.Run.load(tmp_path / "run"), whole)


def test_a_save_that_is_cut_off_leaves_a_directory_that_is_still_ours(tmp_path, monkeypatch):
    run = small_run(intervention=bt.KLPrior(torch.full((5,), 0.2)))
    from bayesticket.runs import directory as module

    for name in ("write_tensors", "write_atomically"):

        def die(*given):
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(module, name, die)
            with pytest.raises(Killed):
                run.save(tmp_path / "run")
        with pytest.raises(bt.BayesticketError, match=r"not finished|with a run\.json"):
            bt.Run.load(tmp_path / "run")
    assert_same(bt.Run.load(run.save(tmp_path / "run")), run)


def test_leftovers_of_a_killed_first_write_are_no_hindrance(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".run.json.0123.partial").write_text("{")
    assert_same(small_run(store=tmp_path / "run"), small_run())
    assert not list((tmp_path / "run").glob(".*"))


def test_a_full_disk_stops_nothing_until_the_end(tmp_path, monkeypatch, caplog):
    from bayesticket import files

    def full(*given, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "save_file", full)
    with pytest.raises(
        bt.BayesticketError, match=r"weights\.safetensors: could not be written .*No space left"
    ) as caught:
        small_run(store=tmp_path / "run", checkpoint_every=5)
    assert caplog.text.count("No space left") == 1
    monkeypatch.undo()
    assert_same(caught.value.run, small_run())
    monkeypatch.chdir(tmp_path)
    assert_same(bt.resume(tmp_path / "run"), caught.value.run)


def test_the_text_of_a_file_of_options_is_kept_when_the_run_goes_on(tmp_path):
    config = configure(task=TASK, model=SMALL, epochs=40, lr=3e-3)
    with pytest.raises(bt.Interrupted):
        train_config(config, store=tmp_path / "run", config_file="epochs = 40", progress=interrupt_at(10))
    assert bt.resume(tmp_path / "run").made_with["config_file"] == "epochs = 40"


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


def test_a_run_that_fails_at_once_can_be_looked_at(tmp_path):
    model = own_model()
    model.unembed.b_U.data.fill_(math.inf)
    with pytest.raises(bt.NonFiniteLoss, match="epoch 0"):
        small_run(model=model, store=tmp_path / "run")
    loaded = bt.Run.load(tmp_path / "run")
    assert len(loaded.curves) == 0
    assert loaded.grok_epoch() is None
    assert "failed after 0 epochs" in repr(loaded)


@pytest.mark.parametrize("with_store", [True, False])
def test_an_interruption_of_the_last_record_is_not_swallowed_and_loses_nothing(tmp_path, with_store):
    store = tmp_path / "run" if with_store else None
    with pytest.raises(bt.Interrupted, match="complete") as caught:
        small_run(store=store, progress=interrupt_at(40))
    assert_same(caught.value.run, small_run())
    if store is not None:
        assert_same(bt.Run.load(store), small_run())


def test_a_function_that_shows_progress_can_stop_the_run(tmp_path):
    def progress(epoch, record):
        if epoch == 20:
            raise KeyboardInterrupt

    with pytest.raises(bt.Interrupted, match="after epoch 21"):
        small_run(store=tmp_path / "run", progress=progress)
    assert_same(bt.resume(tmp_path / "run"), small_run())


def test_an_ignored_interrupt_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert small_run(progress=interrupt_at(20)).status == "finished"
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
