"""Runs evaluated on other tasks: on which examples, with what numbers, at their end and at every record."""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from helpers import Killed, die_at, refused
from small_runs import assert_same

import bayesticket as bt
from bayesticket.measures import Column
from bayesticket.runs import Training, configure
from bayesticket.runs.evaluation import held_out
from bayesticket.specs import spec_id

SHORT = bt.ModularAddition(p=7, positions="random", n_distractors=2)
LONG = bt.ModularAddition(p=7, positions="random", n_distractors=8)
SMALL = bt.Architecture(d_model=16, d_mlp=32, n_ctx=14, positions="none")
EVALUATE = {"T=12": LONG}
OPTIONS = {"model": SMALL, "epochs": 24, "lr": 1e-2, "record_every": 6, "dtype": "float64", "seed": 3}


def train(intervention=None, task=SHORT, **options):
    return bt.train(task, intervention, **OPTIONS | options)


@pytest.fixture(scope="module")
def run():
    return train(evaluate=EVALUATE, snapshots=[0, 12])


def operands(examples):
    return [tuple(row[marks].tolist()) for row, marks in zip(examples.tokens, examples.informative, strict=True)]


def by_hand(run, task, seed=3):
    """Loss and accuracy on all inputs that training has not seen, and on those whose mirror it has not seen either."""
    trained = set(operands(SHORT.split(seed=seed).train))
    model, totals = run.model, {"": [], "unseen_": []}
    examples = task.examples(seed)
    with torch.no_grad():
        for row, target, (a, b) in zip(examples.tokens, examples.targets, operands(examples), strict=True):
            if (a, b) in trained:
                continue
            logits = model(row[None])[0, -1]
            assert target == (a + b) % 7
            found = F.cross_entropy(logits, target).item(), float(logits.argmax() == target)
            totals[""].append(found)
            if (b, a) not in trained:
                totals["unseen_"].append(found)
    means = {part: torch.tensor(found, dtype=torch.float64).mean(0).tolist() for part, found in totals.items()}
    names = ("loss", "accuracy")
    return {f"{part}{name}": value for part, both in means.items() for name, value in zip(names, both, strict=True)}


# On which examples --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize(
    "task",
    [
        LONG,
        SHORT,
        bt.ModularAddition(p=7, positions="random", n_distractors=0),
        bt.KOperandAddition(k=2, p=7, positions="random", n_distractors=5),
    ],
    ids=repr,
)
def test_an_input_of_training_is_never_evaluated_on_whatever_its_sequence(task, seed):
    config = configure(task=SHORT, seed=seed)
    split, examples = SHORT.split(seed=seed), held_out(task, config, "task")
    assert operands(examples) == operands(split.test)
    assert torch.equal(examples.targets, split.test.targets)
    assert torch.equal(examples.unseen, split.test.unseen)
    trained = set(operands(split.train))
    assert not trained & set(operands(examples))
    for (a, b), unseen in zip(operands(examples), examples.unseen.tolist(), strict=True):
        assert unseen == ((b, a) not in trained)


def test_the_runs_own_task_has_the_test_half_itself():
    config = configure(task=SHORT, seed=5)
    assert torch.equal(held_out(SHORT, config, "task").tokens, SHORT.split(seed=5).test.tokens)


@pytest.mark.parametrize("task", [bt.SparseParity(n=8, k=3), bt.PermutationComposition(n=3)], ids=repr)
def test_other_tasks_hold_their_inputs_out_too(task):
    split, config = task.split(), configure(task=task)
    assert torch.equal(held_out(task, config, "task").tokens, split.test.tokens)


def test_sampled_inputs_are_held_out_by_what_they_are():
    """Another number of samples are other inputs, in part; those of training are left out."""
    task, other = (bt.KOperandAddition(k=3, p=41, n_samples=n, n_distractors=m) for n, m in ((3000, 1), (20_000, 3)))
    config = configure(task=task, train_fraction=0.5)
    trained = set(operands(task.split(0.5).train))
    whole, examples = operands(other.examples(0)), held_out(other, config, "task")
    assert len(trained & set(whole)) > 0
    assert operands(examples) == [each for each in whole if each not in trained]
    assert examples.unseen is None


