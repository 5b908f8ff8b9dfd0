"""Both conditions of the decoupling theorem, in every run that groks: Defs. 4.1 and 4.2, Eq. 27, Cor. 4.5."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from bayesticket.figures import PALETTE, Panel, add_band, finish_arms, stacked
from bayesticket.paper.fig5 import arms
from bayesticket.paper.figure import SHARES, Claim, Curves, PaperFigure, Verdict, arm_names, curves_of, verdict_of
from bayesticket.paper.readings import THRESHOLD, UNSEEN, Grokking, by_accuracy
from bayesticket.paper.words import across, sentences, so_many
from bayesticket.runs import first_epoch
from bayesticket.sweeps import Runs

ROOM = 0.1
"""The norm condition's ends are those of the other runs that grok, with this share of room on both sides."""
ROUNDING = 1e-4
K, T = 2, 5
"""The numbers of informative positions, and of all."""
UNIFORM = math.log(T / K)
"""The divergence of uniform attention from the oracle."""
STRUCTURE, MARGIN = "structural_condition[tau=derived][{}]", "separability_margin[of=readings][{}]"
PAIRS = "test_pairwise_condition[{}]"


def draw(runs: Runs) -> Mapping[str, go.Figure]:
    """What the conditions ask, and what there is, through training."""
    shown = {
        "informative_mass_least": Panel("the least attention on an informative position"),
        STRUCTURE.format("share"): Panel("share of training examples that satisfy B(τ)", span=(-0.03, 1.03)),
        PAIRS.format("least"): Panel("least attention of a pair of test inputs, both together"),
        PAIRS.format("threshold"): Panel("what Eq. 27 asks of it", log=True),
        "mlp_norm": Panel("norm of the MLP"),
        MARGIN.format("least/distractors"): Panel("feature margin", log=True),
    }
    panels = list(shown.values())
    figure = stacked(panels, panel_height=150)
    for colour, name in zip(PALETTE, arm_names(runs), strict=False):
        for panel, column in enumerate(shown, 1):
            add_band(figure, runs, name, column, panel=panel, colour=colour)
    finish_arms(figure, panels, int(runs.curves["trained"].max()))
    return {"The conditions through training; median and quartiles over seeds.": figure}


@dataclass(frozen=True)
class Observed:
    """A run, and the epoch at which it is looked at: where it groks, or the last at which τ is defined."""

    curves: Curves
    epoch: int
    arm: str

    @property
    def norm(self) -> float:
        """The norm of the MLP then."""
        return float(self.curves["mlp_norm"].loc[self.epoch])

    def since(self, column: str) -> pd.Series:
        """A curve from then on, where it is known."""
        return pd.Series(self.curves[column].loc[self.epoch :].dropna())


def judge_at(runs: Runs, reading: Grokking) -> list[Claim]:
    """What must hold in every run that groks, over all arms."""
    tables = [(name, curves) for name in arm_names(runs) for curves in curves_of(runs, name).values()]
    grokked = [Observed(curves, e, name) for name, curves in tables if (e := reading.epoch(curves)) is not None]
    ended = [Observed(curves, last, name) for name, curves in tables
             if reading.epoch(curves) is None and (last := _last_with_threshold(curves)) is not None]  # fmt: skip
    said = f"{so_many(len(grokked), len(tables))} grokked by {reading.accuracy}"
    parts = (_both_then, _pairs, _corollary, _margin)
    claims = [*(part(grokked, said) for part in parts), _lacking(ended, grokked, said)]
    return [replace(claim, arms=tuple(arm_names(runs)), about="Theorem 4.3") for claim in claims]


def _last_with_threshold(curves: Curves) -> int | None:
    """The last record at which τ is defined, of a run that has memorised; None where it never is."""
    memorised, threshold = first_epoch(curves["train_accuracy"] >= THRESHOLD), STRUCTURE.format("threshold")
    if memorised is None or threshold not in curves:
        return None
    defined = curves[threshold].loc[memorised:].dropna().index
    return int(defined[-1]) if len(defined) else None


def structure_holds(run: Observed, epoch: int, column: str = "share") -> bool:
    """Whether B(τ) holds on all training examples at a record."""
    return bool(run.curves[STRUCTURE.format(column)].loc[epoch] >= 1 - 1e-9)


