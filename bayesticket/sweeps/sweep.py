"""Many runs that differ in intervention and seed, kept in a store and assembled as one dataset."""

import logging
import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import xarray as xr

from bayesticket.errors import BayesticketError, refuse, refuse_name, require_integer, require_number
from bayesticket.files import require_directory, require_path
from bayesticket.interventions import Intervention, Recipe, as_recipe
from bayesticket.runs import COMPLETE, Run, TrainConfig, Training, describe_config, read_header
from bayesticket.specs import field_names, spec_id
from bayesticket.sweeps.pool import failures, require_execution, train_jobs
from bayesticket.sweeps.worker import Job
from bayesticket.tasks import AbstractTask

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from bayesticket.analysis import Times

log = logging.getLogger("bayesticket")
Configs = Mapping[tuple[str, int], TrainConfig]
"""Configurations by the name of their arm and their seed."""


def sweep(
    task: AbstractTask,
    interventions: Mapping[str, Intervention | None],
    *,
    seeds: Iterable[int | np.integer],
    store: str | os.PathLike[str],
    executor: Executor | None = None,
    workers: int | None = None,
    checkpoint_every: int = 500,
    progress: bool | None = None,
    **options: object,
) -> "Runs":
    """Trains a task under each intervention with each seed, and returns the runs as one dataset.

    `options` are those of `train`. Every run has a directory of its own in the `store`, named after what its
    configuration computes: what is complete there is not trained again, what was interrupted goes on from its
    checkpoint, and what is configured differently is another run. Several sweeps may share a store, also at once.

    By default the runs are trained in processes of their own, one thread each, as many as there are cores; or
    `workers` of them. Any `concurrent.futures.Executor` may be given instead, such as `client.get_executor()` of
    dask.distributed, if its processes see the store under the same path. A process that is killed costs only the
    epochs since its last checkpoint.

    >>> import tempfile
    >>> from bayesticket.interventions import KLPrior
    >>> from bayesticket.tasks import ModularAddition
    >>> arms = {"none": None, "kl": KLPrior(strength=1.0)}
    >>> with tempfile.TemporaryDirectory() as store:
    ...     runs = sweep(ModularAddition(p=5), arms, seeds=range(2), store=store, epochs=20)
    >>> dict(runs["test_accuracy"].sizes)
    {'intervention': 2, 'seed': 2, 'epoch': 3}
    """
    recipes = require_interventions(interventions)
    seeds = require_seeds(seeds)
    known = [name for name in field_names(TrainConfig) if name not in ("task", "intervention", "seed")]
    for name in options:
        if name not in known:
            raise refuse_name("option", name, known)
    if options.get("model", ...) is None:
        del options["model"]
    if isinstance(measures := options.get("measures"), Iterable):
        options["measures"] = tuple(measures)
    common = TrainConfig(task=task, **options)  # type: ignore[arg-type]
    configs = {
        (name, seed): replace(common, intervention=recipe, seed=seed)
        for seed in seeds
        for name, recipe in recipes.items()
    }
    return sweep_configs(
        configs,
        store=store,
        executor=executor,
        workers=workers,
        checkpoint_every=checkpoint_every,
        progress=progress,
    )


def require_interventions(interventions: object) -> dict[str, Recipe]:
    """Refuses all but interventions, or None, under names."""
    accepted = 'interventions by name, such as {"none": None, "kl": KLPrior(strength=1.0)}'
    if not isinstance(interventions, Mapping) or not interventions:
        raise refuse("interventions", interventions, accepted)
    for name, intervention in interventions.items():
        if not isinstance(name, str):
            raise refuse("interventions", name, accepted)
        if intervention is not None and not isinstance(intervention, Intervention):
            raise refuse(f"interventions[{name!r}]", intervention, "an Intervention, several joined by +, or None")
    return {name: as_recipe(intervention) for name, intervention in interventions.items()}


def require_seeds(seeds: object) -> list[int]:
    """Refuses all but at least one seed, none of them twice."""
    if isinstance(seeds, str | bytes) or not isinstance(seeds, Iterable):
        raise refuse("seeds", seeds, "whole numbers, such as range(5)")
    listed = [int(seed) if isinstance(seed, np.integer) else seed for seed in seeds]
    for seed in listed:
        require_integer("seeds", seed, least=0)
    if not listed or len(set(listed)) < len(listed):
        raise refuse("seeds", listed, "at least one whole number, none of them twice")
    return listed


