"""Priors at several strengths, each judged at the strength at which it makes runs grok first."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from bayesticket.analysis import Estimate, Times
from bayesticket.paper.comparing import Arms, arm_of
from bayesticket.paper.figure import Claim, Verdict
from bayesticket.paper.times import EARLIER, SIGNIFICANT
from bayesticket.paper.words import sentences, so_many

MUCH = 0.5
AT_BEST = (
    "Each prior is judged at the strength at which its runs grok first: where the mean epoch is least, a run that does "
    "not grok counted at its last epoch. Since no prior has one arm, and a prior has one for each strength, a "
    "comparison with no prior asks for a p that is smaller by the largest number of strengths."
)
"""The rule of `best_arms`, in words."""
TRANSFERS = (
    "Of the epochs that the other saves, the prior saves a share: of differences of means within training, where a run "
    "that does not grok is counted at its last epoch, with a 95% interval by bootstrap over seeds. If the prior makes "
    "runs grok earlier than no prior by a log-rank test, the claim is reproduced where that interval begins at "
    f"{MUCH:.0%} or above, and partly where it ends below. If it is later by that test, or not surely earlier and the "
    f"interval ends below {MUCH:.0%}, the claim is not reproduced. All else is undecided, and so is all where the "
    "other is not surely earlier than no prior."
)
"""The rule of `transfers`, in words."""
TAUGHT = "Undecided too where a teacher had not grokked: its student could not learn from it what the claim is about."
"""The rule of `of_teachers`, in words."""


def with_strength(prior: str, strength: float) -> str:
    """The name of a prior at a strength."""
    return f"{_beginning(prior)}{strength:g}"


def _beginning(prior: str) -> str:
    return f"{prior}, strength "


def arms_of_prior(times: Mapping[str, Times], part: str, prior: str) -> list[str]:
    """The arms of a prior, one for each strength."""
    return [name for name in times if name.startswith(_beginning(prior)) and name.endswith(arm_of(part, ""))]


def best_of(times: Mapping[str, Times], part: str, prior: str) -> str:
    """The arm of a prior at its best strength; see `AT_BEST`."""
    return min(arms_of_prior(times, part, prior), key=lambda name: times[name].epochs.mean())


def best_arms(times: Mapping[str, Times], part: str, none: str, priors: Iterable[str]) -> Arms:
    """No prior, and each prior at its best strength; see `AT_BEST`."""
    best = {prior: best_of(times, part, prior) for prior in priors}
    named = {none: arm_of(part, none), **best}
    levels = {none: SIGNIFICANT / max(len(arms_of_prior(times, part, prior)) for prior in best)}
    return Arms(part, {short: times[name] for short, name in named.items()}, named.__getitem__, levels)


def of_teachers(claim: Claim, teachers: Times) -> Claim:
    """A claim about students, which says nothing where a teacher had not learned; see `TAUGHT`."""
    counted = so_many(int(teachers.reached.sum()), len(teachers), "teacher")
    return replace(
        claim, rules=(*claim.rules, TAUGHT), measured=f"{claim.measured}\n{sentences(f'{counted} had grokked')}",
        verdict=claim.verdict if teachers.reached.all() else "undecided",
    )  # fmt: skip


def transfers(arms: Arms, said: str, prior: str, other: str, none: str, readings: Iterable[str], by: str) -> Claim:
    """The claim that a prior does much of what another does; see `TRANSFERS`."""
    others: dict[str, Verdict] = {each: _transferred(arms, each, other, none) for each in readings}
    claim = arms.claim(
        said, (TRANSFERS, EARLIER), (none, prior, other), [(prior, none), (other, none), (prior, other)],
        _transferred(arms, prior, other, none), others, by,
    )  # fmt: skip
    share = saved(arms, prior, other, none)
    ends = "" if share.low is None or share.high is None else f" (from {share.low:.0%} to {share.high:.0%})"
    said = "" if share.value is None else f"\nIt saves {share.value:.0%}{ends} of the epochs that the other saves."
    return replace(claim, measured=claim.measured + said)


RESAMPLES = 2000


def saved(arms: Arms, prior: str, other: str, none: str) -> Estimate:
    """The share of the epochs saved by one prior that another saves too, with its interval; see `TRANSFERS`.

    An end is open where the other saves nothing in some of the resamples.
    """
    epochs = np.stack([arms.times[name].epochs for name in (none, prior, other)])
    drawn = np.random.default_rng(0).integers(epochs.shape[1], size=(RESAMPLES, epochs.shape[1]))
    without, first, second = np.column_stack([epochs.mean(1), epochs[:, drawn].mean(2)])
    saves = without > second
    shares = (without - first) / np.where(saves, without - second, 1)
    outside = int(RESAMPLES * 0.025)
    low = np.sort(np.where(saves, shares, -np.inf)[1:])[outside]
    high = np.sort(np.where(saves, shares, np.inf)[1:])[RESAMPLES - 1 - outside]
    return Estimate(
        *(float(each) if np.isfinite(each) else None for each in (shares[0] if saves[0] else np.inf, low, high))
    )


def _transferred(arms: Arms, prior: str, other: str, none: str) -> Verdict:
    if arms.earlier(other, none) != "reproduced":
        return "undecided"
    by_rank, share = arms.earlier(prior, none), saved(arms, prior, other, none)
    is_little = share.high is not None and share.high < MUCH
    if by_rank == "reproduced":
        is_much = share.low is not None and share.low >= MUCH
        return "reproduced" if is_much else "partly" if is_little else "undecided"
    return "not reproduced" if is_little else by_rank