def norm_holds(run: Observed, grokked: Sequence[Observed], epoch: int, room: float = ROOM) -> bool:
    """Whether the MLP's norm is between those at which other runs grok, with some room."""
    norms = [other.norm for other in grokked if other is not run] or [run.norm]
    return (1 - room) * min(norms) <= float(run.curves["mlp_norm"].loc[epoch]) <= (1 + room) * max(norms)


def moments(run: Observed) -> tuple[int, int] | None:
    """The first records from memorising and from grokking on at which τ is defined; None unless both are there.

    It is undefined where a training example is answered wrongly, which says nothing about attention.
    """
    defined = run.curves[STRUCTURE.format("threshold")].dropna().index.to_numpy()
    memorised = first_epoch(run.curves["train_accuracy"] >= THRESHOLD)
    at, before = (defined[defined >= epoch] for epoch in (run.epoch, run.epoch if memorised is None else memorised))
    return (int(before[0]), int(at[0])) if len(at) and before[0] < run.epoch else None


def _both_then(grokked: Sequence[Observed], said: str) -> Claim:
    known = [(run, when) for run in grokked if (when := moments(run)) is not None]

    def judged(
        structure: Callable[[Observed, int], bool], room: float = ROOM, *, of_arm: bool = False
    ) -> tuple[list[bool], list[bool]]:
        """Whether both hold at grokking, and whether one of them did not at memorising."""
        at, before = [], []
        for run, when in known:
            others = [other for other in grokked if other.arm == run.arm] if of_arm else grokked
            missing, both = (structure(run, e) and norm_holds(run, others, e, room) for e in when)
            at.append(both)
            before.append(not missing)
        return at, before

    def verdict(structure: Callable[[Observed, int], bool], room: float = ROOM, *, of_arm: bool = False) -> Verdict:
        pairs = zip(*judged(structure, room, of_arm=of_arm), strict=True)
        return verdict_of([now and missing for now, missing in pairs])

    at, before = judged(structure_holds)
    b_at = [structure_holds(run, epoch) for run, (_, epoch) in known]
    n_at = [norm_holds(run, grokked, epoch) for run, (_, epoch) in known]
    b_before = [structure_holds(run, epoch) for run, (epoch, _) in known]
    n_before = [norm_holds(run, grokked, epoch) for run, (epoch, _) in known]
    shares = [float(run.curves[STRUCTURE.format("share")].loc[epoch]) for run, (_, epoch) in known]
    return Claim(
        "At grokking the structural and the norm condition hold, and before, at memorising, one of them did not.",
        (
            "B(τ): every training example has attention of at least τ on each informative position, with τ derived "
            "from the margins of the training examples (Cor. 4.5). N: the norm of the MLP is between the least and the "
            f"largest norm at which the other runs grok, with {ROOM:.0%} of room on both sides. Each is looked at in "
            "the first record at which τ is defined, that is, at which all training examples are answered rightly: "
            "from memorising on, before grokking; and from grokking on. Counted are the runs that grok and have both.",
            SHARES,
        ),
        sentences(
            said,
            f"both records are there in {so_many(len(known), len(grokked), which='that grokked')}" if grokked else "",
            f"both conditions hold at grokking in {so_many(sum(at), len(at))}" if at else "",
            f"B(τ) holds in {so_many(sum(b_at), len(b_at))}, and N in {so_many(sum(n_at), len(n_at))}" if at else "",
            f"one of them was missing at memorising in {so_many(sum(before), len(before))}: B(τ) held in "
            f"{so_many(sum(b_before), len(before))}, and N in {so_many(sum(n_before), len(before))}"
            if at
            else "",
            f"the share of training examples that satisfy B(τ) at grokking is {across(shares, '.1%')}" if at else "",
        ),
        verdict(structure_holds),
        readings={
            "B(τ) alone": verdict_of([now and not then for now, then in zip(b_at, b_before, strict=True)]),
            "N alone": verdict_of([now and not then for now, then in zip(n_at, n_before, strict=True)]),
            "half of τ, which Eq. 27 implies for one of two inputs": verdict(_half_holds),
            "τ with the centroid of the distractors": verdict(lambda r, e: structure_holds(r, e, "share/distractors")),
            "N by the runs of the same arm": verdict(structure_holds, of_arm=True),
            "N without room, which the runs with the least and the largest norm cannot satisfy": verdict(
                structure_holds, 0.0
            ),
        },
    )


