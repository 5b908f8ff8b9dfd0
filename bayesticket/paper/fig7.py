"""Figure 7: a prior that acts for a part of training: annealed, early and short, or late."""

from collections.abc import Mapping

import plotly.graph_objects as go

from bayesticket.analysis import Times
from bayesticket.interventions import KLPrior
from bayesticket.paper.arms import LAYOUTS, STRENGTH, arm, baseline, with_prior
from bayesticket.paper.comparing import BEATS, EACH_COMPARISON, Arms, arm_of, arms_of
from bayesticket.paper.figure import (
    SHARES,
    Claim,
    Curves,
    PaperFigure,
    Scale,
    Verdict,
    arm_names,
    curves_of,
    verdict_of,
)
from bayesticket.paper.readings import UNSEEN, Grokking, by_every_reading, together
from bayesticket.paper.times import DOTS, arm_times, plot_accuracy, plot_times, times_of
from bayesticket.paper.words import across, sentences, so_many
from bayesticket.runs import MEMORISED, TrainConfig
from bayesticket.schedules import Anneal, Schedule, Window
from bayesticket.sweeps import Runs

NONE, CONSTANT = "no prior", "throughout"
WINDOWS = {f"the first {n:,} epochs": n for n in (50, 200, 1000)}
ANNEALS = {f"annealed over {n:,} epochs": n for n in (200, 1000, 5000)}
STARTS = {f"from epoch {n:,} on": n for n in (500, 1000, 2000)}
SCHEDULES: Mapping[str, Schedule] = {
    **{name: Window(STRENGTH, stop=n) for name, n in WINDOWS.items()},
    **{name: Anneal(STRENGTH, 0.0, last=n) for name, n in ANNEALS.items()},
    **{name: Window(STRENGTH, start=n) for name, n in STARTS.items()},
}
"""When the prior acts."""
SHORT = list(WINDOWS)[1]
"""The window that the claim about an early, short prior is judged by; the others are readings."""
MEMORISING = Grokking("train_accuracy", MEMORISED)
KEPT = 0.9
"""Attention stays where the prior put it while it keeps this share of its mass on the operands."""


def arms(scale: Scale) -> Mapping[str, TrainConfig]:
    """Every schedule in both layouts, no prior, and a prior throughout."""
    found: dict[str, TrainConfig] = {}
    for layout, distractors in LAYOUTS.items():
        found[arm_of(layout, NONE)] = baseline(scale, distractors)
        found[arm_of(layout, CONSTANT)] = with_prior(scale, distractors)
        for name, schedule in SCHEDULES.items():
            found[arm_of(layout, name)] = arm(scale, KLPrior(strength=schedule), distractors=distractors)
    return found


def draw(runs: Runs) -> Mapping[str, go.Figure]:
    """Grokking times by arm, and accuracy through training by kind of schedule."""
    pictures = {DOTS: plot_times(times_of(runs))}
    known = arm_names(runs)
    for layout in LAYOUTS:
        for title, kind in (("early and short", WINDOWS), ("annealed", ANNEALS), ("late", STARTS)):
            names = [name for each in (NONE, CONSTANT, *kind) if (name := arm_of(layout, each)) in known]
            caption = f"Unseen accuracy, {layout}, a prior {title}; median and quartiles over seeds."
            pictures[caption] = plot_accuracy(runs, names)
    return pictures


def judge_at(runs: Runs, reading: Grokking) -> list[Claim]:
    """What is claimed of an early prior, and of a late one, in each layout."""
    times = times_of(runs, reading)
    memorised = {layout: arm_times(runs, arm_of(layout, NONE), MEMORISING) for layout in LAYOUTS}
    return [claim for layout in LAYOUTS for claim in _in_layout(arms_of(times, layout), memorised[layout])]


def _in_layout(arms: Arms, memorised: Times) -> list[Claim]:
    late = list(STARTS)
    return [
        arms.matches(
            "An early, short prior matches or outperforms one that acts throughout", SHORT, CONSTANT,
            {name: (name, CONSTANT) for name in (*WINDOWS, *ANNEALS) if name != SHORT}, "the paper", NONE,
        ),
        arms.beats(
            "A prior that acts early and briefly makes runs grok earlier than none", SHORT, NONE,
            {name: (name, NONE) for name in (*WINDOWS, *ANNEALS) if name != SHORT}, "the paper",
        ),
        _ends_the_plateau(arms, memorised),
        arms.beats("To start late costs time: a prior that acts throughout makes runs grok earlier", CONSTANT, late[-1],
                   {name: (CONSTANT, name) for name in late[:-1]}),
    ]  # fmt: skip


