"""Training on tasks that ask at several positions, against the usual loop over all of them."""

import pandas as pd
import pytest
import torch
from answers import copying, plain_losses
from helpers import Killed, die_at

import bayesticket as bt
from bayesticket.runs import TrainConfig
from bayesticket.seeding import seeded_generator

SMALL = bt.Architecture(d_model=12, d_mlp=16, n_heads=2, residual=True)
TASKS = {
    "parity": bt.AutoregressiveParity(n=7, k=2),
    "own": copying(),
    "one query, not the last": copying(queries=(1, 4)),
}


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
@pytest.mark.parametrize("batch_size", [None, 7])
def test_training_is_the_usual_loop_over_all_queries(task, batch_size):
    options = {"model": SMALL, "dtype": "float64", "train_fraction": 0.5, "batch_size": batch_size, "warmup": 0}
    run = bt.train(task, epochs=6, record_every=1, seed=2, **options)
    train = task.split(0.5, seed=2).train
    model = bt.build_model(task, seed=2, d_model=12, d_mlp=16, n_heads=2, residual=True, dtype=torch.float64)

    def batches(epoch: int):
        if batch_size is None:
            return [torch.arange(len(train))]
        generator = seeded_generator(2, f"batches, epoch {epoch}")
        return torch.randperm(len(train), generator=generator).split(batch_size)

    losses = plain_losses(model, train, epochs=6, batches=batches)
    if batch_size is None:
        torch.testing.assert_close(
            torch.tensor(run.curves["train_loss"].iloc[:-1].to_numpy()), torch.tensor(losses).double()
        )
    for name, weight in model.named_parameters():
        torch.testing.assert_close(run.weights[name], weight.detach(), atol=1e-6, rtol=1e-6)


def test_accuracy_is_over_the_answers_that_can_be_known():
    task = copying()
    run = bt.train(task, model=SMALL, epochs=5, measures=[bt.Accuracy(query="each"), bt.Loss(query=5)])
    test = task.split().test
    predicted = run.model(test.tokens).argmax(-1)
    right = {
        query: (predicted[:, query] == test.targets[:, slot]).double().mean().item()
        for slot, query in enumerate((2, 3, 5))
    }
    last = run.curves.iloc[-1]
    assert last["test_accuracy[query=each][Q3]"] == pytest.approx(right[3])
    assert last["test_accuracy[query=each][Q5]"] == pytest.approx(right[5])
    assert "test_accuracy[query=each][Q2]" not in run.curves
    assert last["test_accuracy"] == pytest.approx((right[3] + right[5]) / 2)
    loss = torch.nn.functional.cross_entropy(run.model(test.tokens)[:, 5], test.targets[:, 2])
    assert last["test_loss[query=5]"] == pytest.approx(loss.item(), rel=1e-5)


@pytest.mark.parametrize("batch_size", [None, 9])
def test_one_query_at_the_end_is_the_ordinary_task_to_the_bit(batch_size):
    whole = bt.SparseParity(n=7, k=2).examples(0)
    ordinary = bt.Task(tokens=whole.tokens, targets=whole.targets, informative=whole.informative)
    asked = bt.Task(
        tokens=whole.tokens, targets=whole.targets[:, None], informative=whole.informative[:, None], queries=(7,)
    )
    options = {
        "model": SMALL, "epochs": 12, "record_every": 4, "batch_size": batch_size, "snapshots": [0, 8],
        "measures": [bt.ExplainingAway(half=("train", "test")), bt.PriorGradient(), bt.SeparabilityMargin(),
                     bt.NormalizedMLPLoss(), bt.EffectiveRank(half="unseen"), bt.KLToTarget("shifted", head="each"),
                     bt.CommutatorDefect(pairs=1)],
    }  # fmt: skip
    recipe = bt.KLPrior(strength=0.3) + bt.EntropyPrior(0.1, head=0) + bt.SparsityPrior(0.1, on="scores")
    one, other = (bt.train(task, recipe, **options) for task in (ordinary, asked))
    pd.testing.assert_frame_equal(one.curves, other.curves, check_exact=True)
    assert all(torch.equal(weight, other.weights[name]) for name, weight in one.weights.items())
    assert other.header().made_with["forward"] == "fast"
    assert one.measure(bt.AttentionEntropy(query="each")).equals(other.measure(bt.AttentionEntropy(query="each")))


def test_the_forward_says_why_it_is_the_full_one(caplog):
    with caplog.at_level("INFO", logger="bayesticket"):
        run = bt.train(TASKS["parity"], model=SMALL, epochs=1)
    assert run.header().made_with["forward"] == "full"
    assert "the task asks at several positions" in caplog.text
    with pytest.raises(bt.BayesticketError, match=r"forward: got 'fast'.*the task asks at several positions"):
        bt.train(TASKS["parity"], model=SMALL, epochs=1, forward="fast")


def test_an_interrupted_run_goes_on_to_the_bit(tmp_path, monkeypatch):
    options = {
        "model": SMALL,
        "epochs": 14,
        "batch_size": 9,
        "record_every": 5,
        "measures": [bt.ExplainingAway(query="each")],
    }
    whole = bt.train(copying(), bt.KLPrior(), **options)
    die_at(9, monkeypatch)
    with pytest.raises(Killed):
        bt.train(copying(), bt.KLPrior(), store=tmp_path / "run", checkpoint_every=4, **options)
    monkeypatch.undo()
    resumed = bt.resume(tmp_path / "run")
    pd.testing.assert_frame_equal(whole.curves, resumed.curves, check_exact=True)
    assert all(torch.equal(weight, resumed.weights[name]) for name, weight in whole.weights.items())


