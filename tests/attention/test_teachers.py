"""Teachers at an epoch, on some of the positions, and of the same vocabulary, against TransformerLens' own cache."""

import copy
import logging

import pandas as pd
import pytest
import torch
from helpers import refused
from jobs import SMALL, TASK

import bayesticket as bt
from bayesticket.attention import resolve
from bayesticket.cli.main import main
from bayesticket.interventions import Context
from bayesticket.notices import SAID
from bayesticket.runs import TrainConfig
from bayesticket.specs import describe, restore, spec_id
from bayesticket.tasks import differing_token, places_in

SHORT, LONG = bt.ModularAddition(p=7), bt.ModularAddition(p=7, n_distractors=4)  # five positions, and eight
PLACES = (0, 1, 2, 5, 7)
OPTIONS = {"model": SMALL, "epochs": 30, "progress": False}


@pytest.fixture(scope="module")
def run():
    """A run with a snapshot."""
    return bt.train(SHORT, snapshots=[10], **(OPTIONS | {"epochs": 40}))


@pytest.fixture(scope="module")
def path(run, tmp_path_factory):
    """Where it is saved."""
    return run.save(tmp_path_factory.mktemp("teachers") / "run")


def cached(teacher, tokens):
    """The attention of the last query of layer 0, from TransformerLens' cache."""
    return teacher.run_with_cache(tokens)[1]["pattern", 0][:, :, -1].detach()


def train_on(model):
    """Moves all weights of a model."""
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number)))


def same_curves(one, other):
    pd.testing.assert_frame_equal(one.curves, other.curves, check_exact=True)


# --- at an epoch ---


def test_a_prior_to_a_run_at_an_epoch_trains_as_one_to_the_tensor_of_its_attention(run):
    train = SHORT.split().train
    rows = cached(run.at(10), train.tokens)
    assert not torch.allclose(rows, cached(run.model, train.tokens), rtol=0, atol=1e-3)
    by_tensor = bt.train(SHORT, bt.KLPrior(rows), **OPTIONS)
    for target in (run.at(10), bt.Teacher(run, epoch=10), bt.Teacher(run.at(10))):
        same_curves(bt.train(SHORT, bt.KLPrior(target), **OPTIONS), by_tensor)


@pytest.mark.parametrize("edit", [bt.FrozenAttention, lambda target: bt.MixedAttention(target, weight=0.7)])
def test_an_edit_to_a_run_at_an_epoch_trains_as_one_to_the_tensor_of_its_attention(run, edit):
    rows = cached(run.at(10), SHORT.examples(seed=0).tokens)
    one, other = (bt.train(SHORT, edit(target), **OPTIONS) for target in (run.at(10), rows))
    pd.testing.assert_frame_equal(one.curves, other.curves, rtol=1e-4)


def test_a_teacher_is_found_by_its_path_also_from_the_command_line(run, path, tmp_path):
    assert torch.equal(bt.Teacher(path, epoch=10).model.W_E, run.at(10).W_E)
    assert torch.equal(bt.Teacher(str(path)).model.W_E, run.model.W_E)
    written = f"KLPrior(Teacher({str(path)!r}, epoch=10, positions={PLACES}))"
    flags = ["--task", repr(LONG), "--model", repr(SMALL), "--epochs", "30", "--store", str(tmp_path / "typed")]
    assert main(["train", *flags, "--intervention", written]) == 0
    typed = bt.Run.load(tmp_path / "typed")
    called = bt.train(LONG, bt.KLPrior(bt.Teacher(run, epoch=10, positions=PLACES)), **OPTIONS)
    assert typed.id == called.id
    same_curves(typed, called)


def test_a_run_with_a_teacher_is_restored_and_resumed_without_the_teacher(run, tmp_path, monkeypatch):
    early = bt.Teacher(run, epoch=10, positions=PLACES)
    recipe = bt.KLPrior(early) + bt.MixedAttention(bt.Permuted(early), weight=0.2)
    whole = bt.train(LONG, recipe, **OPTIONS)
    store = tmp_path / "run"
    bt.train(LONG, recipe, store=store, stop_when=lambda record: record["epoch"] >= 10, **OPTIONS)
    resumed = bt.resume(store, progress=False)
    assert resumed.id == whole.id
    same_curves(resumed, whole)
    tensors = {}
    assert spec_id(restore(describe(recipe, tensors), tensors)) == spec_id(recipe)


def test_the_arms_of_a_stored_sweep_may_have_teachers(run, tmp_path):
    early, late = bt.Teacher(run, epoch=10, positions=PLACES), bt.Teacher(run, positions=PLACES)
    arms = {"early": bt.KLPrior(early), "late": bt.FrozenAttention(late)}
    runs = bt.sweep(LONG, arms, seeds=[0], store=tmp_path / "store", workers=1, **OPTIONS)
    for name, recipe in arms.items():
        same_curves(runs.run(name, 0), bt.train(LONG, recipe, **OPTIONS))
    again = bt.sweep(LONG, arms, seeds=[0], store=tmp_path / "store", workers=1, **OPTIONS)
    assert again.run("late", 0).seconds == runs.run("late", 0).seconds  # loaded, not trained


