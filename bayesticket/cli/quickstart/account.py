"""What the three runs of the quick start show: a table, and sentences that follow from the numbers."""

import math
from collections.abc import Mapping

from bayesticket.cli.quickstart.arms import LABELS
from bayesticket.runs import Run

COLUMNS = (
    "arm",
    "memorised",
    "grokked",
    "final test accuracy",
    "of unseen pairs",
    "informative mass least / mean",
    "ended",
    "seconds",
)


def rows_of(runs: Mapping[str, Run]) -> list[list[str]]:
    """The numbers of each run, as text, in the order of `COLUMNS`."""

    def row(arm: str, run: Run) -> list[str]:
        last = run.curves.iloc[-1]
        reached = ["never" if epoch is None else f"{epoch:,}" for epoch in (run.memorised_epoch(), run.grok_epoch())]
        mass = f"{last['informative_mass_least']:.3f} / {last['informative_mass_mean']:.3f}"
        accuracies = [f"{last['test_accuracy']:.1%}", _unseen(run) or "–"]
        return [LABELS[arm], *reached, *accuracies, mass, _end(run), f"{run.seconds:.0f}"]

    return [row(arm, run) for arm, run in runs.items()]


def _end(run: Run) -> str:
    """Where a run ended, and by which part of the rule."""
    stopped = "stalled" if run.grok_epoch() is None else "after grokking"
    why = stopped if run.status == "stopped" else "last epoch"
    return f"at {run.epoch:,}, {why}"


def _unseen(run: Run) -> str:
    """The last accuracy on test pairs whose mirror image is not trained on; nothing where there are none."""
    value = float(run.curves["unseen_accuracy"].iloc[-1])
    return "" if math.isnan(value) else f"{value:.1%}"


def table_of(runs: Mapping[str, Run]) -> str:
    """The runs as a plain text table."""
    rows = [list(COLUMNS), *rows_of(runs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        " | ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join([lines[0], "-+-".join("-" * width for width in widths), *lines[1:]])


def findings(runs: Mapping[str, Run]) -> list[str]:
    """What the three runs show, in paragraphs that follow from the numbers, whatever these are."""
    seed = runs["none"].config.seed
    return [
        f"{_comparison(runs['none'], runs['kl'])} {_control(runs['kl'], runs['adversarial'])}",
        f"This is one seed (seed {seed}): an illustration, not evidence. Another seed may come out differently.",
        *(_account(arm, run) for arm, run in runs.items()),
    ]


_SUBJECTS = {
    "none": "Without a prior the model",
    "kl": "With a KL prior that draws attention to the operands (the oracle) it",
    "adversarial": "With a KL prior of the same strength that draws attention to everything but the operands it",
}


def _account(arm: str, run: Run) -> str:
    memorised, grokked, last = run.memorised_epoch(), run.grok_epoch(), run.curves.iloc[-1]
    never = f"in {run.epoch:,} epochs"
    first = f"did not memorise {never}" if memorised is None else f"memorised at epoch {memorised:,}"
    second = f"did not grok {never}" if grokked is None else f"grokked at epoch {grokked:,}"
    unseen = f" ({_unseen(run)} on unseen pairs)" if _unseen(run) else ""
    return (
        f"{_SUBJECTS[arm]} {first} and {second}; at the end its test accuracy was {last['test_accuracy']:.1%}{unseen}, "
        f"and {last['informative_mass_mean']:.1%} of its attention was on the operands."
    )


def _comparison(none: Run, kl: Run) -> str:
    without, prior = none.grok_epoch(), kl.grok_epoch()
    if without is None and prior is None:
        return "Neither the model without a prior nor the one with the prior toward the oracle grokked."
    if without is None:
        return "The model with the prior toward the oracle grokked; the one without a prior did not."
    if prior is None:
        return "The model without a prior grokked; the one with the prior toward the oracle did not."
    if without == prior:
        return f"Without a prior and with the one toward the oracle the model grokked at the same epoch, {prior:,}."
    return (
        f"With the prior toward the oracle the model grokked at epoch {prior:,}, "
        f"{abs(without - prior):,} epochs {'earlier' if prior < without else 'later'} than without a prior."
    )


def _control(kl: Run, adversarial: Run) -> str:
    oracle, distractors = kl.grok_epoch(), adversarial.grok_epoch()
    if distractors is not None:
        return f"The model with the prior toward the distractors grokked at epoch {distractors:,}."
    if oracle is None:
        return "Nor did the one with the prior toward the distractors."
    return (
        "The model with a prior of the same strength toward the distractors did not grok, "
        "so here it mattered where the prior points."
    )
