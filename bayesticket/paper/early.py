"""Early signs: which measures tell, of runs that differ in their seed alone, those that will grok."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from bayesticket.analysis import Auc, auc
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
"""The measures that are asked; none needs test labels or the oracle."""
SELDOM = 5
"""Measures that cost as much as some seventeen epochs are recorded so many times less often than curves usually are."""
WEAK = 0.03
"""A strength of the prior between those with which no run of Figure 3 groks, and those with which all do."""
SEEDS = 12
"""With fewer, one setting alone in which half of the runs grok could not decide; see `bayesticket.analysis.auc`."""
EPOCH, OTHER_EPOCHS = 2000, (1000, 4000)
"""When the measures are asked."""
FIRST, RISE = 3, 10.0
"""The defect has risen, by Xu's rule, when it is so many times the median of so many first records."""
SOON = 600
"""The least by which Xu found it to have risen before."""
ONSET = 0.1
"""Generalising has begun when this share of unseen examples is answered."""
LITTLE = 0.25
"""A measure tells little when its AUC surely differs from ½ by no more than this."""


def arms(scale: Scale) -> Mapping[str, TrainConfig]:
    """Settings in which some seeds may grok and others not, as far as other figures show."""
    scale = replace(scale, record_every=scale.record_every * SELDOM)
    return {
        "weight decay 0.5": arm(scale, distractors="constant", weight_decay=0.5, measures=RECORDED),
        "25% for training": arm(scale, distractors="constant", train_fraction=0.25, measures=RECORDED),
        "standard layer": arm(scale, distractors="constant", model=Architecture(residual=True), measures=RECORDED),
        f"random distractors, prior {WEAK:g}": arm(scale, KLPrior(strength=WEAK), measures=RECORDED),
    }


@dataclass(frozen=True)
class Life:
    """A run: when it memorises, begins to generalise and groks, and when its commutator defect has risen."""

    memorised: int | None
    began: int | None
    groks: bool
    risen: int | None

    @classmethod
    def of(cls, curves: Curves) -> "Life":
        """What a run's curves say."""
        defect = curves[DEFECT].dropna()
        return cls(
            first_epoch(curves["train_accuracy"] >= MEMORISED),
            UNSEEN.epoch(curves, ONSET),
            UNSEEN.epoch(curves) is not None,
            first_epoch(pd.Series(defect.iloc[FIRST:] >= RISE * defect.iloc[:FIRST].median())),
        )

    def is_asked(self, epoch: int) -> bool:
        """Whether one can ask at an epoch: the run has memorised, is at chance, and its outcome is known.

        A run that begins to generalise and has not grokked when its training ends might still have.
        """
        waits = self.memorised is not None and self.memorised <= epoch
        return waits and (self.began is None or (self.groks and self.began > epoch))


Lives = Sequence[tuple[str, int, Life, Curves]]
"""Runs, each with its setting and seed, what becomes of it, and its curves."""


def lives_in(runs: Runs) -> Lives:
    """All runs of the figure."""
    return [
        (name, seed, Life.of(curves), curves)
        for name in arm_names(runs)
        for seed, curves in curves_of(runs, name).items()
    ]


def told(runs: Lives, curve: str, epoch: int = EPOCH) -> Auc | None:
    """The AUC of a measure at an epoch, over pairs of runs of one setting; None if there is no pair."""
    asked = [each for each in runs if each[2].is_asked(epoch)]
    if not asked:
        return None
    settings, seeds, lives, curves = zip(*asked, strict=True)
    values = np.array([each[curve].reindex([epoch]).item() for each in curves])
    groks = np.array([life.groks for life in lives])
    return auc(values, groks, strata=np.array(settings), clusters=(np.array(seeds),))


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
    looks = {True: ("groks", PALETTE[0]), False: ("does not, in these epochs", PALETTE[1])}
    in_legend: set[bool] = set()
    for name, seed, life, curves in lives_in(runs):
        label, colour = looks[life.groks]
        for panel, column in enumerate(shown, 1):
            figure.add_scatter(
                x=curves[column].index, y=curves[column], yaxis=axis_name("y", panel), name=label, legendgroup=label,
                showlegend=panel == 1 and life.groks not in in_legend, opacity=0.5,
                line={"color": colour, "width": 1}, hovertemplate=f"{name}, seed {seed}: %{{y:.4g}}<extra></extra>",
            )  # fmt: skip
        in_legend.add(life.groks)
    finish_arms(figure, panels, int(runs.curves["trained"].max()))
    return {
        DOTS: plot_times(times_of(runs)),
        "Every run of every setting, by whether it groks within its training.": figure,
    }