# --- on some of the positions ---


def by_hand(teacher, tokens):
    """The attention of a teacher of SHORT in sequences of LONG, written into a tensor of zeros."""
    placed = torch.zeros(len(tokens), 1, 8)
    placed[:, :, PLACES] = cached(teacher, tokens[:, PLACES])
    return placed


def test_a_shorter_teacher_reads_its_positions_and_attends_to_them_alone(run):
    split = LONG.split()
    teacher = bt.Teacher(run, positions=PLACES)
    torch.testing.assert_close(resolve(teacher, split.test), by_hand(run.model, split.test.tokens))
    rows = by_hand(run.model, split.train.tokens)
    one, other = (bt.train(LONG, bt.KLPrior(target), **OPTIONS) for target in (teacher, rows))
    same_curves(one, other)


def test_a_shorter_teacher_is_asked_about_the_query_that_is_meant(run):
    batch = LONG.split().train
    pattern = run.model.run_with_cache(batch.tokens[:, PLACES])[1]["pattern", 0]
    found = resolve(bt.Teacher(run, positions=PLACES), batch, query=5)
    torch.testing.assert_close(found[:, :, PLACES], pattern[:, :, 3])
    assert found[:, :, 6:].abs().max() == 0
    refused(lambda: resolve(bt.Teacher(run, positions=PLACES), batch, query=4), "(0, 1, 2, 5, 7)", "positions with 4")


def test_a_shuffled_teacher_has_its_weights_in_other_places(run):
    batch, teacher = LONG.split().train, bt.Teacher(run, positions=PLACES)
    own, shuffled = resolve(teacher, batch), resolve(bt.Permuted(teacher), batch)
    torch.testing.assert_close(own.sort(-1).values, shuffled.sort(-1).values)
    assert not torch.equal(own, shuffled)
    others = resolve(bt.Permuted(teacher, along="examples"), batch)
    assert sorted(map(tuple, others[:, 0].tolist())) == sorted(map(tuple, own[:, 0].tolist()))
    same_curves(*(bt.train(LONG, bt.KLPrior(bt.Permuted(teacher)), **OPTIONS) for _ in range(2)))


def test_an_untrained_model_teaches_what_it_attends_to_before_any_step():
    teacher, train = bt.build_model(SHORT, seed=7), SHORT.split().train
    rows = cached(bt.build_model(SHORT, seed=7), train.tokens)
    same_curves(*(bt.train(SHORT, bt.KLPrior(target), **OPTIONS) for target in (teacher, rows)))


def test_where_a_teacher_stands_is_derived_where_symbols_leave_no_choice(run):
    bare = bt.ModularAddition(p=7, n_distractors=0)
    assert bt.Teacher(bt.build_model(bare), positions=LONG).positions == (0, 1, 2, 7)
    assert bt.Teacher(run, positions=SHORT).positions == (0, 1, 2, 3, 4)
    assert places_in(bare, bt.KOperandAddition(p=7, k=3), "positions") == (0, 1, 2, 6)
    refused(lambda: bt.Teacher(run, positions=LONG), "fit in more than one way", "such as (0, 1, 2, 3, 7)")
    refused(lambda: bt.Teacher(bt.build_model(LONG), positions=SHORT), "fit in no way", "positions=(…) as numbers")
    random = bt.ModularAddition(p=7, positions="random", n_distractors=4)
    refused(lambda: bt.Teacher(bt.build_model(bare), positions=random), "differs between sequences")
    refused(lambda: bt.Teacher(copy.deepcopy(run.model), positions=LONG), "whose task is not known")


def test_positions_that_make_no_sense_are_refused(run):
    for positions in ((), (2, 1), (1, 1), (-1, 2), (0.5, 1), "01", 3):
        refused(lambda given=positions: bt.Teacher(run, positions=given), "Teacher.positions: got")
    too_far = bt.Teacher(run, positions=(0, 1, 2, 3, 8))
    refused(lambda: bt.train(LONG, bt.KLPrior(too_far), **OPTIONS), "teacher: got position 8", "0 to 7")
    too_few = bt.Teacher(run, positions=(0, 1, 2, 7))
    refused(lambda: bt.train(LONG, bt.KLPrior(too_few), **OPTIONS), "teacher: got a model with 5 positions", "with 4")
    refused(lambda: bt.train(LONG, bt.KLPrior(run), **OPTIONS), "accepted: one with 8 positions, or bt.Teacher(")


