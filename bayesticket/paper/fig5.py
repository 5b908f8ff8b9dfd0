"""Figure 5: the gradient that attention still gets, against the bounds of Lemma 5.1, through training."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import plotly.graph_objects as go

from bayesticket.figures import PALETTE, Panel, add_band, finish_arms, stacked
from bayesticket.paper.arms import LAYOUTS, baseline, with_prior
from bayesticket.paper.figure import (
    SHARES,
    Claim,
    Curves,
    PaperFigure,
    Scale,
    arm_names,
    curves_of,
    verdict_of,
)
from bayesticket.paper.readings import UNSEEN
from bayesticket.paper.words import across, sentences, so_many
from bayesticket.runs import MEMORISED, TrainConfig, first_epoch
from bayesticket.sweeps import Runs

FORMS = {
    "scaled": "the paper's, with max‖x‖ in front",
    "paper": "the paper's, 2 ‖W_V‖ L √(2ℓ)",
    "loose": "with the values' own length, 2 R L √(2ℓ)",
    "global": "global",
    "local": "local",
    "measured": "measured gradient",
}
"""The forms of the bound, from loose to tight, and what they are called in the picture."""
ROUNDING = 1e-4
"""By how much a ratio may exceed 1 in single precision."""
FAR = 10.0
"""The gradient is far below its bound when it is this many times smaller."""


def arms(scale: Scale) -> Mapping[str, TrainConfig]:
    """The baseline and the KL prior in both layouts."""
    return {
        f"{arm}, {name}": make(scale, distractors)
        for name, distractors in LAYOUTS.items()
        for arm, make in (("no prior", baseline), ("KL prior", with_prior))
    }


def draw(runs: Runs) -> Mapping[str, go.Figure]:
    """For each arm the measured gradient under its bounds."""
    names = arm_names(runs)
    panels = [Panel(name, log=True) for name in names]
    figure = stacked(panels, panel_height=185)
    for panel, name in enumerate(names, 1):
        for colour, (form, label) in zip(PALETTE, FORMS.items(), strict=False):
            add_band(figure, runs, name, f"explaining_away[{form}]", panel=panel, colour=colour, name=label)
    finish_arms(figure, panels, int(runs.curves["trained"].max()))
    return {
        "The largest gradient in an attention score and what bounds it, averaged over examples; median and quartiles "
        "over seeds.": figure
    }


def judge(runs: Runs) -> list[Claim]:
    """That the bound holds, that it is far above, and most so after memorising."""
    names = arm_names(runs)
    tables = [curves for name in names for curves in curves_of(runs, name).values()]
    recorded = {form for form in ("paper", "scaled") if all(f"explaining_away[{form}]" in each for each in tables)}
    stated = [_as_stated(tables)] if recorded == {"paper", "scaled"} else []
    return [replace(claim, arms=names) for claim in (bound_holds(tables), *stated, gradient_is_far(tables, recorded))]


LINKS = ("measured/local", "local/global", "global/loose")


def bound_holds(tables: list[Curves]) -> Claim:
    """That the measured gradient never exceeds the bound."""
    largest = {link: max(curves[f"explaining_away[{link}]"].max() for curves in tables) for link in LINKS}
    records = sum(curves["explaining_away[loose]"].notna().sum() for curves in tables)
    holds: Literal["reproduced", "not reproduced"] = (
        "reproduced" if all(ratio <= 1 + ROUNDING for ratio in largest.values()) else "not reproduced"
    )
    return Claim(
        "The measured gradient never exceeds the bound (Lemma 5.1).",
        (
            "For every example looked at, every position and every record, measured ≤ local ≤ global ≤ loose, the last "
            f"with the measured radius R of the values; {ROUNDING:g} is allowed for rounding. If one run breaks this, "
            "the claim is not reproduced.",
        ),
        f"The largest ratios over {len(tables)} runs with {records:,} records are "
        + ", ".join(f"{link} {ratio:.4f}" for link, ratio in largest.items())
        + ".",
        holds,
        about="Lemma 5.1",
    )


def _stays_below(tables: list[Curves], form: str) -> list[bool]:
    """Of each run, whether the measured gradient is below a form of the bound at every record."""
    room = 1 + ROUNDING
    return [
        bool((curves["explaining_away[measured]"] <= room * curves[f"explaining_away[{form}]"]).all())
        for curves in tables
    ]


def _as_stated(tables: list[Curves]) -> Claim:
    below = _stays_below(tables, "paper")
    return Claim(
        "The bound as the paper states it, 2√2 ‖W_V‖ L √ℓ for embeddings of norm 1, holds as well.",
        (
            "The measured gradient, averaged over examples, is below it at every record of a run. The embeddings are "
            "not of norm 1, so nothing says that it must be; with the largest norm of a token's embedding in front, it "
            "must.",
            SHARES,
        ),
        sentences(f"the gradient is below the bound throughout in {so_many(sum(below), len(tables))}"),
        verdict_of(below),
        readings={"with max‖x‖ in front": verdict_of(_stays_below(tables, "scaled"))},
        about="Lemma 5.1",
    )


def _gaps(tables: list[Curves], form: str, *, to_the_end: bool = False) -> list[tuple[float, float]]:
    """By what factor a form of the bound exceeds the gradient, before and after memorising, until grokking."""
    gaps = []
    for curves in tables:
        gap = curves[f"explaining_away[{form}]"] / curves["explaining_away[measured]"]
        memorised, grokked = first_epoch(curves["train_accuracy"] >= MEMORISED), UNSEEN.epoch(curves)
        later = gap if to_the_end or grokked is None else gap.loc[: grokked - 1]
        if memorised is not None and later.loc[memorised + 1 :].notna().any():
            gaps.append((float(gap.loc[:memorised].median()), float(later.loc[memorised + 1 :].median())))
    return gaps


def _is_wider(gaps: list[tuple[float, float]]) -> list[bool]:
    return [before < later and later >= FAR for before, later in gaps]


FORM_NAMES = {"paper": "the paper's form", "scaled": "the paper's form with max‖x‖ in front"}


def gradient_is_far(tables: list[Curves], recorded: set[str]) -> Claim:
    """That the gradient is far below the bound, most so after memorising."""
    gaps = _gaps(tables, "loose")
    wider = _is_wider(gaps)
    far = so_many(sum(wider), len(gaps), which="that memorised")
    before, after = (across([gap[place] for gap in gaps]) for place in (0, 1))
    others = {form: _gaps(tables, form) for form in FORM_NAMES if form in recorded}
    return Claim(
        "The gradient is far below the bound, most of all after memorising.",
        (
            f"The bound divided by the measured gradient, the median over records, is at least {FAR:g} after "
            "memorising, until grokking by unseen accuracy or the end, and larger than before. The bound is the form "
            "with the values' own length R. Counted are the runs that memorise before they grok.",
            SHARES,
        ),
        sentences(
            f"{so_many(len(gaps), len(tables))} memorised before training ended",
            f"the gradient is that far below the bound, and farther than before, in {far}" if gaps else "",
            f"the bound is {before} times the gradient before memorising, and {after} times after" if gaps else "",
            *(
                f"{FORM_NAMES[form]} is {across([gap[1] for gap in each])} times the gradient after memorising"
                for form, each in others.items()
                if each
            ),
        ),
        verdict_of(wider),
        readings={
            **{FORM_NAMES[form]: verdict_of(_is_wider(each)) for form, each in others.items()},
            "after grokking too, to the end": verdict_of(_is_wider(_gaps(tables, "loose", to_the_end=True))),
        },
    )


FIGURE = PaperFigure(
    "fig5",
    "Figure 5: the gradient in attention under its bounds",
    "The runs of Figure 1, and the same with a KL prior toward the oracle. At every record, for 256 examples spread "
    "evenly, the gradient of an example's loss ℓ in its attention scores is compared with the bounds of Lemma 5.1.",
    arms,
    draw,
    judge,
)
