"""The four phases of Section 5.1: the plateau, the wait, and what attention does in them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from bayesticket.analysis import Phases, find_phases, find_phases_by_norm, smoothed
from bayesticket.paper.figure import SHARES, Claim, Curves, verdict_of
from bayesticket.paper.readings import UNSEEN
from bayesticket.paper.words import across, sentences, so_many, when
from bayesticket.runs import first_epoch

RISES = 1.1
"""Training loss rises slightly when it is so many times its least value since the plateau began, as phase 3 has it."""
MONOTONE = 0.9
"""Attention moves monotonically when this share of all that the divergence moves, up and down, is downward."""
HALF = 0.5
"""Attention has begun to align when the divergence is this share of what it was at memorising."""
WAITED = 0.8
"""The wait is over when the norm of the MLP is this share of its peak, as phase 3 has it."""
SMOOTHED = ("train_loss", "mlp_norm", "kl_to_oracle", "score_variance", "attention_entropy")
BY_GRADIENT = "phases by the gradient in the attention (find_phases)"
BY_RULE = "The phases are those of bayesticket.analysis.find_phases_by_norm, grokking that by unseen accuracy."


@dataclass(frozen=True)
class Story:
    """A run's phases in both readings, and its smoothed curves."""

    by_norm: Phases
    by_gradient: Phases
    curves: pd.DataFrame
    """Running medians; only those that were recorded."""

    @classmethod
    def of(cls, curves: Curves) -> "Story":
        """Reads the phases off the curves of a run."""
        frame = pd.DataFrame(curves)
        by_norm, by_gradient = (find(frame, curve=UNSEEN.curve) for find in (find_phases_by_norm, find_phases))
        return cls(by_norm, by_gradient, smoothed(frame, [name for name in SMOOTHED if name in frame]))

    @property
    def end(self) -> int:
        """The epoch of grokking, or the last one."""
        return int(self.curves.index[-1]) if self.by_norm.grokked is None else self.by_norm.grokked

    @property
    def peak(self) -> float:
        """The largest norm of the MLP until grokking."""
        return float(self.curves["mlp_norm"].loc[: self.end].max())

    def between(self, name: str, first: int, last: int | None = None) -> pd.Series:
        """A smoothed curve from one epoch to another, by default to the end."""
        return pd.Series(self.curves[name].loc[first : self.end if last is None else last].dropna())


def phase_claims(name: str, tables: Sequence[Curves]) -> list[Claim]:
    """What Section 5.1 and Conjecture E.1 say of the phases, for one arm."""
    stories = [Story.of(curves) for curves in tables]
    parts = (_plateau, _resurges, _loss_rises, _moves_monotonically, _waits_first)
    claims = [replace(part(name, stories), about="Section 5.1") for part in parts]
    return [*claims, replace(_disperses(name, stories), about="Conjecture E.1")]


def _plateau(name: str, stories: Sequence[Story]) -> Claim:
    memorised = [each for each in stories if each.by_norm.memorised is not None]
    found = [each.by_norm.plateau for each in memorised]
    return Claim(
        f"There is a plateau: training loss is near zero, and the MLP's norm contracts ({name}).",
        (f"{BY_RULE} A run has a plateau before it groks. Counted are the runs that memorise.", SHARES),
        sentences(
            f"{so_many(len(memorised), len(stories))} memorised",
            f"the plateau began {when(found, 'that memorised')}" if memorised else "",
        ),
        verdict_of([epoch is not None for epoch in found]),
        arms=(name,),
        readings={BY_GRADIENT: verdict_of([each.by_gradient.plateau is not None for each in memorised])},
    )


def _grokked(stories: Sequence[Story]) -> list[Story]:
    return [each for each in stories if each.by_norm.grokked is not None]


def _resurges(name: str, stories: Sequence[Story]) -> Claim:
    grokked = _grokked(stories)
    by_norm, by_gradient = ([getattr(each, by).resurgence for each in grokked] for by in ("by_norm", "by_gradient"))
    return Claim(
        f"Before grokking the signal returns, phase 3 ({name}).",
        (
            f"{BY_RULE} Phase 3: the norm is at most {WAITED:.0%} of its peak, training loss {RISES:g} times its least "
            "value since the plateau began, and the divergence at most half of what it was at memorising. Counted are "
            "the runs that grok.",
            SHARES,
        ),
        sentences(
            f"{so_many(len(grokked), len(stories))} grokked",
            f"phase 3 began {when(by_norm, 'that grokked')}" if grokked else "",
            f"by the gradient it began {when(by_gradient, 'that grokked')}" if grokked else "",
        ),
        verdict_of([epoch is not None for epoch in by_norm]),
        arms=(name,),
        readings={BY_GRADIENT: verdict_of([epoch is not None for epoch in by_gradient])},
    )