def test_what_is_no_model_is_no_teacher(run, tmp_path):
    for given in ("oracle", torch.eye(5), bt.Permuted("oracle"), bt.Teacher(run), None, 3):
        refused(lambda given=given: bt.Teacher(given), "Teacher.model: got")
    refused(lambda: bt.Teacher(tmp_path), "run.json")
    refused(lambda: bt.Teacher(run, epoch=11), "epoch: got 11, of which there is no snapshot; accepted: 10, 40")
    refused(lambda: bt.Teacher(run.model, epoch=10), "epoch: got 10; accepted: None where a model is given")


# --- what its tokens mean ---


def test_a_teacher_of_another_vocabulary_is_refused_wherever_it_stands(run, path):
    other = bt.ModularAddition(p=5)
    message = ("a teacher of ModularAddition(p=7), in which token 5 is '5'", "ModularAddition(p=5), in which it is '+'")
    for teacher in (run, run.at(10), path, bt.Teacher(run), bt.Permuted(bt.Teacher(path, epoch=10))):
        for recipe in (bt.KLPrior(teacher), bt.MixedAttention(teacher), bt.GradientNoise(bt.KLPrior(teacher))):
            refused(lambda recipe=recipe: TrainConfig(task=other, intervention=recipe), *message)
        refused(lambda teacher=teacher: TrainConfig(task=other, measures=(bt.KLToTarget(teacher),)), *message)
    unknown = copy.deepcopy(run.model)
    assert bt.train(other, bt.KLPrior(unknown), **OPTIONS).status == "finished"


def test_tokens_that_a_teacher_does_not_know_may_stand_where_it_does_not_read():
    teacher = bt.build_model(bt.ModularAddition(p=7, n_distractors=0))
    task = bt.ModularAddition(p=7, distractors="constant")  # with a token more, for the distractor
    prior = bt.KLPrior(bt.Teacher(teacher, positions=task))
    assert bt.train(task, prior, **OPTIONS).status == "finished"
    wider = bt.Teacher(bt.build_model(bt.ModularAddition(p=7)), positions=(0, 1, 2, 3, 4))
    refused(lambda: bt.train(task, bt.KLPrior(wider), **OPTIONS), "teacher: got a model with 9 tokens")


def test_numbers_alone_say_nothing_of_what_tokens_mean():
    task = bt.Task(tokens=torch.zeros(4, 3, dtype=torch.int64), targets=[0, 1, 0, 1], informative=[True, False, False])
    assert differing_token(task, SHORT) is None is differing_token(SHORT, task)
    assert differing_token(SHORT, bt.ModularMultiplication(p=7)) == (7, "+", "×")


# --- edits, and the student itself ---


def test_a_run_that_was_trained_under_an_edit_teaches_by_its_bare_model_and_this_is_said(caplog):
    edited, train = bt.train(SHORT, bt.FrozenAttention("oracle"), **OPTIONS), SHORT.split().train
    SAID.clear()
    with caplog.at_level(logging.WARNING, logger="bayesticket"):
        prior = bt.KLPrior(edited)
        bt.KLPrior(edited)
    assert caplog.text.count("target: the run was trained under FrozenAttention(); as a target its attention is") == 1
    found = Context(train, edited.model).target(prior.target, 0, prior)
    torch.testing.assert_close(found, cached(edited.model, train.tokens))
    assert not torch.allclose(found[:, 0], train.oracle, atol=0.1)


@pytest.mark.parametrize("wrap", [lambda model: model, bt.Permuted, bt.Teacher])
def test_a_model_that_teaches_itself_is_not_trained_along(wrap):
    model, train = bt.build_model(TASK, d_model=8, d_mlp=8), TASK.split().train
    prior = bt.KLPrior(wrap(model))
    before = resolve(prior.target, train)
    redrawn = TASK.split(seed=1).train
    expected = resolve(prior.target, redrawn)
    with prior.attach(model, train) as live:
        assert torch.equal(live.context.target(prior.target, 0, prior), before)
        train_on(model)
        live.context.replace(redrawn)
        assert torch.equal(live.context.target(prior.target, 0, prior), expected)


def test_a_run_that_starts_from_its_own_teacher_leaves_it_as_it_is():
    model, train = bt.build_model(TASK, d_model=8, d_mlp=8), TASK.split().train
    weights, rows = copy.deepcopy(model.state_dict()), cached(model, train.tokens)
    one, other = (bt.train(TASK, bt.KLPrior(each), model=model, epochs=20) for each in (model, rows))
    same_curves(one, other)
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())


def test_a_teacher_keeps_a_copy_of_the_model_as_it_was():
    model, train = bt.build_model(TASK, d_model=8, d_mlp=8), TASK.split().train
    teacher = bt.Teacher(model)
    before = cached(model, train.tokens)
    train_on(model)
    torch.testing.assert_close(resolve(teacher, train), before)
    assert bt.Teacher(teacher.model).model is teacher.model
