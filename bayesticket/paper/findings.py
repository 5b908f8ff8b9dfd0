"""The findings: five sentences and a figure, computed from the results; what has not been run is left out."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median
from typing import TypeVar

import plotly.graph_objects as go
import xarray as xr

from bayesticket.analysis import Times, log_rank_p, median_time
from bayesticket.figures import ACCURACY, PALETTE, add_band, finish_arms, stacked, style
from bayesticket.paper import controls, tickets
from bayesticket.paper.arms import PLAIN, STRENGTH
from bayesticket.paper.comparing import arm_of
from bayesticket.paper.factorial import DECAY, FREE, name_of
from bayesticket.paper.figure import FEWEST, STANDARD_NAME, curves_of, diverged_runs
from bayesticket.paper.readings import CHANCE, HALF, TEST, UNSEEN
from bayesticket.paper.results import Results
from bayesticket.paper.scorecard import MODELS
from bayesticket.paper.strengths import strength_arm
from bayesticket.paper.times import arm_times, grokked_at
from bayesticket.paper.words import across, listed, so_many
from bayesticket.runs import TrainConfig, restore_config
from bayesticket.sweeps import Runs

TERMS = (
    f"A run groks when it answers {UNSEEN.threshold:.0%} of the unseen test examples: those (a, b) whose mirror image "
    "(b, a) is not in training either. The minimal model is the paper's, without a residual path; a standard layer has "
    f"one. The prior is a penalty, of strength {STRENGTH:g}, that draws attention to the operands a and b."
)
"""The words in which the findings are said."""
MIRRORED = "mirrored_accuracy"
UNAIDED = "constant distractors"
"""The arm of Figure 1 in which mirror pairs are looked at."""
HIDDEN = 0.05
"""Test accuracy misleads when it exceeds unseen accuracy by this much."""


@dataclass(frozen=True)
class Finding:
    """What the runs of one model show of a subject."""

    said: str
    """In full, to follow “In the minimal model”."""
    aside: str
    """The same in short, to stand beside what another model shows."""


_Arm = TypeVar("_Arm", bound=Hashable)
Found = Mapping[str, Results]
"""Results by the name of their figure."""


def findings(results: Found) -> dict[str, str]:
    """A sentence for each subject of which there are results, by a heading."""
    minimal, standard = _by_model(results)
    said = {}
    for heading, subject in SUBJECTS.items():
        first, second = subject(minimal), subject(standard)
        if first is not None:
            beside = "" if second is None else "the same" if second.aside == first.aside else second.aside
            said[heading] = f"In the minimal model, {first.said}{f' (standard layer: {beside})' if beside else ''}."
        elif second is not None:
            said[heading] = f"In a standard layer, {second.said}."
    return said


def _by_model(results: Found) -> tuple[Found, Found]:
    """The results of either model by the name of the minimal one's figure, without those that show nothing."""
    known = {
        name: each
        for name, each in results.items()
        if not diverged_runs(each.runs) and bool(each.runs.curves[UNSEEN.curve].notnull().any("epoch").all())
    }
    standard = {name.removesuffix(STANDARD_NAME): known[name] for name in known if name.endswith(STANDARD_NAME)}
    return {name: known[name] for name in known if not name.endswith(STANDARD_NAME)}, standard


# Mirror pairs -----------------------------------------------------------------------------------------------------


def with_mirrored(results: Results, arm: str) -> tuple[Runs, float]:
    """The runs of an arm with the accuracy on mirrored test examples, and the share of these.

    Of `n` test examples `u` are unseen; of the others the mirror image is in training. Accuracy on these is
    `(n · test − u · unseen) / (n − u)`, and not known where there are none.
    """
    runs = results.runs.sel(intervention=[arm])
    sizes = [_sizes(restore_config(results.headers[arm, seed].config, {})) for seed in runs.seeds]
    n, u = (xr.DataArray(list(each), dims="seed") for each in zip(*sizes, strict=True))
    answered = n * runs.curves[TEST.curve] - u * runs.curves[UNSEEN.curve]
    mirrored = (answered / (n - u).where(n > u)).clip(0, 1)
    return Runs(runs.curves.assign({MIRRORED: mirrored})), float(((n - u) / n).mean())


@lru_cache(maxsize=64)
def _sizes(config: TrainConfig) -> tuple[int, int]:
    """The number of test examples, and of unseen ones among them."""
    test = config.split().test
    return len(test), len(test) if test.unseen is None else int(test.unseen.sum())