def test_what_is_measured_afterwards_is_what_was_recorded():
    task = TASKS["parity"]
    chosen = [bt.KLToOracle(query="each"), bt.ExplainingAway(), bt.Accuracy(), bt.AttentionGradient()]
    run = bt.train(task, bt.KLPrior(), model=bt.Architecture(d_model=8, d_mlp=8), epochs=10, record_every=5,
                   snapshots=[0, 5], measures=chosen)  # fmt: skip
    later = run.measure(*chosen)
    for name in later:
        torch.testing.assert_close(torch.tensor(later[name].to_numpy()), torch.tensor(run.curves[name].to_numpy()))
    assert set(later) >= {"kl_to_oracle[query=each][Q7]", "explaining_away[measured]", "test_accuracy"}
    model = run.at(5)
    torch.testing.assert_close(
        bt.measure(model, task.split().train, bt.KLToOracle())["kl_to_oracle"], run.curves["kl_to_oracle"].loc[5]
    )


def test_runs_are_evaluated_on_other_tasks_of_this_kind_and_of_the_other():
    parity = TASKS["parity"]
    alone = bt.SparseParity(n=7, k=2)
    run = bt.train(parity, model=SMALL, epochs=4, evaluate={"alone": alone, "itself": parity})
    last = run.curves.iloc[-1]
    assert last["itself/test_loss"] == last["test_loss"]
    assert last["itself/test_accuracy"] == last["test_accuracy"]
    assert run.evaluate(parity)["accuracy"] == pytest.approx(last["test_accuracy"])
    assert run.evaluate(parity.split().test)["loss"] == pytest.approx(last["test_loss"])
    asked = parity.split().test
    ending = bt.Examples(asked.tokens, asked.targets[:, -1], asked.informative[:, -1])
    assert run.evaluate(ending)["accuracy"] == pytest.approx(last["test_accuracy"])
    assert last["alone/test_accuracy"] == pytest.approx(run.evaluate(alone)["accuracy"])


def test_an_ordinary_run_is_evaluated_on_a_task_that_asks_more():
    tokens = bt.SparseParity(n=7, k=2).examples(0).tokens
    ordinary = bt.Task(tokens=tokens, targets=tokens[:, 0], informative=torch.arange(8) == 0, d_vocab=3, d_vocab_out=3)
    run = bt.train(ordinary, model=SMALL, epochs=3)
    assert run.header().made_with["forward"] == "fast"
    seen = run.evaluate(bt.AutoregressiveParity(n=7, k=2).split().test, bt.KLToOracle())
    assert set(seen) == {"loss", "accuracy", "unseen_loss", "unseen_accuracy", "kl_to_oracle"}


def test_a_loop_of_ones_own_is_what_training_does():
    task, recipe = copying(), bt.KLPrior(strength=0.4) + bt.FrozenAttention("uniform", head=0)
    run = bt.train(task, recipe, model=SMALL, epochs=5, warmup=0, max_grad_norm=None, dtype="float64")
    model = bt.build_model(task, d_model=12, d_mlp=16, n_heads=2, residual=True, dtype=torch.float64)
    train = task.split().train
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1.0)
    with recipe.attach(model, train) as live:
        for epoch in range(5):
            live.epoch = epoch
            logits = model(train.tokens)[:, list(train.queries)]
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), train.targets.flatten()) + live.penalty()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            live.project()
    for name, weight in model.named_parameters():
        torch.testing.assert_close(run.weights[name], weight.detach(), atol=1e-5, rtol=1e-5)


def test_runs_and_sweeps_are_stored(tmp_path):
    task = copying()
    runs = bt.sweep(
        task, {"none": None, "kl": bt.KLPrior()}, seeds=range(2), epochs=3, model=SMALL, store=tmp_path, workers=1,
        progress=False,
    )  # fmt: skip
    assert runs.curves["test_accuracy"].notnull().all()
    loaded = [bt.Run.load(path.parent) for path in tmp_path.rglob("run.json")]
    assert len(loaded) == 4
    assert all(run.config.task == task for run in loaded)
    assert loaded[0].config.task.examples(0).queries == task.queries


def test_deeper_models_record_each_layer_at_all_queries():
    run = bt.train(copying(), model=bt.Architecture(d_model=8, d_mlp=8, n_layers=2), epochs=2)
    assert {f"kl_to_oracle[layer=each][L{layer}]" for layer in (0, 1)} <= set(run.curves)
    assert TrainConfig(task=copying()).task.queries == (2, 3, 5)


def test_drawn_positions_and_bidirectional_models_are_refused():
    with pytest.raises(bt.BayesticketError, match=r"model: got positions='drawn'.*\(2, 3, 5\)"):
        bt.train(copying(), model=bt.Architecture(n_ctx=9, positions="drawn"), epochs=1)
    model = bt.build_model(copying(), d_model=8, d_mlp=8)
    model.cfg.attention_dir = "bidirectional"
    with pytest.raises(bt.BayesticketError, match=r"attention_dir='bidirectional'"):
        bt.measure(model, copying().split().test, bt.Accuracy())
