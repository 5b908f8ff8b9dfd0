"""Arms compared by their grokking times: which groks earlier, and which match."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bayesticket.analysis import Times
from bayesticket.paper.figure import FEWEST, Claim, Verdict
from bayesticket.paper.readings import together
from bayesticket.paper.times import EARLIER, MATCHES, SIGNIFICANT, compared, earlier, matches, ratio_of, shares

BEATS = (
    f"A log-rank test decides: earlier with p < {SIGNIFICANT:g} is reproduced, later is not. An arm that does no "
    "better refutes the claim too: where the test does not decide, and the 95% interval of the ratio of medians, the "
    f"second arm over the first, begins at 1 or below and ends below {MATCHES:g}, the claim is not reproduced. All "
    f"else is undecided, as are fewer than {FEWEST} seeds."
)
"""The rule of `Arms.beat`, in words."""
MATCHING = (
    f"Two arms match if the 95% interval of the ratio of their median grokking times ends below {MATCHES:g}, with "
    f"{FEWEST} seeds or more. If they match, or the first is earlier by a log-rank test with p < {SIGNIFICANT:g}, the "
    "claim is reproduced. If it is later by that test, the claim is partly reproduced where they match, and else not "
    "reproduced. All else is undecided."
)
"""The rule of `matches`, in words."""
ANY_EFFECT = (
    "Two arms may match by doing nothing: where neither is earlier than no prior by that test, the claim is not "
    "reproduced or undecided."
)
"""The rule of `matches` where arms are given a prior that has to do something, in words."""
EACH_COMPARISON = (
    "Each comparison is judged by itself. Where they differ, the claim is partly reproduced, and where one is "
    "undecided, it is undecided."
)
"""The rule of `together`, in words."""
Pairs = Mapping[str, tuple[str, str]]
"""Other readings of a comparison, and the arms that each compares."""


@dataclass(frozen=True)
class Arms:
    """The arms of one part of a figure, such as a layout, and comparisons of their grokking times."""

    where: str
    """What the part is called where a claim is about it."""
    times: Mapping[str, Times]
    """Grokking times, by what the arm is called among those of its part."""
    full_name: Callable[[str], str]
    """The name that an arm has in the figure, given that."""
    levels: Mapping[str, float] = field(default_factory=dict)
    """The p below which a comparison with an arm decides, where it is not the usual one."""
    equal_refutes: bool = True
    """Whether an arm that matches another refutes that the other is earlier; see `BEATS`, and without it `EARLIER`."""

    def claim(
        self, said: str, rules: Sequence[str], arms: Sequence[str], pairs: Sequence[tuple[str, str]],
        verdict: Verdict, readings: Mapping[str, Verdict], by: str,
    ) -> Claim:  # fmt: skip
        """A claim about grokking times, which says of each arm when it groks, and of each pair which is earlier."""
        measured = "\n".join([shares(self.times, arms), *(compared(self.times, *pair) for pair in pairs)])
        names = tuple(self.full_name(name) for name in arms)
        return Claim(f"{said} ({self.where}).", tuple(rules), measured, verdict, by, arms=names, readings=readings)

    def earlier(self, first: str, second: str) -> Verdict:
        """Whether one arm groks earlier than another."""
        level = min(self.levels.get(name, SIGNIFICANT) for name in (first, second))
        return earlier(self.times[first], self.times[second], level)

    def beat(self, first: str, second: str) -> Verdict:
        """Whether one arm groks earlier than another, which refutes it where it matches; see `BEATS`."""
        verdict = self.earlier(first, second)
        if not self.equal_refutes:
            return verdict
        ratio = ratio_of(self.times[second], self.times[first])
        is_no_later = ratio is not None and ratio.low is not None and ratio.low <= 1
        matched = is_no_later and matches(self.times[second], self.times[first])
        return "not reproduced" if verdict == "undecided" and matched else verdict

    @property
    def _rule(self) -> str:
        return BEATS if self.equal_refutes else EARLIER

    def match(self, first: str, second: str) -> Verdict:
        """Whether one arm matches or outperforms another; see `MATCHING`."""
        by_rank = self.earlier(first, second)
        if not matches(self.times[first], self.times[second]):
            return by_rank
        return "partly" if by_rank == "not reproduced" else "reproduced"

    def matches(
        self, said: str, first: str, second: str, others: Pairs, by: str, none: str | None = None
    ) -> Claim:  # fmt: skip
        """The claim that one arm matches or outperforms another.

        Given an arm without a prior, two that match are evidence only where one of them does something; see
        `ANY_EFFECT`.
        """

        def judged(pair: tuple[str, str]) -> Verdict:
            verdict = self.match(*pair)
            is_idle = none is not None and all(self.earlier(each, none) != "reproduced" for each in pair)
            return "undecided" if is_idle and verdict != "not reproduced" else verdict

        pair, ratio = (first, second), ratio_of(self.times[first], self.times[second])
        readings: dict[str, Verdict] = {reading: judged(each) for reading, each in others.items()}
        idle = () if none is None else (none,)
        rules, pairs = (MATCHING, *(ANY_EFFECT for _ in idle)), [pair, *((each, n) for n in idle for each in pair)]
        claim = self.claim(said, rules, (*idle, *pair), pairs, judged(pair), readings, by)
        shown = "not defined, as a run grokked at epoch 0" if ratio is None else ratio
        return replace(claim, measured=f"{claim.measured}\nThe ratio of medians is {shown}.")

    def beats(self, said: str, first: str, second: str, others: Pairs | None = None, by: str = "a control") -> Claim:
        """The claim that one arm groks earlier than another."""
        others = others or {}
        readings: dict[str, Verdict] = {reading: self.beat(*pair) for reading, pair in others.items()}
        pair = (first, second)
        return self.claim(said, (self._rule,), pair, [pair], self.beat(*pair), readings, by)

    def beats_all(self, said: str, first: str, others: Sequence[str], readings: Pairs, by: str) -> Claim:
        """The claim that one arm groks earlier than each of others."""
        pairs = [(first, other) for other in others]
        return self.claim(
            said, (self._rule, EACH_COMPARISON), (first, *others), pairs,
            together([self.beat(*pair) for pair in pairs]),
            {reading: self.beat(*pair) for reading, pair in readings.items()}, by,
        )  # fmt: skip


def arm_of(part: str, arm: str) -> str:
    """The name of an arm of a figure that has it in several parts, such as layouts."""
    return f"{arm} ({part})"


def arms_of(times: Mapping[str, Times], part: str) -> Arms:
    """The arms of one part of a figure."""
    suffix = arm_of(part, "")
    of_part = {name.removesuffix(suffix): each for name, each in times.items() if name.endswith(suffix)}
    return Arms(part, of_part, lambda name: arm_of(part, name))
