"""When arms grok: plotted, in words, and compared; runs that never grokked are censored, not left out."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import cycle

import numpy as np
import plotly.graph_objects as go

from bayesticket.analysis import Estimate, Times, log_rank_excess, log_rank_p, median_time, ratio_of_medians
from bayesticket.figures import (
    ACCURACY,
    INK,
    PALETTE,
    TEMPLATE,
    Strip,
    add_band,
    add_strips,
    finish_arms,
    stacked,
    strips_of_arm,
)
from bayesticket.paper.figure import FEWEST, Verdict, arm_names
from bayesticket.paper.readings import UNSEEN, Grokking
from bayesticket.paper.words import so_many
from bayesticket.sweeps import Runs

SIGNIFICANT = 0.05
"""The p below which a log-rank test decides."""
EARLIER = (
    f"A log-rank test decides: earlier with p < {SIGNIFICANT:g} is reproduced, later with p < {SIGNIFICANT:g} is not "
    f"reproduced, and all else is undecided, as are fewer than {FEWEST} seeds."
)
"""The rule of `earlier`, in words."""
MATCHES = 1.25
"""Two arms match when the ratio of their medians is surely no larger."""
DOTS = "A dot is a run that grokked; a triangle one that had not when training ended; the bar is the median."
BANDS = "Unseen accuracy through training; median and quartiles over seeds."


def arm_times(runs: Runs, name: str, reading: Grokking = UNSEEN) -> Times:
    """The grokking times of an arm."""
    return runs.times(name, reading.threshold, curve=reading.curve)


def times_of(runs: Runs, reading: Grokking = UNSEEN) -> dict[str, Times]:
    """The grokking times of every arm."""
    return {name: arm_times(runs, name, reading) for name in arm_names(runs)}


def plot_accuracy(runs: Runs, names: Iterable[str]) -> go.Figure:
    """Unseen accuracy of some arms through training, median and quartiles over seeds."""
    panels = [replace(ACCURACY, title="")]  # the names of the arms stand there
    figure = stacked(panels, panel_height=300)
    strips: list[Strip] = []
    for colour, (name, shown) in zip(cycle(PALETTE), without_part(names).items(), strict=False):
        add_band(figure, runs, name, UNSEEN.curve, panel=1, colour=colour, name=shown)
        strips += strips_of_arm(runs.sel(**{runs.axes[0]: name}), colour, shown)
    finish_arms(figure, panels, int(runs.curves["trained"].max()))
    add_strips(figure, strips)
    return figure


def without_part(names: Iterable[str]) -> dict[str, str]:
    """Arms by name, without the part of a figure that they all are of; see `comparing.arm_of`.

    >>> list(without_part(["a (noise)", "b (noise)"]).values()), list(without_part(["a (noise)", "b"]).values())
    (['a', 'b'], ['a (noise)', 'b'])
    """
    names = list(names)
    parts = {name[name.rfind(" (") :] if name.endswith(")") else "" for name in names}
    part = parts.pop() if len(parts) == 1 else ""
    return {name: name.removesuffix(part) for name in names}


def plot_times(arms: Mapping[str, Times]) -> go.Figure:
    """A dot for each run that grokked, an open triangle where another had not when it ended, a bar at the median."""
    figure = go.Figure()
    for row, (name, times) in enumerate(arms.items()):
        spread = np.linspace(-0.18, 0.18, len(times.epochs)) if len(times.epochs) > 1 else np.zeros(1)
        for reached, symbol in ((True, "circle"), (False, "triangle-right-open")):
            chosen = np.asarray(times.reached, dtype=bool) == reached
            figure.add_scatter(
                x=np.asarray(times.epochs)[chosen], y=row + spread[chosen], mode="markers", showlegend=False,
                marker={"symbol": symbol, "size": 9, "color": PALETTE[0] if reached else PALETTE[1]},
                hovertemplate=f"{name}: %{{x:,}}{'' if reached else ', not grokked'}<extra></extra>",
            )  # fmt: skip
        if (median := median_time(times).value) is not None:
            figure.add_shape(
                type="line", x0=median, x1=median, y0=row - 0.32, y1=row + 0.32, line={"color": INK, "width": 2}
            )
    figure.update_layout(template=TEMPLATE, height=110 + 40 * len(arms), margin={"t": 20, "l": 10})
    figure.update_yaxes(
        tickvals=list(range(len(arms))), ticktext=list(arms), autorange="reversed", showgrid=False, ticks=""
    )
    figure.update_xaxes(title_text="epoch of grokking", tickformat=",d", rangemode="tozero")
    return figure


def earlier(first: Times, second: Times, level: float = SIGNIFICANT) -> Verdict:
    """Whether one arm groks earlier than another, by a log-rank test; see `EARLIER`."""
    if min(len(first), len(second)) < FEWEST or log_rank_p(first, second) >= level:
        return "undecided"
    return "reproduced" if log_rank_excess(first, second) > 0 else "not reproduced"


def matches(first: Times, second: Times) -> bool:
    """Whether one arm surely takes hardly longer than another: the interval of the ratio ends below `MATCHES`."""
    ratio = ratio_of(first, second)
    enough = min(len(first), len(second)) >= FEWEST
    return enough and ratio is not None and ratio.high is not None and ratio.high <= MATCHES


def ratio_of(first: Times, second: Times) -> Estimate | None:
    """The ratio of two arms' medians; None where a run grokked at epoch 0, by which nothing can be divided."""
    positive = bool((first.epochs > 0).all() and (second.epochs > 0).all())
    return ratio_of_medians(first, second) if positive else None


def share(times: Times) -> str:
    """How many runs of an arm grokked, and their median.

    >>> share(Times.of([1300, 1200, None], trained=[10_000] * 3)), share(Times.of([None] * 3, trained=[10_000] * 3))
    ('2 of 3 runs grokked, median 1,300 [0, open]', 'none of 3 runs grokked')
    """
    grokked = f"{so_many(int(np.sum(times.reached)), len(times))} grokked"
    return f"{grokked}, median {median_time(times)}" if times.reached.any() else grokked


def grokked_at(times: Times) -> str:
    """When the runs of an arm grokked, or how many did, to follow “grokked”.

    >>> [grokked_at(Times.of(epochs, trained=[900] * 3)) for epochs in ([100, 500, 400], [100, 500, None], [None] * 3)]
    ['at median epoch 400', 'in 2 of 3 runs, at median epoch 500', 'in none of 3 runs']
    """
    n, middle = int(np.sum(times.reached)), median_time(times).value
    counted = [] if n == len(times) else [f"in {so_many(n, len(times))}"]
    return ", ".join(counted if middle is None else [*counted, f"at median epoch {middle:,.0f}"])


def shares(times: Mapping[str, Times], names: Iterable[str]) -> str:
    """How many runs of these arms grokked, and their medians, a line each."""
    return "\n".join(f"{name}: {share(times[name])}." for name in names)


def compared(times: Mapping[str, Times], first: str, second: str) -> str:
    """The log-rank test of two arms, in words."""
    return f"Log-rank p = {log_rank_p(times[first], times[second]):.2g} for “{first}” against “{second}”."
