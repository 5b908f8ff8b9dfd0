"""What counts as generalising: which test examples, and how many of them; and claims judged by each such reading."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bayesticket.paper.figure import Claim, Curves, Verdict
from bayesticket.runs import first_epoch
from bayesticket.sweeps import Runs

THRESHOLD = 0.99
"""The accuracy that counts as grokking."""
OTHER_THRESHOLD = 0.95
"""Another that might: which one the paper used is lost from our copy."""
CHANCE = 0.05
"""An accuracy below this is called chance: five times what guessing one of 113 answers gives."""


@dataclass(frozen=True)
class Grokking:
    """A reading of “it has grokked”: a curve reaches a threshold.

    >>> print(UNSEEN, "·", TEST)
    99% unseen accuracy · 99% test accuracy
    """

    curve: str
    threshold: float = THRESHOLD

    def __str__(self) -> str:
        return f"{self.threshold:.0%} {self.accuracy}"

    @property
    def accuracy(self) -> str:
        """The accuracy in words."""
        return self.curve.replace("_", " ")

    def epoch(self, curves: Curves, threshold: float | None = None) -> int | None:
        """The first recorded epoch at which a run has grokked, or at which it reaches another threshold."""
        return first_epoch(curves[self.curve] >= (self.threshold if threshold is None else threshold))

    def best(self, curves: Curves) -> float:
        """The best accuracy of a run."""
        return float(curves[self.curve].max())


UNSEEN, TEST = Grokking("unseen_accuracy"), Grokking("test_accuracy")
HALF = replace(UNSEEN, threshold=0.5)
"""Half of the unseen examples are answered: a time that models have too which never reach the threshold."""
OTHERS = (replace(UNSEEN, threshold=OTHER_THRESHOLD), TEST, replace(TEST, threshold=OTHER_THRESHOLD))

BY_UNSEEN = (
    "What is said of generalising is judged by the accuracy on unseen test examples, those whose mirror image (b, a) "
    "is not in training; test accuracy stands beside it."
)
AT_BOTH = (
    f"A run groks when that accuracy reaches {THRESHOLD:.0%}. Where {OTHER_THRESHOLD:.0%} gives another verdict, the "
    "claim is undecided: the threshold that the paper used is lost from our copy."
)
"""The rules of the two functions below, in words."""

JudgeAt = Callable[[Runs, Grokking], Sequence[Claim]]
Judge = Callable[[Runs], Sequence[Claim]]


def by_accuracy(judge_at: JudgeAt) -> Judge:
    """Judges by unseen accuracy, with test accuracy beside it, at one threshold."""

    def judge(runs: Runs) -> list[Claim]:
        return [
            _merged(claim, {str(TEST.accuracy): test}, (BY_UNSEEN,))
            for claim, test in zip(judge_at(runs, UNSEEN), judge_at(runs, TEST), strict=True)
        ]

    return judge


def by_every_reading(judge_at: JudgeAt) -> Judge:
    """Judges by unseen accuracy at both thresholds, undecided where they disagree, with test accuracy beside it."""

    def judge(runs: Runs) -> list[Claim]:
        found = [
            _merged(claim, dict(zip(map(str, OTHERS), others, strict=True)), (BY_UNSEEN, AT_BOTH))
            for claim, *others in zip(*(judge_at(runs, reading) for reading in (UNSEEN, *OTHERS)), strict=True)
        ]
        lower = str(OTHERS[0])
        return [
            claim if claim.verdict == claim.readings[f"by {lower}"] else replace(claim, verdict="undecided")
            for claim in found
        ]

    return judge


def _merged(claim: Claim, others: Mapping[str, Claim], rules: tuple[str, ...]) -> Claim:
    """A claim with what other accuracies say of it; the one about all test examples in full."""
    said = {f"by {reading}": other.verdict for reading, other in others.items()}
    beside = next(other for reading, other in others.items() if reading.endswith(TEST.accuracy))
    main = f"By {UNSEEN.accuracy}: {claim.verdict}.\n{claim.measured}"
    return replace(
        claim,
        rules=(*claim.rules, *rules),
        measured=f"{main}\nBy {TEST.accuracy}: {beside.verdict}.\n{beside.measured}",
        readings={**claim.readings, **said},
    )


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """One verdict of several: undecided if one is, the same if all agree, and else partly."""
    if not verdicts or "undecided" in verdicts:
        return "undecided"
    return verdicts[0] if len(set(verdicts)) == 1 else "partly"
