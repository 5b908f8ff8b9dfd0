"""Figure 9: the width of the model, and several heads."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

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
PARTS = (PLAIN, ANYWHERE)
HEADS = 4
OVERLAP, HEAD_LEAST = "subspace_overlap", "informative_mass_least[head=each][{}]"
POOLED = "distributed_mass[2]"
"""The least pooled mass: the entry of the measure that follows those of both operands."""


def with_width(prior: str, width: int) -> str:
    """The name of an arm by its width."""
    return f"{prior}, d_model {width}"


def with_heads(prior: str) -> str:
    """The name of an arm of several heads."""
    return f"{prior}, {HEADS} heads"


def arms(scale: Scale) -> Mapping[str, TrainConfig]:
    """Every width with and without the oracle, and four heads in both layouts."""
    found: dict[str, TrainConfig] = {}
    for width in WIDTHS:
        for prior, made in PRIORS.items():
            found[arm_of(PLAIN, with_width(prior, width))] = (
                {NONE: baseline, ORACLE: with_prior}[prior](scale, "constant")
                if width == Architecture().d_model
                else arm(scale, made, distractors="constant", model=Architecture(d_model=width))
            )
            found[arm_of(ANYWHERE, with_width(prior, width))] = arm(
                scale, made, task=ModularAddition(p=scale.p, positions="random"), model=Architecture(d_model=width),
                measures=(SubspaceOverlap(),),
            )  # fmt: skip
    for layout, distractors in LAYOUTS.items():
        for prior, config in ((NONE, baseline), (ORACLE, with_prior)):
            found[arm_of(layout, f"{prior}, 1 head")] = config(scale, distractors)
            found[arm_of(layout, with_heads(prior))] = arm(
                scale, PRIORS[prior], distractors=distractors, model=Architecture(n_heads=HEADS),
                measures=(DistributedMass(), InformativeMass("least", head="each")),
            )  # fmt: skip
    return found


def draw(runs: Runs) -> Mapping[str, go.Figure]:
    """Accuracy and divergence by width, the overlap of subspaces, the mass of heads, and grokking times."""
    pictures = {DOTS: plot_times(times_of(runs))}
    for part in PARTS:
        for prior in PRIORS:
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
    f"Kendall's tau between the width and that number, over all runs, with p < {SIGNIFICANT:g}: below zero is "
    "reproduced, above zero is not reproduced, all else is undecided. A run in which it does not happen counts as "
    f"later than all others. Undecided too with fewer than {FEWEST} seeds, or where it happens in fewer than half of "
    "the runs."
)
"""The rule of `falls`, in words."""


def falls(values: Mapping[int, Sequence[float | None]]) -> Verdict:
    """Whether numbers fall with the width; see `FALLS`."""
    from scipy.stats import kendalltau

    pairs = [(width, value) for width, each in values.items() for value in each]
    known = [value for _, value in pairs if value is not None]
    if min(map(len, values.values())) < FEWEST or len(known) < len(pairs) / 2 or len(set(known)) < 2:
        return "undecided"
    later = max(known) + 1
    tau, p = np.array(
        kendalltau([width for width, _ in pairs], [later if value is None else value for _, value in pairs])
    )
    if p >= SIGNIFICANT:
        return "undecided"
    return "reproduced" if tau < 0 else "not reproduced"


OfRun = Callable[[Curves], float | None]


def _by_width(runs: Runs, part: str, prior: str, of_run: OfRun) -> dict[int, list[float | None]]:
    return {
        width: [of_run(each) for each in curves_of(runs, arm_of(part, with_width(prior, width))).values()]
        for width in WIDTHS
    }


def judge(runs: Runs) -> list[Claim]:
    """What is claimed of width, and of several heads."""
    return [*by_every_reading(_judge_at)(runs), _structure(runs), _incoherence(runs)]


def _judge_at(runs: Runs, reading: Grokking) -> list[Claim]:
    return [_grokking(runs, reading), *(_together(runs, layout, reading) for layout in LAYOUTS)]


def _of_width(said: str, rule: str, runs: Runs, of_run: OfRun, main: tuple[str, str], form: str) -> Claim:
    """A claim that something falls with the width, judged in one part with one prior, the others as readings."""
    found = {(part, prior): _by_width(runs, part, prior, of_run) for part in PARTS for prior in PRIORS}
    known = {key: each for key, each in found.items() if any(v is not None for values in each.values() for v in values)}
    lines = [
        f"{part}, {prior}: " + "; ".join(f"d_model {w} {_shown(values, form)}" for w, values in each.items()) + "."
        for (part, prior), each in known.items()
    ]
    readings: dict[str, Verdict] = {f"{p}, {prior}": falls(each) for (p, prior), each in known.items()}
    return Claim(
        said, (rule, FALLS), "\n".join(lines) or "This happens in none of the runs.", falls(found[main]),
        arms=tuple(arm_of(part, with_width(prior, w)) for part in PARTS for prior in PRIORS for w in WIDTHS),
        readings={each: verdict for each, verdict in readings.items() if each != ", ".join(main)},
    )  # fmt: skip


def _shown(values: Sequence[float | None], form: str) -> str:
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


def _overlap_at_the_end(curves: Curves) -> float | None:
    known = curves[OVERLAP].dropna().tolist() if OVERLAP in curves else []
    return known[-1] if known else None


def _incoherence(runs: Runs) -> Claim:
    return _of_width(
        "In a wider model the values of operands and of distractors share fewer directions (Eq. 10).",
        f"The overlap of the two subspaces at the last record, with the oracle, {ANYWHERE}: where operands and "
        "distractors have the same tokens it is 1 at any width.",
        runs, _overlap_at_the_end, (ANYWHERE, ORACLE), ".2f",
    )  # fmt: skip


def _together(runs: Runs, layout: str, reading: Grokking) -> Claim:
    """Whether heads satisfy the condition together, and none alone."""

    def at_grokking(name: str) -> list[Curves]:
        return [each for each in curves_of(runs, name).values() if reading.epoch(each) is not None]

    def at(curves: Curves, column: str) -> float:
        return float(curves[column].loc[reading.epoch(curves)])

    single = [curves for prior in PRIORS for curves in at_grokking(arm_of(layout, f"{prior}, 1 head"))]
    tau = min((at(curves, "informative_mass_least") for curves in single), default=float("nan"))

    found = {prior: at_grokking(arm_of(layout, with_heads(prior))) for prior in PRIORS}
    every = [curves for each in found.values() for curves in each]

    def together(curves: Curves) -> float:
        return at(curves, POOLED)

    def alone(curves: Curves) -> float:
        return max(at(curves, HEAD_LEAST.format(f"H{head}")) for head in range(HEADS))

    def holds(tables: Sequence[Curves]) -> list[bool]:
        return [together(each) >= tau > alone(each) for each in tables] if single else []

    return Claim(
        f"At grokking four heads satisfy the structural condition together, and none alone ({layout}).",
        (
            "The condition asks for the least attention on an operand, over all training examples, at which any run of "
            "one head groks. At grokking the heads' attention summed is at least that on every operand of every "
            "example, and that of each single head is not. Counted are the runs of four heads that grok.",
            SHARES,
        ),
        sentences(
            f"{so_many(len(every), 2 * len(runs.seeds), which='of four heads')} grokked",
            f"this holds in {so_many(sum(holds(every)), len(every))}" if single and every else "",
            f"one head groks at a least attention of {tau:.2f} or more" if single else "no run of one head groks",
            f"the least mass of all heads together is {across(list(map(together, every)), '.2f')}" if every else "",
            f"that of the best head alone is {across(list(map(alone, every)), '.2f')}" if every else "",
        ),
        verdict_of(holds(every)),
        arms=tuple(arm_of(layout, name) for p in PRIORS for name in (with_heads(p), f"{p}, 1 head")),
        readings={prior: verdict_of(holds(each)) for prior, each in found.items()},
        about="Conjecture E.2",
    )


FIGURE = PaperFigure(
    "fig9",
    "Figure 9: width, and several heads",
    "Models with d_model 16 to 256, the MLP's 256 hidden units in each, without a prior and with one of strength "
    f"{STRENGTH:g} toward the oracle: with constant distractors, and with operands at positions drawn for each "
    "sequence among noise in an alphabet of its own. Models of four heads, each a quarter as wide, in both layouts.",
    arms,
    draw,
    judge,
    notes=(
        "The paper's MLP is four times as wide as the model; here it has one size, so that width alone is varied.",
        "A prior on four heads draws each of them to the oracle, so that each may satisfy the condition alone.",
    ),
)
