"""The claims about tickets, and what the arms of Figure 4 are called."""

from collections.abc import Mapping, Sequence

from bayesticket.analysis import Times, ratio_of_medians
from bayesticket.paper.figure import FEWEST, Claim, Verdict
from bayesticket.paper.readings import together
from bayesticket.paper.times import EARLIER, MATCHES, SIGNIFICANT, compared, earlier, matches, shares

SPARSITY = 0.6
"""The fraction of weights that is removed where a claim is not about it."""
DENSE = "dense"
TRANSFER = "winning ticket, fresh weights"
ROUTING_MASK, REPRESENTATION_PRUNED = "mask of W_Q and W_K alone", "mask of the MLP alone"
FROZEN, TAUGHT = "routing ticket, frozen", "routing ticket as a teacher"
QK, REPRESENTATION = "W_Q and W_K transferred", "representation ticket, MLP transferred"
BOTH = "both tickets"
BAYES, BAYES_PRUNED = "Bayesian ticket", "Bayesian ticket, pruned"
RANDOM, NORM = "random mask", "dense, of the ticket's norm"


def name_of(layout: str, arm: str) -> str:
    """The name of an arm."""
    return f"{arm} ({layout})"


def lottery(sparsity: float) -> str:
    """The name of the winning ticket of a sparsity."""
    return f"winning ticket, {sparsity:.0%} removed"


WINNING = lottery(SPARSITY)


def ticket_claims(times: Mapping[str, Times], layout: str) -> list[Claim]:
    """What is claimed of tickets in one layout; controls where they were run."""
    arms = Arms(times, layout)
    by = "the paper" if layout == "constant" else "a control"  # its dense runs had the oracle, which tickets inherit
    claims = [
        arms.matches(
            "The Bayesian ticket matches or outperforms the winning ticket on fresh weights", BAYES, TRANSFER,
            {"with a teacher's attention in the oracle's place": (TAUGHT, TRANSFER),
             "against the winning ticket on its own weights": (BAYES, WINNING)}, by,
        ),
        arms.matches(
            "So it does with a teacher's attention in place of the oracle's, which a ticket has too", TAUGHT, TRANSFER,
            {"against the winning ticket on its own weights": (TAUGHT, WINNING)}, "a control",
        ),
        arms.dominates(by),
        arms.beats_all(
            "Both tickets together beat the winning ticket", BOTH, (WINNING, TRANSFER),
            {"on its own weights alone": (BOTH, WINNING), "on fresh weights alone": (BOTH, TRANSFER)}, by,
        ),
    ]  # fmt: skip
    if layout == "constant":
        claims += _of_grokking_layout(arms)
    else:
        claims.append(arms.beats("The Bayesian ticket groks earlier than the winning ticket", BAYES, WINNING))
    return claims


def _of_grokking_layout(arms: "Arms") -> list[Claim]:
    """The claims whose arms were run only where runs grok without help."""
    other = [name for name in arms.names if name.startswith("winning ticket, ") and name not in (WINNING, TRANSFER)]
    return [
        arms.matches(
            "The prior makes pruning unnecessary: dense, it matches or outperforms the pruned Bayesian ticket",
            BAYES, BAYES_PRUNED, {"against the winning ticket": (BAYES, WINNING)}, "the paper",
        ),
        arms.beats(
            "A winning ticket groks earlier than the dense model", WINNING, DENSE,
            {**{f"{name}": (name, DENSE) for name in other}, "on fresh weights": (TRANSFER, DENSE)},
            by="Frankle and Carbin, and Minegishi et al., after the paper",
        ),
        arms.beats("The winning ticket is more than sparsity: it groks earlier than a random mask", WINNING, RANDOM,
                   {"on fresh weights": (TRANSFER, RANDOM)}),
        arms.beats("The winning ticket is more than a smaller norm: it groks earlier than dense weights of its norm",
                   WINNING, NORM, {"on fresh weights": (TRANSFER, NORM)}),
        arms.beats("The Bayesian ticket groks earlier than the dense model", BAYES, DENSE,
                   {"with a teacher's attention": (TAUGHT, DENSE)}),
    ]  # fmt: skip


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


