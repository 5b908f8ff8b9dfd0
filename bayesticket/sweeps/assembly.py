"""Finished runs put together as one dataset."""

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd

from bayesticket.measures import DEFAULT_MEASURES, Column
from bayesticket.runs import Header
from bayesticket.schedules import Schedule
from bayesticket.specs import JSON, Spec, default_values, described_kind
from bayesticket.sweeps.dataset import Label, Runs

Key = TypeVar("Key", bound=tuple[Label, ...])
"""A label on each axis, and then the seed."""


@dataclass(frozen=True, eq=False)
class RunSummary:
    """A run without its weights: what `run.json` says, and its curves."""

    header: Header
    curves: pd.DataFrame
    """What was recorded, one column a measure, labelled by epoch."""
    directory: Path | None = None
    """Where its files are, weights included; None if only header and curves are known."""


def assemble(runs: Mapping[Key, RunSummary], axes: Iterable[str] = ("intervention",)) -> Runs:
    """Runs as one dataset, axes × seed × epoch; NaN where a run did not record a curve or had ended.

    Keys have one label for each axis, and then the seed; every combination must be there.
    """
    dims = (*axes, "seed")
    labels = {axis: list(dict.fromkeys(key[place] for key in runs)) for place, axis in enumerate(dims)}
    keys = list(itertools.product(*labels.values()))
    ordered = [runs[key] for key in keys]  # type: ignore[index]
    long = pd.concat([run.curves for run in ordered], keys=keys, names=[*dims, "epoch"])
    curves = long.to_xarray().reindex(labels)
    nothing = np.full([curves.sizes[dim] for dim in (*dims, "epoch")], np.nan)
    known = {Column.parse(str(name)).curve for name in curves.data_vars}
    for name in (each.named(half) for each in DEFAULT_MEASURES for half in each.recorded_on):
        if Column.parse(name).curve not in known:  # not recorded, at any layer, by runs of an earlier version
            curves[name] = ((*dims, "epoch"), nothing)

    shape = [len(found) for found in labels.values()]
    of_each_run = {
        "status": [run.header.status for run in ordered],
        "trained": [run.header.epoch for run in ordered],
        "seconds": [run.header.seconds for run in ordered],
        "directory": ["" if run.directory is None else str(run.directory) for run in ordered],
        "id": [run.header.id for run in ordered],
        "grok_threshold": [run.header.grok_threshold for run in ordered],
    }
    coordinates = {name: (dims, np.array(values).reshape(shape)) for name, values in of_each_run.items()}
    dataset = curves.transpose(*dims, "epoch").assign_coords(coordinates)
    recipes = {run.header.id: run.header.config.get("intervention") for run in ordered}
    if scheduled := {name: recipe for name, recipe in recipes.items() if _names_schedule(recipe)}:
        dataset.attrs["scheduled"] = json.dumps(scheduled)
    return Runs(dataset)


def _names_schedule(described: JSON) -> bool:
    """Whether something in a description is a schedule, or of a class with one for a default."""
    if isinstance(described, list):
        return any(map(_names_schedule, described))
    if not isinstance(described, dict):
        return False
    kind = Spec.kinds.get(described_kind(described))
    if kind is not None and (
        issubclass(kind, Schedule) or any(isinstance(each, Schedule) for each in default_values(kind).values())
    ):
        return True
    return any(map(_names_schedule, described.values()))
