"""Many runs, kept in a store: those that are missing are trained, and all are loaded as one dataset."""

import itertools
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from typing import Unpack

import numpy as np

from bayesticket.errors import BayesticketError, refuse, refuse_case, require_flag, require_integer, require_several
from bayesticket.files import Unreadable, require_directory, require_path
from bayesticket.interventions import Intervention
from bayesticket.runs import (
    CHECKPOINT_EVERY,
    Ended,
    Run,
    RunDirectory,
    SharedOptions,
    SnapshotPlan,
    Snapshots,
    Tracking,
    TrainConfig,
    Training,
    as_plan,
    differences_of,
    end_program,
    ended_by_signals,
    in_words,
    missing_epochs,
    notice_other_versions,
    require_tracker,
)
from bayesticket.specs import spec_id
from bayesticket.sweeps.assembly import Key, RunSummary, assemble
from bayesticket.sweeps.dataset import Label, Runs, name_of
from bayesticket.sweeps.display import ShowJobs
from bayesticket.sweeps.grids import Grid, grid
from bayesticket.sweeps.pool import failures, require_execution, train_jobs
from bayesticket.sweeps.worker import Job
from bayesticket.tasks import AbstractTask

log = logging.getLogger("bayesticket")
Configs = Mapping[tuple[str, int], TrainConfig]
"""Configurations by the name of their arm and their seed."""
ARMS = ("intervention",)
"""The axes of a plain sweep."""


def sweep(
    task: AbstractTask | None,
    interventions: Mapping[str, Intervention | None] | Grid,
    *,
    seeds: Iterable[int | np.integer],
    store: str | os.PathLike[str],
    executor: Executor | None = None,
    workers: int | None = None,
    checkpoint_every: int = CHECKPOINT_EVERY,
    snapshots: SnapshotPlan | Sequence[int] | None = None,
    tracker: Tracking | None = None,
    progress: bool | None = None,
    same_versions: bool = False,
    **options: Unpack[SharedOptions],
) -> Runs:
    """Trains a task under each intervention, or over a whole `grid`, with each seed; returns the runs as one dataset.

    `options` are those of `train`. Every run has its own directory in the `store`, named after the id of its
    configuration. A run that is complete there is not trained again, an interrupted one resumes from its checkpoint,
    and one that is configured differently is another run. Several sweeps may share a store, also at the same time.

    By default each run is trained in a process of its own on one thread, in as many processes as there are cores, or in
    `workers` of them. Any `concurrent.futures.Executor` may be given instead, such as `client.get_executor()` of
    dask.distributed, if its processes see the store under the same path. A process that is killed costs only the
    epochs since its last checkpoint. With `same_versions`, a store whose runs were trained with another version of
    torch, Python or this library, or on another processor, is refused: their last bits may differ.

    >>> import tempfile
    >>> from bayesticket.interventions import KLPrior
    >>> from bayesticket.tasks import ModularAddition
    >>> arms = {"none": None, "kl": KLPrior(strength=1.0)}
    >>> with tempfile.TemporaryDirectory() as store:
    ...     runs = sweep(ModularAddition(p=5), arms, seeds=range(2), store=store, epochs=20)
    >>> runs
    Runs(intervention: 2, seed: 2)
        none: 0 of 2 grokked
        kl: 0 of 2 grokked
    >>> dict(runs.curves["test_accuracy"].sizes)
    {'intervention': 2, 'seed': 2, 'epoch': 3}
    """
    if not isinstance(interventions, Grid):
        require_interventions(interventions)
    chosen = interventions if isinstance(interventions, Grid) else grid(intervention=interventions)
    return sweep_configs(
        chosen.configs(task, seeds=require_seeds(seeds), **options),
        store=store,
        axes=tuple(chosen.axes),
        executor=executor,
        workers=workers,
        checkpoint_every=checkpoint_every,
        snapshots=snapshots,
        tracker=tracker,
        progress=progress,
        same_versions=same_versions,
    )


def require_interventions(interventions: object) -> None:
    """Raises unless given interventions, or None, by name."""
    accepted = 'interventions by name, such as {"none": None, "kl": KLPrior(strength=1.0)}'
    if not isinstance(interventions, Mapping) or not interventions:
        raise refuse("interventions", interventions, accepted)
    for name, intervention in interventions.items():
        if not isinstance(name, str):
            raise refuse("interventions", name, accepted)
        if intervention is not None and not isinstance(intervention, Intervention):
            raise refuse(f"interventions[{name!r}]", intervention, "an Intervention, several joined by +, or None")