class Arms:
    """The arms of one layout, and comparisons of their grokking times."""

    def __init__(self, times: Mapping[str, Times], layout: str):
        suffix = name_of(layout, "")
        self.layout = layout
        self.times = {name.removesuffix(suffix): each for name, each in times.items() if name.endswith(suffix)}
        self.names = list(self.times)

    def _claim(
        self, said: str, rules: Sequence[str], arms: Sequence[str], pairs: Sequence[tuple[str, str]],
        verdict: Verdict, readings: Mapping[str, Verdict], by: str,
    ) -> Claim:  # fmt: skip
        measured = "\n".join([shares(self.times, arms), *(compared(self.times, *pair) for pair in pairs)])
        names = tuple(name_of(self.layout, name) for name in arms)
        where = f" ({self.layout} distractors)."
        return Claim(said + where, tuple(rules), measured, verdict, by, arms=names, readings=readings)

    def earlier(self, first: str, second: str) -> Verdict:
        """Whether one arm groks earlier than another."""
        return earlier(self.times[first], self.times[second])

    def match(self, first: str, second: str) -> Verdict:
        """Whether one arm matches or outperforms another; see `MATCHING`."""
        by_rank = self.earlier(first, second)
        if not matches(self.times[first], self.times[second]):
            return by_rank
        return "partly" if by_rank == "not reproduced" else "reproduced"

    def matches(self, said: str, first: str, second: str, others: Pairs, by: str) -> Claim:
        """The claim that one arm matches or outperforms another."""
        readings: dict[str, Verdict] = {reading: self.match(*pair) for reading, pair in others.items()}
        claim = self._claim(
            said, (MATCHING,), (first, second), [(first, second)], self.match(first, second), readings, by
        )
        ratio = ratio_of_medians(self.times[first], self.times[second])
        return Claim(
            claim.said, claim.rules, f"{claim.measured}\nThe ratio of medians is {ratio}.", claim.verdict, by,
            claim.arms, claim.readings,
        )  # fmt: skip

    def beats(self, said: str, first: str, second: str, others: Pairs | None = None, by: str = "a control") -> Claim:
        """The claim that one arm groks earlier than another."""
        others = others or {}
        readings: dict[str, Verdict] = {reading: self.earlier(*pair) for reading, pair in others.items()}
        pair = (first, second)
        return self._claim(said, (EARLIER,), pair, [pair], self.earlier(*pair), readings, by)

    def beats_all(self, said: str, first: str, others: Sequence[str], readings: Pairs, by: str) -> Claim:
        """The claim that one arm groks earlier than each of others."""
        pairs = [(first, other) for other in others]
        return self._claim(
            said, (EARLIER, EACH_COMPARISON), (first, *others), pairs,
            together([self.earlier(*pair) for pair in pairs]),
            {reading: self.earlier(*pair) for reading, pair in readings.items()}, by,
        )  # fmt: skip

    def dominates(self, by: str) -> Claim:
        """The claim that what matters of a ticket is its routing half."""
        main = [(FROZEN, REPRESENTATION), (QK, REPRESENTATION)]
        readings: dict[str, Verdict] = {
            "the attention of the dense run, frozen": self.earlier(*main[0]),
            "W_Q and W_K transferred, at the start alone, as the MLP is": self.earlier(*main[1]),
            "the attention of the dense run as a teacher": self.earlier(TAUGHT, REPRESENTATION),
        }
        if ROUTING_MASK in self.names:
            readings["both halves as masks"] = self.earlier(ROUTING_MASK, REPRESENTATION_PRUNED)
        rule = (
            "Fresh weights with the dense run's routing grok earlier than fresh weights with its MLP, in two ways: the "
            "dense run's attention, frozen, and its W_Q and W_K as first weights."
        )
        return self._claim(
            "The ticket is dominated by its routing half", (rule, EARLIER, EACH_COMPARISON),
            (FROZEN, TAUGHT, QK, REPRESENTATION, WINNING), [*main, (TAUGHT, REPRESENTATION), (FROZEN, WINNING)],
            together([self.earlier(*pair) for pair in main]), readings, by,
        )  # fmt: skip
