"""What a run starts from: targets of edits that have to serve both halves, and a rehearsal that leaves no trace."""

import pytest
import torch
from helpers import refused
from jobs import SMALL, TASK

import bayesticket as bt
from bayesticket.runs import Training, configure
from bayesticket.runs.config import TrainConfig
from bayesticket.runs.prepare import require_target_of_both_halves

N_TRAIN, N_TEST = 3, 5


def weights(*axes):
    return torch.full((*axes, 4), 0.25)


@pytest.mark.parametrize("wrap", [lambda target: target, bt.Permuted, lambda target: bt.Permuted(bt.Permuted(target))])
def test_a_target_of_an_edit_has_one_row_or_one_for_each_example_of_both_halves(wrap):
    for fitting in (weights(), weights(1), weights(N_TRAIN + N_TEST), weights(N_TRAIN + N_TEST, 2), weights(1, 2)):
        require_target_of_both_halves(bt.FrozenAttention(wrap(fitting)), N_TRAIN, N_TEST)
    for other in (weights(2), weights(N_TRAIN), weights(N_TEST), weights(N_TRAIN, 2)):
        message = rf"^FrozenAttention\.target: got a tensor with {len(other)} rows; accepted: 8 rows, one for each"
        with pytest.raises(bt.BayesticketError, match=message):
            require_target_of_both_halves(bt.FrozenAttention(wrap(other)), N_TRAIN, N_TEST)


@bt.spec
class QuietPrior(bt.Intervention):
    """A penalty of the user's own, for which a step is rehearsed."""

    def penalty(self, context, activations):
        return 0.0 * context.parameters["embed.W_E"].sum()


@pytest.mark.parametrize("batch_size", [3, 10_000])
def test_after_a_rehearsal_all_examples_are_selected(batch_size):
    training = Training(configure(task=TASK, intervention=QuietPrior(), model=SMALL, batch_size=batch_size))
    assert training.train.live.context.n_examples == len(training.train.batch)
    training.take_epoch()
    assert training.epoch == 1


@bt.spec
class TextPrior(bt.Intervention):
    def penalty(self, context, activations):
        return "much"


@bt.spec
class UnknownGradient(bt.Intervention):
    def gradients(self, context, gradients):
        return {"nothing": torch.zeros(1)}


@pytest.mark.parametrize("intervention", [TextPrior(), UnknownGradient()])
def test_mistakes_in_ones_own_intervention_are_found_before_training(intervention):
    refused(lambda: Training(configure(task=TASK, intervention=intervention, model=SMALL)), type(intervention).__name__)


def test_no_step_is_rehearsed_for_what_the_library_has(monkeypatch):
    monkeypatch.setattr("bayesticket.runs.rehearse.run_forward", lambda *given: pytest.fail("a step was rehearsed"))
    Training(configure(task=TASK, intervention=bt.KLPrior(), model=SMALL))


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, float("nan")])
def test_the_share_that_is_trained_on_is_none_of_the_ends(share):
    refused(lambda: TrainConfig(train_fraction=share), "train_fraction: got ")