def test_data_of_ones_own_are_held_out_by_their_sequences():
    tokens = torch.randint(0, 9, (40, 4), generator=torch.Generator().manual_seed(0))
    known = bt.Task(tokens=tokens, targets=tokens[:, 0], informative=[True, False, False, False])
    more = torch.cat([tokens, tokens + 1])
    other = bt.Task(tokens=more, targets=more[:, 0], informative=[True, False, False, False])
    examples = held_out(other, config := configure(task=known), "task")
    trained = set(map(tuple, config.split().train.tokens.tolist()))
    expected = [row for row in map(tuple, more.tolist()) if row not in trained]
    assert list(map(tuple, examples.tokens.tolist())) == expected
    longer = bt.Task(tokens=[[1, 2, 3, 4, 5]], targets=[1], informative=[True, False, False, False, False])
    assert len(held_out(longer, config, "task")) == 1
    train = config.split().train
    trained = bt.Task(tokens=train.tokens, targets=train.targets, informative=train.informative)
    refused(lambda: held_out(trained, config, "task"), "task: got Task(n=12, ", "whose inputs are all in training")


# The numbers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [LONG, SHORT], ids=["long", "short"])
def test_the_numbers_are_those_of_the_model_on_inputs_that_training_has_not_seen(run, task):
    found = run.evaluate(task)
    assert dict(found) == pytest.approx(by_hand(run, task), rel=1e-10)
    assert list(found) == ["loss", "unseen_loss", "accuracy", "unseen_accuracy"]


def test_the_runs_own_task_gives_what_its_test_half_gave(run):
    found, last = run.evaluate(SHORT), run.curves.iloc[-1]
    assert found["accuracy"] == last["test_accuracy"]
    assert found["unseen_loss"] == last["unseen_loss"]


def test_the_curves_of_an_evaluation_are_its_numbers_at_every_record(run):
    names = [name for name in run.curves if Column.parse(name).evaluation]
    assert names == [f"T=12/{half}_{name}" for half in ("test", "unseen") for name in ("accuracy", "loss")]
    for epoch in (0, 12, 24):
        found = run.evaluate(LONG, epoch=epoch)
        for name in names:
            assert run.curves[name].loc[epoch] == found[name.removeprefix("T=12/").removeprefix("test_")], name
    measured = run.measure(bt.Accuracy())
    pd.testing.assert_frame_equal(measured, run.curves.loc[measured.index, measured.columns], check_exact=True)
    assert {"T=12/test_accuracy", "T=12/unseen_accuracy"} <= set(measured)


def test_further_measures_are_taken_on_the_same_examples(run):
    found = run.evaluate(LONG, bt.KLToOracle(), bt.Accuracy(), bt.AttentionEntropy(half="unseen"))
    batch = held_out(LONG, run.config, "task")
    wanted = bt.measure(run.model, batch, bt.Loss(), bt.KLToOracle(), bt.AttentionEntropy())
    unseen = bt.measure(run.model, batch.select(batch.unseen), bt.AttentionEntropy())
    assert {name: found[name] for name in wanted} == pytest.approx(dict(wanted), rel=1e-12)
    assert found["unseen_attention_entropy"] == pytest.approx(unseen["attention_entropy"], rel=1e-12)
    assert len(found) == 7


def test_a_split_is_taken_as_it_is_and_so_are_examples(run):
    split = LONG.split(0.5, seed=8)
    test = run.evaluate(split)
    assert test["accuracy"] == bt.measure(run.model, split.test, bt.Accuracy())["accuracy"]
    assert dict(run.evaluate(split.test)) == dict(test)
    train = run.evaluate(split.train)
    assert list(train) == ["loss", "accuracy"]
    assert train["loss"] == pytest.approx(bt.measure(run.model, split.train, bt.Loss())["loss"], rel=1e-12)


