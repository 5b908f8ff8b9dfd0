"""`bayesticket sweep`: what `bt.sweep` is called with, from a TOML file, and a page about the runs."""

import itertools
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayesticket.cli.arguments import Parameter, parameters_of_fields, split_arguments, value_of
from bayesticket.cli.options import computed_parameters, merged, read_toml, require_known, require_running
from bayesticket.cli.values import typed_value
from bayesticket.errors import refuse, refuse_case
from bayesticket.figures import Section, Table, write_page
from bayesticket.files import require_path
from bayesticket.runs import CHECKPOINT_EVERY, SnapshotPlan, TrainConfig
from bayesticket.sweeps import Grid, Runs, grid, name_of
from bayesticket.sweeps import sweep as train_sweep

SWEEP = """Trains every combination of what a TOML file lists, and shows the runs on a page.

The file has options of `bayesticket train`, common to all runs, and in the table `grid` one axis for each option that
differs: values by label, or a list. What the store holds is not run again. Flags override the file.

    task = "ModularAddition(p=23)"
    seeds = 3                          # 0, 1 and 2; or a list of seeds
    epochs = 2000
    store = "runs"

    [grid]
    lr = [3e-4, 1e-3]

    [grid.intervention]
    none = "none"
    kl = "KLPrior(strength=1.0)"
"""


@dataclass(frozen=True)
class Running:
    """Options about how the runs of a sweep are trained."""

    import_: tuple[str, ...] = ()
    """A module of yours to import first, so that its classes can be named; the current directory is searched. May be
    given several times."""
    seeds: int = 1
    """How many seeds, 0 to N - 1; in the file also a list."""
    store: Path = Path("runs")
    """Directory for the runs."""
    out: Path | None = None
    """The page; by default in the store, named after the TOML file."""
    workers: int | None = None
    """Processes to train in, one thread each; as many as there are cores by default."""
    checkpoint_every: int = CHECKPOINT_EVERY
    """Epochs between checkpoints."""
    snapshots: SnapshotPlan | None = None
    """Which weights on the way to keep of each run, as "Every(100)", "LogSpaced(60)" or "At((0, 500))"."""


FILE = Parameter("file", Path, "The TOML file.", positional=True)


@dataclass(frozen=True)
class SweepOptions:
    """What `bayesticket sweep` is to do."""

    file: Path
    text: str
    """What the file says."""
    axes: Grid
    seeds: Sequence[int]
    how: Running
    common: dict[str, Any]
    """The options of `train` that all runs have in common."""


def sweep(arguments: Sequence[str]) -> None:
    """Trains the runs that a file describes, prints when they grokked, and writes a page about them."""
    asked = read_sweep_options(arguments)
    how, common = asked.how, dict(asked.common)
    task = None if "task" in asked.axes.axes else common.pop("task", TrainConfig().task)
    runs = train_sweep(
        task,
        asked.axes,
        seeds=asked.seeds,
        store=how.store,
        workers=how.workers,
        checkpoint_every=how.checkpoint_every,
        snapshots=how.snapshots,
        progress=True,
        **common,
    )
    settings = [shlex.join(["bayesticket", "sweep", *arguments]), *asked.text.splitlines()]
    page = write_runs_page(runs, how.out or how.store / f"{asked.file.stem}.html", asked.file.stem, settings)
    print(f"{runs!r}\n\nepoch of grokking\n{runs.grok_epochs()}\n")
    print(f"kept in {how.store}, curves in {page}")


def read_sweep_options(arguments: Sequence[str]) -> SweepOptions:
    """The options of `bayesticket sweep`, from its file and its flags."""
    computed = [one for one in computed_parameters() if one.name != "seed"]
    parameters = [*parameters_of_fields(Running), *computed]
    given = split_arguments("sweep", [FILE, *parameters], arguments, SWEEP)
    file = value_of(FILE, given.pop("file"))
    assert isinstance(file, Path)
    text, options = read_toml("file", file)
    table = options.pop("grid", {})
    require_known(options, parameters, file)
    require_running(options, file)
    if "out" in options:
        options["out"] = require_path(f"{file}: out", options["out"], "the path of a page, as text")
    options = merged(options, given, parameters)  # imports modules, whose classes the grid may name
    axes = _read_grid(table, computed)
    if "task" in axes.axes and "task" in options:
        raise refuse_case("task", "an axis of the sweep and an option of the same name", "one of the two")
    running: dict[str, Any] = {name: options.pop(name) for name in _RUNNING if name in options}
    return SweepOptions(file, text, axes, _seeds(options.pop("seeds", Running.seeds)), Running(**running), options)


def _seeds(given: object) -> Sequence[int]:
    """The seeds from how many there are to be, or from a list of them."""
    if isinstance(given, list):
        return given  # checked where the sweep begins
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise refuse("seeds", given, "how many, at least 1, or a list of seeds")
    return range(given)


_RUNNING = ("store", "out", "workers", "checkpoint_every", "snapshots")


def _read_grid(given: object, parameters: Sequence[Parameter]) -> Grid:
    """The axes of a sweep from the table `grid`."""
    accepted = "a table with an axis for each option, such as [grid.intervention]"
    if not isinstance(given, dict):
        raise refuse("grid", given, accepted)
    if not given:
        raise refuse_case("grid", "no axes", accepted)
    kinds = {one.name: one.kind for one in parameters}
    axes: dict[str, object] = {}
    for axis, values in given.items():
        if axis in kinds and isinstance(values, list) and any(isinstance(value, str) for value in values):
            values = {str(value): value for value in values}
        if axis in kinds and isinstance(values, dict):
            values = {label: typed_value(f"{axis} {label}", value, kinds[axis]) for label, value in values.items()}
        axes[axis] = values
    return grid(**axes)


def write_runs_page(runs: Runs, path: Path, title: str, settings: Sequence[str]) -> Path:
    """Writes a page about the runs of a sweep: when they grokked, their curves, and the settings; returns its path."""
    reached = runs.grok_epochs()
    rows = [
        [*map(str, label if isinstance(label, tuple) else (label,)), *("never" if e is None else f"{e:,}" for e in row)]
        for label, row in zip(
            reached.index, reached.astype(object).where(reached.notna(), None).to_numpy(), strict=True
        )
    ]
    sections = [
        Section("Epoch of grokking", [], Table([*runs.axes, *(f"seed {seed}" for seed in runs.seeds)], rows)),
        *(Section(heading, [], part.plot()) for heading, part in _drawable(runs).items()),
        Section("Settings", [], Table(["command and file"], [[line] for line in settings], wordy=True)),
    ]
    return write_page(path, title, sections)


def _drawable(runs: Runs) -> Mapping[str, Runs]:
    """The runs in parts of at most two axes, which one figure can show, by heading."""
    long = [axis for axis in runs.axes if len(runs.labels(axis)) > 1]
    further = long[2:]
    parts = itertools.product(*(runs.labels(axis) for axis in further))
    return {
        name_of(labels, further) or "Through training": runs.sel(**dict(zip(further, labels, strict=True)))
        for labels in parts
    }
