"""Performance: loss and accuracy, on both halves of the split."""

from jaxtyping import Float
from torch import Tensor

from bayesticket.measures.base import AnswerMeasure, Observation
from bayesticket.specs import spec


@spec
class Loss(AnswerMeasure):
    """Mean cross-entropy of the task, without penalties, `E[−log p_y]`: a number.

    Guessing gives log of the number of answers; a test loss above that means confident wrong answers. Of a task that
    asks at several positions it is over all of them, also those whose answers cannot be known: it is what is trained.
    Costs nothing beyond the forward pass.
    """

    halves = ("train", "test", "unseen")

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The loss."""
        return seen.loss.detach()


@spec
class Accuracy(AnswerMeasure):
    """Share of examples whose largest logit is the target's, `E[argmax logits = y]`: a number.

    1 on the training half is memorising, on the test half generalising. Of a task that asks at several positions it is
    over the queries whose answers can be known. Costs nothing beyond the forward pass.
    """

    halves = ("train", "test", "unseen")

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The accuracy."""
        logits, targets = seen.batch.answered(seen.logits)
        return (logits.argmax(-1) == targets).to(logits.dtype).mean()
