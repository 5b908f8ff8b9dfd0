"""The contraction of Definition 3.2 in training."""

import pandas as pd
import pytest
from catalog import TASKS

import bayesticket as bt
from bayesticket.measures import Contraction

TASK = TASKS["addition"]


@pytest.mark.parametrize("options", [{"betas": (0.95, 0.9)}, {"lr": 0.11, "weight_decay": 10.0}])
def test_a_step_without_a_bound_has_none(options):
    run = bt.train(TASK, model=bt.Architecture(d_model=8, d_mlp=8), epochs=20, measures=[Contraction()], **options)
    assert run.curves[["contraction[bound]", "contraction[slack]"]].isna().all().all()
    assert run.curves["contraction[observed]"].notna().any()


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "muon", "lion"])
@pytest.mark.parametrize("scope", ["mlp", "all"])
def test_every_step_of_training_obeys_the_contraction(optimizer, scope):
    lr = {"sgd": 0.1, "lion": 1e-3}.get(optimizer, 3e-3)
    run = bt.train(
        TASK,
        model=bt.Architecture(d_model=16, d_mlp=32),
        optimizer=optimizer,
        lr=lr,
        epochs=60,
        record_every=1,
        warmup=10,
        measures=[Contraction(scope)],
    )
    name = "contraction" + ("" if scope == "mlp" else "[scope=all]")
    seen = {label: run.curves[f"{name}[{label}]"] for label in ("observed", "rate", "direction", "bound", "slack")}
    assert seen["slack"].isna().sum() == 1, "only at epoch 0 there is no step"
    assert (seen["slack"].iloc[1:] >= 1).all()
    assert (seen["direction"].iloc[1:] <= seen["bound"].iloc[1:] * (1 + 1e-6)).all()
    expected = [lr * min(1, (epoch + 1) / 10) for epoch in range(60)]
    assert seen["rate"].iloc[1:].tolist() == pytest.approx(expected)
    if scope == "mlp":
        norms = run.curves["mlp_norm"].to_numpy() ** 2
        assert (1 - norms[1:] / norms[:-1]).tolist() == pytest.approx(seen["observed"].iloc[1:].tolist(), abs=1e-5)


def test_the_step_before_a_record_survives_an_interruption(tmp_path, monkeypatch):
    from bayesticket.runs import Training

    options = {"model": bt.Architecture(d_model=8, d_mlp=8), "epochs": 40, "measures": [Contraction()]}
    whole = bt.train(TASK, **options)
    original = Training.take_epoch

    def die(self):
        if self.epoch == 23:
            raise MemoryError
        original(self)

    monkeypatch.setattr(Training, "take_epoch", die)
    with pytest.raises(MemoryError):
        bt.train(TASK, **options, store=tmp_path / "run", checkpoint_every=20)
    monkeypatch.setattr(Training, "take_epoch", original)
    resumed = bt.resume(tmp_path / "run")
    pd.testing.assert_frame_equal(resumed.curves, whole.curves, check_exact=True)
    assert resumed.curves["contraction[observed]"].notna().sum() == 4