def require_seeds(seeds: object) -> list[int]:
    """The seeds as a list; raises unless there is at least one and all are different."""
    given = require_several("seeds", seeds, "whole numbers, such as range(5)")
    listed = [int(seed) if isinstance(seed, np.integer) else seed for seed in given]
    for seed in listed:
        require_integer("seeds", seed, least=0)
    if not listed or len(set(listed)) < len(listed):
        raise refuse("seeds", listed, "at least one whole number, none of them twice")
    return listed


def sweep_configs(
    configs: Mapping[Key, TrainConfig],
    *,
    store: str | os.PathLike[str],
    axes: Sequence[str] = ARMS,
    executor: Executor | None = None,
    workers: int | None = None,
    checkpoint_every: int = CHECKPOINT_EVERY,
    snapshots: SnapshotPlan | Sequence[int] | None = None,
    tracker: Tracking | None = None,
    progress: bool | None = None,
    same_versions: bool = False,
) -> Runs:
    """Trains the configurations that are not in the store yet, and returns all runs: `sweep` for any arms.

    Keys have one label for each axis, and then the seed; every combination must be there.
    """
    require_combinations(configs, axes)
    train_missing(
        configs,
        store,
        axes=axes,
        executor=executor,
        workers=workers,
        checkpoint_every=checkpoint_every,
        snapshots=snapshots,
        tracker=tracker,
        progress=progress,
        same_versions=same_versions,
    )
    return load_runs(configs, store, axes=axes)


def train_missing(
    configs: Mapping[Key, TrainConfig],
    store: str | os.PathLike[str],
    *,
    axes: Sequence[str] = ARMS,
    executor: Executor | None = None,
    workers: int | None = None,
    checkpoint_every: int = CHECKPOINT_EVERY,
    snapshots: SnapshotPlan | Sequence[int] | None = None,
    tracker: Tracking | None = None,
    progress: bool | None = None,
    display: ShowJobs | None = None,
    same_versions: bool = False,
) -> None:
    """Trains the configurations that are not complete in the store; one that occurs twice is trained once.

    `display` gives something else than bars to show how far the runs are, from the jobs that are to be trained.
    """
    _require_configs(configs, axes)
    require_execution(executor, workers, progress)
    require_integer("checkpoint_every", checkpoint_every, least=1)
    whole = _absolute(store)
    directories = {key: whole / spec_id(config) for key, config in configs.items()}
    require_tracker(tracker)
    if (plan := as_plan(snapshots)) is not None:
        for config in configs.values():
            plan.epochs_of(config.epochs)  # raises where a run does not come so far
        _say_where_snapshots_are_missing(directories.values(), plan)
    require_flag("same_versions", same_versions)
    if same_versions:
        _require_same_versions(directories, axes)
    jobs: dict[Path, Job] = {}
    for key, config in configs.items():
        if directories[key] not in jobs and not is_complete(directories[key], config):
            jobs[directories[key]] = Job(_name(key, axes), config, directories[key], checkpoint_every, plan, tracker)
    if not jobs:
        return
    require_directory("store", whole)
    first_of_arm: dict[tuple[Label, ...], Job] = {}
    for key, directory in directories.items():
        if directory in jobs:
            first_of_arm.setdefault(key[:-1], jobs[directory])
    _require_trainable(first_of_arm.values())
    try:
        with ended_by_signals():
            outcomes = train_jobs(
                list(jobs.values()), executor=executor, workers=workers, progress=progress, display=display
            )
    except (KeyboardInterrupt, Ended) as error:
        complete = {directory for key, directory in directories.items() if is_complete(directory, configs[key])}
        message = (
            f"interrupted with {len(complete)} of {len(set(directories.values()))} runs complete in {whole}; "
            "the same call goes on from there"
        )
        if isinstance(error, Ended):
            end_program(error.signal, message)
        raise KeyboardInterrupt(message) from None
    for name, outcome in outcomes.items():
        if outcome.kind == "diverged":
            log.warning("%s diverged: %s", name, outcome.error)
    if (error := failures(outcomes)) is not None:
        raise error