def _mirrors(found: Found) -> Finding | None:
    if "fig1" not in found:
        return None
    runs, share = with_mirrored(found["fig1"], UNAIDED)
    unaided = f"without a prior, with {UNAIDED}"
    gaps, highest = [], []
    for curves in curves_of(runs, UNAIDED).values():
        gap = curves[TEST.curve] - curves[UNSEEN.curve]
        gaps.append(float(gap.max()))
        highest.append([float(curves[name].loc[gap.idxmax()]) for name in (TEST.curve, UNSEEN.curve, MIRRORED)])
    if max(gaps) < HIDDEN:
        said = f"test accuracy is at most {100 * max(gaps):.1f} percentage points above unseen accuracy"
        return Finding(f"{unaided}, {said}", said)
    tests, unseens, mirroreds = zip(*highest, strict=True)
    reached = f"test accuracy is {across(tests, '.0%')} while unseen accuracy is {median(unseens):.1%}"
    nothing = ", although it has generalised nothing" if max(unseens) < CHANCE else ""
    return Finding(
        f"{unaided}, {reached}: the model answers {median(mirroreds):.0%} of the test examples b + a whose "
        f"a + b is in training, which are {share:.0%} of all test examples{nothing}",
        reached,
    )


def mirror_figure(results: Found) -> tuple[str, go.Figure] | None:
    """The caption and the figure of test accuracy without a prior, on mirrored and on unseen pairs."""
    models = {
        model: with_mirrored(found["fig1"], UNAIDED)
        for model, found in zip(MODELS, _by_model(results), strict=True)
        if "fig1" in found
    }
    if not models:
        return None
    shown = {
        MIRRORED: ("b + a, where a + b is in training", PALETTE[2]),
        TEST.curve: ("all test examples", style.TEST),
        UNSEEN.curve: ("unseen test examples", style.UNSEEN),
    }
    panels = [replace(ACCURACY, title=f"test accuracy, {model}") for model in models]
    figure = stacked(panels, panel_height=220)
    for panel, (runs, _) in enumerate(models.values(), 1):
        for curve, (name, colour) in shown.items():
            add_band(figure, runs, UNAIDED, curve, panel=panel, colour=colour, name=name)
    finish_arms(figure, panels, max(int(runs.curves["trained"].max()) for runs, _ in models.values()))
    share = listed(list(dict.fromkeys(f"{share:.0%}" for _, share in models.values())), "or")
    caption = (
        f"Training without a prior, with constant distractors: accuracy on the {share} of test examples whose mirror "
        "image is in training, on unseen ones, and on all; median and quartiles over seeds."
    )
    return caption, figure


# Grokking times ---------------------------------------------------------------------------------------------------

PRIOR = {
    "fig3": (strength_arm("random distractors", 0.0), strength_arm("random distractors", STRENGTH)),
    "controls": (controls.NONE, controls.ORACLE),
    "fig5": ("no prior, random distractors", "KL prior, random distractors"),
}
"""The arms without a prior and with it, in each figure that has both."""


def _prior(found: Found) -> Finding | None:
    name = next((name for name in PRIOR if name in found), None)
    if name is None:
        return None
    without, given = (arm_times(found[name].runs, arm) for arm in PRIOR[name])
    counted = f"{_grokked(without, 'without a prior')}, and {_grokked(given, 'with the prior')}"
    return Finding(f"with random distractors, {counted}; {_p(given, without)}", counted.replace(" grokked", ""))


def _grokked(times: Times, arm: str) -> str:
    epoch = median_time(times).value
    at = "" if epoch is None else f", at median epoch {epoch:,.0f}"
    return f"{so_many(int(times.reached.sum()), len(times))} grokked {arm}{at}"


def _p(first: Times, second: Times) -> str:
    return f"log-rank p = {log_rank_p(first, second):.2g}"


def by_count(times: Mapping[str, Times]) -> Finding:
    """How many runs of each arm grokked, arms of one count together.

    >>> some = {"with a": [200], "with b": [None], "with c": [900]}
    >>> by_count({name: Times.of(epochs * 5, trained=[900] * 5) for name, epochs in some.items()}).said
    'all 5 runs grokked with a and with c; none of 5 runs with b'
    """
    arms: dict[int, list[str]] = {}
    for name, each in times.items():
        arms.setdefault(int(each.reached.sum()), []).append(name)
    of = len(next(iter(times.values())))
    counted = [(so_many(n, of), listed(arms[n], "and" if n else "or")) for n in sorted(arms, reverse=True)]
    (most, where), *others = counted
    said = "; ".join([f"{most} grokked {where}", *(f"{count} {names}" for count, names in others)])
    return Finding(said, said if others else f"{most} grokked in each case")


