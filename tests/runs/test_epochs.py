"""The first epoch at which a condition holds, and the one from which it always does, against plain loops."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayesticket.errors import BayesticketError
from bayesticket.runs import Run, first_epoch, settled_epoch

values = st.lists(st.one_of(st.floats(0, 1), st.just(math.nan), st.just(0.5)), max_size=12)


def curve_of(recorded, spacing=10, start=0):
    epochs = start + spacing * np.arange(len(recorded))
    return pd.Series(recorded, index=pd.Index(epochs, name="epoch"), dtype="float64")


@given(values, st.integers(1, 50), st.integers(0, 100))
def test_both_epochs_against_a_loop_over_records(recorded, spacing, start):
    curve = curve_of(recorded, spacing, start)
    reached = [not math.isnan(value) and value >= 0.5 for value in recorded]
    first = settled = None
    for place, holds in enumerate(reached):
        if holds and first is None:
            first = start + spacing * place
        if settled is None and all(reached[place:]):
            settled = start + spacing * place
    assert first_epoch(curve >= 0.5) == first
    assert settled_epoch(curve >= 0.5) == settled
    assert isinstance(first_epoch(curve >= 0.5), int | None)


@given(values)
def test_a_condition_settles_no_earlier_than_it_first_holds_and_only_if_it_holds_at_the_end(recorded):
    holds = curve_of(recorded) >= 0.5
    first, settled = first_epoch(holds), settled_epoch(holds)
    if settled is not None:
        assert first is not None
        assert first <= settled
        assert holds.loc[settled:].all()
        assert not holds.loc[: settled - 1].any() or first < settled
    assert (settled is not None) == (len(recorded) > 0 and bool(holds.iloc[-1]))


def test_nan_counts_as_not_reached():
    accuracy = curve_of([math.nan, 1.0, math.nan, 1.0])
    assert first_epoch(accuracy >= 0.99) == 10
    assert settled_epoch(accuracy >= 0.99) == 30
    assert settled_epoch(curve_of([1.0, math.nan]) >= 0.99) is None
    nullable = pd.Series([None, True, None, True], index=[0, 10, 20, 30], dtype="boolean")
    assert (first_epoch(nullable), settled_epoch(nullable)) == (10, 30)


@pytest.mark.parametrize("find", [first_epoch, settled_epoch])
def test_a_curve_without_a_condition_is_refused(find):
    with pytest.raises(BayesticketError, match=r"^holds: got a series of float64; accepted: a pandas Series of bool"):
        find(curve_of([0.0, 1.0]))


def run_of(**curves):
    table = pd.DataFrame(curves, index=pd.Index([0, 10, 20, 30], name="epoch"), dtype="float64")
    return Run(description={}, tensors={}, weights={}, curves=table, epoch=30)


def test_a_run_groks_by_test_accuracy_unless_another_curve_is_named():
    run = run_of(test_accuracy=[0.5, 1.0, 0.5, 1.0], unseen_accuracy=[0.1, 0.5, 0.99, 1.0])
    assert (run.grok_epoch(), run.stable_after()) == (10, 30)
    assert (run.grok_epoch(curve="unseen_accuracy"), run.stable_after(curve="unseen_accuracy")) == (20, 20)
    assert (run.grok_epoch(0.5, curve="unseen_accuracy"), run.stable_after(0.5)) == (10, 0)


@pytest.mark.parametrize("find", [Run.grok_epoch, Run.stable_after])
def test_a_curve_without_values_is_an_error_and_not_never(find):
    run = run_of(test_accuracy=[0, 0, 0, 1], unseen_accuracy=[math.nan] * 4)
    assert find(run) == 30
    said = r"^curve: got 'unseen_accuracy', which is NaN throughout in this run; accepted: a curve with values$"
    with pytest.raises(BayesticketError, match=said):
        find(run, curve="unseen_accuracy")
    with pytest.raises(BayesticketError, match=r"^curve: got 'unseen_loss'; accepted: 'test_accuracy', "):
        find(run, curve="unseen_loss")
    assert find(run_of(unseen_accuracy=[math.nan, 0, 0, 1]), curve="unseen_accuracy") == 30