def sweep_configs(
    configs: Configs,
    *,
    store: str | os.PathLike[str],
    executor: Executor | None = None,
    workers: int | None = None,
    checkpoint_every: int = 500,
    progress: bool | None = None,
) -> "Runs":
    """Trains what is not in the store yet, and returns all runs; `sweep` for arms that differ in anything.

    Arms may share a configuration, which is then trained once.
    """
    arms, seeds = _require_grid(configs)
    require_execution(executor, workers, progress)
    require_integer("checkpoint_every", checkpoint_every, least=1)
    # Other processes, which may have another working directory, are told where it is.
    directory = require_path("store", store, "the path of a directory").absolute()
    stores = {key: directory / spec_id(config) for key, config in configs.items()}
    jobs: dict[Path, Job] = {}
    for (arm, seed), config in configs.items():
        place = stores[arm, seed]
        if place not in jobs and not is_whole(place, config):
            jobs[place] = Job(f"{arm}, seed {seed}", config, place, checkpoint_every)
    if jobs:
        require_directory("store", directory)
        first = {arm: jobs[place] for (arm, _), place in reversed(stores.items()) if place in jobs}
        _require_trainable(first[arm] for arm in arms if arm in first)
        try:
            outcomes = train_jobs(list(jobs.values()), executor=executor, workers=workers, progress=progress)
        except KeyboardInterrupt:
            whole = {place for key, place in stores.items() if is_whole(place, configs[key])}
            raise KeyboardInterrupt(
                f"interrupted with {len(whole)} of {len(set(stores.values()))} runs complete in {directory}; "
                "the same call goes on from there"
            ) from None
        for name, outcome in outcomes.items():
            if outcome.kind == "diverged":
                log.warning("%s diverged: %s", name, outcome.error)
        if (error := failures(outcomes)) is not None:
            raise error
    return assemble({key: Run.load(place) for key, place in stores.items()}, arms, seeds)


def _require_grid(configs: Configs) -> tuple[list[str], list[int]]:
    """The arms and the seeds of configurations; refuses them unless every arm comes with every seed."""
    accepted = 'TrainConfig objects by arm and seed, such as {("none", 0): TrainConfig(seed=0)}'
    if not isinstance(configs, Mapping):
        raise refuse("configs", configs, accepted)
    for key, config in configs.items():
        if not (isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], str) and isinstance(key[1], int)):
            raise refuse("configs", key, accepted)
        if not isinstance(config, TrainConfig):
            raise refuse(f"configs[{key!r}]", config, accepted)
        if config.seed != key[1]:
            raise refuse(f"configs[{key!r}].seed", config.seed, f"{key[1]}, as its key says")
    arms = list(dict.fromkeys(arm for arm, _ in configs))
    seeds = list(dict.fromkeys(seed for _, seed in configs))
    if not configs:
        raise refuse("configs", dict(configs), "at least one configuration")
    if missing := [(arm, seed) for arm in arms for seed in seeds if (arm, seed) not in configs]:
        raise refuse("configs", f"no {missing[0]}", "every arm with every seed")
    return arms, seeds


def _require_trainable(jobs: Iterable[Job]) -> None:
    """Refuses what training would refuse, before anything is begun; asked of the first job of each arm."""
    for job in jobs:
        try:
            Training(job.config)
        except BayesticketError as error:
            raise BayesticketError(f"{job.name}: {error}") from error


def is_whole(directory: Path, config: TrainConfig) -> bool:
    """Whether a directory holds this very run, ended, with all its files in order."""
    if not (directory / "run.json").exists():
        return False
    try:
        if read_header(directory)["status"] not in (*COMPLETE, "failed"):
            return False
        return Run.load(directory).description == describe_config(config)[0]
    except BayesticketError:  # whoever trains it says what is wrong with it, and sets it aside if it is damaged
        return False


