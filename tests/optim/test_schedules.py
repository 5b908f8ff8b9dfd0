"""Learning rates and weight decays on a schedule, against plain loops and torch's own schedulers."""

import pandas as pd
import pytest
import torch
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR

import bayesticket as bt
from bayesticket.optim import build_optimizer, set_rates
from bayesticket.runs import Training, configure
from bayesticket.specs import spec_id

TASK, SMALL = bt.ModularAddition(p=7), bt.Architecture(d_model=8, d_mlp=8)
OPTIONS = {"model": SMALL, "dtype": "float64", "seed": 2}
DOWN, LATE = bt.Anneal(3e-3, 1e-3, first=5, last=25), bt.Window(0.5, start=10, stop=20)
BUILT = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=3e-3, weight_decay=0.5),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=3e-3, weight_decay=0.5, momentum=0.9),
}


def plain_loop(name: str, warmup: int, epochs: int) -> dict[str, torch.Tensor]:
    """The weights after torch's own optimiser under LambdaLR, with a weight decay that is switched on and off."""
    model = bt.build_model(TASK, d_model=8, d_mlp=8, seed=2, dtype=torch.float64)
    optimizer = BUILT[name](model.parameters())
    rates = LambdaLR(optimizer, lambda epoch: DOWN.at(epoch) / 3e-3 * min(1.0, (epoch + 1) / max(1, warmup)))
    train = TASK.split(seed=2).train
    for epoch in range(epochs):
        optimizer.param_groups[0]["weight_decay"] = 0.5 if 10 <= epoch < 20 else 0.0
        F.cross_entropy(model(train.tokens)[:, -1], train.targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        rates.step()
    return dict(model.named_parameters())


@pytest.mark.parametrize("warmup", [0, 7])
@pytest.mark.parametrize("name", BUILT)
def test_a_schedule_is_that_of_lambda_lr(name, warmup):
    momentum = {"momentum": 0.9} if name == "sgd" else {}
    options = OPTIONS | {"warmup": warmup, "epochs": 30, "optimizer": name, **momentum}
    run, plain = bt.train(TASK, lr=DOWN, weight_decay=LATE, **options), plain_loop(name, warmup, 30)
    for key in plain:
        if not key.endswith("b_K"):  # the softmax does not see it: its gradient is rounding, which Adam scales up
            torch.testing.assert_close(run.weights[key], plain[key].detach(), rtol=1e-9, atol=1e-12, msg=key)


@bt.spec
class OwnAdam(bt.Optimizer):
    """An optimiser of the user's, whose embedding has half the learning rate and no weight decay."""

    def build(self, parameters):
        rest = [p for name, p in parameters.items() if name != "embed.W_E"]
        embedding = {"params": [parameters["embed.W_E"]], "lr": self.lr / 2, "weight_decay": 0.0}
        return torch.optim.Adam([{"params": rest}, embedding], lr=self.lr, weight_decay=self.weight_decay)


OPTIMIZERS = {kind.__name__: kind for kind in (bt.AdamW, bt.SGD, bt.Muon, bt.Lion, OwnAdam)}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimiser_takes_schedules_and_resumes_to_the_bit(name, tmp_path, monkeypatch):
    optimizer = OPTIMIZERS[name](lr=DOWN, weight_decay=LATE)
    options = OPTIONS | {"epochs": 30, "optimizer": optimizer, "measures": [bt.Contraction()]}
    whole, constant = bt.train(TASK, **options), bt.train(TASK, **options | {"optimizer": OPTIMIZERS[name](lr=3e-3)})
    assert not torch.equal(whole.weights["embed.W_E"], constant.weights["embed.W_E"])

    def interrupt(epoch, record):
        if epoch == 10:
            raise KeyboardInterrupt

    with pytest.raises(bt.Interrupted):
        bt.train(TASK, **options, store=tmp_path / "run", progress=interrupt)
    resumed = bt.resume(tmp_path / "run")
    pd.testing.assert_frame_equal(resumed.curves, whole.curves, check_exact=True)
    assert all(torch.equal(resumed.weights[key], whole.weights[key]) for key in whole.weights)
    assert bt.Run.load(tmp_path / "run").config.optimizer == optimizer


def test_groups_keep_their_share_of_both_rates():
    optimizer = OwnAdam(lr=DOWN, weight_decay=LATE)
    built = build_optimizer(optimizer, dict(bt.build_model(TASK, d_model=8).named_parameters()))
    for epoch in (3, 15, 40, 15):
        set_rates(built, optimizer, epoch, warmup=0)
        rest, embedding = built.param_groups
        assert rest["lr"] == pytest.approx(DOWN.at(epoch), rel=1e-14)
        assert embedding["lr"] == pytest.approx(DOWN.at(epoch) / 2, rel=1e-14)
        assert (rest["weight_decay"], embedding["weight_decay"]) == (LATE.at(epoch), 0.0)


def test_contraction_uses_the_rates_in_force():
    optimizer = bt.AdamW(lr=DOWN, weight_decay=LATE)
    run = bt.train(
        TASK, **OPTIONS, optimizer=optimizer, epochs=30, record_every=1, warmup=4, measures=[bt.Contraction()]
    )
    rates = [DOWN.at(epoch) * min(1, (epoch + 1) / 4) * LATE.at(epoch) for epoch in range(30)]
    assert run.curves["contraction[rate]"].iloc[1:].tolist() == pytest.approx(rates, rel=1e-12)
    slack = run.curves["contraction[slack]"]
    assert slack.notna().tolist() == [False] + [rate > 0 for rate in rates]
    assert (slack.dropna() >= 1).all()


def test_a_learning_rate_of_zero_is_no_step():
    run = bt.train(TASK, **OPTIONS, lr=bt.Window(3e-3, stop=10), epochs=20, record_every=1, measures=[bt.Contraction()])
    assert run.curves["mlp_norm"].iloc[10:].nunique() == 1
    assert run.curves["contraction[direction]"].isna().tolist() == [True] + [False] * 10 + [True] * 10


def test_a_schedule_is_part_of_what_a_run_is():
    ids = {spec_id(bt.AdamW(lr=lr)) for lr in (1e-3, bt.Anneal(1e-3, 0.0, last=10), bt.Anneal(1e-3, 0.0, last=20))}
    assert len(ids) == 3
    assert bt.AdamW(lr=DOWN).lr_at(15) == 2e-3
    assert (bt.AdamW(weight_decay=LATE).weight_decay_at(9), bt.AdamW(lr=0.5).lr_at(7)) == (0.0, 0.5)


def test_schedules_that_cannot_serve_are_refused():
    with pytest.raises(bt.BayesticketError, match=r"^lr: got Window\(value=0\.0\); accepted: a number, or a schedule"):
        bt.AdamW(lr=bt.Window(0.0))
    assert bt.AdamW(weight_decay=bt.Window(0.0)).weight_decay_at(3) == 0.0


def test_a_decay_that_no_group_has_cannot_be_scheduled():
    @bt.spec
    class WithoutDecay(bt.Optimizer):
        def build(self, parameters):
            return torch.optim.Rprop(parameters.values(), lr=self.lr)

    bt.train(TASK, **OPTIONS, optimizer=WithoutDecay(lr=DOWN), epochs=1)
    with pytest.raises(bt.BayesticketError, match=r"WithoutDecay\.weight_decay: got Window.*accepted: a number"):
        Training(configure(task=TASK, **OPTIONS, optimizer=WithoutDecay(weight_decay=LATE)))
