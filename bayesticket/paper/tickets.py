"""The claims about tickets, and what the arms of Figure 4 are called."""

from collections.abc import Mapping
from dataclasses import replace

from bayesticket.analysis import Times
from bayesticket.paper.arms import PLAIN
from bayesticket.paper.comparing import EACH_COMPARISON, Arms, arms_of
from bayesticket.paper.figure import Claim, Verdict
from bayesticket.paper.readings import together
from bayesticket.paper.times import EARLIER

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


def lottery(sparsity: float) -> str:
    """The name of the winning ticket of a sparsity."""
    return f"winning ticket, {sparsity:.0%} removed"


WINNING = lottery(SPARSITY)


def ticket_claims(times: Mapping[str, Times], layout: str) -> list[Claim]:
    """What is claimed of tickets in one layout; controls where they were run."""
    arms = replace(arms_of(times, layout), equal_refutes=False)  # the rule of Figure 4 is older than `BEATS`
    by = "the paper" if layout == PLAIN else "a control"  # its dense runs had the oracle, which tickets inherit
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
        _dominates(arms, by),
        arms.beats_all(
            "Both tickets together beat the winning ticket", BOTH, (WINNING, TRANSFER),
            {"on its own weights alone": (BOTH, WINNING), "on fresh weights alone": (BOTH, TRANSFER)}, by,
        ),
    ]  # fmt: skip
    if layout == PLAIN:
        claims += _of_grokking_layout(arms)
    else:
        claims.append(arms.beats("The Bayesian ticket groks earlier than the winning ticket", BAYES, WINNING))
    return claims


def _of_grokking_layout(arms: Arms) -> list[Claim]:
    """The claims whose arms were run only where runs grok without help."""
    other = [name for name in arms.times if name.startswith("winning ticket, ") and name not in (WINNING, TRANSFER)]
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


def _dominates(arms: Arms, by: str) -> Claim:
    """The claim that what matters of a ticket is its routing half."""
    main = [(FROZEN, REPRESENTATION), (QK, REPRESENTATION)]
    readings: dict[str, Verdict] = {
        "the attention of the dense run, frozen": arms.earlier(*main[0]),
        "W_Q and W_K transferred, at the start alone, as the MLP is": arms.earlier(*main[1]),
        "the attention of the dense run as a teacher": arms.earlier(TAUGHT, REPRESENTATION),
    }
    if ROUTING_MASK in arms.times:
        readings["both halves as masks"] = arms.earlier(ROUTING_MASK, REPRESENTATION_PRUNED)
    rule = (
        "Fresh weights with the dense run's routing grok earlier than fresh weights with its MLP, in two ways: the "
        "dense run's attention, frozen, and its W_Q and W_K as first weights."
    )
    return arms.claim(
        "The ticket is dominated by its routing half", (rule, EARLIER, EACH_COMPARISON),
        (FROZEN, TAUGHT, QK, REPRESENTATION, WINNING), [*main, (TAUGHT, REPRESENTATION), (FROZEN, WINNING)],
        together([arms.earlier(*pair) for pair in main]), readings, by,
    )  # fmt: skip
