"""What a run starts from: targets of edits that have to serve both halves, and a rehearsal that leaves no trace."""

import pytest
import torch
from jobs import SMALL, TASK

import bayesticket as bt
from bayesticket.runs import Training, configure
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
