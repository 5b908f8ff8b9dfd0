"""Arms compared by their grokking times: which groks earlier, and which match."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bayesticket.analysis import Times, ratio_of_medians
from bayesticket.paper.figure import FEWEST, Claim, Verdict
from bayesticket.paper.readings import together
from bayesticket.paper.times import EARLIER, MATCHES, SIGNIFICANT, compared, earlier, matches, shares

MATCHING = (
    f"Two arms match if the 95% interval of the ratio of their median grokking times ends below {MATCHES:g}, with "
    f"{FEWEST} seeds or more. If they match, or the first is earlier by a log-rank test with p < {SIGNIFICANT:g}, the "
    "claim is reproduced. If it is later by that test, the claim is partly reproduced where they match, and else not "
    "reproduced. All else is undecided."
)
"""The rule of `matches`, in words."""
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

    def match(self, first: str, second: str) -> Verdict:
        """Whether one arm matches or outperforms another; see `MATCHING`."""
        by_rank = self.earlier(first, second)
        if not matches(self.times[first], self.times[second]):
            return by_rank
        return "partly" if by_rank == "not reproduced" else "reproduced"

    def matches(self, said: str, first: str, second: str, others: Pairs, by: str) -> Claim:
        """The claim that one arm matches or outperforms another."""
        readings: dict[str, Verdict] = {reading: self.match(*pair) for reading, pair in others.items()}
        pair, ratio = (first, second), ratio_of_medians(self.times[first], self.times[second])
        claim = self.claim(said, (MATCHING,), pair, [pair], self.match(*pair), readings, by)
        return replace(claim, measured=f"{claim.measured}\nThe ratio of medians is {ratio}.")

    def beats(self, said: str, first: str, second: str, others: Pairs | None = None, by: str = "a control") -> Claim:
        """The claim that one arm groks earlier than another."""
        others = others or {}
        readings: dict[str, Verdict] = {reading: self.earlier(*pair) for reading, pair in others.items()}
        pair = (first, second)
        return self.claim(said, (EARLIER,), pair, [pair], self.earlier(*pair), readings, by)

    def beats_all(self, said: str, first: str, others: Sequence[str], readings: Pairs, by: str) -> Claim:
        """The claim that one arm groks earlier than each of others."""
        pairs = [(first, other) for other in others]
        return self.claim(
            said, (EARLIER, EACH_COMPARISON), (first, *others), pairs,
            together([self.earlier(*pair) for pair in pairs]),
            {reading: self.earlier(*pair) for reading, pair in readings.items()}, by,
        )  # fmt: skip


def arm_of(part: str, arm: str) -> str:
    """The name of an arm of a figure that has it in several parts, such as layouts."""
    return f"{arm} ({part})"


def arms_of(times: Mapping[str, Times], part: str) -> Arms:
    """The arms of one part of a figure."""
    suffix = arm_of(part, "")
    of_part = {name.removesuffix(suffix): each for name, each in times.items() if name.endswith(suffix)}
    return Arms(part, of_part, lambda name: arm_of(part, name))
