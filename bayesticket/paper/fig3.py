"""Figure 3: the strength of the KL prior against the time it takes to grok; its controls are in `controls`."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

import numpy as np
import plotly.graph_objects as go

from bayesticket.analysis import Estimate, PowerLaw, Times, log_rank_p, power_law
from bayesticket.errors import BayesticketError
from bayesticket.figures import ACCURACY, GREY, PALETTE, TEMPLATE, add_band, finish_arms, shades, stacked
from bayesticket.interventions import KLPrior
from bayesticket.paper.figure import (
    LAYOUTS,
    STRENGTH,
    THRESHOLD,
    Claim,
    PaperFigure,
    Scale,
    Verdict,
    arm,
    at_both_thresholds,
    baseline,
    with_prior,
)
from bayesticket.paper.times import EARLIER, earlier, share
from bayesticket.paper.words import sentences, so_many
from bayesticket.runs import TrainConfig
from bayesticket.sweeps import Runs

STRENGTHS = (0.01, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0)


def strength_arm(layout: str, strength: float) -> str:
    """The name of an arm of the sweep; strength 0 is the baseline."""
    return f"{layout}, strength {strength:g}"


def arms(scale: Scale) -> Mapping[str, TrainConfig]:
    """The strengths in both layouts, and the baselines."""
    found: dict[str, TrainConfig] = {}
    for layout, distractors in LAYOUTS.items():
        found[strength_arm(layout, 0)] = baseline(scale, distractors)
        for strength in STRENGTHS:
            found[strength_arm(layout, strength)] = (
                with_prior(scale, distractors)
                if strength == STRENGTH
                else arm(scale, KLPrior(strength=strength), distractors=distractors)
            )
    return found


# Pictures ---------------------------------------------------------------------------------------------------------


def draw(runs: Runs) -> Mapping[str, go.Figure]:
    """Accuracy by strength, and grokking times by strength with the fitted law."""
    return {
        "Test accuracy by the strength of the prior; median and quartiles over seeds.": _accuracies(runs),
        "Grokking time against 1/strength. A dot is a run; a triangle one that had not grokked when training ended. "
        "The line is the fitted law, floor + c · strength⁻ᵇ.": _law(runs),
    }


def _accuracies(runs: Runs) -> go.Figure:
    panels = [replace(ACCURACY, title=f"test accuracy, {layout}") for layout in LAYOUTS]
    figure = stacked(panels, panel_height=220)
    colours = dict(zip((0.0, *STRENGTHS), (GREY, *shades(len(STRENGTHS))), strict=True))
    for panel, layout in enumerate(LAYOUTS, 1):
        for strength, colour in colours.items():
            name, label = strength_arm(layout, strength), f"{strength:g}" if strength else "none"
            add_band(figure, runs, name, "test_accuracy", panel=panel, colour=colour, name=label)
    finish_arms(figure, panels, int(runs.curves["trained"].max()))
    return figure


def _law(runs: Runs) -> go.Figure:
    figure = go.Figure()
    inverse = 1 / np.array(STRENGTHS)
    fine = np.geomspace(inverse.min(), inverse.max(), 80)
    for colour, layout in zip(PALETTE, LAYOUTS, strict=False):
        times = {strength: runs.times(strength_arm(layout, strength), THRESHOLD) for strength in STRENGTHS}
        for reached, symbol, note in ((True, "circle", "grokked"), (False, "triangle-up-open", "not grokked")):
            points = [
                (1 / strength, epoch)
                for strength, arm_times in times.items()
                for epoch, did in zip(arm_times.epochs, arm_times.reached, strict=True)
                if bool(did) is reached
            ]
            if points:
                x, y = zip(*points, strict=True)
                figure.add_scatter(
                    x=x, y=y, mode="markers", marker={"color": colour, "symbol": symbol, "size": 8, "opacity": 0.75},
                    name=layout, legendgroup=layout, showlegend=reached, hovertemplate=f"%{{y:,}} ({note})",
                )  # fmt: skip
        if (law := _fit(runs, layout, THRESHOLD)) is not None:
            figure.add_scatter(
                x=fine, y=law.at(1 / fine), mode="lines", name=f"{layout}, fit",
                line={"color": colour, "width": 1.5, "dash": "dash"}, legendgroup=layout, hoverinfo="skip",
            )  # fmt: skip
    figure.update_layout(template=TEMPLATE, height=440, margin={"t": 40}, legend={"x": 0.02, "y": 0.98})
    figure.update_xaxes(type="log", title_text="1 / strength", dtick=1)
    figure.update_yaxes(type="log", title_text="epoch of grokking", tickformat=",d", dtick="D2")
    return figure


# Claims -----------------------------------------------------------------------------------------------------------


def judge_at(runs: Runs, threshold: float) -> list[Claim]:
    """Earlier with strength, and linear in its inverse, in each layout."""
    return [
        claim for layout in LAYOUTS for claim in (_earlier(runs, layout, threshold), _linear(runs, layout, threshold))
    ]


def _earlier(runs: Runs, layout: str, threshold: float) -> Claim:
    names = {strength: strength_arm(layout, strength) for strength in (0.0, *STRENGTHS)}
    times = {strength: runs.times(name, threshold) for strength, name in names.items()}
    weak, strong = times[STRENGTHS[0]], times[STRENGTHS[-1]]
    medians = [f"Strength {strength:g}: {share(each)}." for strength, each in times.items() if strength]
    return Claim(
        f"A stronger prior groks earlier ({layout}).",
        (f"The strongest prior ({STRENGTHS[-1]:g}) groks earlier than the weakest ({STRENGTHS[0]:g}).", EARLIER),
        "\n".join([f"Log-rank p = {log_rank_p(weak, strong):.2g}.", f"No prior: {share(times[0.0])}.", *medians]),
        earlier(strong, weak),
        arms=tuple(names.values()),
    )


def _fit(runs: Runs, layout: str, threshold: float) -> PowerLaw | None:
    """The law with a floor, or where none can be fitted without; None where too few runs grokked."""
    return _law_of(runs, layout, threshold, floor=True) or _law_of(runs, layout, threshold, floor=False)


def _law_of(runs: Runs, layout: str, threshold: float, *, floor: bool) -> PowerLaw | None:
    times = (runs.times(strength_arm(layout, strength), threshold) for strength in STRENGTHS)
    return _fitted(tuple((tuple(each.epochs.tolist()), tuple(each.reached.tolist())) for each in times), floor=floor)


@lru_cache(maxsize=64)
def _fitted(times: tuple[tuple[tuple[float, ...], tuple[bool, ...]], ...], *, floor: bool) -> PowerLaw | None:
    """The law of these epochs, fitted once: a page both draws it and judges it."""
    with suppress(BayesticketError):  # too few grokked, or for a floor the times do not fall with strength
        return power_law(STRENGTHS, [Times(np.array(epochs), np.array(did)) for epochs, did in times], floor=floor)
    return None


def _linear(runs: Runs, layout: str, threshold: float) -> Claim:
    law, slope = _fit(runs, layout, threshold), _law_of(runs, layout, threshold, floor=False)
    return Claim(
        f"The grokking time is linear in 1/strength, down to a floor ({layout}).",
        (
            "T = floor + c · strength⁻ᵇ is fitted by maximum likelihood, with runs that never grok censored, and "
            "without a floor where none can be fitted. If the 95% interval of b does not contain 1, the claim is not "
            "reproduced. If it contains 1 and not 0, it is reproduced. All else is undecided.",
        ),
        _in_words(law, slope),
        linear(law.exponent) if law else "undecided",
        arms=tuple(strength_arm(layout, strength) for strength in STRENGTHS),
    )


def _in_words(law: PowerLaw | None, slope: PowerLaw | None) -> str:
    if law is None:
        return "Too few runs grokked to fit a law."
    floor = "no floor can be fitted" if law.floor is None else f"the floor is {law.floor}"
    return sentences(
        f"the exponent b is {law.exponent}, and {floor}",
        f"{so_many(law.n_censored, law.n)} never grokked",
        "" if slope is None else f"the log-log slope, without a floor, is {slope.exponent}",
    )


def linear(exponent: Estimate) -> Verdict:
    """What the interval of an exponent says about proportionality."""
    low = -np.inf if exponent.low is None else exponent.low
    high = np.inf if exponent.high is None else exponent.high
    if not low <= 1 <= high:
        return "not reproduced"
    return "undecided" if low <= 0 else "reproduced"


FIGURE = PaperFigure(
    "fig3",
    "Figure 3: the strength of the prior",
    "A KL prior toward the oracle at strengths over two and a half decades, with random and with constant distractors.",
    arms,
    draw,
    at_both_thresholds(judge_at),
    notes=("What might do the same without its structure is tried in the controls.",),
)
