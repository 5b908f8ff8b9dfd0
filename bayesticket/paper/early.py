"""Early signs: which measures tell, of runs that differ in their seed alone, those that will grok."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from bayesticket.analysis import Auc, at_risk, auc
from bayesticket.figures import ACCURACY, PALETTE, Panel, axis_name, finish_arms, stacked
from bayesticket.interventions import KLPrior
from bayesticket.measures import CommutatorDefect, EffectiveRank, FourierGini
from bayesticket.model import Architecture
from bayesticket.paper.arms import arm
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
from bayesticket.paper.readings import UNSEEN
from bayesticket.paper.times import DOTS, plot_times, times_of
from bayesticket.paper.words import across, sentences, so_many
from bayesticket.runs import MEMORISED, TrainConfig, first_epoch
from bayesticket.sweeps import Runs

RECORDED = (CommutatorDefect(), EffectiveRank(), FourierGini())
DEFECT, RANK, GINI = (measure.name for measure in RECORDED)
ASKED = {
    DEFECT: "commutator defect",
    RANK: "effective rank",
    GINI: "Fourier Gini",
    "mlp_norm": "norm of the MLP",
    "train_loss": "training loss",
    "attention_gradient": "gradient in attention",
}
"""The measures that are asked, all of training data alone."""
SELDOM = 5
"""Measures that cost as much as some thirty epochs are recorded so many times less often than curves usually are."""
WEAK = 0.03
"""A strength of the prior between those with which no run of Figure 3 groks, and those with which all do."""
EPOCH, OTHER_EPOCHS = 2000, (1000, 4000)
"""When the measures are asked."""
RISE, SMALLER_RISE = 10.0, 2.0
"""The defect has risen when it is so many times what it was as the run memorised."""
ONSET = 0.1
"""Generalising has begun when this share of unseen examples is answered."""
LITTLE = 0.25
"""A measure tells little when its AUC surely differs from ½ by no more than this."""
BY = "Xu (2026)"


def arms(scale: Scale) -> Mapping[str, TrainConfig]:
    """Settings in which some seeds may grok and others not, by what single runs and other figures show."""
    scale = replace(scale, record_every=scale.record_every * SELDOM)
    return {
        "weight decay 0.5": arm(scale, distractors="constant", weight_decay=0.5, measures=RECORDED),
        "25% for training": arm(scale, distractors="constant", train_fraction=0.25, measures=RECORDED),
        "standard layer": arm(scale, distractors="constant", model=Architecture(residual=True), measures=RECORDED),
        f"random distractors, prior {WEAK:g}": arm(scale, KLPrior(strength=WEAK), measures=RECORDED),
    }


@dataclass(frozen=True)
class Sign:
    """What the commutator defect of a run does between memorising and the onset of generalising."""

    rise: float | None
    """Its largest value there, against that at memorising; None if the run does not memorise before the onset."""
    lead: float | None
    """How many epochs before the onset it has risen; None if it has not."""

    @classmethod
    def of(cls, curves: Curves, factor: float = RISE, onset: float = ONSET) -> "Sign":
        """What a run's curves say, by other limits if they are given."""
        memorised, began = first_epoch(curves["train_accuracy"] >= MEMORISED), UNSEEN.epoch(curves, onset)
        end = np.inf if began is None else began
        if memorised is None or memorised >= end:
            return cls(None, None)
        defect = curves[DEFECT]
        ratio = defect[(defect.index >= memorised) & (defect.index < end)] / defect[memorised]
        risen = first_epoch(pd.Series(ratio >= factor))
        return cls(float(ratio.max()), None if risen is None or began is None else float(began - risen))


def told(runs: Runs, curve: str, epoch: int = EPOCH) -> Auc | None:
    """The AUC of a measure at an epoch, over pairs of runs of one setting; None if there is no pair."""
    values, groks, settings, seeds = [], [], [], []
    for name, times in times_of(runs).items():
        risk = zip(curves_of(runs, name).items(), times.reached, at_risk(times, epoch), strict=True)
        for (seed, curves), reached, is_at_risk in risk:
            if is_at_risk:
                values.append(curves[curve].reindex([epoch]).item())
                groks.append(bool(reached))
                settings.append(name)
                seeds.append(seed)
    if not values:
        return None
    return auc(np.array(values), np.array(groks), strata=np.array(settings), clusters=(np.array(seeds),))


def draw(runs: Runs) -> Mapping[str, go.Figure]:
    """When runs grok, and the three measures in those that do and those that do not."""
    shown = {
        UNSEEN.curve: replace(ACCURACY, title="unseen accuracy"),
        DEFECT: Panel(ASKED[DEFECT], log=True),
        RANK: Panel(ASKED[RANK]),
        GINI: Panel(ASKED[GINI]),
    }
    panels = list(shown.values())
    figure = stacked(panels, panel_height=170)
    looks = {True: ("groks", PALETTE[0]), False: ("does not", PALETTE[1])}
    in_legend: set[bool] = set()
    for name in arm_names(runs):
        for seed, curves in curves_of(runs, name).items():
            groks = UNSEEN.epoch(curves) is not None
            label, colour = looks[groks]
            for panel, column in enumerate(shown, 1):
                figure.add_scatter(
                    x=curves[column].index, y=curves[column], yaxis=axis_name("y", panel), name=label,
                    legendgroup=label, showlegend=panel == 1 and groks not in in_legend, opacity=0.5,
                    line={"color": colour, "width": 1}, hovertemplate=f"{name}, seed {seed}: %{{y:.4g}}<extra></extra>",
                )  # fmt: skip
            in_legend.add(groks)
    finish_arms(figure, panels, int(runs.curves["trained"].max()))
    return {
        DOTS: plot_times(times_of(runs)),
        "Every run of every setting: those that grok within their training, and those that do not.": figure,
    }


