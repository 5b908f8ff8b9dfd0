"""By how much the right answer leads."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bayesticket.errors import require_choice
from bayesticket.measures.base import AnswerMeasure, Observation
from bayesticket.specs import spec


def class_margins(logits: Float[Tensor, "n outputs"], targets: Int[Tensor, "n"]) -> Float[Tensor, "n"]:
    """How far every target's logit is above the largest other one: `logit_y − max_{c≠y} logit_c`.

    >>> class_margins(torch.tensor([[1.0, 5.0, 2.0], [1.0, 5.0, 2.0]]), torch.tensor([1, 2]))
    tensor([ 3., -3.])
    """
    target = targets[:, None]
    others = logits.scatter(1, target, -torch.inf)
    return logits.gather(1, target)[:, 0] - others.amax(1)


@spec
class ClassMargin(AnswerMeasure):
    """How far the target's logit is above all others, `γ(x) = logit_y − max_{c≠y} logit_c`: a number.

    `of="least"` is the least over the examples, from which Cor. 4.5 has its γ (`theory.output_separation`); it is
    positive when every example is answered rightly. `of="median"` is the median, which single examples hardly move; it
    is positive when more than half are. Of a task that asks at several positions it is over all examples and all
    queries whose answers can be known. Costs a few passes over the logits, under half a millisecond at p = 113 on 3,830
    examples.
    """

    of: Literal["least", "median"] = "least"

    def __post_init__(self):
        super().__post_init__()
        require_choice("of", self.of, ("least", "median"))

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The least or the median margin."""
        margins = class_margins(*seen.batch.answered(seen.logits))
        return margins.min() if self.of == "least" else margins.quantile(0.5)
