"""A figure of the paper: what is run, drawn and claimed, and the verdicts that rules give."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd

from bayesticket.errors import refuse, require_integer
from bayesticket.model import Architecture
from bayesticket.runs import TrainConfig
from bayesticket.sweeps import Configs, Runs

if TYPE_CHECKING:
    import plotly.graph_objects as go

Verdict = Literal["reproduced", "partly", "not reproduced", "undecided"]
VERDICTS: Mapping[Verdict, str] = {
    "reproduced": "✔ reproduced",
    "partly": "◐ partly",
    "not reproduced": "✘ not reproduced",
    "undecided": "? undecided",
}
"""How verdicts are written, so that they can be told apart without colours."""
FEWEST = 5
"""Nothing is judged on fewer seeds."""
MINIMAL, STANDARD = "the paper's minimal model, without a residual path", "a standard layer, with a residual path"


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
    readings: Mapping[str, Verdict] = field(default_factory=dict)
    """Other readings of the claim that were tried, and the verdict on each by the same rules."""
    about: str = ""
    """The statement of the paper that it is part of, such as "Theorem 4.3"; by default the figure."""

    def __post_init__(self):
        for name in ("rules", "arms"):
            if isinstance(given := getattr(self, name), str):
                raise refuse(name, given, f"a tuple of texts, such as ({given!r},)")

    @property
    def account(self) -> str:
        """What the runs show, and what other readings of the claim give."""
        if not self.readings:
            return self.measured
        others = "; ".join(f"{reading}: {verdict}" for reading, verdict in self.readings.items())
        return f"{self.measured}\nRead otherwise: {others}."


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
    finds_in: Collection[str] = ()
    """The arms whose weights `then` reads; of the others it needs curves alone."""
    notes: Sequence[str] = field(default=())
    """Further remarks for readers."""
    residual: bool = False
    """Whether the model is a standard layer, with a residual path; else it is the paper's minimal one."""
    varies_model: bool = False
    """Whether some arms are of a standard layer and some are not, so that `about` says which."""
    seeds: int | None = None
    """How many seeds are run and judged on, if not as many as the scale says and at least five."""

    def configs(self, scale: Scale) -> Configs:
        """Every arm with every seed."""
        arms, seeds = self.arms(scale), range(self.n_seeds(scale))
        return self._of_its_model(
            {(name, seed): replace(config, seed=seed) for seed in seeds for name, config in arms.items()}
        )

    def n_seeds(self, scale: Scale) -> int:
        """How many seeds are run."""
        return scale.seeds if self.seeds is None else min(self.seeds, scale.seeds)

    def further(self, scale: Scale, runs: Runs) -> Configs:
        """The configurations that need the runs of the arms; none for most figures."""
        return {} if self.then is None else self._of_its_model(self.then(scale, runs))

    def _of_its_model(self, configs: Configs) -> Configs:
        """The same with a residual path if the figure has one; a model that was built already is as its run's was."""
        return {
            key: replace(config, model=replace(config.model, residual=True))
            if self.residual and isinstance(config.model, Architecture)
            else config
            for key, config in configs.items()
        }

    @property
    def standard(self) -> "PaperFigure":
        """The same figure with a standard layer for a model: `NAME-standard`."""
        head, colon, tail = self.title.partition(":")
        title = f"{head}, {STANDARD_TITLE}{colon}{tail}"
        return replace(self, name=f"{self.name}{STANDARD_NAME}", title=title, residual=True)

    @property
    def subject(self) -> str:
        """The title without the model: that of the same figure of the paper's minimal model."""
        return self.title.replace(f", {STANDARD_TITLE}:", ":") if self.residual else self.title

    @property
    def description(self) -> str:
        """What is run, and in which model."""
        if self.varies_model:
            return self.about
        return f"The model is {STANDARD if self.residual else MINIMAL}. {self.about}"

    def claims(self, runs: Runs) -> Sequence[Claim]:
        """The claims and their verdicts; none where a run diverged, as it is no evidence for or against anything."""
        return [replace(claim, about=claim.about or self.subject) for claim in self._judged(runs)]

    def _judged(self, runs: Runs) -> Sequence[Claim]:
        if diverged := diverged_runs(runs):
            return [
                Claim(
                    f"All that is claimed in {self.name}.",
                    ("A figure is judged only if every run was trained to its end; otherwise all of it is undecided.",),
                    f"Diverged: {'; '.join(diverged)}.",
                    "undecided",
                )
            ]
        claims, fewest = self.judge(runs), FEWEST if self.seeds is None else self.seeds
        return claims if len(runs.seeds) >= fewest else [_undecided(claim, fewest) for claim in claims]


STANDARD_NAME, STANDARD_TITLE = "-standard", "standard layer"
"""What the names and titles of figures with a standard layer end with."""


def _undecided(claim: Claim, fewest: int) -> Claim:
    none: dict[str, Verdict] = dict.fromkeys(claim.readings, "undecided")
    too_few = f"Nothing is judged on fewer than {fewest} seeds."
    return replace(claim, rules=(*claim.rules, too_few), verdict="undecided", readings=none)


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
        table = {column: values[place] for column, values in recorded.items()}
        known = ~np.all([np.isnan(values) for values in table.values()], axis=0)
        found[seed] = {column: pd.Series(values[known], epochs[known], name=column) for column, values in table.items()}
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


SHARES = (
    "If this holds in all of these runs, the claim is reproduced; if in at least half of them, partly; if in fewer, it "
    f"is not reproduced. With fewer than {FEWEST} such runs it is undecided."
)
"""The rule of `verdict_of_share`, in words."""


def verdict_of_share(n: int, of: int) -> Verdict:
    """The verdict on a claim that holds in `n` of these runs; see `SHARES`."""
    if of < FEWEST:
        return "undecided"
    return "reproduced" if n == of else "partly" if n >= of / 2 else "not reproduced"


def verdict_of(holds: Sequence[bool]) -> Verdict:
    """The same, given of each run whether it holds."""
    return verdict_of_share(sum(holds), len(holds))