def _half_holds(run: Observed, epoch: int) -> bool:
    least, tau = (run.curves[name].loc[epoch] for name in ("informative_mass_least", STRUCTURE.format("threshold")))
    return bool(least >= tau / 2)


def _pairs(grokked: Sequence[Observed], said: str) -> Claim:
    def verdict(entry: str) -> list[bool]:
        return [bool((run.since(PAIRS.format(entry)) >= 1 - 1e-9).all()) for run in grokked]

    holds = verdict("share")
    ratios = [float((run.since(PAIRS.format("least")) / run.since(PAIRS.format("threshold"))).min()) for run in grokked]
    return Claim(
        "No run that groks violates Eq. 27.",
        (
            "At every record from grokking on, α_j(x) + α_j(x') ≥ γ/(L Δ_max) for all pairs of test inputs that are "
            "compared. Eq. 27 is proven, so that this tests the library as much as the paper. Counted are the runs "
            "that grok.",
            SHARES,
        ),
        sentences(
            said,
            f"it holds in {so_many(sum(holds), len(holds))}" if holds else "",
            f"the least attention of a pair is {across(ratios, ',.0f')} times what is asked" if ratios else "",
        ),
        verdict_of(holds),
        readings={
            "with the centroid of the distractors, for which nothing is proven": verdict_of(
                verdict("share/distractors")
            )
        },
    )


def bounds_of(run: Observed, half: str = "", of: str = "threshold") -> pd.Series:
    """Cor. 4.5's bound on the divergence, log(1/(kτ)), from grokking on, where τ is defined."""
    return pd.Series(-np.log(K * run.since(f"{half}{STRUCTURE.format(of)}")))


def worst_divergence(run: Observed) -> pd.Series:
    """What the divergence of the worst training example is at least, by its least attention on an operand.

    With attention a on one of two operands, the other has at most 1 − a.
    """
    least = run.since("informative_mass_least").clip(1e-30, 1 / K)
    return pd.Series(-np.log(K) - (np.log(least) + np.log1p(-least)) / K)


def _corollary(grokked: Sequence[Observed], said: str) -> Claim:
    def judged(half: str, of: str = "threshold") -> list[bool]:
        found = [(run.curves[f"{half}kl_to_oracle"], bounds_of(run, half, of)) for run in grokked]
        return [bool((kl.loc[bound.index] <= bound + ROUNDING).all()) for kl, bound in found if len(bound)]

    known = [run for run in grokked if len(bounds_of(run))]
    holds = judged("")
    bounds = [float(bounds_of(run).iloc[0]) for run in known]
    reached = [float(run.curves["kl_to_oracle"].loc[run.epoch]) for run in grokked]
    worst = [
        bool((worst_divergence(run).loc[bounds_of(run).index] <= bounds_of(run) + ROUNDING).all()) for run in known
    ]
    return Claim(
        "In every run that groks the divergence is below log(1/(kτ)) (Cor. 4.5).",
        (
            "At every record from grokking on at which the training examples determine τ, their mean divergence is at "
            "most that. Counted are the runs that grok and have such a record.",
            SHARES,
        ),
        sentences(
            said,
            f"it holds in {so_many(sum(holds), len(holds), which='with a τ')}" if holds else "",
            f"at grokking the divergence is {across(reached, '.2g')}, and the first bound from there on "
            f"{across(bounds, '.2g')}, where uniform attention has {UNIFORM:.2f}"
            if bounds
            else "",
        ),
        verdict_of(holds),
        readings={
            "of the worst training example, as far as its least attention on an operand tells": verdict_of(worst),
            "and the bound says something: uniform attention would break it": verdict_of(
                [good and bound < UNIFORM for good, bound in zip(holds, bounds, strict=True)]
            ),
            "on test examples, where all of them are answered rightly": verdict_of(judged("test_")),
            "τ with the centroid of the distractors": verdict_of(judged("", "threshold/distractors")),
        },
    )


