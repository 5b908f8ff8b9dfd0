"""A figure of the paper: what is run, drawn and claimed, and the verdicts that rules give."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import pandas as pd

from bayesticket.errors import refuse, require_integer
from bayesticket.interventions import Intervention, KLPrior, as_recipe
from bayesticket.measures import ExplainingAway
from bayesticket.model import Architecture
from bayesticket.runs import TrainConfig, configure, configure_from
from bayesticket.sweeps import Configs, Runs
from bayesticket.tasks import ModularAddition

if TYPE_CHECKING:
    import plotly.graph_objects as go

Verdict = Literal["reproduced", "partly", "not reproduced", "undecided"]
LAYOUTS: Mapping[str, Literal["random", "constant"]] = {
    "random distractors": "random",
    "constant distractors": "constant",
}
THRESHOLD = 0.99
"""The test accuracy that counts as grokking; what the paper used is lost from our copy."""
OTHER_THRESHOLD = 0.95
"""Another that might; what is claimed of grokking times must hold at both."""
CHANCE = 0.05
"""A test accuracy below this is called chance: five times what guessing one of 113 answers gives."""
STRENGTH = 1.0
"""The strength of a prior where a figure is not about it."""


@dataclass(frozen=True)
class Scale:
    """How much is run: the paper's size by default."""

    seeds: int = 5
    epochs: int = 10_000
    p: int = 113
    record_every: int = 20

    def __post_init__(self):
        for name, least in (("seeds", 1), ("epochs", 1), ("p", 3), ("record_every", 1)):
            require_integer(name, getattr(self, name), least=least)


SMOKE = Scale(seeds=2, epochs=60, p=7, record_every=10)
"""A scale at which one sees that every figure can be made, and nothing else."""


@dataclass(frozen=True)
class Claim:
    """A claim, the rules that decide on it, what was measured, and the verdict of the rules."""

    said: str
    rules: Sequence[str]
    """First what is asked of the runs, then what makes a verdict of it; a page says a rule of several claims once."""
    measured: str
    """What the runs show, in sentences; a new line begins on the page where one begins here."""
    verdict: Verdict
    by: str = "the paper"
    """Who claims it; "a control" where nobody does, and it is asked to test what the paper claims."""
    arms: Sequence[str] = ()
    """The names of the arms whose runs it rests on; if there are none, it rests on all arms of the figure."""

    def __post_init__(self):
        for name in ("rules", "arms"):
            if isinstance(given := getattr(self, name), str):
                raise refuse(name, given, f"a tuple of texts, such as ({given!r},)")


@dataclass(frozen=True)
class PaperFigure:
    """A figure: what is run, what is drawn, and what is claimed."""

    name: str
    title: str
    about: str
    """What is run, in a few sentences."""
    arms: Callable[[Scale], Mapping[str, TrainConfig]]
    """The arms, by name; each is run with every seed."""
    draw: Callable[[Runs], Mapping[str, "go.Figure"]]
    """The pictures by caption."""
    judge: Callable[[Runs], Sequence[Claim]]
    """The claims with their verdicts, given runs that were all trained to their end; see `claims`."""
    then: Callable[[Scale, Runs], Configs] | None = None
    """Runs whose configurations need the results of the arms, such as runs of tickets that are found in them."""
    notes: Sequence[str] = field(default=())
    """Further remarks for readers."""

    def configs(self, scale: Scale) -> Configs:
        """Every arm with every seed."""
        return {
            (name, seed): replace(config, seed=seed)
            for seed in range(scale.seeds)
            for name, config in self.arms(scale).items()
        }

    def claims(self, runs: Runs) -> Sequence[Claim]:
        """The claims and their verdicts; none where a run diverged, as it is no evidence for or against anything."""
        diverged = diverged_runs(runs)
        if not diverged:
            return self.judge(runs)
        return [
            Claim(
                f"All that is claimed in {self.name}.",
                ("A figure is judged only if every run was trained to its end; otherwise all of it is undecided.",),
                f"Diverged: {'; '.join(diverged)}.",
                "undecided",
            )
        ]


def arm_names(runs: Runs) -> list[str]:
    """The names of the arms, in order."""
    return [str(name) for name in runs.labels("intervention")]