def judge(runs: Runs) -> list[Claim]:
    """Whether the defect rises before runs grok, and which measures tell the runs that will."""
    return [_rises(runs), *(_tells(runs, curve) for curve in ASKED)]


def _rises(runs: Runs) -> Claim:
    tables = [curves for name in arm_names(runs) for curves in curves_of(runs, name).values()]
    groks = [UNSEEN.epoch(curves) is not None for curves in tables]

    def signs(of: bool, factor: float = RISE, onset: float = ONSET) -> list[Sign]:
        chosen = [curves for curves, each in zip(tables, groks, strict=True) if each == of]
        return [sign for curves in chosen if (sign := Sign.of(curves, factor, onset)).rise is not None]

    def holds(factor: float = RISE, onset: float = ONSET) -> list[bool]:
        return [(sign.rise or 0.0) >= factor for sign in signs(True, factor, onset)]

    ours, others = signs(True), signs(False)
    idle = [(sign.rise or 0.0) >= RISE for sign in others]
    return Claim(
        "Before a run groks, the commutator defect rises.",
        (
            f"Between memorising and the record at which {ONSET:.0%} of unseen examples are first answered, the defect "
            f"reaches {RISE:g} times what it was at memorising. Counted are the runs that grok and memorise before "
            "that.",
            SHARES,
        ),
        sentences(
            f"this holds in {so_many(sum(holds()), len(ours), which='that grok')}",
            f"its largest value there is {across([sign.rise for sign in ours], '.1f')} times that at memorising"
            * bool(ours),
            f"it has risen {across([sign.lead for sign in ours])} epochs before the onset" * any(holds()),
            f"it also rises so in {so_many(sum(idle), len(others), which='that never grok')}",
        ),
        verdict_of(holds()),
        BY,
        readings={
            f"to {SMALLER_RISE:g} times": verdict_of(holds(SMALLER_RISE)),
            "before half of them are answered": verdict_of(holds(onset=0.5)),
        },
    )


TELLS = (
    f"At epoch {EPOCH:,}, among runs that have not grokked, the AUC over pairs of one setting decides: the probability "
    "that a run which will grok has a larger value than one that never will. If its 95% interval lies above ½, or "
    f"below, the measure tells. If the interval contains ½ and lies within {LITTLE:g} of it, it does not: not "
    "reproduced. All else is undecided."
)
"""The rule of `tells`, in words."""


def tells(found: Auc | None, *, larger: bool = False) -> Verdict:
    """Whether a measure tells which runs will grok, see `TELLS`; with `larger`, only by larger values."""
    if found is None:
        return "undecided"
    side = found.side()
    if side is not None:
        return "not reproduced" if larger and side == "smaller" else "reproduced"
    within = max(0.5 - found.low, found.high - 0.5) <= LITTLE
    return "not reproduced" if within else "undecided"


def _tells(runs: Runs, curve: str) -> Claim:
    is_defect = curve == DEFECT
    found = {epoch: told(runs, curve, epoch) for epoch in (EPOCH, *OTHER_EPOCHS)}
    smaller = ("Of the defect, larger values alone are meant: smaller ones refute it.",) * is_defect
    main = found[EPOCH]
    pairs = "there is no pair of runs" if main is None else f"AUC {main} over {main.pairs} pairs of runs"
    others = (f"at epoch {epoch:,} it is {found[epoch] or 'not defined'}" for epoch in OTHER_EPOCHS)
    return Claim(
        f"The {ASKED[curve]} tells early, of runs of one setting, which will grok.",
        (TELLS, *smaller),
        sentences(pairs, *others),
        tells(main, larger=is_defect),
        BY if is_defect else "a control",
        readings={f"at epoch {epoch:,}": tells(found[epoch], larger=is_defect) for epoch in OTHER_EPOCHS},
    )


FIGURE = PaperFigure(
    "early",
    "Early signs: what tells which runs will grok",
    "Runs that differ in their seed alone, in four settings in which some may grok within 10,000 epochs and others "
    "not: the minimal model with constant distractors and weight decay 0.5, or with 25% of all pairs for training; a "
    f"standard layer with constant distractors; the minimal model with random ones and a prior of strength {WEAK:g}.",
    arms,
    draw,
    judge,
    notes=(
        "Ten seeds are meant: `--seeds 10`. With five, no interval of an AUC is narrow.",
        "Of six measures that tell nothing, one or more would tell by chance about one time in four.",
        "The defect is inversely proportional to the gradients, which vanish as a run memorises, so that it rises then "
        "in any run; that is why its rise is counted from memorising on, and the runs that never grok stand beside.",
    ),
)
