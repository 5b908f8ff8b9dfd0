"""One model in several threads gives the numbers that it gives in one."""

from concurrent.futures import ThreadPoolExecutor

import pandas as pd

import bayesticket as bt

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