Curves = Mapping[str, pd.Series]
"""The curves of one run, by name, each labelled by epoch."""


def curves_of(runs: Runs, name: str) -> dict[int, Curves]:
    """The curves of each run of an arm, by seed, as they were recorded."""
    arm = runs.sel(intervention=name).curves.transpose("seed", "epoch")
    epochs = pd.Index(arm["epoch"].to_numpy(), name="epoch")
    recorded = {str(column): arm[column].to_numpy() for column in arm.data_vars}
    found: dict[int, Curves] = {}
    for place, seed in enumerate(runs.seeds):
        table = pd.DataFrame({column: values[place] for column, values in recorded.items()}, index=epochs)
        table = table.dropna(how="all")
        found[seed] = {column: pd.Series(table[column]) for column in table}
    return found


def diverged_runs(runs: Runs) -> list[str]:
    """The runs that failed because their loss was not finite, in words."""
    status, trained = runs.curves["status"], runs.curves["trained"]
    return [
        f"{name}, seed {seed}, after {int(trained.sel(intervention=name, seed=seed)):,} epochs"
        for name in arm_names(runs)
        for seed in runs.seeds
        if status.sel(intervention=name, seed=seed) == "failed"
    ]


def at_both_thresholds(judge_at: Callable[[Runs, float], Sequence[Claim]]) -> Callable[[Runs], Sequence[Claim]]:
    """Judges at both test accuracies that might count as grokking; where they disagree, a claim is undecided."""

    def judge(runs: Runs) -> list[Claim]:
        at_one, at_other = (judge_at(runs, threshold) for threshold in (THRESHOLD, OTHER_THRESHOLD))
        return [_merged(one, other) for one, other in zip(at_one, at_other, strict=True)]

    return judge


AT_BOTH = (
    f"This is judged at {THRESHOLD:.0%} test accuracy and at {OTHER_THRESHOLD:.0%}, because the threshold that the "
    "paper used is lost from our copy. Where the two verdicts differ, the claim is undecided."
)
"""The rule of `at_both_thresholds`, in words."""


def _merged(one: Claim, other: Claim) -> Claim:
    return replace(
        one,
        rules=(*one.rules, AT_BOTH),
        measured=f"At {THRESHOLD:.0%}: {one.verdict}.\n{one.measured}\n"
        f"At {OTHER_THRESHOLD:.0%}: {other.verdict}.\n{other.measured}",
        verdict=one.verdict if one.verdict == other.verdict else "undecided",
    )


SHARES = (
    "If this holds in all of these runs, the claim is reproduced; if in at least half of them, partly; if in fewer, it "
    "is not reproduced. With fewer than three such runs it is undecided."
)
"""The rule of `verdict_of_share`, in words."""


def verdict_of_share(n: int, of: int) -> Verdict:
    """The verdict on a claim that holds in `n` of these runs; see `SHARES`."""
    if of < 3:
        return "undecided"
    return "reproduced" if n == of else "partly" if n >= of / 2 else "not reproduced"


# What several figures run -----------------------------------------------------------------------------------------


def arm(
    scale: Scale,
    intervention: Intervention | None = None,
    *,
    distractors: Literal["random", "constant"] = "random",
    patience: int | None = 200,
    **options: object,
) -> TrainConfig:
    """A configuration of the paper's model on modular addition, stopped some epochs after it has grokked."""
    common = configure(
        task=ModularAddition(p=scale.p, distractors=distractors),
        model=Architecture(residual=True),
        intervention=as_recipe(intervention),
        epochs=scale.epochs,
        record_every=scale.record_every,
        stop_after_grok=patience,
        grok_threshold=THRESHOLD,
    )
    return configure_from(common, options)


def baseline(scale: Scale, distractors: Literal["random", "constant"]) -> TrainConfig:
    """The paper's training without any intervention, to the last epoch, with the bounds of Lemma 5.1 recorded."""
    return arm(scale, distractors=distractors, patience=None, measures=(ExplainingAway(),))


def with_prior(scale: Scale, distractors: Literal["random", "constant"]) -> TrainConfig:
    """The same with a KL prior toward the oracle, until a thousand epochs after grokking."""
    return arm(scale, KLPrior(strength=STRENGTH), distractors=distractors, patience=1000, measures=(ExplainingAway(),))