def loss_rise(story: Story) -> float:
    """The largest factor by which smoothed training loss exceeds its least value so far, from memorising to grokking.

    1 where it never rises, or where nothing lies in between.
    """
    if story.by_norm.memorised is None:
        return 1.0
    loss = story.between("train_loss", story.by_norm.memorised)
    loss = loss[(loss > 0) & (loss.index < story.end)]
    return float((loss / np.minimum.accumulate(loss)).max()) if len(loss) else 1.0


def last_rise(story: Story) -> float:
    """Smoothed training loss at the last record before grokking, over its least since the plateau began."""
    if story.by_norm.plateau is None:
        return 1.0
    loss = story.between("train_loss", story.by_norm.plateau)
    before = loss.to_numpy()[(loss > 0) & (loss.index < story.end)]
    return float(before[-1] / before.min()) if len(before) else 1.0


def _loss_rises(name: str, stories: Sequence[Story]) -> Claim:
    rises, last = ([rise(each) for each in _grokked(stories)] for rise in (loss_rise, last_rise))
    return Claim(
        f"Training loss rises slightly before grokking ({name}).",
        (
            f"Between memorising and grokking by unseen accuracy, smoothed training loss is at some record {RISES:g} "
            "times its least value until then. Counted are the runs that grok.",
            SHARES,
        ),
        sentences(
            f"{so_many(len(rises), len(stories))} grokked",
            f"the largest such factor was {across(rises, '.3g')}" if rises else "",
        ),
        verdict_of([rise >= RISES for rise in rises]),
        arms=(name,),
        readings={
            "by a hundredth": verdict_of([rise >= 1.01 for rise in rises]),
            "the last loss before grokking against the least since the plateau began": verdict_of(
                [rise >= RISES for rise in last]
            ),
        },
    )


def downward(moves: pd.Series) -> float:
    """How much of all that a curve moves, up and down, is downward; 0 where it does not move.

    >>> downward(pd.Series([4.0, 1.0, 2.0, 2.0]))
    0.75
    """
    steps = np.diff(moves.to_numpy())
    moved = float(np.abs(steps).sum())
    return float(-steps[steps < 0].sum()) / moved if moved else 0.0


def _moves_monotonically(name: str, stories: Sequence[Story]) -> Claim:
    def share(begins: Sequence[tuple[Story, int | None]]) -> list[float]:
        return [downward(each.between("kl_to_oracle", epoch)) for each, epoch in begins if epoch is not None]

    grokked = _grokked(stories)
    by_norm, by_gradient, plateau = (
        share([(each, epoch(each)) for each in grokked])
        for epoch in (
            lambda each: each.by_norm.resurgence,
            lambda each: each.by_gradient.resurgence,
            lambda each: each.by_norm.plateau,
        )
    )
    return Claim(
        f"In phase 3 attention moves monotonically to the oracle ({name}).",
        (
            f"{BY_RULE} From the beginning of phase 3 to grokking at least {MONOTONE:.0%} of all that the smoothed "
            "divergence moves, up and down, is downward. Counted are the runs that grok and have a phase 3.",
            SHARES,
        ),
        sentences(
            f"{so_many(len(by_norm), len(grokked), which='that grokked')} had a phase 3",
            f"of what the divergence moved then, {across(by_norm, '.0%')} was downward" if by_norm else "",
            f"from the plateau on it was {across(plateau, '.0%')}" if plateau else "",
        ),
        verdict_of([moved >= MONOTONE for moved in by_norm]),
        arms=(name,),
        readings={
            BY_GRADIENT: verdict_of([moved >= MONOTONE for moved in by_gradient]),
            "from the beginning of the plateau": verdict_of([moved >= MONOTONE for moved in plateau]),
        },
    )


def aligns(story: Story, *, since: int | None) -> int | None:
    """When the divergence is first half of what it was at an epoch."""
    if since is None:
        return None
    kl = story.between("kl_to_oracle", since)
    return first_epoch(kl <= HALF * kl.iloc[0]) if len(kl) else None


