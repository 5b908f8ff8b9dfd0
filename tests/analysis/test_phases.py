"""The phases' borders on curves made to each rule, and against a plain loop over records."""

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from phase_curves import EPOCHS, run_of, step

import bayesticket as bt
from bayesticket.analysis import Phases, find_phases


def phases(run, **options):
    return find_phases(run.curves, **options)


def story(**changed):
    """Memorises at 400; the gradient peaks at 200, has fallen at 500, rises twofold at 2,000; groks at 3,000."""
    gradient = np.select([EPOCHS < 200, EPOCHS < 500, EPOCHS < 2000], [0.1, 1.0, 0.2], 0.4)
    columns = {
        "train_accuracy": step(400, 0.5),
        "test_accuracy": step(3000, 0.1),
        "attention_gradient": gradient,
        "kl_to_oracle": step(1500, 1.0, 0.3),
    }
    return columns | changed


def test_each_border_where_its_rule_says():
    assert phases(run_of(story())) == Phases(memorised=400, plateau=500, resurgence=2000, grokked=3000)
    # each border moves with its own parameter, and with no other
    assert phases(run_of(story()), collapse=0.1) == Phases(400, None, None, 3000)
    assert phases(run_of(story()), rise=2.1) == Phases(400, 500, None, 3000)
    assert phases(run_of(story()), fall=0.2) == Phases(400, 500, None, 3000)
    assert phases(run_of(story()), memorising=0.4).memorised == 0
    later = story(kl_to_oracle=step(2200, 1.0, 0.3))  # both conditions are needed at once
    assert phases(run_of(later)) == Phases(400, 500, 2200, 3000)


def test_borders_are_reached_with_equality():
    accuracies = {"train_accuracy": step(400, 0.5, 0.99), "test_accuracy": step(3000, 0.1, 0.99)}
    columns = story(**accuracies, kl_to_oracle=step(1500, 1.0, 0.5))
    columns["attention_gradient"] = np.select([EPOCHS < 500, EPOCHS < 2000], [1.0, 0.5], 1.0)
    assert phases(run_of(columns)) == Phases(400, 500, 2000, 3000)


def test_accuracies_agree_with_the_runs_own():
    run = run_of(story())
    assert phases(run).memorised == run.memorised_epoch()
    assert phases(run).grokked == run.grok_epoch()
    assert phases(run, grokking=0.05).grokked == run.grok_epoch(0.05)


def test_generalising_to_unseen_examples_may_be_the_last_phase():
    columns = story(unseen_accuracy=step(3500))
    assert phases(run_of(columns), curve="unseen_accuracy") == Phases(400, 500, 2000, 3500)
    assert run_of(columns).phases(curve="unseen_accuracy").grokked == 3500
    with pytest.raises(bt.BayesticketError, match=r"^curve: got 'unseen_accuracy', which is NaN throughout"):
        phases(run_of(story(unseen_accuracy=math.nan)), curve="unseen_accuracy")


def test_a_gradient_that_only_falls_has_no_resurgence():
    falling = np.exp(-EPOCHS / 500)
    found = phases(run_of(story(attention_gradient=falling, kl_to_oracle=falling)))
    assert found.plateau == pytest.approx(500 * math.log(2), abs=60)
    assert (found.memorised, found.resurgence, found.grokked) == (400, None, 3000)


def test_a_gradient_that_only_rises_has_no_plateau():
    rising = np.exp(EPOCHS / 500)
    assert phases(run_of(story(attention_gradient=rising))) == Phases(400, None, None, 3000)


def test_a_run_that_never_groks():
    never = story(test_accuracy=step(9999))
    assert phases(run_of(never)) == Phases(400, 500, 2000, None)
    flat = np.full(len(EPOCHS), 0.1)
    assert phases(run_of(dict.fromkeys(never, flat))) == Phases(None, None, None, None)