def test_what_an_intervention_edits_it_edits_there_too():
    recipe = bt.FrozenAttention("oracle") + bt.KLPrior("uniform", strength=0.1)
    run = train(recipe, evaluate=EVALUATE)
    found = run.evaluate(LONG, bt.KLToOracle())
    assert found["kl_to_oracle"] == pytest.approx(0.0, abs=1e-9)
    assert found["loss"] == run.curves["T=12/test_loss"].iloc[-1]
    edited = bt.measure(run.model, held_out(LONG, run.config, "task"), bt.Loss(), intervention=bt.FrozenAttention())
    assert found["loss"] == pytest.approx(edited["loss"], rel=1e-10)
    assert edited["loss"] != pytest.approx(bt.measure(run.model, held_out(LONG, run.config, "task"), bt.Loss())["loss"])


def test_an_edit_of_a_schedule_is_there_what_it_is_at_that_epoch():
    recipe = bt.MixedAttention("uniform", weight=bt.Anneal(0.9, 0.0, last=20))
    run = train(recipe, evaluate=EVALUATE, snapshots=[6, 12])
    for epoch in (6, 12):
        batch = held_out(LONG, run.config, "task")
        wanted = bt.measure(run.at(epoch), batch, bt.Loss(), intervention=recipe, epoch=epoch)["loss"]
        assert run.curves["T=12/test_loss"].loc[epoch] == pytest.approx(wanted, rel=1e-10)
        assert run.evaluate(LONG, epoch=epoch)["loss"] == pytest.approx(wanted, rel=1e-10)


def test_what_is_recorded_of_the_test_half_is_recorded_of_evaluations():
    run = train(evaluate=EVALUATE, measures=[bt.AttentionEntropy(half="test"), bt.KLToOracle(half=("train", "test"))])
    assert {"T=12/test_attention_entropy", "T=12/test_kl_to_oracle"} <= set(run.curves)
    assert "T=12/kl_to_oracle" not in run.curves


@pytest.mark.parametrize("batch_size", [None, 6])
def test_evaluations_change_nothing_that_is_trained(run, batch_size):
    with_it, without = (train(evaluate=evaluate, batch_size=batch_size) for evaluate in (EVALUATE, None))
    for name, weight in with_it.weights.items():
        assert torch.equal(weight, without.weights[name])
    shared = list(without.curves)
    pd.testing.assert_frame_equal(with_it.curves[shared], without.curves, check_exact=True)
    assert with_it.id != without.id


def test_a_loss_that_is_not_finite_elsewhere_ends_no_run():
    @bt.spec
    class Unbounded(bt.LossFunction):
        """Infinite on more than 35 examples, which the halves do not have."""

        def __call__(self, logits, targets):
            return F.cross_entropy(logits, targets) / (len(targets) <= 35)

    other = bt.Task(tokens=LONG.examples(0).tokens, targets=[0] * 49, informative=[True] * 12)
    run = train(evaluate={"all": other}, loss=Unbounded())
    assert run.status == "finished"
    assert run.curves["all/test_loss"].map(math.isinf).all()


# Kept and resumed ---------------------------------------------------------------------------------------------------

