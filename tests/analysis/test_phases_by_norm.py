"""The phases by training loss and the MLP's norm, on curves made to each rule, and against a loop over records."""

import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from phase_curves import EPOCHS, run_of, step

import bayesticket as bt
from bayesticket.analysis import Phases, find_phases, find_phases_by_norm


def phases(run, **options):
    return find_phases_by_norm(run.curves, **options)


def story(**changed):
    """Memorises at 400; the norm peaks at 300, has lost 2 % at 600 and 30 % at 2,000; the loss rises at 2,500."""
    columns = {
        "train_accuracy": step(400, 0.5),
        "test_accuracy": step(3000, 0.1),
        "train_loss": np.select([EPOCHS < 500, EPOCHS < 2500], [4.0, 0.1], 0.12),
        "mlp_norm": np.select([EPOCHS < 300, EPOCHS < 600, EPOCHS < 2000], [20.0, 30.0, 29.4], 21.0),
        "kl_to_oracle": step(1500, 1.0, 0.3),
    }
    return columns | changed


def test_each_border_where_its_rule_says():
    assert phases(run_of(story())) == Phases(memorised=400, plateau=600, resurgence=2500, grokked=3000)
    # each border moves with its own parameter, and with no other
    assert phases(run_of(story()), small=0.02) == Phases(400, None, None, 3000)
    assert phases(run_of(story()), shrink=0.6) == Phases(400, 600, None, 3000)
    assert phases(run_of(story()), rise=1.3) == Phases(400, 600, None, 3000)
    assert phases(run_of(story()), fall=0.2) == Phases(400, 600, None, 3000)
    assert phases(run_of(story()), memorising=0.4).memorised == 0
    # all conditions of a resurgence are needed at once
    assert phases(run_of(story(kl_to_oracle=step(2700, 1.0, 0.3)))).resurgence == 2700
    assert phases(run_of(story(mlp_norm=step(300, 20.0, 30.0) - 9 * step(2800) - step(600)))).resurgence == 2800
    assert phases(run_of(story(train_loss=np.where(EPOCHS < 700, 4.0, 0.1)))).plateau == 700


def test_borders_are_reached_with_equality():
    norm = np.select([EPOCHS < 600, EPOCHS < 2000], [100.0, 99.0], 80.0)
    loss = np.select([EPOCHS < 500, EPOCHS < 2500], [16.0, 0.8], 1.0)
    columns = story(mlp_norm=norm, train_loss=loss, kl_to_oracle=step(1500, 1.0, 0.5))
    assert phases(run_of(columns), rise=1.25) == Phases(400, 600, 2500, 3000)


def test_a_run_that_never_groks_is_judged_by_the_same_rules():
    assert phases(run_of(story(test_accuracy=0.1))) == Phases(400, 600, 2500, None)
    assert phases(run_of(story(train_accuracy=0.5, test_accuracy=0.1))) == Phases(None, None, None, None)


def test_what_comes_after_grokking_or_before_memorising_is_not_counted():
    assert phases(run_of(story(test_accuracy=step(2500, 0.1)))) == Phases(400, 600, None, 2500)
    assert phases(run_of(story(test_accuracy=step(600, 0.1)))) == Phases(400, None, None, 600)
    assert phases(run_of(story(train_accuracy=step(900, 0.5)))) == Phases(900, 900, 2500, 3000)


def test_without_weight_decay_there_is_no_plateau():
    for norm in (20 + EPOCHS / 1000, np.full(len(EPOCHS), 19.5) + 1e-5 * np.sin(EPOCHS)):
        assert phases(run_of(story(mlp_norm=norm))) == Phases(400, None, None, 3000)


def test_a_loss_that_only_falls_has_no_resurgence():
    assert phases(run_of(story(train_loss=4 * np.exp(-EPOCHS / 100)))) == Phases(400, 600, None, 3000)
    vanished = story(train_loss=np.where(EPOCHS < 500, 4.0, 0.0))
    assert phases(run_of(vanished)) == Phases(400, 600, None, 3000)


