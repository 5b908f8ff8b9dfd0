"""Figure 2: norm control crossed with where attention is drawn."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import plotly.graph_objects as go

from bayesticket.config import TrainConfig
from bayesticket.interventions import KLPrior, NormMatch, QKPenalty, Recipe
from bayesticket.paper.figure import (
    STRENGTH,
    THRESHOLD,
    Claim,
    Configs,
    PaperFigure,
    Scale,
    across,
    arm,
    baseline,
    curves_of,
    verdict_of_share,
    with_prior,
    worst,
)
from bayesticket.plot import ACCURACY, PALETTE, TEMPLATE, add_band, finish_arms, stacked
from bayesticket.sweep import Runs

PRIORS = {
    "no prior": Recipe(),
    "oracle": KLPrior(strength=STRENGTH),
    "adversarial": KLPrior("adversarial", strength=STRENGTH),
}
NORMS = ("weight decay", "none", "norm matching")
QK = "norm matching and QK penalty"
CHANCE = 0.05
"""A test accuracy below this is called chance: five times what guessing one of 113 answers gives."""


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
    """The norm of the MLP at which the baselines grok, the median over those that do; else where they end."""
    name = name_of("weight decay", "no prior")
    grokked = runs.grok_epochs(THRESHOLD).loc[name].dropna()
    at_grokking = [float(curves_of(runs, name)[int(seed)]["mlp_norm"].loc[epoch]) for seed, epoch in grokked.items()]
    at_the_end = [float(curves["mlp_norm"].iloc[-1]) for curves in curves_of(runs, name).values()]
    norms = sorted(at_grokking or at_the_end)
    return round(norms[len(norms) // 2], 1)


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
    names = [str(name) for name in runs["intervention"].to_numpy()]
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
            dots = [float(table["test_accuracy"].max()) for table in curves_of(runs, name).values()]
            best.add_trace(_dots(_TITLES[norm], dots, prior, colour, in_legend=not seen))
            seen = True
    finish_arms(curves, panels, int(runs["trained"].max()))
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
    """The three claims of the factorial, and what each condition does alone."""
    controlled = ("weight decay", "norm matching")
    return [
        _count(
            runs,
            "Under norm control, attention forced onto the distractors stays at chance.",
            f"Test accuracy never reaches {CHANCE:.0%}",
            [name_of(norm, "adversarial") for norm in controlled],
            lambda best, grokked: best < CHANCE,
        ),
        _count(
            runs,
            "The oracle without norm control improves, but does not generalise fully.",
            f"Test accuracy rises above {CHANCE:.0%} and never reaches {THRESHOLD:.0%}",
            [name_of("none", "oracle")],
            lambda best, grokked: best >= CHANCE and not grokked,
        ),
        _count(
            runs,
            "Norm control and the oracle together generalise perfectly.",
            f"Test accuracy reaches {THRESHOLD:.0%}",
            [name_of(norm, "oracle") for norm in controlled],
            lambda best, grokked: grokked,
        ),
        _count(
            runs,
            "Norm control alone, without a prior, does not generalise: both conditions are needed.",
            f"Test accuracy never reaches {THRESHOLD:.0%}",
            [name_of(norm, "no prior") for norm in controlled],
            lambda best, grokked: not grokked,
        ),
    ]


def _count(runs: Runs, said: str, rule: str, names: list[str], holds: Callable[[float, bool], bool]) -> Claim:
    shares, verdicts = [], []
    for name in names:
        best = [float(curves["test_accuracy"].max()) for curves in curves_of(runs, name).values()]
        fits = [holds(value, value >= THRESHOLD) for value in best]
        verdicts.append(verdict_of_share(sum(fits), len(fits)))
        shares.append(f"{name}: {sum(fits)} of {len(fits)} runs, best test accuracy {across(best, '.1%')}")
    return Claim(
        said,
        f"{rule}: in every run of {' and of '.join(names)}, reproduced; in half of each, or in all of one, partly.",
        "; ".join(shares) + ".",
        worst(verdicts),
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