def test_a_run_that_groks_before_it_memorises():
    early = story(test_accuracy=step(300, 0.1))
    assert phases(run_of(early)) == Phases(memorised=400, plateau=None, resurgence=None, grokked=300)
    at_once = story(test_accuracy=step(400, 0.1))
    assert phases(run_of(at_once)) == Phases(400, None, None, 400)


def test_what_comes_after_grokking_is_not_counted():
    early = story(test_accuracy=step(1800, 0.1))
    assert phases(run_of(early)) == Phases(400, 500, None, 1800)
    assert phases(run_of(story(test_accuracy=step(2000, 0.1)))) == Phases(400, 500, None, 2000)


def test_a_run_that_only_groks():
    assert phases(run_of(story(train_accuracy=step(9999, 0.5)))) == Phases(None, None, None, 3000)


def test_noise_moves_no_border_far_and_makes_none():
    generator = np.random.default_rng(0)
    for _ in range(20):
        noise = np.exp(0.2 * generator.standard_normal(len(EPOCHS)))
        columns = story()
        columns["attention_gradient"] = (
            np.select([EPOCHS < 200, EPOCHS < 500, EPOCHS < 2000], [0.1, 1.0, 0.15], 0.6) * noise
        )
        found = phases(run_of(columns))
        assert (found.memorised, found.grokked) == (400, 3000)
        assert found.plateau == pytest.approx(500, abs=20)
        assert found.resurgence == pytest.approx(2000, abs=20)
        columns["attention_gradient"] = np.where(EPOCHS < 500, 1.0, 0.2) * noise
        assert phases(run_of(columns)).resurgence is None


def test_spikes_shorter_than_half_the_window_count_for_nothing():
    columns = story()
    columns["attention_gradient"] = np.where(EPOCHS < 500, 1.0, 0.2)
    for place in (80, 200, 250):  # five records each, against a window of eleven
        columns["attention_gradient"][place : place + 5] = 50.0
    assert phases(run_of(columns)).resurgence is None
    assert phases(run_of(columns), window=1).resurgence == 2000
    columns["attention_gradient"][200:206] = 50.0  # six do
    assert phases(run_of(columns)).resurgence is not None


def test_gaps_in_a_curve_are_passed_over():
    columns = story()
    columns["attention_gradient"] = np.where(np.arange(len(EPOCHS)) % 3 == 1, np.nan, columns["attention_gradient"])
    columns["kl_to_oracle"] = np.where(np.arange(len(EPOCHS)) % 4 == 1, np.nan, columns["kl_to_oracle"])
    found = phases(run_of(columns))
    assert (found.memorised, found.grokked) == (400, 3000)
    assert found.plateau == pytest.approx(500, abs=20)
    assert found.resurgence == pytest.approx(2000, abs=20)


def test_gaps_longer_than_the_window_are_passed_over():
    columns = story()
    for name in ("attention_gradient", "kl_to_oracle"):
        columns[name] = np.where((EPOCHS >= 230) & (EPOCHS < 350), np.nan, columns[name])
    assert phases(run_of(columns)) == Phases(400, 500, 2000, 3000)


def test_a_gradient_that_falls_to_zero_does_not_rise_again():
    vanished = story(attention_gradient=np.where(EPOCHS < 500, 1.0, 0.0))
    assert phases(run_of(vanished)) == Phases(400, 500, None, 3000)


def test_frozen_attention_has_neither_plateau_nor_resurgence():
    nothing = np.zeros(len(EPOCHS))
    assert phases(run_of(story(attention_gradient=nothing, kl_to_oracle=nothing))) == Phases(400, None, None, 3000)
    assert phases(run_of(story(kl_to_oracle=nothing))).resurgence is None