def assemble(runs: Mapping[tuple[str, int], Run], arms: Sequence[str], seeds: Sequence[int]) -> "Runs":
    """Runs as one dataset, intervention × seed × epoch; NaN where a run has no record."""
    tables: dict[Hashable, pd.DataFrame] = {(arm, seed): runs[arm, seed].curves for arm in arms for seed in seeds}
    long = pd.concat(tables, names=["intervention", "seed"])
    curves = long.to_xarray().reindex(intervention=list(arms), seed=list(seeds))

    def each(value: object, kind: type | str) -> tuple[tuple[str, str], np.ndarray]:
        grid = [[value(runs[arm, seed]) for seed in seeds] for arm in arms]  # type: ignore[operator]
        return ("intervention", "seed"), np.array(grid, dtype=kind)

    return Runs(
        curves.data_vars,
        coords={
            **curves.coords,
            "status": each(lambda run: run.status, str),
            "trained": each(lambda run: run.epoch, int),
            "seconds": each(lambda run: run.seconds, float),
            "directory": each(lambda run: str(run.source or ""), str),
        },
    )


class Runs(xr.Dataset):
    """The curves of several runs, an xarray Dataset: intervention × seed × epoch.

    Coordinates of each run are its `status`, how many epochs it was `trained`, the `seconds` that took, and its
    `directory`. After the end of a run its curves are NaN.
    """

    __slots__ = ()

    def run(self, intervention: str, seed: int) -> Run:
        """One of the runs, with its weights."""
        self._require_known("intervention", intervention)
        self._require_known("seed", seed)
        return Run.load(str(self["directory"].sel(intervention=intervention, seed=seed).item()))

    def grok_epochs(self, threshold: float = 0.99) -> pd.DataFrame:
        """The first recorded epoch at which each run's test accuracy reaches the threshold; <NA> where it never did.

        One row for each intervention, one column for each seed.
        """
        return self._first_epochs("test_accuracy", threshold)

    def memorised_epochs(self, threshold: float = 0.99) -> pd.DataFrame:
        """The same for training accuracy."""
        return self._first_epochs("train_accuracy", threshold)

    def _first_epochs(self, curve: str, threshold: float) -> pd.DataFrame:
        require_number("threshold", threshold, above=0.0)
        self._require_axes()
        index, columns = (pd.Index(self[axis].to_numpy(), name=axis) for axis in ("intervention", "seed"))
        first = np.full((len(index), len(columns)), np.nan)
        if self.sizes["epoch"]:  # else every run failed before its first record
            if curve not in self:
                raise refuse("runs", f"a selection without {curve}", f"runs with their {curve}")
            reached = self[curve].transpose("intervention", "seed", "epoch") >= threshold
            first = self["epoch"].where(reached).min("epoch").to_numpy()
        return pd.DataFrame(first, index=index, columns=columns).astype("Int64")

    def _require_axes(self) -> None:
        for axis in ("intervention", "seed", "epoch"):
            if axis not in self.dims:
                accepted = "runs with all three axes; selected by lists they keep them, as in runs.sel(seed=[0])"
                raise refuse("runs", f"a selection without the axis {axis!r}", accepted)

    def _require_known(self, axis: str, given: object) -> None:
        self._require_axes()
        known = self[axis].to_numpy().tolist()
        if isinstance(given, str) and given not in known and axis == "intervention":
            raise refuse_name(axis, given, known)
        if not isinstance(given, Hashable) or given not in known:
            raise refuse(axis, given, ", ".join(map(repr, known)))

    def times(self, intervention: str, threshold: float = 0.99) -> "Times":
        """An arm's grokking times, censored at the end of training where a run never grokked."""
        from bayesticket.analysis import Times

        self._require_known("intervention", intervention)
        reached = self.grok_epochs(threshold).loc[intervention]
        trained = self["trained"].sel(intervention=intervention).to_numpy()
        return Times.of([None if pd.isna(epoch) else int(epoch) for epoch in reached], [int(end) for end in trained])

    def plot(self) -> "go.Figure":  # type: ignore[override]
        """Median and quartiles over seeds of accuracy, attention and loss against epochs, as a plotly Figure."""
        from bayesticket.figures import plot_arms

        return plot_arms(self)