def _say_where_snapshots_are_missing(directories: Iterable[Path], plan: SnapshotPlan) -> None:
    """Logs how many complete runs, which are not trained again, lack snapshots that are asked for."""
    complete = [directory for directory in map(RunDirectory, set(directories)) if directory.is_complete()]
    headers = [(directory.header(), directory.snapshots_path) for directory in complete]
    lacking = sum(bool(missing_epochs(plan, Snapshots(header.id, path), header)) for header, path in headers)
    if lacking:
        log.warning("%d complete runs lack snapshots that are asked for; another store gets them", lacking)


def _require_same_versions(directories: Mapping[Key, Path], axes: Sequence[str]) -> None:
    """Raises where a run that is in the store was trained, in any part, with other versions than today's."""
    for key, directory in directories.items():
        with suppress(Unreadable):  # a damaged run is trained again
            stored = RunDirectory(directory)
            if stored.has_run() and (differences := differences_of(stored.header())):
                accepted = "a store of runs that were trained with today's, or same_versions=False"
                raise refuse_case("same_versions", f"{_name(key, axes)}, with {in_words(differences)}", accepted)


def load_runs(configs: Mapping[Key, TrainConfig], store: str | os.PathLike[str], *, axes: Sequence[str] = ARMS) -> Runs:
    """Loads the runs of these configurations from the store as one dataset; raises if one of them is not there."""
    require_combinations(configs, axes)
    directory = _absolute(store)
    loaded: dict[str, RunSummary] = {}
    runs: dict[Key, RunSummary] = {}
    for key, config in configs.items():
        name = spec_id(config)
        try:
            runs[key] = loaded[name] = loaded.get(name) or _load(directory / name, name)
        except BayesticketError as error:
            raise BayesticketError(f"{_name(key, axes)}: {error}") from error
    return assemble(runs, axes)


def _load(directory: Path, name: str) -> RunSummary:
    stored = RunDirectory(directory)
    header = stored.header()
    stored.require_named()
    if not stored.has_ended():
        raise refuse_case("store", f"a run that is {header.status} in {directory}", "one that has ended")
    notice_other_versions(header)
    return RunSummary(header, stored.curves(header), directory)


def is_complete(directory: Path, config: TrainConfig) -> bool:
    """Whether a directory holds this very run, ended, with all its files in order."""
    try:
        return RunDirectory(directory).has_ended() and Run.load(directory).id == spec_id(config)
    except BayesticketError:  # the worker that trains it reports what is wrong, and sets a damaged run aside
        return False


def _absolute(store: str | os.PathLike[str]) -> Path:
    """The path of a store for other processes, which may have another working directory."""
    return require_path("store", store, "the path of a directory").absolute()


def _name(key: tuple[Label, ...], axes: Sequence[str]) -> str:
    return f"{name_of(key[:-1], axes)}, seed {key[-1]}"


def _require_configs(configs: object, axes: Sequence[str]) -> None:
    """Raises unless given configurations by a label for each axis and their seed."""
    accepted = 'TrainConfig objects by arm and seed, such as {("none", 0): TrainConfig(seed=0)}'
    if not isinstance(configs, Mapping):
        raise refuse("configs", configs, accepted)
    for key, config in configs.items():
        labelled = isinstance(key, tuple) and len(key) == len(axes) + 1 and isinstance(key[-1], int)
        if not labelled or not all(isinstance(label, str | int | float) for label in key):
            raise refuse("configs", key, accepted)
        if not isinstance(config, TrainConfig):
            raise refuse(f"configs[{key!r}]", config, accepted)
        if config.seed != key[-1]:
            raise refuse(f"configs[{key!r}].seed", config.seed, f"{key[-1]}, as its key says")
    if not configs:
        raise refuse("configs", dict(configs), "at least one configuration")


def require_combinations(configs: Mapping[Key, TrainConfig], axes: Sequence[str]) -> None:
    """Raises unless every combination of labels comes with every seed."""
    _require_configs(configs, axes)
    labels = [dict.fromkeys(key[place] for key in configs) for place in range(len(axes) + 1)]
    for key in itertools.product(*labels):
        if key not in configs:
            raise refuse_case("configs", f"no {key}", "every arm with every seed")


def _require_trainable(jobs: Iterable[Job]) -> None:
    """Raises what training would raise, before anything is begun; given the first job of each arm."""
    for job in jobs:
        try:
            Training(job.config)
        except BayesticketError as error:
            raise BayesticketError(f"{job.name}: {error}") from error
