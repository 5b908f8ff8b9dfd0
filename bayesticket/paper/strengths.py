"""Grokking time as a law of the prior's strength: the fits of Figure 3, drawn and judged."""

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache

import numpy as np
import plotly.graph_objects as go

from bayesticket.analysis import Estimate, PowerLaw, Times, added_rates, log_rank_p, power_law
from bayesticket.errors import BayesticketError
from bayesticket.figures import PALETTE, TEMPLATE
from bayesticket.paper.arms import LAYOUTS
from bayesticket.paper.figure import Claim, Verdict
from bayesticket.paper.readings import UNSEEN, Grokking
from bayesticket.paper.times import EARLIER, arm_times, earlier, share
from bayesticket.paper.words import sentences, so_many
from bayesticket.sweeps import Runs

STRENGTHS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 3.0, 10.0)
LAWS = {
    "added rates": "added rates, with a floor",
    "floor": "a power law with a floor",
    "slope": "a power law without a floor",
}
"""The laws that are fitted, the one that is judged by first."""


def strength_arm(layout: str, strength: float) -> str:
    """The name of an arm of the sweep; strength 0 is the baseline."""
    return f"{layout}, strength {strength:g}"


def times_by_strength(runs: Runs, layout: str, reading: Grokking) -> dict[float, Times]:
    """The grokking times at each strength, 0 first."""
    return {strength: arm_times(runs, strength_arm(layout, strength), reading) for strength in (0.0, *STRENGTHS)}


def laws_of(times: Mapping[float, Times]) -> dict[str, PowerLaw | None]:
    """The laws that are fitted to times by strength; None where the runs that grokked do not determine one."""
    given = tuple((s, tuple(each.epochs.tolist()), tuple(each.reached.tolist())) for s, each in times.items())
    return {law: _fitted(given, law) for law in LAWS}


@lru_cache(maxsize=256)
def _fitted(given: tuple[tuple[float, tuple[float, ...], tuple[bool, ...]], ...], law: str) -> PowerLaw | None:
    """One law of these epochs, fitted once: a page both draws it and judges it."""
    chosen = [each for each in given if each[0] > 0 or law == "added rates"]
    times = [Times(np.array(epochs), np.array(reached)) for _, epochs, reached in chosen]
    strengths = [strength for strength, _, _ in chosen]
    with suppress(BayesticketError):  # too few grokked, or the times do not fall with strength
        if law == "added rates":
            return added_rates(strengths, times, floor=True)
        return power_law(strengths, times, floor=law == "floor")
    return None


ROOT, SQUARE = 0.5, 2.0


def linear(exponent: Estimate) -> Verdict:
    """What the interval of an exponent says about proportionality; see `LINEAR`."""
    low, high = _ends(exponent)
    if not low <= 1 <= high:
        return "not reproduced"
    return "reproduced" if low > ROOT and high < SQUARE else "undecided"


def _ends(exponent: Estimate) -> tuple[float, float]:
    low, high = exponent.low, exponent.high
    return -np.inf if low is None else low, np.inf if high is None else high


LINEAR = (
    "If the 95% interval of the exponent does not contain 1, the claim is not reproduced. If it contains 1, and "
    "neither ½ nor 2, it is reproduced. Times that surely do not fall (the interval of the exponent of a power law "
    "without a floor ends at 0 or below) are not reproduced. All else is undecided, as are times that determine no law."
)
"""The rule of `verdict_on_law`, in words."""


def verdict_on_law(law: PowerLaw | None, plain: PowerLaw | None) -> Verdict:
    """What a fitted law says about proportionality, given a power law without a floor for times that do not fall."""
    if law is not None:
        return linear(law.exponent)
    return "not reproduced" if plain is not None and _ends(plain.exponent)[1] <= 0 else "undecided"


def verdicts_on_laws(laws: Mapping[str, PowerLaw | None]) -> dict[str, Verdict]:
    """The verdict on each of `LAWS`, by what it is called."""
    return {LAWS[name]: verdict_on_law(law, laws["slope"]) for name, law in laws.items()}


