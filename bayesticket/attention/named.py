"""The targets that have names: where attention is drawn to, given the informative positions of each sequence."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bayesticket.errors import refuse
from bayesticket.tasks import uniform_over


def oracle(informative: Bool[Tensor, "n T"]) -> Float[Tensor, "n T"]:
    """The oracle posterior: uniform over the informative positions."""
    return uniform_over(informative, torch.float64)


def adversarial(informative: Bool[Tensor, "n T"]) -> Float[Tensor, "n T"]:
    """Uniform over the distractors."""
    if informative.all(-1).any():
        raise refuse("target", "adversarial", "a task in which every sequence has a distractor")
    return uniform_over(~informative, torch.float64)


def uniform(informative: Bool[Tensor, "n T"]) -> Float[Tensor, "n T"]:
    """Uniform over all positions."""
    return uniform_over(torch.ones_like(informative), torch.float64)


def shifted(informative: Bool[Tensor, "n T"]) -> Float[Tensor, "n T"]:
    """The oracle moved cyclically, in each sequence by the smallest shift among those that overlap it least."""
    if informative.shape[-1] < 2:
        raise refuse("target", "shifted", "sequences of at least two positions")
    moved = torch.stack([informative.roll(shift, -1) for shift in range(1, informative.shape[-1])])
    best = (moved & informative).sum(-1).argmin(0)
    return uniform_over(moved[best, torch.arange(len(informative), device=informative.device)], torch.float64)


NAMED = {"oracle": oracle, "adversarial": adversarial, "uniform": uniform, "shifted": shifted}
"""The named targets."""