CASES = {
    "evaluated": {"evaluate": EVALUATE},
    "drawn": {"model": replace(SMALL, positions="drawn"), "evaluate": EVALUATE},
    "drawn, batches": {"model": replace(SMALL, positions="drawn"), "batch_size": 5, "record_every": 5},
    "drawn and redrawn": {
        "model": replace(SMALL, positions="drawn"),
        "task": replace(SHORT, redraw_each_epoch=True),
        "intervention": bt.KLPrior(),
    },
    "rotary": {"model": replace(SMALL, positions="rotary"), "evaluate": EVALUATE},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("killed_at", [3, 17])
def test_a_run_that_is_killed_resumes_to_the_bit(tmp_path, case, killed_at, monkeypatch):
    whole = train(**CASES[case])
    die_at(killed_at, monkeypatch)
    with pytest.raises(Killed):
        train(**CASES[case], store=tmp_path / "run", checkpoint_every=5)
    monkeypatch.undo()
    resumed = bt.resume(tmp_path / "run")
    assert_same(resumed, whole)
    loaded = bt.Run.load(tmp_path / "run")
    assert_same(loaded, whole)
    assert loaded.config.evaluate == whole.config.evaluate
    tokens = LONG.split().test.tokens
    assert torch.equal(loaded.model(tokens), whole.model(tokens))


@pytest.mark.parametrize("case", ["drawn", "drawn and redrawn"])
def test_a_run_that_is_killed_before_its_last_record_makes_it_of_the_last_draw(tmp_path, case, monkeypatch):
    def die(self):
        raise Killed

    whole = train(**CASES[case])
    monkeypatch.setattr(Training, "record", die)
    with pytest.raises(Killed):
        train(**CASES[case], store=tmp_path / "run", checkpoint_every=12)
    monkeypatch.undo()
    assert_same(bt.resume(tmp_path / "run"), whole)


@pytest.mark.parametrize("positions", ["learned", "drawn", "none", "rotary"])
@pytest.mark.parametrize("batch_size", [None, 6])
def test_both_forwards_train_the_same(positions, batch_size):
    options = {"model": replace(SMALL, positions=positions), "evaluate": EVALUATE, "batch_size": batch_size}
    fast, full = (train(bt.KLPrior(), forward=forward, **options) for forward in ("fast", "full"))
    assert (fast.made_with["forward"], full.made_with["forward"]) == ("fast", "full")
    pd.testing.assert_frame_equal(fast.curves, full.curves, rtol=1e-8, atol=1e-10)
    for name, weight in fast.weights.items():
        torch.testing.assert_close(weight, full.weights[name], rtol=1e-7, atol=1e-9)
    assert (positions == "rotary") == ("attention_gradient" not in fast.curves)


def test_positions_are_drawn_anew_every_epoch_from_the_seed_of_batches():
    def drawn(**options):
        training = Training(configure(task=SHORT, **OPTIONS | {"model": replace(SMALL, positions="drawn")} | options))
        found = []
        for _ in range(3):
            training.take_epoch()
            found.append(training.train.batch.position_ids)
        assert training.test.batch.position_ids is None
        return torch.stack(found)

    first = drawn()
    assert torch.equal(first, drawn())
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first, drawn(batch_seed=9))
    assert torch.equal(first[:, :, -1], torch.full_like(first[:, :, -1], 13))
    assert len(first.unique()) == 14


def test_a_model_that_is_given_keeps_what_it_makes_of_positions():
    model = bt.build_model(SHORT, d_model=16, d_mlp=32, n_ctx=14, positions="drawn", dtype=torch.float64, seed=3)
    given, built = train(model=model, evaluate=EVALUATE), train(**CASES["drawn"])
    pd.testing.assert_frame_equal(given.curves, built.curves, check_exact=True)
    assert dict(given.evaluate(LONG)) == dict(built.evaluate(LONG))


def test_a_rule_may_stop_a_run_by_the_curve_of_an_evaluation():
    rule = bt.Reaches("T=12/test_loss", 0.0)
    assert train(evaluate=EVALUATE, stop_when=rule).epoch == 1
    refused(
        lambda: train(evaluate=EVALUATE, stop_when=bt.Reaches("T=13/test_loss", 0.0)),
        "stop_when.curve: got 'T=13/test_loss'",
        "Closest: 'T=12/test_loss'",
    )


def test_grokking_may_be_asked_of_an_evaluation(run):
    assert run.grok_epoch(curve="T=12/test_accuracy") is None
    refused(lambda: run.grok_epoch(2.0, curve="T=12/test_accuracy"), "threshold: got 2.0")


def test_a_sweep_records_evaluations_of_every_run(tmp_path):
    arms = bt.grid(model={name: replace(SMALL, positions=name) for name in ("none", "drawn")})
    options = {name: value for name, value in OPTIONS.items() if name not in ("model", "seed")}
    with ThreadPoolExecutor(1) as executor:
        sweep = {"seeds": range(2), "store": tmp_path, "executor": executor, "evaluate": EVALUATE}
        runs = bt.sweep(SHORT, arms, **sweep, **options)
        again = bt.sweep(SHORT, arms, **sweep, **options)
    assert runs.curves["T=12/unseen_accuracy"].dims == ("model", "seed", "epoch")
    assert runs.curves.identical(again.curves)
    one = runs.run("drawn", seed=1)
    assert one.evaluate(LONG)["accuracy"] == runs.curves["T=12/test_accuracy"].sel(model="drawn", seed=1)[-1]