def _margin(grokked: Sequence[Observed], said: str) -> Claim:
    def verdict(of: str, least: float) -> list[bool]:
        margins = [pd.Series(run.curves[MARGIN.format(of)].dropna()) for run in grokked]
        return [bool((each > least * each.iloc[0]).all()) for each in margins if len(each)]

    holds = verdict("least/distractors", 0.0)
    ends = [float(run.since(MARGIN.format("least/distractors")).min()) for run in grokked]
    return Claim(
        "The feature margin stays positive.",
        (
            "The least distance of an informative token's value from the centroid of the distractors' values is above "
            "0 at every record; a distance of 0 would be a coincidence. Counted are the runs that grok.",
            SHARES,
        ),
        sentences(
            said,
            f"it is positive throughout in {so_many(sum(holds), len(holds))}" if holds else "",
            f"its least value from grokking on is {across(ends, '.2g')}" if ends else "",
        ),
        verdict_of(holds),
        readings={
            "never below a tenth of its first value": verdict_of(verdict("least/distractors", 0.1)),
            "from the centroid of all others": verdict_of(verdict("least/others", 0.0)),
        },
    )


def _lacking(never: Sequence[Observed], grokked: Sequence[Observed], said: str) -> Claim:
    """What the conditions say of the runs that never grok; that they suffice hangs on an assumption of the paper."""
    ended = never if grokked else []  # without a run that groks, no norm is known
    structure = [structure_holds(run, run.epoch) for run in ended]
    with_distractors = [structure_holds(run, run.epoch, "share/distractors") for run in ended]
    pairs = [bool(run.curves[PAIRS.format("share")].loc[run.epoch] >= 1 - 1e-9) for run in ended]
    norm = [norm_holds(run, grokked, run.epoch) for run in ended]
    least = [float(run.curves["informative_mass_least"].loc[run.epoch]) for run in ended]
    asked = [float(run.curves[STRUCTURE.format("threshold")].loc[run.epoch]) for run in ended]
    best = [float(run.curves[UNSEEN.curve].max()) for run in ended]
    shown = (
        f"of the others {len(ended)} memorised and had a τ",
        f"they answer at most {across(best, '.1%')} of the unseen examples",
        f"at their end B(τ) holds in {so_many(sum(structure), len(ended))}, and N in {so_many(sum(norm), len(ended))}",
        f"the threshold τ is {across(asked, '.1g')}, and the least attention on an operand {across(least, '.2g')}",
    )

    def lacks(structure: Sequence[bool], room: float = ROOM) -> list[bool]:
        norms = [norm_holds(run, grokked, run.epoch, room) for run in ended]
        return [not (b and n) for b, n in zip(structure, norms, strict=True)]

    return Claim(
        "A run that has memorised and never groks lacks one of the two conditions.",
        (
            "B(τ) and N, as above, at the last record at which τ is defined: one of them does not hold. Counted are "
            "the runs that memorise, do not grok, and have such a record, if any run groks. That both suffice hangs on "
            "Assumption C.1, so that such a run refutes no theorem.",
            SHARES,
        ),
        sentences(said, *shown) if ended else sentences(said),
        verdict_of(lacks(structure)),
        by="a control",
        readings={
            "B(τ) alone": verdict_of([not each for each in structure]),
            "N alone": verdict_of([not each for each in norm]),
            "N without room": verdict_of(lacks(structure, 0.0)),
            "at every record with a τ, N without room": verdict_of([_never_has_both(run, grokked) for run in ended]),
            "τ with the centroid of the distractors": verdict_of(lacks(with_distractors)),
            "Eq. 27 on pairs of test inputs in place of B(τ)": verdict_of(lacks(pairs)),
        },
    )


def _never_has_both(run: Observed, grokked: Sequence[Observed]) -> bool:
    defined = run.curves[STRUCTURE.format("threshold")].dropna().index
    return not any(structure_holds(run, epoch) and norm_holds(run, grokked, epoch, 0.0) for epoch in defined)


FIGURE = PaperFigure(
    "conditions",
    "Conditions: what holds in every run that groks",
    "The runs of Figure 5: with and without a KL prior toward the oracle, in both layouts. Defs. 4.1 and 4.2 ask that "
    "attention be structured and the MLP's norm controlled; Eq. 27 and Cor. 4.5 say how far.",
    arms,
    draw,
    by_accuracy(judge_at),
    notes=(f"A run groks when its {UNSEEN.accuracy} reaches {THRESHOLD:.0%}.",),
)
