"""The specification curve: the central claims in every setting that the details lost from our copy allow."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product

import numpy as np
import plotly.graph_objects as go

from bayesticket.analysis import find_ticket, ticket_config
from bayesticket.figures import SHADES, TEMPLATE
from bayesticket.interventions import KLPrior
from bayesticket.model import Architecture
from bayesticket.paper.arms import LAYOUTS, STRENGTH, arm, baseline, with_prior
from bayesticket.paper.fig1 import CONDENSED, RISEN, first_condensed
from bayesticket.paper.fig4 import FRESH
from bayesticket.paper.figure import Claim, Curves, PaperFigure, Scale, Verdict, curves_of
from bayesticket.paper.readings import UNSEEN, Grokking, by_every_reading
from bayesticket.paper.strengths import LAWS, LINEAR, laws_of, verdicts_on_laws
from bayesticket.paper.tickets import SPARSITY
from bayesticket.paper.times import MATCHES, arm_times
from bayesticket.paper.words import sentences, so_many
from bayesticket.runs import TrainConfig
from bayesticket.sweeps import Configs, Runs

NONE, FREE, TRANSFER = "no prior", "oracle, no weight decay", "winning ticket, fresh weights"
STRENGTHS = (0.05, 0.2, STRENGTH)


def prior(strength: float) -> str:
    """The name of an arm with a prior toward the oracle."""
    return f"oracle, strength {strength:g}"


WEAKEST, ORACLE = prior(STRENGTHS[0]), prior(STRENGTH)
ARMS = (NONE, *map(prior, STRENGTHS), FREE, TRANSFER)


@dataclass(frozen=True)
class Setting:
    """One choice of what is lost from our copy of the paper.

    >>> print(Setting(lr=1e-3, distractors="random distractors", path="no residual path", biases="biases"))
    lr 0.001, random distractors, no residual path, biases
    """

    lr: float
    distractors: str
    path: str
    biases: str

    def __str__(self) -> str:
        return f"lr {self.lr:g}, {self.distractors}, {self.path}, {self.biases}"

    @property
    def is_ours(self) -> bool:
        """Whether the other figures have it, in either model."""
        return self.lr == 1e-3 and self.biases == "biases"

    @property
    def is_random(self) -> bool:
        """Whether runs see noise beside the operands."""
        return LAYOUTS[self.distractors] == "random"


SETTINGS = tuple(
    Setting(*levels)
    for levels in product((3e-4, 1e-3, 3e-3), LAYOUTS, ("no residual path", "residual path"), ("biases", "no biases"))
)
MAJORITY, ROBUST, ENOUGH = 0.5, 0.9, len(SETTINGS) // 4


def name_of(arm: str, setting: Setting) -> str:
    """The name of an arm in a setting."""
    return f"{arm}: {setting}"


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


def dense(setting: Setting) -> str:
    """The arm in whose run the ticket of a setting is found: one that groks."""
    return ORACLE if setting.is_random else NONE


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


Holds = bool | None
"""Whether a claim holds; None where it cannot be judged."""
Arms = Mapping[str, Curves]
"""The curves of the arms of one setting and seed, by arm."""
OfSeed = Callable[[Arms, Setting, Grokking], Holds]


def before(first: int | None, second: int | None, factor: float = 1.0) -> Holds:
    """Whether one epoch is before another, which may be larger by a factor; None where neither was reached.

    >>> before(1000, 2000), before(2000, 1000), before(1000, None), before(None, 1000), before(None, None)
    (True, False, True, False, None)
    """
    if first is None or second is None:
        return None if first is second else second is None
    return first < factor * second


def _oracle_earlier(arms: Arms, setting: Setting, reading: Grokking) -> Holds:
    return before(reading.epoch(arms[ORACLE]), reading.epoch(arms[NONE]))


def _stronger_earlier(arms: Arms, setting: Setting, reading: Grokking) -> Holds:
    return before(reading.epoch(arms[ORACLE]), reading.epoch(arms[WEAKEST]))


def _both_needed(arms: Arms, setting: Setting, reading: Grokking) -> Holds:
    both, norm_alone, oracle_alone = (reading.epoch(arms[name]) is not None for name in (ORACLE, NONE, FREE))
    return (both and not norm_alone and not oracle_alone) if both or norm_alone or oracle_alone else None


def _condenses_first(arms: Arms, setting: Setting, reading: Grokking) -> Holds:
    rises = reading.epoch(arms[NONE], RISEN)
    return None if rises is None else before(first_condensed(arms[NONE]), rises)


def _matches_ticket(arms: Arms, setting: Setting, reading: Grokking) -> Holds:
    if reading.epoch(arms[dense(setting)]) is None:
        return None
    return before(reading.epoch(arms[ORACLE]), reading.epoch(arms[TRANSFER]), MATCHES)


@dataclass(frozen=True)
class Central:
    """A central claim, how it is judged with each seed, and the arms that it is about."""

    said: str
    short: str
    rule: str
    of_seed: OfSeed | None
    """None for the law of the strength, which is fitted to all seeds of a setting."""
    arms: Sequence[str]


CENTRAL = (
    Central(
        "The oracle makes runs grok earlier.",
        "oracle earlier",
        "With the oracle of strength 1 the seed groks earlier than without a prior. It cannot be judged where neither "
        "groks.",
        _oracle_earlier,
        (NONE, ORACLE),
    ),
    Central(
        "A stronger prior groks earlier.",
        "earlier with strength",
        f"With strength 1 the seed groks earlier than with {STRENGTHS[0]:g}. It cannot be judged where neither groks.",
        _stronger_earlier,
        (WEAKEST, ORACLE),
    ),
    Central(
        "The grokking time is linear in 1/strength, down to a floor.",
        "linear in 1/strength",
        "The law of added rates, with a floor, is fitted to all seeds at strength 0 and three others.",
        None,
        (NONE, *map(prior, STRENGTHS)),
    ),
    Central(
        "Generalisation is perfect only with both, weight decay and the oracle.",
        "both needed",
        "The seed groks with weight decay and the oracle, and with one of them alone it does not. It cannot be judged "
        "where none of these groks.",
        _both_needed,
        (ORACLE, NONE, FREE),
    ),
    Central(
        "Attention condenses before accuracy rises.",
        "condenses first",
        f"Without a prior the divergence first falls to {CONDENSED:.0%} of its first value before accuracy reaches "
        f"{RISEN:.0%}. It cannot be judged where accuracy does not reach that.",
        _condenses_first,
        (NONE,),
    ),
    Central(
        "The Bayesian ticket matches or outperforms the winning ticket on fresh weights.",
        "Bayesian ticket",
        f"With the oracle of strength 1 the seed groks before {MATCHES:g} times the epoch at which the winning ticket "
        "on fresh weights does. It cannot be judged where neither groks, nor where the run in which the ticket is "
        "found does not.",
        _matches_ticket,
        (ORACLE, TRANSFER),
    ),
)


@dataclass(frozen=True)
class Found:
    """In how many of the seeds that can be judged a claim holds in one setting."""

    n: int
    of: int

    @property
    def holds(self) -> Holds:
        """Whether it holds in most of them."""
        return self.n > MAJORITY * self.of if self.of else None


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
    seeds=3,
)
