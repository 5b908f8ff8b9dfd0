"""How the cost of a training step grows with the number of examples, positions and heads."""

from dataclasses import replace
from typing import Literal

from bayesticket.cli.bench.table import Measurement, against, at_most
from bayesticket.cli.bench.timing import Effort, compare_steps
from bayesticket.model import Architecture
from bayesticket.runs import Training
from bayesticket.tasks import ModularAddition


def growth_in_examples(effort: Effort, p: int) -> Measurement:
    """A step at another p, with 0.3 p² examples."""
    base, varied = Training(effort.bare), Training(replace(effort.bare, task=ModularAddition(p=p)))
    before, after = compare_steps(base, varied, effort)
    n = len(varied.train.batch)
    per_example = after / before * len(base.train.batch) / n
    return Measurement(
        f"p = {p}, {n:,} examples",
        f"{against(before, after)}; {per_example:.2f} × per example",
        after / before,
        "close to 1 × per example",
    )


def growth_in_positions(effort: Effort, n_positions: int, distractors: Literal["random", "constant"]) -> Measurement:
    """A step on longer sequences."""
    task = ModularAddition(p=effort.p, distractors=distractors, n_distractors=n_positions - 4)
    before, after = compare_steps(Training(effort.bare), Training(replace(effort.bare, task=task)), effort)
    name, value, ratio = f"T = {n_positions}, {distractors} distractors", against(before, after), after / before
    if distractors == "constant" and n_positions == 65:
        return at_most(name, value, ratio, 1.5)
    return Measurement(name, value, ratio)


def growth_in_heads(effort: Effort, n_heads: int) -> Measurement:
    """A step with the same width divided into more heads."""
    varied = Training(replace(effort.bare, model=Architecture(n_heads=n_heads, residual=True)))
    before, after = compare_steps(Training(effort.bare), varied, effort)
    return Measurement(f"{n_heads} head{'s' if n_heads > 1 else ''}", against(before, after), after / before)