def test_spikes_shorter_than_half_the_window_count_for_nothing():
    columns = story(train_loss=np.where(EPOCHS < 500, 4.0, 0.1))
    columns["train_loss"][250:255] = 3.0
    assert phases(run_of(columns)).resurgence is None
    assert phases(run_of(columns), window=1).resurgence == 2500
    columns["train_loss"][250:256] = 3.0
    assert phases(run_of(columns)).resurgence is not None


@given(seed=st.integers(0, 10_000), n=st.integers(1, 40), window=st.sampled_from([1, 3, 5]))
@settings(max_examples=80, deadline=None, derandomize=True)
def test_against_a_loop_over_records(seed, n, window):
    generator = np.random.default_rng(seed)
    epochs = np.arange(n) * 7
    loss = np.exp(0.5 * generator.standard_normal(n).cumsum() - 0.3 * np.arange(n))
    norm = 30 * np.exp(0.05 * generator.standard_normal(n).cumsum() - 0.03 * np.arange(n))
    divergence = np.exp(0.3 * generator.standard_normal(n).cumsum() - 0.1 * np.arange(n))
    train = np.where(np.arange(n) >= generator.integers(0, n + 1), 1.0, 0.3)
    test = np.where(np.arange(n) >= generator.integers(0, 2 * n), 1.0, 0.2)

    def smooth(values):
        half = window // 2
        return [statistics.median(values[max(0, i - half) : i + half + 1]) for i in range(n)]

    losses, norms, d = smooth(loss), smooth(norm), smooth(divergence)
    memorised = plateau = resurgence = grokked = None
    for i in range(n):
        if grokked is None and test[i] >= 0.99:
            grokked = i
        if memorised is None and train[i] >= 0.99:
            memorised = i
        if grokked is not None or memorised is None:
            continue
        if plateau is None and losses[i] <= 0.05 * loss[0] and norms[i] <= 0.99 * max(norms[: i + 1]):
            plateau = i
        if plateau is not None and resurgence is None:
            risen = losses[i] >= 1.1 * min(losses[plateau : i + 1])
            if risen and norms[i] <= 0.8 * max(norms[: i + 1]) and d[i] <= 0.5 * d[memorised]:
                resurgence = i
    expected = [None if place is None else 7 * place for place in (memorised, plateau, resurgence, grokked)]
    columns = {
        "train_accuracy": train, "test_accuracy": test, "train_loss": loss, "mlp_norm": norm, "kl_to_oracle": divergence
    }  # fmt: skip
    assert phases(run_of(columns, epochs), window=window) == Phases(*expected)


def test_a_run_has_both_readings():
    run = run_of(story(attention_gradient=np.where(EPOCHS < 800, 1.0, 0.1)))
    assert run.phases() == run.phases("gradient") == find_phases(run.curves) == Phases(400, 800, None, 3000)
    assert run.phases(by="norm") == phases(run)
    assert run.phases("norm", curve="train_accuracy").grokked == 400


@pytest.mark.parametrize("missing", ["train_accuracy", "test_accuracy", "train_loss", "mlp_norm", "kl_to_oracle"])
def test_a_missing_curve_is_named(missing):
    columns = story()
    del columns[missing]
    with pytest.raises(bt.BayesticketError, match=f"curves: got '{missing}'"):
        phases(run_of(columns))


@pytest.mark.parametrize("options", [{"small": 0.0}, {"shrink": 1.0}, {"rise": 1.0}, {"fall": 1.0}, {"window": 2}])
def test_options_are_checked(options):
    with pytest.raises(bt.BayesticketError, match=f"^{next(iter(options))}: got"):
        phases(run_of(story()), **options)


def test_a_trained_runs_own_curves():
    run = bt.train(bt.ModularAddition(p=5), epochs=30, model=bt.Architecture(d_model=8, d_mlp=8), progress=False)
    assert run.phases(by="norm").memorised == run.memorised_epoch()
    empty = {name: [] for name in story()}
    assert phases(run_of(empty, epochs=np.arange(0))) == Phases(None, None, None, None)