def earlier_with_strength(runs: Runs, layout: str, reading: Grokking) -> Claim:
    """Whether the strongest prior groks earlier than the weakest."""
    times = times_by_strength(runs, layout, reading)
    none, weak, strong = times[0.0], times[STRENGTHS[0]], times[STRENGTHS[-1]]
    fastest = times[1.0]
    medians = [f"Strength {strength:g}: {share(each)}." for strength, each in times.items() if strength]
    return Claim(
        f"A stronger prior groks earlier ({layout}).",
        (f"The strongest prior ({STRENGTHS[-1]:g}) groks earlier than the weakest ({STRENGTHS[0]:g}).", EARLIER),
        "\n".join([f"Log-rank p = {log_rank_p(weak, strong):.2g}.", f"No prior: {share(none)}.", *medians]),
        earlier(strong, weak),
        arms=tuple(strength_arm(layout, strength) for strength in times),
        readings={
            "strength 1 against the weakest": earlier(fastest, weak),
            "strength 1 against no prior": earlier(fastest, none),
        },
    )


def linear_in_inverse(runs: Runs, layout: str, reading: Grokking) -> Claim:
    """Whether the grokking time is linear in the inverse of the strength."""
    laws = laws_of(times_by_strength(runs, layout, reading))
    verdict, *others = verdicts_on_laws(laws).items()
    return Claim(
        f"The grokking time is linear in 1/strength, down to a floor ({layout}).",
        (
            "The prior's rate adds to the rate without one, 1/(T − floor) = 1/(T₀ − floor) + strengthᵇ/c, T₀ the time "
            "at strength 0: fitted by maximum likelihood, with runs that never grok censored.",
            LINEAR,
        ),
        "\n".join(_in_words(LAWS[name], law) for name, law in laws.items()),
        verdict[1],
        arms=tuple(strength_arm(layout, strength) for strength in (0.0, *STRENGTHS)),
        readings=dict(others),
    )


def _in_words(name: str, law: PowerLaw | None) -> str:
    if law is None:
        return f"{name[0].upper()}{name[1:]}: the runs that grokked do not determine it."
    floor = "" if law.floor is None else f"the floor is {law.floor}"
    unaided = "" if law.unaided is None else f"without a prior the time is {_epochs(law.unaided)}"
    said = sentences(
        ", ".join(filter(None, (f"the exponent is {law.exponent}", floor, unaided))),
        f"{so_many(law.n - law.n_censored, law.n)} grokked",
    )
    return f"{name[0].upper()}{name[1:]}: {said[0].lower()}{said[1:]}"


def _epochs(time: float) -> str:
    return f"{time:,.0f}" if np.isfinite(time) else "infinite"


def plot_law(runs: Runs) -> go.Figure:
    """Every run's grokking time against the inverse strength, with the fitted laws."""
    figure = go.Figure()
    inverse = 1 / np.array(STRENGTHS)
    fine = np.geomspace(inverse.min(), inverse.max(), 80)
    for colour, layout in zip(PALETTE, LAYOUTS, strict=False):
        times = times_by_strength(runs, layout, UNSEEN)
        for reached, symbol, note in ((True, "circle", "grokked"), (False, "triangle-up-open", "not grokked")):
            points = [
                (1 / strength, epoch)
                for strength, each in times.items()
                for epoch, did in zip(each.epochs, each.reached, strict=True)
                if strength and bool(did) is reached
            ]
            if points:
                x, y = zip(*points, strict=True)
                figure.add_scatter(
                    x=x, y=y, mode="markers", marker={"color": colour, "symbol": symbol, "size": 8, "opacity": 0.75},
                    name=layout, legendgroup=layout, showlegend=reached, hovertemplate=f"%{{y:,}} ({note})",
                )  # fmt: skip
        for name, dash in (("added rates", "dash"), ("floor", "dot")):
            if (law := laws_of(times)[name]) is not None:
                figure.add_scatter(
                    x=fine, y=law.at(1 / fine), mode="lines", name=f"{layout}, {name}",
                    line={"color": colour, "width": 1.5, "dash": dash}, legendgroup=layout, hoverinfo="skip",
                )  # fmt: skip
    figure.update_layout(
        template=TEMPLATE,
        height=480,
        margin={"t": 90},
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
    )
    figure.update_xaxes(type="log", title_text="1 / strength", dtick=1)
    figure.update_yaxes(type="log", title_text="epoch of grokking", tickformat=",d", dtick="D2")
    return figure
