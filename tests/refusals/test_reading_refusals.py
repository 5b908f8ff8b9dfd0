"""What finished runs are asked for, where they cannot tell it."""

import pandas as pd
import pytest

import bayesticket as bt
from bayesticket.runs import Header
from bayesticket.sweeps import RunSummary, assemble

CURVES = pd.DataFrame(
    {"test_accuracy": [0.1, 1.0], "train_accuracy": [0.5, 1.0]}, index=pd.Index([0, 10], name="epoch")
)
RUN = bt.Run(description={}, tensors={}, weights={}, curves=CURVES, epoch=10)


@pytest.mark.parametrize("curve", [None, 3, ["test_accuracy"], "accuracy"])
def test_a_curve_that_is_none(curve):
    runs = assemble({("none", 0): RunSummary(Header({"type": "TrainConfig"}, "finished", 10, 1.0, {}), CURVES)})
    asked = [
        lambda: RUN.grok_epoch(curve=curve),
        lambda: RUN.stable_after(curve=curve),
        lambda: runs.grok_epochs(curve=curve),
        lambda: runs.times("none", curve=curve),
        lambda: runs.compare("none", "none", curve=curve),
    ]
    for ask in asked:
        with pytest.raises(bt.BayesticketError, match=r"^curve: got .*; accepted: 'test_accuracy', |^curve: got .*, …"):
            ask()


@pytest.mark.parametrize("by", ["loss", None, 3, ["norm"]])
def test_a_reading_of_the_phases_that_there_is_not(by):
    with pytest.raises(bt.BayesticketError, match=r"^by: got .*; accepted: 'gradient', 'norm'"):
        RUN.phases(by=by)
