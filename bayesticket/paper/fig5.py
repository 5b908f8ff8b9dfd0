"""Figure 5: the gradient that attention still gets, against the bounds of Lemma 5.1, through training."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import plotly.graph_objects as go

from bayesticket.figures import PALETTE, Panel, add_band, finish_arms, stacked
from bayesticket.paper.figure import (
    LAYOUTS,
    SHARES,
    Claim,
    Curves,
    PaperFigure,
    Scale,
    arm_names,
    baseline,
    curves_of,
    verdict_of_share,
    with_prior,
)
from bayesticket.paper.words import across, sentences, so_many
from bayesticket.runs import MEMORISED, TrainConfig, first_epoch
from bayesticket.sweeps import Runs

FORMS = {
    "loose": "loose, 2 R L √(2ℓ)",
    "paper": "the paper's, 2 ‖W_V‖ L √(2ℓ)",
    "scaled": "scaled, 2 ‖W_V‖ max‖x‖ L √(2ℓ)",
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
    stated = [_as_stated(tables)] if all("explaining_away[paper]" in curves for curves in tables) else []
    return [replace(claim, arms=names) for claim in (_holds(tables), *stated, _is_far(tables))]


LINKS = ("measured/local", "local/global", "global/loose")


def _holds(tables: list[Curves]) -> Claim:
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
    )


def _as_stated(tables: list[Curves]) -> Claim:
    above = [
        float((curves["explaining_away[measured]"] > curves["explaining_away[paper]"]).mean()) for curves in tables
    ]
    n_below = sum(share == 0 for share in above)
    return Claim(
        "The bound as the paper states it, 2√2 ‖W_V‖ L √ℓ for embeddings of norm 1, holds as well.",
        (
            "The measured gradient, averaged over examples, is below it at every record of a run. The embeddings are "
            "not of norm 1, so nothing says that it must be.",
            SHARES,
        ),
        sentences(f"the gradient is below the bound throughout in {so_many(n_below, len(tables))}"),
        verdict_of_share(n_below, len(tables)),
    )


def _is_far(tables: list[Curves]) -> Claim:
    gaps = []
    for curves in tables:
        gap = curves["explaining_away[loose]"] / curves["explaining_away[measured]"]
        memorised = first_epoch(curves["train_accuracy"] >= MEMORISED)
        if memorised is not None and gap.loc[memorised + 1 :].notna().any():
            gaps.append((float(gap.loc[:memorised].median()), float(gap.loc[memorised + 1 :].median())))
    wider = [earlier < later and later >= FAR for earlier, later in gaps]
    far = so_many(sum(wider), len(gaps), which="that memorised")
    before, after = (across([gap[place] for gap in gaps]) for place in (0, 1))
    return Claim(
        "The gradient is far below the bound, most of all after memorising.",
        (
            f"The bound divided by the measured gradient, the median over records, is at least {FAR:g} after "
            "memorising, and larger than before. The bound is the loosest form, with the measured R. Counted are the "
            "runs that memorise.",
            SHARES,
        ),
        sentences(
            f"{so_many(len(gaps), len(tables))} memorised before training ended",
            f"the gradient is that far below the bound, and farther than before, in {far}" if gaps else "",
            f"the bound is {before} times the gradient before memorising, and {after} times after" if gaps else "",
        ),
        verdict_of_share(sum(wider), len(gaps)),
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
