"""The runs of all figures as one pool: which of them grok, and which share a layout, a setting and a seed."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from jaxtyping import Float, Shaped

from bayesticket.analysis import Times
from bayesticket.measures import (
    Column,
    DistributedMass,
    InformativeMass,
    InformativeMassByPosition,
    KLToOracle,
    PairwiseCondition,
    PriorGradient,
    SeparabilityMargin,
    StructuralCondition,
    SubspaceOverlap,
)
from bayesticket.paper.figure import Curves, Scale, curves_of
from bayesticket.paper.readings import UNSEEN
from bayesticket.paper.results import Results
from bayesticket.paper.settings import config_of
from bayesticket.runs import Header
from bayesticket.specs import snake_case

HORIZON = Scale().epochs
"""A run that has not grokked by then never groks."""
NO_SETTING = (
    *("seed", "init_seed", "split_seed", "batch_seed"),
    *("measures", "evaluate", "record_every", "epochs", "stop_after_grok", "grok_threshold", "stop_when"),
)
"""Options that are no part of a setting: seeds, what is recorded, and until when."""
LAYOUT = ("task", "model", "train_fraction", "split_by")
"""The options that make a layout."""
NEEDS = ("training data", "the oracle", "test labels")
"""What it takes to measure something: the training examples alone, their informative positions, or the test half."""
OF_THE_ORACLE = tuple(
    snake_case(kind.__name__)
    for kind in (
        *(KLToOracle, InformativeMass, InformativeMassByPosition, DistributedMass, StructuralCondition),
        *(PairwiseCondition, SeparabilityMargin, PriorGradient, SubspaceOverlap),
    )
)
"""Measures that read the informative positions, or draw attention to them."""

Labels = Shaped[np.ndarray, " runs"]


def needs(column: str) -> str:
    """What it takes to measure a column: one of `NEEDS`.

    >>> needs("mlp_norm"), needs("test_loss"), needs("informative_mass_least")
    ('training data', 'test labels', 'the oracle')
    """
    parsed = Column.parse(column)
    if parsed.measure.startswith(OF_THE_ORACLE):
        return "the oracle"
    return "test labels" if parsed.half in ("test", "unseen") or parsed.evaluation else "training data"


@dataclass(frozen=True, eq=False)
class Pool:
    """Different runs of which one knows whether they grok within the horizon."""

    curves: list[Curves]
    times: Times
    """Grokking times by unseen accuracy, censored at the horizon."""
    layouts: Labels
    settings: Labels
    seeds: Labels
    left_out: Mapping[str, int]
    """How many other runs there are, by the reason why they are not in the pool."""

    @cached_property
    def columns(self) -> list[str]:
        """What was recorded, unseen accuracy aside; first what needs training data alone."""
        names = {name for recorded in self.curves for name in recorded if name != UNSEEN.curve}
        return sorted(names, key=lambda name: (NEEDS.index(needs(name)), Column.parse(name).order))

    def values(self, column: str, epochs: Sequence[int]) -> Float[np.ndarray, "epochs runs"]:
        """What each run recorded at these epochs, NaN where nothing."""
        nothing = pd.Series(np.nan, index=list(epochs))
        return np.array([each[column].reindex(epochs) if column in each else nothing for each in self.curves]).T

    @cached_property
    def share_of_others(self) -> Float[np.ndarray, " runs"]:
        """The share of the other runs of its setting that grok, NaN for a run without others."""
        others = (self.settings[:, None] == self.settings) & ~np.eye(len(self.settings), dtype=bool)
        n = others.sum(axis=1)
        return np.where(n > 0, (others & self.times.reached).sum(axis=1) / np.maximum(n, 1), np.nan)


def pooled(results: Iterable[Results]) -> Pool | None:
    """The different runs of all results that can be judged by unseen accuracy; None if there is none."""
    left_out: Counter[str] = Counter()
    curves, rows = [], []
    for header, seed, each in _different(results):
        if isinstance(outcome := _outcome(header, each), str):
            left_out[outcome] += 1
            continue
        config = config_of(header)
        layout = json.dumps([config[name] for name in LAYOUT], sort_keys=True)
        setting = json.dumps({key: config[key] for key in config if key not in NO_SETTING}, sort_keys=True)
        curves.append(each)
        rows.append((*outcome, layout, setting, seed))
    if not rows:
        return None
    epochs, reached, layouts, settings, seeds = map(np.array, zip(*rows, strict=True))
    return Pool(curves, Times(epochs, reached), layouts, settings, seeds, left_out)


def _different(results: Iterable[Results]) -> Iterator[tuple[Header, int, Curves]]:
    """Each run once, whatever the number of figures that it is in."""
    known: set[str] = set()
    for result in results:
        for arm in dict.fromkeys(arm for arm, _ in result.headers):
            for seed, curves in curves_of(result.runs, arm).items():
                header = result.headers[arm, seed]
                if header.id not in known:
                    known.add(header.id)
                    yield header, seed, {name: curve for name, curve in curves.items() if curve.notna().any()}


def _outcome(header: Header, curves: Curves) -> tuple[float, bool] | str:
    """When a run groks, or the horizon, and whether it does; or why that is not known."""
    if UNSEEN.curve not in curves:
        return "recorded no unseen accuracy"
    epoch = UNSEEN.epoch(curves)
    if epoch is not None and epoch <= HORIZON:
        return float(epoch), True
    if header.epoch < HORIZON:
        return f"ended before epoch {HORIZON:,} without having grokked"
    return float(HORIZON), False