IN_TIME = (
    "A start is late if most runs without a prior have memorised by then, and in time if most have not grokked; the "
    "claim is judged by those starts, and undecided if there are none."
)
"""The rule of `in_time`, in words."""


def in_time(memorised: Times, grokked: Times) -> list[str]:
    """The late starts that lie on the plateau of most runs without a prior; see `IN_TIME`."""

    def most(times: Times, start: int) -> bool:
        return bool((times.reached & (times.epochs <= start)).mean() > 0.5)

    return [name for name, start in STARTS.items() if most(memorised, start) and not most(grokked, start)]


def _ends_the_plateau(arms: Arms, memorised: Times) -> Claim:
    verdicts: dict[str, Verdict] = {name: arms.beat(name, NONE) for name in STARTS}
    counted = in_time(memorised, arms.times[NONE])
    return arms.claim(
        "A prior that starts late still ends the plateau: it makes runs grok earlier than none",
        (IN_TIME, BEATS, EACH_COMPARISON), (NONE, *STARTS), [(name, NONE) for name in STARTS],
        together([verdicts[name] for name in counted]), verdicts, "the paper",
    )  # fmt: skip


def stays(curves: Curves, since: int, until: int | None) -> float | None:
    """The least share of its mass on the operands that attention keeps from the end of a window to grokking or the end.

    None where a short prior had not put it there, or where the run has grokked by then.
    """
    masses = curves["informative_mass_mean"].loc[since:until].dropna()
    return float(masses.min() / masses.iloc[0]) if len(masses) > 1 and masses.iloc[0] >= KEPT else None


def _kept(runs: Runs, layout: str) -> Claim:
    """Whether attention stays where a short prior put it."""

    def least(stop: int, name: str) -> list[float]:
        found = [stays(curves, stop, UNSEEN.epoch(curves)) for curves in curves_of(runs, arm_of(layout, name)).values()]
        return [share for share in found if share is not None]

    stop = WINDOWS[SHORT]
    shares = least(stop, SHORT)
    others = {name: (end, name) for name, end in WINDOWS.items() if name != SHORT}
    return Claim(
        f"Once a short prior has ended, attention stays where it put it ({layout}).",
        (
            "From the end of the window to grokking, or to the end of training where a run does not grok, the mean "
            f"mass on the operands is at least {KEPT:.0%} of what it was at first, in every record. Counted are the "
            f"runs that have not grokked by then, and in which it was at least {KEPT:.0%}.",
            SHARES,
        ),
        sentences(
            f"after {SHORT} {so_many(len(shares), len(runs.seeds))} had so much mass there and had not grokked",
            f"this holds in {so_many(sum(share >= KEPT for share in shares), len(shares))}" if shares else "",
            f"the least share of it is {across(shares, '.0%')}" if shares else "",
        ),
        verdict_of([share >= KEPT for share in shares]),
        "a control",
        arms=(arm_of(layout, SHORT), arm_of(layout, NONE)),
        readings={
            reading: verdict_of([share >= KEPT for share in least(*given)])
            for reading, given in {**others, "without a prior, from the same epoch on": (stop, NONE)}.items()
        },
    )


def judge(runs: Runs) -> list[Claim]:
    """What is claimed of grokking times, and of attention after the prior has ended."""
    return [*by_every_reading(judge_at)(runs), *(_kept(runs, layout) for layout in LAYOUTS)]


FIGURE = PaperFigure(
    "fig7",
    "Figure 7: when the prior acts",
    f"A KL prior of strength {STRENGTH:g} toward the oracle that acts in the first 50, 200 or 1,000 epochs only, that "
    "falls to zero over 200, 1,000 or 5,000 epochs, or that starts at epoch 500, 1,000 or 2,000; beside it no prior, "
    "and one that acts throughout. Both layouts.",
    arms,
    draw,
    judge,
)