def judge(runs: Runs) -> list[Claim]:
    """Whether the defect rises before runs grok, and which measures tell the runs that will."""
    lives = lives_in(runs)
    return [_rises(lives), *(_tells(lives, curve) for curve in ASKED)]


def _rises(runs: Lives) -> Claim:
    lives = [life for *_, life, _ in runs]
    ours = [(life.risen, life.began) for life in lives if life.groks and life.began is not None]
    idle = [life.risen is not None for life in lives if life.memorised is not None and life.began is None]
    leads = [began - risen for risen, began in ours if risen is not None]
    holds = [risen is not None and risen < began for risen, began in ours]
    early = [risen is not None and risen < began - SOON for risen, began in ours]
    return Claim(
        "No run groks before its commutator defect has risen.",
        (
            f"After its first {FIRST} records, and before {ONSET:.0%} of unseen examples are answered, the defect is "
            f"{RISE:g} times the median of those. Counted are the runs that grok.",
            SHARES,
        ),
        sentences(
            f"this holds in {so_many(sum(holds), len(ours), which='that grok')}" if ours else "none of these runs grok",
            f"it has risen {across(leads)} epochs before that" * bool(leads),
            f"it rises in {so_many(sum(idle), len(idle), which='that memorise and stay below that to the end')}, too, "
            "so that a rise need not mean that a run will grok" * any(idle),
        ),
        verdict_of(holds),
        "Xu (2026)",
        readings={f"at least {SOON} epochs before": verdict_of(early)},
    )


TELLS = (
    f"At epoch {EPOCH:,} the AUC over pairs of one setting decides: the probability that a run which groks within its "
    f"training has a larger value than one that does not. Only runs count that have memorised by then, and of which "
    f"less than {ONSET:.0%} of unseen examples are answered; and of those that do not grok only the ones that stay "
    "below that. If the 95% interval, over seeds, lies above ½, or below, the measure tells. If it contains ½ and lies "
    f"within {LITTLE:g} of it, the measure does not: not reproduced. All else is undecided, as are fewer than 6 seeds "
    "of either kind."
)
"""The rule of `tells`, in words."""


def tells(found: Auc | None) -> Verdict:
    """Whether a measure tells which runs will grok; see `TELLS`."""
    if found is None or found.reach <= 0.5:
        return "undecided"
    if found.side() is not None:
        return "reproduced"
    within = max(0.5 - found.low, found.high - 0.5) <= LITTLE
    return "not reproduced" if within else "undecided"


def _tells(runs: Lives, curve: str) -> Claim:
    found = {epoch: told(runs, curve, epoch) for epoch in (EPOCH, *OTHER_EPOCHS)}
    main = found[EPOCH]
    pairs = "there is no pair of runs" if main is None else f"AUC {main} over {main.pairs} pairs of runs"
    others = (f"at epoch {epoch:,} it is {found[epoch] or 'not defined'}" for epoch in OTHER_EPOCHS)
    return Claim(
        f"The {ASKED[curve]} tells early, of runs of one setting, which will grok.",
        (TELLS,),
        sentences(pairs, *others),
        tells(main),
        "a control",
        readings={f"at epoch {epoch:,}": tells(found[epoch]) for epoch in OTHER_EPOCHS},
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
        f"It takes {SEEDS} seeds: `--seeds {SEEDS}`.",
        "Weight decay 0.5 and the standard layer have, with seeds 0 to 4, trajectories of the sweep of decay and "
        "of Figure 1, whose outcomes, training loss, norm and gradient were known when the rules were written. The "
        "share of 25% was never tried.",
        "A run that does not grok within 10,000 epochs may do so later; at weight decay 0.5 some do.",
        "Of six measures that tell nothing, one or more would tell by chance about one time in four.",
    ),
    varies_model=True,
    seeds=SEEDS,
)
