"""The specification curve: the central claims in every setting that the details lost from our copy allow."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

import numpy as np
import plotly.graph_objects as go

from bayesticket.analysis import find_ticket, ticket_config
from bayesticket.figures import SHADES, TEMPLATE
from bayesticket.interventions import KLPrior
from bayesticket.model import Architecture
from bayesticket.paper.arms import LAYOUTS, arm, baseline, with_prior
from bayesticket.paper.central import CENTRAL, MAJORITY, Central, Found, Holds
from bayesticket.paper.fig4 import FRESH
from bayesticket.paper.figure import Claim, PaperFigure, Scale, Verdict, curves_of
from bayesticket.paper.lost import (
    ARMS,
    FREE,
    NONE,
    ORACLE,
    SETTINGS,
    STRENGTHS,
    TRANSFER,
    Setting,
    dense,
    name_of,
    prior,
)
from bayesticket.paper.readings import UNSEEN, Grokking, by_every_reading
from bayesticket.paper.strengths import LAWS, LINEAR, laws_of, verdicts_on_laws
from bayesticket.paper.tickets import SPARSITY
from bayesticket.paper.times import arm_times
from bayesticket.paper.words import sentences, so_many
from bayesticket.runs import TrainConfig
from bayesticket.sweeps import Configs, Runs

ROBUST, ENOUGH = 0.9, len(SETTINGS) // 4


def arms(scale: Scale) -> Mapping[str, TrainConfig]:
    """Every arm in every setting but the tickets, which are found in their runs."""
    return {name_of(arm, setting): config for setting in SETTINGS for arm, config in _arms_in(scale, setting).items()}


def _arms_in(scale: Scale, setting: Setting) -> Mapping[str, TrainConfig]:
    """The arms of one setting; where other figures have it, those that record more are theirs."""
    layout, priors = LAYOUTS[setting.distractors], {prior(each): KLPrior(strength=each) for each in STRENGTHS}
    made = {
        NONE: baseline(scale, layout) if setting.is_ours else arm(scale, distractors=layout, patience=1000),
        **{name: arm(scale, each, distractors=layout) for name, each in priors.items()},
        ORACLE: with_prior(scale, layout)
        if setting.is_ours
        else arm(scale, priors[ORACLE], distractors=layout, patience=1000),
        FREE: arm(scale, priors[ORACLE], distractors=layout, weight_decay=0.0),
    }
    return {name: _in_setting(config, setting) for name, config in made.items()}


def _in_setting(config: TrainConfig, setting: Setting) -> TrainConfig:
    residual = True if setting.path == "residual path" else None
    model = Architecture(residual=residual, biases=setting.biases == "biases")
    return replace(config, model=model, optimizer=replace(config.optimizer, lr=setting.lr))


def then(scale: Scale, runs: Runs) -> Configs:
    """The winning tickets on fresh weights."""
    made: dict[tuple[str, int], TrainConfig] = {}
    for setting in SETTINGS:
        plain = _in_setting(arm(scale, distractors=LAYOUTS[setting.distractors]), setting)
        for seed in runs.seeds:
            ticket = find_ticket(runs.run(name_of(dense(setting), setting), seed), SPARSITY)
            config = ticket_config(replace(plain, seed=seed), ticket, init_seed=FRESH + seed)
            made[name_of(TRANSFER, setting), seed] = config
    return made


def found(runs: Runs, reading: Grokking) -> dict[tuple[Central, Setting], Found]:
    """What the runs say of each central claim in each setting."""
    return {(claim, setting): each for setting in SETTINGS for claim, each in _in(runs, setting, reading)}


def _in(runs: Runs, setting: Setting, reading: Grokking) -> list[tuple[Central, Found]]:
    tables = {name: curves_of(runs, name_of(name, setting)) for name in ARMS}
    seeds = [{name: of_seed[seed] for name, of_seed in tables.items()} for seed in runs.seeds]

    def judged(claim: Central) -> Found:
        if claim.of_seed is None:
            return _law(runs, setting, reading)
        each = [claim.of_seed(arms, setting, reading) for arms in seeds]
        return Found(each.count(True), len(each) - each.count(None))

    return [(claim, judged(claim)) for claim in CENTRAL]


def _law(runs: Runs, setting: Setting, reading: Grokking) -> Found:
    """The same for the law of the strength: one judgement of all seeds, or none."""
    names = {0.0: NONE, **{strength: prior(strength) for strength in STRENGTHS}}
    times = {strength: arm_times(runs, name_of(name, setting), reading) for strength, name in names.items()}
    verdict = verdicts_on_laws(laws_of(times))[LAWS["added rates"]]
    return Found(int(verdict == "reproduced"), int(verdict != "undecided"))


WHATEVER = (
    "A claim holds in a setting if it holds in most of the seeds that can be judged there. If it holds in at least "
    f"{ROBUST:.0%} of the settings that can be judged, it holds whatever was lost, and is reproduced; if in at least "
    f"half, it hangs on what was lost: partly; if in fewer, it is not reproduced. With fewer than {ENOUGH} such "
    "settings it is undecided."
)
"""The rule of `verdict_over`, in words."""


def verdict_over(holds: Sequence[Holds]) -> Verdict:
    """The verdict on a claim, given of each setting whether it holds; see `WHATEVER`."""
    known = [each for each in holds if each is not None]
    if len(known) < ENOUGH:
        return "undecided"
    share = sum(known) / len(known)
    return "reproduced" if share >= ROBUST else "partly" if share >= MAJORITY else "not reproduced"


def judge_at(runs: Runs, reading: Grokking) -> list[Claim]:
    """The central claims over all settings."""
    everything = found(runs, reading)
    return [_claim(claim, {s: everything[claim, s].holds for s in SETTINGS}) for claim in CENTRAL]


def _claim(claim: Central, holds: Mapping[Setting, Holds]) -> Claim:
    def known(settings: Sequence[Setting]) -> list[bool]:
        return [each for setting in settings if (each := holds[setting]) is not None]

    def counted(settings: Sequence[Setting]) -> str:
        judged = known(settings)
        return f"{sum(judged)} of {len(judged)}" if judged else "not judged"

    everywhere = known(SETTINGS)
    lines = [
        sentences(
            f"it holds in {so_many(sum(everywhere), len(everywhere), 'setting', 'that can be judged')}, and there are "
            f"{len(SETTINGS)} in all"
        )
    ]
    readings: dict[str, Verdict] = {}
    for detail in (field.name for field in fields(Setting)):
        levels = list(dict.fromkeys(getattr(each, detail) for each in SETTINGS))
        of_level = {level: [each for each in SETTINGS if getattr(each, detail) == level] for level in levels}
        lines.append(sentences("; ".join(f"{_word(level)}: {counted(each)}" for level, each in of_level.items())))
        if detail in ("distractors", "path"):
            readings |= {
                f"with {level} alone": verdict_over([holds[s] for s in each]) for level, each in of_level.items()
            }
    names = tuple(name_of(arm, setting) for setting in SETTINGS for arm in claim.arms)
    rules = (claim.rule, WHATEVER) if claim.of_seed else (claim.rule, LINEAR, WHATEVER)
    return Claim(claim.said, rules, "\n".join(lines), verdict_over(list(holds.values())),
                 arms=names, readings=readings)  # fmt: skip


def _word(level: float | str) -> str:
    return level if isinstance(level, str) else f"lr {level:g}"


def draw(runs: Runs) -> Mapping[str, go.Figure]:
    """A cell for every claim and setting."""
    everything = found(runs, UNSEEN)
    rows = [[everything[claim, setting] for claim in CENTRAL] for setting in SETTINGS]
    share = np.array([[each.n / each.of if each.of else np.nan for each in row] for row in rows])
    figure = go.Figure(
        go.Heatmap(
            z=share, x=[claim.short for claim in CENTRAL], y=[str(setting) for setting in SETTINGS], zmin=0, zmax=1,
            colorscale=SHADES, xgap=2, ygap=2, texttemplate="%{text}",
            text=[[f"{each.n} of {each.of}" if each.of else "–" for each in row] for row in rows],
            colorbar={"title": {"text": "share of<br>seeds"}, "tickformat": ".0%", "thickness": 12},
            hovertemplate="%{y}<br>%{x}: %{text}<extra></extra>",
        )
    )  # fmt: skip
    figure.update_layout(template=TEMPLATE, height=150 + 24 * len(SETTINGS), margin={"t": 20, "l": 10})
    figure.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    figure.update_xaxes(side="top", showgrid=False, ticks="")
    return {
        "In how many of the seeds that can be judged each central claim holds, by setting; a dash where none can be. "
        "The law of the strength is judged once a setting, on all of its seeds.": figure
    }


FIGURE = PaperFigure(
    "specification",
    "Specification curve: the central claims, whatever was lost",
    "Lost from our copy of the paper are the learning rate, the layout of a sequence, whether a residual path leads "
    "around attention and MLP, whether biases are trained, and the threshold of grokking. The six central claims are "
    f"asked again in each of {len(SETTINGS)} settings of the first four, and at each threshold. In each setting are "
    "trained: no prior, the oracle at three strengths, the oracle without weight decay, and the winning ticket on "
    f"fresh weights, {SPARSITY:.0%} removed, which is found where the run without a prior ends, and with random "
    "distractors that with the oracle.",
    arms,
    draw,
    by_every_reading(judge_at),
    then,
    finds_in=tuple(name_of(dense(setting), setting) for setting in SETTINGS),
    varies_model=True,
    seeds=3,
)
