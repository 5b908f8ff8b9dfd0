"""Figure 2: norm control crossed with where attention is drawn."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import median

import plotly.graph_objects as go

from bayesticket.figures import ACCURACY, PALETTE, TEMPLATE, add_band, finish_arms, stacked
from bayesticket.interventions import KLPrior, NormMatch, QKPenalty, Recipe
from bayesticket.paper.figure import (
    CHANCE,
    SHARES,
    STRENGTH,
    THRESHOLD,
    Claim,
    PaperFigure,
    Scale,
    Verdict,
    arm,
    arm_names,
    baseline,
    curves_of,
    verdict_of_share,
    with_prior,
)
from bayesticket.paper.words import across, sentences, so_many
from bayesticket.runs import TrainConfig
from bayesticket.sweeps import Configs, Runs

PRIORS = {
    "no prior": Recipe(),
    "oracle": KLPrior(strength=STRENGTH),
    "adversarial": KLPrior("adversarial", strength=STRENGTH),
}
NORMS = ("weight decay", "none", "norm matching")
QK = "norm matching and QK penalty"


def name_of(norm: str, prior: str) -> str:
    """The name of an arm."""
    return f"{norm} × {prior}"


def arms(scale: Scale) -> Mapping[str, TrainConfig]:
    """What needs no radius: with weight decay and without, under each prior."""
    decayed = {
        "no prior": baseline(scale, "constant"),
        "oracle": with_prior(scale, "constant"),
        "adversarial": arm(scale, PRIORS["adversarial"], distractors="constant"),
    }
    free = {prior: arm(scale, recipe, distractors="constant", weight_decay=0.0) for prior, recipe in PRIORS.items()}
    return {
        name_of(norm, prior): c for norm, row in zip(NORMS, (decayed, free), strict=False) for prior, c in row.items()
    }


def radius_of(runs: Runs) -> float:
    """The norm of the MLP at which the baselines grok, the median over those that do; if none does, where they end."""
    name = name_of("weight decay", "no prior")
    grokked = runs.grok_epochs(THRESHOLD).loc[name].dropna()
    at_grokking = [float(curves_of(runs, name)[int(seed)]["mlp_norm"].loc[epoch]) for seed, epoch in grokked.items()]
    at_the_end = [float(curves["mlp_norm"].iloc[-1]) for curves in curves_of(runs, name).values()]
    return round(median(at_grokking or at_the_end), 1)


def then(scale: Scale, runs: Runs) -> Configs:
    """The norm-matched arms, whose radius is that of the grokked baselines."""
    sphere = NormMatch(radius=radius_of(runs))
    recipes = {name_of("norm matching", prior): recipe + sphere for prior, recipe in PRIORS.items()}
    recipes |= {name_of(QK, prior): PRIORS[prior] + QKPenalty(0.5) + sphere for prior in ("no prior", "oracle")}
    return {
        (name, seed): replace(arm(scale, recipe, distractors="constant", weight_decay=0.0), seed=seed)
        for seed in range(scale.seeds)
        for name, recipe in recipes.items()
    }


def draw(runs: Runs) -> Mapping[str, go.Figure]:
    """Test accuracy through training, and at its best."""
    names = arm_names(runs)
    rows = [norm for norm in (*NORMS, QK) if any(name_of(norm, prior) in names for prior in PRIORS)]
    panels = [replace(ACCURACY, title=_TITLES[norm]) for norm in rows]
    curves = stacked(panels, panel_height=150)
    best = go.Figure()
    for colour, prior in zip(PALETTE, PRIORS, strict=False):
        seen = False
        for panel, norm in enumerate(rows, 1):
            if (name := name_of(norm, prior)) not in names:
                continue
            add_band(curves, runs, name, "test_accuracy", panel=panel, colour=colour, name=prior, in_legend=not seen)
            best.add_trace(_dots(_TITLES[norm], _best(runs, name), prior, colour, in_legend=not seen))
            seen = True
    finish_arms(curves, panels, int(runs.curves["trained"].max()))
    best.update_layout(
        template=TEMPLATE, boxmode="group", height=360, margin={"t": 40},
        yaxis={"title": {"text": "best test accuracy"}, "tickformat": ".0%", "range": [-0.03, 1.05]},
        legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"},
    )  # fmt: skip
    return {
        "The best test accuracy of each run; one dot a seed.": best,
        "Test accuracy through training; median and quartiles over seeds.": curves,
    }


_TITLES = {
    "weight decay": "weight decay 1.0",
    "none": "no norm control",
    "norm matching": "norm matching",
    QK: "norm matching, QK penalty 0.5",
}


def _dots(x: str, values: list[float], name: str, colour: str, *, in_legend: bool) -> go.Box:
    return go.Box(
        x=[x] * len(values), y=values, name=name, offsetgroup=name, legendgroup=name, showlegend=in_legend,
        boxpoints="all", pointpos=0, jitter=0.5, marker={"color": colour, "size": 8}, line={"color": "rgba(0,0,0,0)"},
        fillcolor="rgba(0,0,0,0)", hovertemplate="%{y:.2%}",
    )  # fmt: skip


def judge(runs: Runs) -> list[Claim]:
    """The claims of the factorial, and what the control of the attention's norm says of them."""
    controlled = ("weight decay", "norm matching")
    return [
        _count(
            runs,
            "Under norm control, attention forced onto the distractors stays at chance.",
            f"Test accuracy never reaches {CHANCE:.0%}",
            [name_of(norm, "adversarial") for norm in controlled],
            lambda best: best < CHANCE,
        ),
        _improves(runs),
        _count(
            runs,
            "Norm control and the oracle together generalise perfectly.",
            f"Test accuracy reaches {THRESHOLD:.0%}",
            [name_of(norm, "oracle") for norm in controlled],
            lambda best: best >= THRESHOLD,
        ),
        _count(
            runs,
            "Without norm control nothing generalises perfectly.",
            f"Test accuracy never reaches {THRESHOLD:.0%}",
            [name_of("none", prior) for prior in PRIORS],
            lambda best: best < THRESHOLD,
        ),
        _count(
            runs,
            "Norm control alone, without a prior toward the oracle, does not generalise perfectly.",
            f"Test accuracy never reaches {THRESHOLD:.0%}",
            [name_of(norm, "no prior") for norm in controlled],
            lambda best: best < THRESHOLD,
            by="a strong reading of the paper",
        ),
        _without_their_norms(runs),
    ]