def norm_falls_to(story: Story, norm: float) -> int | None:
    """When the norm of the MLP, after its peak, is first so small; None if not until grokking."""
    norms = pd.Series(story.curves["mlp_norm"].loc[: story.end])
    return first_epoch((norms <= norm) & (norms.index >= norms.idxmax()))


def waits_first(stories: Sequence[Story], norms: Sequence[float | None], *, from_start: bool = False) -> list[bool]:
    """Of each run that aligns, whether it does so only once the norm of the MLP has fallen so far."""
    holds = []
    for each, norm in zip(stories, norms, strict=True):
        begins = aligns(each, since=int(each.curves.index[0]) if from_start else each.by_norm.memorised)
        wait = None if norm is None else norm_falls_to(each, norm)
        if begins is not None:
            holds.append(wait is not None and begins >= wait)
    return holds


def _waits_first(name: str, stories: Sequence[Story]) -> Claim:
    grokked = _grokked(stories)
    aligned = [aligns(each, since=each.by_norm.memorised) for each in grokked]
    begins = [epoch for epoch in aligned if epoch is not None]
    ends = [float(each.between("mlp_norm", each.end).iloc[0]) for each in grokked]
    largest = [max((*ends[:place], *ends[place + 1 :]), default=None) for place in range(len(ends))]
    waited: list[float | None] = [WAITED * each.peak for each in grokked]
    waits = [norm_falls_to(each, WAITED * each.peak) for each in grokked]
    return Claim(
        f"Alignment cannot begin before the wait is over ({name}).",
        (
            f"The smoothed divergence is first {HALF:.0%} of what it was at memorising not before the norm of the MLP "
            f"is {WAITED:.0%} of its peak until grokking. Counted are the runs that grok by unseen accuracy, and where "
            "the divergence falls so far before.",
            SHARES,
        ),
        sentences(
            f"{so_many(len(begins), len(stories))} grokked and aligned after memorising",
            f"alignment began {when(aligned, 'that grokked')}" if grokked else "",
            f"the wait was over {when(waits, 'that grokked')}" if grokked else "",
        ),
        verdict_of(waits_first(grokked, waited)),
        arms=(name,),
        readings={
            "half of its first value, also before memorising": verdict_of(
                waits_first(grokked, waited, from_start=True)
            ),
            "the wait ends at the largest norm at which another run groks": verdict_of(waits_first(grokked, largest)),
        },
    )


def plateau_change(story: Story, column: str) -> float | None:
    """A smoothed curve at the end of the plateau over its value at the beginning; None without a plateau."""
    if story.by_norm.plateau is None or column not in story.curves:
        return None
    last = story.by_norm.resurgence or story.end
    values = story.between(column, story.by_norm.plateau, last)
    return float(values.iloc[-1] / values.iloc[0]) if len(values) > 1 and values.iloc[0] > 0 else None


def _disperses(name: str, stories: Sequence[Story]) -> Claim:
    columns = ("score_variance", "attention_entropy", "kl_to_oracle")
    changes = [tuple(plateau_change(each, column) for column in columns) for each in stories]
    known = [(v, h, d) for v, h, d in changes if v is not None and h is not None and d is not None]
    holds = [variance <= HALF and entropy > 1 for variance, entropy, _ in known]
    variance, entropy, divergence = (across([each[place] for each in known], ".2f") for place in range(3))
    return Claim(
        f"On the plateau scores contract toward 0, and attention toward uniform (Conjecture E.1; {name}).",
        (
            f"{BY_RULE} From the beginning of the plateau to phase 3, or grokking, or the end, the smoothed variance "
            f"of the scores falls to {HALF:.0%} or less, and the smoothed entropy of attention rises. Counted are the "
            "runs with a plateau. Phase 3 says the opposite of attention: that it moves to the oracle.",
            SHARES,
        ),
        sentences(
            f"{so_many(len(known), len(stories))} had a plateau",
            f"over it the variance of the scores was multiplied by {variance}, the entropy by {entropy}, and the "
            f"divergence from the oracle by {divergence}"
            if known
            else "",
        ),
        verdict_of(holds),
        arms=(name,),
        readings={
            "the variance alone": verdict_of([change <= HALF for change, _, _ in known]),
            "the entropy alone": verdict_of([change > 1 for _, change, _ in known]),
            "the opposite: attention moves to the oracle": verdict_of([change < 1 for _, _, change in known]),
        },
    )
