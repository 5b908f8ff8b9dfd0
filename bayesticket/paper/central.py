"""The central claims of the paper, each judged with one seed in one setting of what was lost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bayesticket.paper.fig1 import CONDENSED, RISEN, first_condensed
from bayesticket.paper.figure import Curves
from bayesticket.paper.lost import FREE, NONE, ORACLE, STRENGTHS, TRANSFER, WEAKEST, Setting, dense, prior
from bayesticket.paper.readings import Grokking
from bayesticket.paper.times import MATCHES

MAJORITY = 0.5

Holds = bool | None
"""Whether a claim holds; None where it cannot be judged."""
Arms = Mapping[str, Curves]
"""The curves of the arms of one setting and seed, by arm."""
OfSeed = Callable[[Arms, Setting, Grokking], Holds]


def before(first: int | None, second: int | None, factor: float = 1.0) -> Holds:
    """Whether one epoch is before another, which may be larger by a factor; None where neither was reached.

    >>> before(1000, 2000), before(2000, 1000), before(1000, None), before(None, 1000), before(None, None)
    (True, False, True, False, None)
    """
    if first is None or second is None:
        return None if first is second else second is None
    return first < factor * second


def _oracle_earlier(arms: Arms, setting: Setting, reading: Grokking) -> Holds:
    return before(reading.epoch(arms[ORACLE]), reading.epoch(arms[NONE]))


def _stronger_earlier(arms: Arms, setting: Setting, reading: Grokking) -> Holds:
    return before(reading.epoch(arms[ORACLE]), reading.epoch(arms[WEAKEST]))


def _both_needed(arms: Arms, setting: Setting, reading: Grokking) -> Holds:
    both, norm_alone, oracle_alone = (reading.epoch(arms[name]) is not None for name in (ORACLE, NONE, FREE))
    return (both and not norm_alone and not oracle_alone) if both or norm_alone or oracle_alone else None


def _condenses_first(arms: Arms, setting: Setting, reading: Grokking) -> Holds:
    rises = reading.epoch(arms[NONE], RISEN)
    return None if rises is None else before(first_condensed(arms[NONE]), rises)


def _matches_ticket(arms: Arms, setting: Setting, reading: Grokking) -> Holds:
    if reading.epoch(arms[dense(setting)]) is None:
        return None
    return before(reading.epoch(arms[ORACLE]), reading.epoch(arms[TRANSFER]), MATCHES)


@dataclass(frozen=True)
class Central:
    """A central claim, how it is judged with each seed, and the arms that it is about."""

    said: str
    short: str
    rule: str
    of_seed: OfSeed | None
    """None for the law of the strength, which is fitted to all seeds of a setting."""
    arms: Sequence[str]


CENTRAL = (
    Central(
        "The oracle makes runs grok earlier.",
        "oracle earlier",
        "With the oracle of strength 1 the seed groks earlier than without a prior. It cannot be judged where neither "
        "groks.",
        _oracle_earlier,
        (NONE, ORACLE),
    ),
    Central(
        "A stronger prior groks earlier.",
        "earlier with strength",
        f"With strength 1 the seed groks earlier than with {STRENGTHS[0]:g}. It cannot be judged where neither groks.",
        _stronger_earlier,
        (WEAKEST, ORACLE),
    ),
    Central(
        "The grokking time is linear in 1/strength, down to a floor.",
        "linear in 1/strength",
        "The law of added rates, with a floor, is fitted to all seeds at strength 0 and three others.",
        None,
        (NONE, *map(prior, STRENGTHS)),
    ),
    Central(
        "Generalisation is perfect only with both, weight decay and the oracle.",
        "both needed",
        "The seed groks with weight decay and the oracle, and with one of them alone it does not. It cannot be judged "
        "where none of these groks.",
        _both_needed,
        (ORACLE, NONE, FREE),
    ),
    Central(
        "Attention condenses before accuracy rises.",
        "condenses first",
        f"Without a prior the divergence first falls to {CONDENSED:.0%} of its first value before accuracy reaches "
        f"{RISEN:.0%}. It cannot be judged where accuracy does not reach that.",
        _condenses_first,
        (NONE,),
    ),
    Central(
        "The Bayesian ticket matches or outperforms the winning ticket on fresh weights.",
        "Bayesian ticket",
        f"With the oracle of strength 1 the seed groks before {MATCHES:g} times the epoch at which the winning ticket "
        "on fresh weights does. It cannot be judged where neither groks, nor where the run in which the ticket is "
        "found does not.",
        _matches_ticket,
        (ORACLE, TRANSFER),
    ),
)


@dataclass(frozen=True)
class Found:
    """In how many of the seeds that can be judged a claim holds in one setting."""

    n: int
    of: int

    @property
    def holds(self) -> Holds:
        """Whether it holds in most of them."""
        return self.n > MAJORITY * self.of if self.of else None
