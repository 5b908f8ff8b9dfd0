"""Figure 9: the width of the model, and several heads."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import plotly.graph_objects as go

from bayesticket.analysis import Times, log_rank_trend
from bayesticket.figures import ACCURACY, KL, Panel, add_band, finish_arms, shades, stacked
from bayesticket.interventions import Intervention, KLPrior
from bayesticket.measures import DistributedMass, InformativeMass, SubspaceOverlap
from bayesticket.model import Architecture
from bayesticket.paper.arms import LAYOUTS, PLAIN, STRENGTH, arm, baseline, with_prior
from bayesticket.paper.comparing import arm_of
from bayesticket.paper.fig1 import CONDENSED, first_condensed
from bayesticket.paper.figure import FEWEST, SHARES, Claim, Curves, PaperFigure, Scale, Verdict, curves_of, verdict_of
from bayesticket.paper.readings import UNSEEN, Grokking, by_every_reading
from bayesticket.paper.times import DOTS, SIGNIFICANT, plot_times, times_of
from bayesticket.paper.words import across, sentences, so_many, when
from bayesticket.runs import TrainConfig
from bayesticket.sweeps import Runs
from bayesticket.tasks import ModularAddition

NONE, ORACLE = "no prior", "oracle"
PRIORS: Mapping[str, Intervention | None] = {NONE: None, ORACLE: KLPrior(strength=STRENGTH)}
WIDTHS = (16, 32, 64, 128, 256)
ANYWHERE = "operands anywhere"
"""The layout in which distractors have tokens of their own, so that their values can have a subspace of their own."""
SWEPT = {PLAIN: (NONE, ORACLE), ANYWHERE: (ORACLE,)}
"""Where widths are swept, and with which priors."""
HEADS = 4
OVERLAP, HEAD_LEAST = "subspace_overlap", "informative_mass_least[head=each][{}]"
POOLED = "distributed_mass[2]"
"""The least pooled mass: the entry of the measure that follows those of both operands."""
UNIFORM = HEADS / ModularAddition().n_positions
"""The pooled mass of heads that attend to all positions alike."""


def with_width(prior: str, width: int) -> str:
    """The name of an arm by its width."""
    return f"{prior}, d_model {width}"


def with_heads(prior: str) -> str:
    """The name of an arm of several heads."""
    return f"{prior}, {HEADS} heads"


def arms(scale: Scale) -> Mapping[str, TrainConfig]:
    """Every width with and without the oracle, and four heads in both layouts."""
    found: dict[str, TrainConfig] = {}
    for part, priors in SWEPT.items():
        for width in WIDTHS:
            for prior in priors:
                found[arm_of(part, with_width(prior, width))] = _of_this_width(scale, part, prior, width)
    for layout, distractors in LAYOUTS.items():
        for prior, config in ((NONE, baseline), (ORACLE, with_prior)):
            found[arm_of(layout, f"{prior}, 1 head")] = config(scale, distractors)
            found[arm_of(layout, with_heads(prior))] = arm(
                scale, PRIORS[prior], distractors=distractors, model=Architecture(n_heads=HEADS),
                measures=(DistributedMass(), InformativeMass("least", head="each")),
            )  # fmt: skip
    return found


def _of_this_width(scale: Scale, part: str, prior: str, width: int) -> TrainConfig:
    made, model = PRIORS[prior], Architecture(d_model=width)
    if part == ANYWHERE:
        task = ModularAddition(p=scale.p, positions="random")
        return arm(scale, made, task=task, model=model, measures=(SubspaceOverlap(),))
    if model == Architecture():
        return {NONE: baseline, ORACLE: with_prior}[prior](scale, "constant")
    return arm(scale, made, distractors="constant", model=model, patience=1000)


def draw(runs: Runs) -> Mapping[str, go.Figure]:
    """Accuracy and divergence by width, the overlap of subspaces, the mass of heads, and grokking times."""
    pictures = {DOTS: plot_times(times_of(runs))}
    for part, priors in SWEPT.items():
        for prior in priors:
            names = {f"d_model {width}": arm_of(part, with_width(prior, width)) for width in WIDTHS}
            shown = {UNSEEN.curve: ACCURACY, "kl_to_oracle": KL}
            if part == ANYWHERE:
                shown[OVERLAP] = Panel("overlap of the values' subspaces")
            pictures[f"Widths, {prior}, {part}; median and quartiles over seeds."] = _bands(runs, names, shown)
    for layout in LAYOUTS:
        shown = {POOLED: Panel("least mass of all heads together")}
        shown |= {HEAD_LEAST.format(f"H{head}"): Panel(f"least mass of head {head}") for head in range(HEADS)}
        named = {prior: arm_of(layout, with_heads(prior)) for prior in PRIORS}
        pictures[f"Four heads, {layout}; median and quartiles over seeds."] = _bands(runs, named, shown)
    return pictures


def _bands(runs: Runs, names: Mapping[str, str], shown: Mapping[str, Panel]) -> go.Figure:
    panels = list(shown.values())
    figure = stacked(panels, panel_height=160)
    for colour, (label, name) in zip(shades(len(names)), names.items(), strict=True):
        for panel, column in enumerate(shown, 1):
            add_band(figure, runs, name, column, panel=panel, colour=colour, name=label)
    finish_arms(figure, panels, int(runs.curves["trained"].max()))
    return figure


FALLS = (
    f"A log-rank test for a trend over the widths, with p < {SIGNIFICANT:g}: less with the width is reproduced, more "
    "is not reproduced, all else is undecided, as are fewer than "
    f"{FEWEST} seeds. A run that ends before it happens is censored there."
)
"""The rule of `falls`, in words."""


def falls(values: Mapping[int, Times]) -> Verdict:
    """Whether epochs, or other numbers, fall with the width; see `FALLS`."""
    arms = list(values.values())
    excess, p = log_rank_trend(arms)
    if min(map(len, arms)) < FEWEST or p >= SIGNIFICANT:
        return "undecided"
    return "reproduced" if excess > 0 else "not reproduced"


OfRun = Callable[[Curves], float | None]


def _by_width(runs: Runs, part: str, prior: str, of_run: OfRun) -> dict[int, Times]:
    """A number of each run by width, or, where a run has none, its last epoch."""

    def numbers(width: int) -> Times:
        tables = list(curves_of(runs, arm_of(part, with_width(prior, width))).values())
        found = [of_run(each) for each in tables]
        ends = [float(each[UNSEEN.curve].index[-1]) for each in tables]
        return Times(
            np.array(
                [end if value is None else max(float(value), 0.0) for value, end in zip(found, ends, strict=True)]
            ),
            np.array([value is not None for value in found]),
        )

    return {width: numbers(width) for width in WIDTHS}


def judge(runs: Runs) -> list[Claim]:
    """What is claimed of width, and of several heads."""
    return [*by_every_reading(_judge_at)(runs), _structure(runs), _incoherence(runs)]


def _judge_at(runs: Runs, reading: Grokking) -> list[Claim]:
    return [_grokking(runs, reading), *(_together(runs, layout, reading) for layout in LAYOUTS)]


def _of_width(said: str, rule: str, runs: Runs, of_run: OfRun, main: tuple[str, str], form: str) -> Claim:
    """A claim that something falls with the width, judged in one part with one prior, the others as readings."""
    swept = [(part, prior) for part, priors in SWEPT.items() for prior in priors]
    found = {each: _by_width(runs, *each, of_run) for each in swept}
    known = {each: of for each, of in found.items() if any(times.reached.any() for times in of.values())}
    lines = [
        f"{part}, {prior}: " + "; ".join(f"d_model {w} {_shown(times, form)}" for w, times in of.items()) + "."
        for (part, prior), of in known.items()
    ]
    readings: dict[str, Verdict] = {", ".join(each): falls(of) for each, of in known.items() if each != main}
    return Claim(
        said, (rule, FALLS), "\n".join(lines) or "This happens in none of the runs.", falls(found[main]),
        arms=tuple(arm_of(part, with_width(prior, w)) for part, prior in swept for w in WIDTHS), readings=readings,
    )  # fmt: skip


def _shown(times: Times, form: str) -> str:
    values = [float(value) if known else None for value, known in zip(times.epochs, times.reached, strict=True)]
    return when(values) if form == "epoch" else across(values, form)


def _structure(runs: Runs) -> Claim:
    return _of_width(
        "A wider model learns the structure faster.",
        f"The first record at which the divergence from the oracle is at most {CONDENSED:.0%} of its first value, "
        f"without a prior, with {PLAIN}.",
        runs, first_condensed, (PLAIN, NONE), "epoch",
    )  # fmt: skip


def _grokking(runs: Runs, reading: Grokking) -> Claim:
    return _of_width(
        "A wider model groks earlier.", f"The epoch of grokking, without a prior, with {PLAIN}.",
        runs, reading.epoch, (PLAIN, NONE), "epoch",
    )  # fmt: skip


def _overlap(curves: Curves, record: int) -> float | None:
    known = curves[OVERLAP].dropna().tolist() if OVERLAP in curves else []
    return known[record] if known else None


def _incoherence(runs: Runs) -> Claim:
    main = (ANYWHERE, ORACLE)
    claim = _of_width(
        "In a wider model the values of operands and of distractors share fewer directions (Eq. 10).",
        f"The overlap of the two subspaces at the last record, with the oracle, {ANYWHERE}: where operands and "
        "distractors have the same tokens it is 1 at any width.",
        runs, lambda curves: _overlap(curves, -1), main, ".2f",
    )  # fmt: skip
    at_first = falls(_by_width(runs, *main, lambda curves: _overlap(curves, 0)))
    return replace(claim, readings={**claim.readings, "at the first record, of random weights": at_first})


@dataclass(frozen=True)
class Heads:
    """The least attention on an operand, over all training examples, as a run of four heads groks."""

    together: float
    """That of all heads, summed."""
    alone: float
    """That of the head that has most of it."""

    @classmethod
    def of(cls, curves: Curves, epoch: int) -> "Heads":
        """What the curves of a run say at an epoch."""
        each = [float(curves[HEAD_LEAST.format(f"H{head}")].loc[epoch]) for head in range(HEADS)]
        return cls(float(curves[POOLED].loc[epoch]), max(each))

    def share(self, tau: float, *, mean: bool = False, short: float = 0.5) -> bool:
        """Whether heads together satisfy the condition, more than by attending to all alike, and none alone."""
        pooled = self.together / HEADS if mean else self.together
        return pooled >= tau and self.together > UNIFORM and self.alone < short * tau


def _together(runs: Runs, layout: str, reading: Grokking) -> Claim:
    """Whether heads satisfy the condition together, and none alone."""

    def at_grokking(name: str) -> list[tuple[Curves, int]]:
        every = curves_of(runs, name).values()
        return [(curves, epoch) for curves in every if (epoch := reading.epoch(curves)) is not None]

    single = [each for prior in PRIORS for each in at_grokking(arm_of(layout, f"{prior}, 1 head"))]
    tau = min((float(curves["informative_mass_least"].loc[epoch]) for curves, epoch in single), default=np.nan)
    by_prior = {p: [Heads.of(*each) for each in at_grokking(arm_of(layout, with_heads(p)))] for p in PRIORS}
    found = by_prior[NONE]

    def verdict(heads: Sequence[Heads], *, mean: bool = False, short: float = 0.5) -> Verdict:
        return verdict_of([each.share(tau, mean=mean, short=short) for each in heads] if single else [])

    holds = [each.share(tau) for each in found]
    return Claim(
        f"At grokking four heads satisfy the structural condition together, and none alone ({layout}).",
        (
            "The condition asks for τ, the least attention on an operand, over all training examples, at which any run "
            "of one head groks. At grokking the heads' attention summed is at least that on every operand of every "
            f"example, and above {UNIFORM:g}, what heads that attend to all positions alike have; and that of each "
            "single head is less than half of τ, since what a head needs may be less than τ. Counted are the runs of "
            "four heads without a prior that grok.",
            SHARES,
        ),
        sentences(
            f"{so_many(len(found), len(runs.seeds), which='of four heads')} grokked without a prior",
            f"this holds in {so_many(sum(holds), len(holds))}" if single and found else "",
            f"one head groks at a least attention of {tau:.2f} or more" if single else "no run of one head groks",
            f"the least mass of all heads together is {across([each.together for each in found], '.2f')}"
            if found
            else "",
            f"that of the best head alone is {across([each.alone for each in found], '.2f')}" if found else "",
        ),
        verdict(found),
        arms=tuple(arm_of(layout, name) for p in PRIORS for name in (with_heads(p), f"{p}, 1 head")),
        readings={
            "with a prior, which draws each head to the oracle": verdict(by_prior[ORACLE]),
            "the mean of the heads in place of their sum": verdict(found, mean=True),
            "each single head short of τ by any amount": verdict(found, short=1.0),
        },
        about="Conjecture E.2",
    )


FIGURE = PaperFigure(
    "fig9",
    "Figure 9: width, and several heads",
    "Models with d_model 16 to 256, the MLP's 256 hidden units in each, without a prior and with one of strength "
    f"{STRENGTH:g} toward the oracle: with constant distractors; and, with the prior alone, with operands at positions "
    "drawn for each sequence among noise in an alphabet of its own. Models of four heads, each a quarter as wide, in "
    "both layouts.",
    arms,
    draw,
    judge,
    notes=(
        "The paper's MLP is four times as wide as the model; here it has one size, so that width alone is varied.",
        "A prior on four heads draws each of them to the oracle, so that each may satisfy the condition alone; the "
        "claim is judged without one.",
    ),
)