@given(seed=st.integers(0, 10_000), n=st.integers(1, 40), window=st.sampled_from([1, 3, 5]))
@settings(max_examples=80, deadline=None)
def test_against_a_loop_over_records(seed, n, window):
    generator = np.random.default_rng(seed)
    epochs = np.arange(n) * 7
    walk = np.exp(0.5 * generator.standard_normal(n).cumsum())
    divergence = np.exp(0.3 * generator.standard_normal(n).cumsum())
    train = np.where(np.arange(n) >= generator.integers(0, n + 1), 1.0, 0.3)
    test = np.where(np.arange(n) >= generator.integers(0, 2 * n), 1.0, 0.2)
    columns = {"train_accuracy": train, "test_accuracy": test, "attention_gradient": walk, "kl_to_oracle": divergence}

    half = window // 2
    g = [statistics.median(walk[max(0, i - half) : i + half + 1]) for i in range(n)]
    d = [statistics.median(divergence[max(0, i - half) : i + half + 1]) for i in range(n)]
    memorised = plateau = resurgence = grokked = None
    for i in range(n):
        if grokked is None and test[i] >= 0.99:
            grokked = i
        if memorised is None and train[i] >= 0.99:
            memorised = i
        if grokked is not None or memorised is None:
            continue
        if plateau is None and g[i] <= 0.5 * max(g[: i + 1]):
            plateau = i
        if plateau is not None and resurgence is None:
            risen = g[i] >= 2.0 * min(g[plateau : i + 1])
            if risen and d[i] <= 0.5 * d[memorised]:
                resurgence = i
    expected = [None if place is None else 7 * place for place in (memorised, plateau, resurgence, grokked)]
    assert phases(run_of(columns, epochs), window=window) == Phases(*expected)


@given(
    borders=st.lists(st.integers(0, 500), min_size=3, max_size=3).map(sorted),
    reached=st.lists(st.booleans(), min_size=3, max_size=3),
)
def test_spans_tile_the_run(borders, reached):
    plateau, resurgence, grokked = (border if there else None for border, there in zip(borders, reached, strict=True))
    spans = Phases(0, plateau, resurgence, grokked).spans(0, 500)
    ends = list(spans.values())
    assert ends[0][0] == 0
    assert ends[-1][1] == 500
    assert all(one[1] == other[0] for one, other in itertools.pairwise(ends))
    assert ("grokking" in spans) == (grokked is not None)


def test_it_reads_well():
    shown = str(Phases(memorised=720, plateau=1800, resurgence=None, grokked=12345))
    assert shown == "memorised at 720, plateau from 1,800, resurgence not reached, grokked at 12,345"
    assert str(Phases(None, None, None, None)).count("not reached") == 4


@pytest.mark.parametrize("missing", ["train_accuracy", "test_accuracy", "attention_gradient", "kl_to_oracle"])
def test_a_missing_curve_is_named(missing):
    columns = story()
    del columns[missing]
    with pytest.raises(bt.BayesticketError, match=f"curves: got '{missing}'"):
        phases(run_of(columns))


def test_other_columns_can_be_named():
    columns = story()
    columns["attention_gradient[layer=1]"] = columns.pop("attention_gradient")
    columns["kl_to_oracle[layer=1]"] = columns.pop("kl_to_oracle")
    with pytest.raises(bt.BayesticketError, match=r"Closest: 'attention_gradient\[layer=1\]'"):
        phases(run_of(columns))
    found = phases(run_of(columns), gradient="attention_gradient[layer=1]", divergence="kl_to_oracle[layer=1]")
    assert found == Phases(400, 500, 2000, 3000)


@pytest.mark.parametrize(
    "options",
    [
        {"window": 4},
        {"window": 0},
        {"rise": 1.0},
        {"fall": 1.0},
        {"collapse": 0.0},
        {"memorising": 0.0},
        {"grokking": 0.0},
    ],
)
def test_options_are_checked(options):
    with pytest.raises(bt.BayesticketError, match=next(iter(options))):
        phases(run_of(story()), **options)


def test_a_trained_runs_own_curves():
    run = bt.train(bt.ModularAddition(p=5), epochs=30, model=bt.Architecture(d_model=8, d_mlp=8))
    found = phases(run)
    assert found.memorised == run.memorised_epoch()
    assert found.grokked == run.grok_epoch()
    assert phases(run_of({name: [] for name in story()}, epochs=np.arange(0))) == Phases(None, None, None, None)
