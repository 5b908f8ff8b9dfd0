"""Performance: loss and accuracy, on both halves of the split."""

from jaxtyping import Float
from torch import Tensor

from bayesticket.measures.base import Measure, Observation
from bayesticket.specs import spec


@spec
class Loss(Measure):
    """Mean cross-entropy of the task, without penalties, `E[−log p_y]`: a number.

    Guessing gives log of the number of answers; a test loss above that means confident wrong answers. Costs nothing
    beyond the forward pass.
    """

    halves = ("train", "test", "unseen")

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The loss."""
        return seen.loss.detach()


@spec
class Accuracy(Measure):
    """Share of examples whose largest logit is the target's, `E[argmax logits = y]`: a number.

    1 on the training half is memorising, on the test half generalising. Costs nothing beyond the forward pass.
    """

    halves = ("train", "test", "unseen")

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The accuracy."""
        return (seen.logits.argmax(-1) == seen.batch.targets).to(seen.logits.dtype).mean()
