"""One model in several threads gives the numbers that it gives in one."""

import multiprocessing
import os
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest
from helpers import refused

import bayesticket as bt
from bayesticket.model import own_hooks
from bayesticket.runs import TrainConfig
from bayesticket.sweeps import Job
from bayesticket.sweeps.backends import pickle_job

TASK = bt.ModularAddition(p=5)


def model(seed=0):
    return bt.build_model(TASK, seed=seed, d_model=16, d_mlp=16)


def in_threads(function, given, n=4):
    with ThreadPoolExecutor(n) as threads:
        return list(threads.map(function, given))


def test_training_with_a_shared_teacher():
    teacher = model(7)

    def train(seed):
        prior = bt.KLPrior(target=teacher) + bt.MixedAttention(teacher, weight=0.3)
        return bt.train(TASK, prior, seed=seed, epochs=20, model=bt.Architecture(d_model=16, d_mlp=16), progress=False)

    alone = [train(seed) for seed in range(4)]
    for one, other in zip(alone, in_threads(train, range(4)), strict=True):
        assert one.id == other.id
        pd.testing.assert_frame_equal(one.curves, other.curves, check_exact=True)


def test_measuring_one_model():
    shared, batch = model(), TASK.split().test
    measures = (bt.KLToOracle(), bt.AttentionEntropy(), bt.Accuracy(), bt.AttentionGradient())
    arms = [None, bt.FrozenAttention(), bt.FrozenAttention(target="adversarial"), bt.MixedAttention(weight=0.5)]

    def measure(number):
        return dict(bt.measure(shared, batch, *measures, intervention=arms[number % len(arms)]))

    alone = [measure(number) for number in range(4)]
    for number, found in enumerate(in_threads(measure, range(100))):
        assert found == alone[number % 4]


def test_models_that_are_each_others_teachers_do_not_wait_for_each_other():
    one, two, batch = model(1), model(2), TASK.split().test

    def measure(number):
        student, teacher = (one, two) if number % 2 else (two, one)
        return dict(bt.measure(student, batch, bt.KLToTarget(target=teacher), bt.AttentionEntropy()))

    alone = [measure(0), measure(1)]
    assert in_threads(measure, range(40)) == alone * 20


def test_training_copies_of_a_model_that_is_measured_meanwhile():
    shared, batch = model(), TASK.split().test

    def work(number):
        if number % 2:
            return dict(bt.measure(shared, batch, bt.AttentionEntropy()))
        run = bt.train(TASK, model=shared, epochs=2, progress=False)
        return run.id, run.curves.iloc[-1].to_dict()

    alone = [work(0), work(1)]
    assert in_threads(work, range(40)) == alone * 20


def test_eight_threads_that_train_and_measure_with_the_same_models():
    """Each in turn trains with a teacher, measures that teacher, and trains from the model that others measure."""
    teacher, shared, batch = model(7), model(), TASK.split().test
    recipe = bt.KLPrior(target=teacher) + bt.MixedAttention(teacher, weight=0.3)
    options = {"epochs": 5, "progress": False}

    def work(number):
        match number % 4:
            case 0:
                run = bt.train(TASK, recipe, model=bt.Architecture(d_model=16, d_mlp=16), seed=number % 8, **options)
            case 1:
                run = bt.train(TASK, recipe, model=shared, **options)
            case 2:
                return dict(bt.measure(teacher, batch, bt.KLToTarget(target=shared), bt.Loss()))
            case _:
                return dict(bt.measure(shared, batch, bt.KLToTarget(target=teacher), bt.Loss(), intervention=recipe))
        return run.id, run.curves.drop(columns="seconds", errors="ignore").iloc[-1].to_dict()

    alone = [work(number) for number in range(8)]
    assert in_threads(work, range(24), n=8) == alone * 3


def test_jobs_are_copied_and_pickled_while_their_teacher_is_measured(tmp_path):
    """A copy has none of the hooks that another thread has mounted for a while."""
    teacher, batch = model(7), TASK.split().test
    config = TrainConfig(task=TASK, intervention=bt.KLPrior(target=teacher), epochs=2)
    job = Job("one", config, tmp_path / "one")
    ended = threading.Event()

    def measure():
        while not ended.is_set():
            bt.measure(teacher, batch, bt.AttentionEntropy(), bt.KLToOracle())

    measuring = threading.Thread(target=measure)
    measuring.start()
    try:
        for _ in range(100):
            restored = pickle.loads(pickle_job(job))
            assert own_hooks(restored.config.intervention.parts[0].target) == own_hooks(model(7))
    finally:
        ended.set()
        measuring.join()


def test_threads_that_are_waited_for_while_a_recipe_is_attached_use_other_models():
    one, other, batch = model(1), model(2), TASK.split().test
    alone = dict(bt.measure(other, batch, bt.Loss()))
    with bt.KLPrior().attach(one, batch):
        found = in_threads(lambda _: dict(bt.measure(other, batch, bt.Loss())), range(4), n=2)
    assert found == [alone] * 4


def test_a_thread_waits_for_a_model_until_the_recipe_of_another_is_detached():
    shared, batch = model(1), TASK.split().test
    alone, done = dict(bt.measure(shared, batch, bt.Loss())), threading.Event()

    def measure(_):
        found = dict(bt.measure(shared, batch, bt.Loss()))
        assert done.is_set()
        return found

    with ThreadPoolExecutor(2) as threads:
        with bt.FrozenAttention("adversarial").attach(shared, batch):
            measuring = [threads.submit(measure, number) for number in range(2)]
            bt.measure(shared, batch, bt.Loss())
            time.sleep(0.2)
            done.set()
        assert [each.result(timeout=60) for each in measuring] == [alone] * 2


def test_a_second_model_that_another_thread_keeps_is_refused_and_not_waited_for():
    """Each might otherwise wait for what the other has."""
    teacher, student, batch = model(1), model(2), TASK.split().test
    measure = lambda: bt.measure(student, batch, bt.KLToTarget(target=teacher))  # noqa: E731
    with bt.KLPrior().attach(teacher, batch), ThreadPoolExecutor(1) as threads:
        refused(
            lambda: threads.submit(measure).result(timeout=60), "model: got one to which another thread has attached"
        )
    measure()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="NOT TESTED: forked processes; there is no fork here")
def test_a_forked_process_does_not_wait_for_threads_that_it_does_not_have():
    shared, batch, ended = model(), TASK.split().test, threading.Event()

    def measure():
        while not ended.is_set():
            bt.measure(shared, batch, bt.AttentionEntropy())

    measuring = threading.Thread(target=measure)
    measuring.start()
    try:
        for _ in range(4):
            child = multiprocessing.get_context("fork").Process(target=own_hooks, args=(shared,))
            child.start()
            child.join(20)
            hangs = child.exitcode is None
            child.kill()
            assert not hangs
    finally:
        ended.set()
        measuring.join()
