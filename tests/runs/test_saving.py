"""Saved runs: all of a run is in its directory, and less never replaces more."""

import math
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import torch
from helpers import Killed
from small_runs import SMALL, TASK, assert_same, interrupt_at, own_model, plain, small_run

import bayesticket as bt
from bayesticket.model.build import hooked_transformer
from bayesticket.runs import (
    RunDirectory,
    TrainConfig,
    configure,
    train_config,
)
from bayesticket.specs import spec_id


def test_a_deep_model_of_the_users_trains_and_is_saved(tmp_path):
    from transformer_lens import HookedTransformerConfig

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

        def penalty(self, context, activations):
            return None

    directory = small_run(intervention=Mine(), epochs=10).save(tmp_path / "run")
    from bayesticket.specs import Spec

    del Spec.kinds["Mine"]
    loaded = bt.Run.load(directory)
    assert loaded.curves.index.tolist() == [0, 10]
    with pytest.raises(bt.BayesticketError, match=r"'Mine'.*import test_saving first"):
        _ = loaded.config


def test_a_model_that_is_given_keeps_its_precision(tmp_path):
    double = own_model(dtype=torch.float64)
    assert small_run(model=double, epochs=2).model.W_E.dtype == torch.float64
    assert small_run(model=double, dtype="float32", epochs=2).model.W_E.dtype == torch.float32
    assert plain().model.W_E.dtype == torch.float32
    run = small_run(model=own_model(), dtype="float64", epochs=2)
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
    run = small_run(model=model, epochs=10)
    assert torch.equal(run.weights["embed.W_E"], model.W_E)
    loaded = bt.Run.load(run.save(tmp_path / "run"))
    assert [name for name, p in loaded.model.named_parameters() if not p.requires_grad] == ["embed.W_E"]
    assert spec_id(loaded.config) == spec_id(run.config)


def test_less_of_a_run_is_not_saved_over_more(tmp_path):
    with pytest.raises(bt.Interrupted) as caught:
        small_run(progress=interrupt_at(20))
    partial, whole = caught.value.run, plain()
    partial.save(tmp_path / "run")
    whole.save(tmp_path / "run")
    with pytest.raises(bt.BayesticketError, match=r"path: got .* holds 40 epochs of this run \(finished\)"):
        partial.save(tmp_path / "run")
    assert_same(bt.Run.load(tmp_path / "run"), whole)


def test_a_save_that_is_cut_off_leaves_a_directory_that_is_still_ours(tmp_path, monkeypatch):
    run = small_run(intervention=bt.KLPrior(torch.full((5,), 0.2)), epochs=10)
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
    assert_same(small_run(store=tmp_path / "run"), plain())
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
    assert_same(caught.value.run, plain())
    monkeypatch.chdir(tmp_path)
    assert_same(bt.resume(tmp_path / "run"), caught.value.run)


def test_the_text_of_a_file_of_options_is_kept_when_the_run_goes_on(tmp_path):
    config = configure(task=TASK, model=SMALL, epochs=40, lr=3e-3)
    with pytest.raises(bt.Interrupted):
        train_config(config, store=tmp_path / "run", config_file="epochs = 40", progress=interrupt_at(10))
    assert bt.resume(tmp_path / "run").made_with["config_file"] == "epochs = 40"


def test_a_run_that_fails_at_once_can_be_looked_at(tmp_path):
    model = own_model()
    model.unembed.b_U.data.fill_(math.inf)
    with pytest.raises(bt.NonFiniteLoss, match="epoch 0"):
        small_run(model=model, store=tmp_path / "run")
    loaded = bt.Run.load(tmp_path / "run")
    assert len(loaded.curves) == 0
    assert loaded.grok_epoch() is None
    assert "failed after 0 epochs" in repr(loaded)


def test_a_model_with_room_for_many_positions_and_weights_for_none_is_loaded(tmp_path):
    config = {"n_layers": 1, "d_model": 8, "d_head": 8, "n_heads": 1, "d_mlp": 8, "d_vocab": 9, "d_vocab_out": 7}
    rotary = {"n_ctx": 4096, "positional_embedding_type": "rotary", "rotary_dim": 8}
    model = hooked_transformer(config | rotary | {"act_fn": "relu", "normalization_type": None}, seed=0)
    run = bt.train(bt.ModularAddition(p=7), model=model, epochs=1, progress=False)
    loaded = bt.Run.load(run.save(tmp_path / "run"))
    assert loaded.model.cfg.n_ctx == 4096
    assert all(torch.equal(loaded.weights[name], weight) for name, weight in run.weights.items())


def test_the_working_directory_may_be_the_runs_own(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    run = bt.train(TASK, model=SMALL, epochs=2, store=".", progress=False)
    assert bt.Run.load(".").id == run.id
    for path in ("/", "//"):
        with pytest.raises(bt.BayesticketError, match=r"^path: got '//?'; accepted: .* below the root$"):
            bt.Run.load(path)


def test_a_run_that_another_process_completes_meanwhile_is_loaded(tmp_path, monkeypatch):
    done, locked = small_run(), RunDirectory.locked

    @contextmanager
    def after_another_process(directory):
        monkeypatch.undo()
        done.save(directory.path)
        with locked(directory):
            yield

    monkeypatch.setattr(RunDirectory, "locked", after_another_process)
    run = small_run(store=tmp_path / "run")
    assert run.source == tmp_path / "run", "it was loaded, not trained again"
    assert_same(run, done)