def _parts(times: Mapping[_Arm, Times], arms: Iterable[_Arm]) -> bool:
    """Whether all runs of these arms grokked and none of the others, and there are enough of them to say so."""
    chosen = set(arms)
    few = any(len(each) < FEWEST for each in times.values())
    return not few and all(
        each.reached.all() if arm in chosen else not each.reached.any() for arm, each in times.items()
    )


AIMED = {controls.ORACLE: "with the prior", "attention frozen at the oracle": "with attention frozen on the operands"}
ELSEWHERE = {
    controls.NONE: "without a prior",
    "gradient noise of equal norm": "with noise as large as the prior's gradient",
    "KL to a wrong target": "with a prior toward wrong positions",
    "KL to the oracle permuted per example": "with the prior's target permuted in each example",
    "attention frozen, uniform": "with attention frozen uniform",
}
"""The controls in which attention is led to the operands, and the others."""


def _controls(found: Found) -> Finding | None:
    if "controls" not in found:
        return None
    times = {arm: arm_times(found["controls"].runs, arm) for arm in (*AIMED, *ELSEWHERE)}
    counted = by_count({{**AIMED, **ELSEWHERE}[arm]: each for arm, each in times.items()})
    ending = ", so that what decides is where attention points, and not that it gets a gradient"
    return Finding(f"with random distractors, {counted.said}{ending if _parts(times, AIMED) else ''}", counted.aside)


BOTH = (DECAY, "oracle")
CELLS = {
    BOTH: "with both weight decay and the prior",
    (DECAY, "no prior"): "with weight decay alone",
    (FREE, "oracle"): "with the prior alone",
    (FREE, "no prior"): "with neither",
}
"""The arms of Figure 2 that cross weight decay with the prior."""


def _factorial(found: Found) -> Finding | None:
    if "fig2" not in found:
        return None
    times = {cell: arm_times(found["fig2"].runs, name_of(*cell)) for cell in CELLS}
    counted = by_count({CELLS[cell]: each for cell, each in times.items()})
    ending = ", so that it takes both" if _parts(times, [BOTH]) else ""
    return Finding(f"with two random distractors, {counted.said}{ending}", counted.aside)


def _tickets(found: Found) -> Finding | None:
    if "fig4" not in found:
        return None
    arms = (tickets.BAYES, tickets.TAUGHT, tickets.WINNING, tickets.TRANSFER, tickets.DENSE)
    times = {arm: arm_times(found["fig4"].runs, arm_of(PLAIN, arm)) for arm in arms}
    bayes, taught, own, fresh, dense = (grokked_at(times[arm]) for arm in arms)
    half = {arm: grokked_at(arm_times(found["fig4"].runs, arm_of(PLAIN, arm), HALF)) for arm in arms}
    return Finding(
        f"with constant distractors, the Bayesian ticket (fresh weights and the prior) grokked {bayes}, and the "
        f"winning ticket (pruned, then trained again) {own} on its own weights and {fresh} on fresh ones "
        f"({_p(times[tickets.BAYES], times[tickets.TRANSFER])} against the last); with a prior toward the attention of "
        f"a trained model fresh weights grokked {taught}; the dense model without either {dense}. But half of the "
        f"unseen examples were answered {half[tickets.BAYES]} by the Bayesian ticket, {half[tickets.WINNING]} and "
        f"{half[tickets.TRANSFER]} by the winning ticket, and {half[tickets.DENSE]} by the dense model",
        f"the Bayesian ticket {bayes}, the winning ticket {own} and {fresh}, with the attention of a trained model "
        f"{taught}, the dense model {dense}; half of the unseen examples {half[tickets.BAYES]}, "
        f"{half[tickets.WINNING]}, {half[tickets.TRANSFER]}, {half[tickets.TAUGHT]} and {half[tickets.DENSE]}",
    )


SUBJECTS: Mapping[str, Callable[[Found], Finding | None]] = {
    "Mirror images": _mirrors,
    "The prior": _prior,
    "Controls": _controls,
    "Norm and attention": _factorial,
    "Tickets": _tickets,
}
"""What is said, in this order; each is None without the results of its figure."""
