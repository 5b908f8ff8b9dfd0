"""Priors at several strengths, each judged at the strength at which it makes runs grok first."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from bayesticket.analysis import Times
from bayesticket.paper.comparing import Arms, arm_of
from bayesticket.paper.figure import Claim, Verdict
from bayesticket.paper.times import EARLIER, SIGNIFICANT

MUCH = 0.5
AT_BEST = (
    "Each prior is judged at the strength at which its runs grok first: where the mean epoch is least, a run that does "
    "not grok counted at its last epoch. Since no prior has one arm, and a prior has one for each strength, a "
    "comparison with no prior asks for a p that is smaller by the number of strengths."
)
"""The rule of `best_arms`, in words."""
TRANSFERS = (
    f"If it makes runs grok earlier than no prior, and saves at least {MUCH:.0%} of the epochs that the other saves "
    "(differences of means, a run that does not grok counted at its last epoch), the claim is reproduced; if it saves "
    "less, partly. Undecided too where the other is not surely earlier than no prior."
)
"""The rule of `transfers`, in words."""


def with_strength(prior: str, strength: float) -> str:
    """The name of a prior at a strength."""
    return f"{prior}, strength {strength:g}"


def best_of(times: Mapping[str, Times], part: str, prior: str, strengths: Sequence[float]) -> str:
    """The arm of a prior at its best strength; see `AT_BEST`."""
    names = (arm_of(part, with_strength(prior, strength)) for strength in strengths)
    return min(names, key=lambda name: times[name].epochs.mean())


def best_arms(
    times: Mapping[str, Times], part: str, none: str, priors: Iterable[str], strengths: Sequence[float]
) -> Arms:
    """No prior, and each prior at its best strength; see `AT_BEST`."""
    named = {none: arm_of(part, none), **{prior: best_of(times, part, prior, strengths) for prior in priors}}
    levels = {none: SIGNIFICANT / len(strengths)}
    return Arms(part, {short: times[name] for short, name in named.items()}, named.__getitem__, levels)


def transfers(arms: Arms, said: str, prior: str, other: str, none: str, readings: Iterable[str], by: str) -> Claim:
    """The claim that a prior does much of what another does; see `TRANSFERS`."""
    others: dict[str, Verdict] = {each: _transferred(arms, each, other, none) for each in readings}
    claim = arms.claim(
        said, (TRANSFERS, EARLIER), (none, prior, other), [(prior, none), (other, none), (prior, other)],
        _transferred(arms, prior, other, none), others, by,
    )  # fmt: skip
    share = saved(arms, prior, other, none)
    said = "" if share is None else f"\nIt saves {share:.0%} of the epochs that the other saves."
    return replace(claim, measured=claim.measured + said)


def saved(arms: Arms, prior: str, other: str, none: str) -> float | None:
    """The share of the epochs saved by one prior that another saves too; None where the other saves none."""
    without, first, second = (float(arms.times[name].epochs.mean()) for name in (none, prior, other))
    return (without - first) / (without - second) if second < without else None


def _transferred(arms: Arms, prior: str, other: str, none: str) -> Verdict:
    if arms.earlier(other, none) != "reproduced":
        return "undecided"
    verdict = arms.earlier(prior, none)
    share = saved(arms, prior, other, none)
    return "partly" if verdict == "reproduced" and (share is None or share < MUCH) else verdict