def test_a_configuration_with_evaluations_has_an_id_of_its_own_and_the_order_of_labels_counts_for_nothing():
    one, other = {"a": LONG, "b": SHORT}, {"b": SHORT, "a": LONG}
    assert spec_id(configure(evaluate=one)) == spec_id(configure(evaluate=other)) != spec_id(configure())
    assert configure(evaluate=one) == configure(evaluate=other)


# Refused ------------------------------------------------------------------------------------------------------------

TOO_LONG = bt.ModularAddition(p=7, positions="random", n_distractors=11)
ELSEWHERE = {
    "too long": (TOO_LONG, ".n_positions: got 15; accepted: at most 14, the model's n_ctx; Architecture(n_ctx=…)"),
    "more tokens": (bt.ModularAddition(p=11), ".d_vocab_out: got 11; accepted: at most 7, the number of the model's"),
    "other tokens": (
        bt.ModularAddition(p=5, positions="random"),
        ": got ModularAddition(positions='random', p=5), in which token 5 is '+'; accepted: a task with the tokens of ",
    ),
    "another sign": (bt.ModularMultiplication(p=7), "in which token 7 is '×'; accepted: ", "in which it is '+'"),
}


@pytest.mark.parametrize("case", ELSEWHERE)
def test_a_task_that_does_not_fit_is_refused_by_its_field(run, case):
    task, *said = ELSEWHERE[case]
    refused(lambda: run.evaluate(task), "evaluate", *said)
    refused(lambda: train(evaluate={"T": task}), "evaluate['T']", *said)


def test_a_task_of_more_tokens_is_refused():
    run = train(task=bt.ModularAddition(p=7), model=replace(SMALL, n_ctx=8))
    refused(lambda: run.evaluate(SHORT), "evaluate.d_vocab: got 16; accepted: at most 9, the number of the model's")


def test_examples_that_do_not_fit_are_refused(run):
    batch = LONG.split().test
    cases = {
        "n_positions: got 15": (TOO_LONG.split().test, 0, 0),
        "tokens: got 17": (batch, 16 - int(batch.tokens.max()), 0),
        "targets: got 8": (batch, 0, 7 - int(batch.targets.max())),
    }
    for said, (given, more_tokens, more_targets) in cases.items():
        other = bt.Examples(given.tokens + more_tokens, given.targets + more_targets, given.informative)
        refused(lambda other=other: run.evaluate(other), f"evaluate.{said}; accepted: at most ")


@pytest.mark.parametrize(
    "given", [None, 3, "T=12", LONG.examples, run], ids=["None", "a number", "a label", "a method", "a function"]
)
def test_what_is_neither_a_task_nor_examples_is_refused(run, given):
    refused(lambda: run.evaluate(given), "evaluate: got ", "accepted: a task, a split, or examples, such as split.test")


@pytest.mark.parametrize(
    "given",
    [{}, [LONG], LONG, {"": LONG}, {"a/b": LONG}, {"a[b]": LONG}, {3: LONG}, {"type": LONG}, {" a": LONG}],
    ids=str,
)
def test_evaluations_need_labels_that_curves_can_be_named_after(given):
    refused(lambda: configure(evaluate=given), "evaluate: got ", 'accepted: tasks by label, such as {"T=12": Modular')


def test_an_evaluation_that_is_no_task_is_refused():
    refused(lambda: configure(evaluate={"T": SHORT.split()}), "evaluate['T']: got Split(", "accepted: a task, such as")


def test_a_target_that_fits_the_runs_length_alone_is_refused_by_the_label():
    recipe = bt.FrozenAttention(torch.full((6,), 1 / 6))
    refused(lambda: train(recipe, evaluate=EVALUATE), "evaluate['T=12']: target: got shape (6,)")


def test_a_measure_that_follows_steps_and_an_epoch_without_snapshot_are_refused(run):
    refused(
        lambda: run.evaluate(LONG, bt.Contraction()), "measures: got Contraction(); accepted: measures of one state"
    )
    refused(lambda: run.evaluate(LONG, epoch=7), "epoch: got 7, of which there is no snapshot; accepted: 0, 12, 24")