def _best(runs: Runs, name: str) -> list[float]:
    return [float(curves["test_accuracy"].max()) for curves in curves_of(runs, name).values()]


EACH_ARM = (
    "Each arm is judged by itself. Where their verdicts differ, the claim is partly reproduced, and where one is "
    "undecided, it is undecided."
)
"""The rule of `_together`, in words."""


def _count(
    runs: Runs, said: str, rule: str, names: list[str], holds: Callable[[float], bool], by: str = "the paper"
) -> Claim:
    best = {name: _best(runs, name) for name in names}
    counts = {name: sum(map(holds, values)) for name, values in best.items()}
    verdicts: set[Verdict] = {verdict_of_share(counts[name], len(values)) for name, values in best.items()}
    measured = (
        f"{name}: this holds in {so_many(counts[name], len(values))}; best test accuracy {across(values, '.1%')}."
        for name, values in best.items()
    )
    return Claim(said, (f"{rule}.", SHARES, EACH_ARM), "\n".join(measured), _together(verdicts), by, arms=names)


def _together(verdicts: set[Verdict]) -> Verdict:
    if "undecided" in verdicts:
        return "undecided"
    return verdicts.pop() if len(verdicts) == 1 else "partly"


def _without_their_norms(runs: Runs) -> Claim:
    names = [name_of(norm, "oracle") for norm in ("norm matching", QK)]
    free, held = (_best(runs, name) for name in names)
    pairs = [kept >= THRESHOLD for best, kept in zip(free, held, strict=True) if best >= THRESHOLD]
    reached = f"{THRESHOLD:.0%} was reached"
    return Claim(
        "The oracle does not act through the norms of W_Q and W_K: with these held small, it generalises too.",
        (
            f"A seed reaches {THRESHOLD:.0%} test accuracy with the QK penalty. Counted are the seeds that reach it "
            "with norm matching and the oracle alone.",
            SHARES,
        ),
        sentences(
            f"without the penalty {reached} with {so_many(len(pairs), len(free), 'seed')}",
            f"with the penalty it was reached with {so_many(sum(pairs), len(pairs), 'seed', 'of these')}" * bool(pairs),
            f"best test accuracy is {across(free, '.1%')} without the penalty, {across(held, '.1%')} with it",
        ),
        verdict_of_share(sum(pairs), len(pairs)),
        "a control",
        arms=names,
    )


def _improves(runs: Runs) -> Claim:
    names = [name_of("none", prior) for prior in ("oracle", "no prior")]
    with_it, without = (_best(runs, name) for name in names)
    improved = sum(best > other for best, other in zip(with_it, without, strict=True))
    partial = sum(other < best < THRESHOLD for best, other in zip(with_it, without, strict=True))
    return Claim(
        "The oracle without norm control improves, but does not generalise fully.",
        (
            "The best test accuracy of a run is above that of the same seed without a prior, and below "
            f"{THRESHOLD:.0%}.",
            SHARES,
        ),
        sentences(
            f"best test accuracy is {across(with_it, '.1%')} with the oracle, {across(without, '.1%')} without a prior",
            f"it is above that of the same seed without a prior in {so_many(improved, len(with_it))}",
            f"it is also below {THRESHOLD:.0%} in {so_many(partial, len(with_it))}",
        ),
        verdict_of_share(partial, len(with_it)),
        arms=names,
    )


FIGURE = PaperFigure(
    "fig2",
    "Figure 2: norm control crossed with structure",
    f"Constant distractors, where the baseline groks. Norm control: weight decay 1.0, none (weight decay 0), or norm "
    f"matching (weight decay 0, the MLP held on the sphere whose radius is the median norm at which the baselines "
    f"grok). Structure: no prior, a KL prior of strength {STRENGTH:g} toward the oracle, or toward the distractors. "
    f"Beside these, norm matching with an L2 penalty of 0.5 on W_Q and W_K.",
    arms,
    draw,
    judge,
    then,
)
