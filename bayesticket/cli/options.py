"""Options of training on the command line: from flags and from a TOML file, read alike."""

import importlib
import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayesticket.cli.arguments import Parameter, parameters_of_fields, split_arguments, value_of
from bayesticket.cli.values import typed_value
from bayesticket.errors import BayesticketError, one_line, refuse, require_choice, require_integer
from bayesticket.files import read_text, require_path
from bayesticket.runs import CHECKPOINT_EVERY, SnapshotPlan, TrainConfig, configure_from
from bayesticket.schedules import Schedule


@dataclass(frozen=True)
class Settings:
    """Settings of the optimiser."""

    lr: float | Schedule | None = None
    """Learning rate of the optimiser, in place of its own; a number, or as "Anneal(1e-3, 0.0, last=10_000)"."""
    weight_decay: float | Schedule | None = None
    """Weight decay of the optimiser, in place of its own; a number or a schedule."""
    betas: tuple[float, float] | None = None
    """Averaging of AdamW, Muon and Lion, in place of their own."""
    momentum: float | None = None
    """Momentum of SGD, in place of its own."""


@dataclass(frozen=True)
class Running:
    """Options about how a run is trained, which do not decide what it computes."""

    config: Path | None = None
    """A TOML file to read options from, named as here but with underscores; flags override it."""
    import_: tuple[str, ...] = ()
    """A module of yours to import first, so that its classes can be named; the current directory is searched. May be
    given several times."""
    store: Path | None = None
    """Directory for checkpoints and the finished run. One that holds this very run is continued."""
    checkpoint_every: int = CHECKPOINT_EVERY
    """Epochs between checkpoints."""
    snapshots: SnapshotPlan | None = None
    """Which weights on the way to keep in the store, as "Every(100)", "LogSpaced(60)" or "At((0, 500))"."""
    threads: int = 1
    """torch threads; more than one pays only on a machine that does nothing else."""


@dataclass(frozen=True)
class TrainOptions:
    """What `bayesticket train` is to do."""

    config: TrainConfig
    store: Path | None = None
    checkpoint_every: int = CHECKPOINT_EVERY
    snapshots: SnapshotPlan | None = None
    threads: int = 1
    config_file: str | None = None
    """The text of the TOML file that options were read from."""


COMPUTED = "what a run computes"


def computed_parameters() -> list[Parameter]:
    """The options that decide what a run computes: fields of `TrainConfig`, and settings of its optimiser."""
    return [*parameters_of_fields(TrainConfig, COMPUTED), *parameters_of_fields(Settings, COMPUTED)]


TRAIN = "Trains one model, as the paper does unless told otherwise."


def read_train_options(arguments: Sequence[str]) -> TrainOptions:
    """The options of `bayesticket train`."""
    computed, running = computed_parameters(), parameters_of_fields(Running)
    given = split_arguments("train", [*running, *computed], arguments, TRAIN)
    text, options = None, {}
    if "config" in given:
        path = value_of(running[0], given.pop("config"))
        assert isinstance(path, Path)
        text, options = read_toml("--config", path)
        require_known(options, [*computed, *running[1:]], path)
        require_running(options, path)
    options = merged(options, given, [*computed, *running[1:]])
    how: dict[str, Any] = {name: options.pop(name) for name in _RUNNING if name in options}
    return TrainOptions(config=configure_from(None, options), config_file=text, **how)


_RUNNING = ("store", "checkpoint_every", "snapshots", "threads")


def merged(
    options: Mapping[str, object], given: Mapping[str, list[str] | bool], parameters: Sequence[Parameter]
) -> dict[str, object]:
    """The values of a TOML file and of flags, which override them; modules to import are imported before."""
    from_file, flags = dict(options), dict(given)
    import_modules([*require_modules(from_file.pop("import", [])), *require_modules(flags.pop("import", []))])
    known = {one.name: one for one in parameters}
    return {name: typed_value(name, value, known[name].kind) for name, value in from_file.items() if name in known} | {
        name: value_of(known[name], texts) for name, texts in flags.items()
    }


def read_toml(field: str, path: Path) -> tuple[str, dict[str, object]]:
    """The text of a TOML file, and what it says; raises unless there is one."""
    try:
        text = read_text(path)
    except BayesticketError as error:
        raise refuse(field, str(path), f"a TOML file that can be read ({one_line(error)})") from error
    try:
        return text, tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise refuse(field, str(path), f"a TOML file ({one_line(error)})") from error


def require_known(options: Mapping[str, object], parameters: Sequence[Parameter], path: Path) -> None:
    """Raises where a TOML file has a key that is no option."""
    names = [one.name for one in parameters]
    for name in options:
        require_choice(f"{path}: key", name, names)


def require_running(options: dict[str, object], path: Path) -> None:
    """Raises unless a TOML file gives the options about running as what they are; the store becomes a path."""
    if "store" in options:
        options["store"] = require_path(f"{path}: store", options["store"], "the path of a directory, as text")
    for name in ("checkpoint_every", "threads", "workers"):
        require_integer(f"{path}: {name}", options.get(name, 1), least=1)


def require_modules(given: object) -> list[str]:
    """The names of modules to import; raises unless they can be such."""
    names = [given] if isinstance(given, str) else given
    accepted = 'names of modules, such as ["my_module"]'
    if not isinstance(names, list):
        raise refuse("import", given, accepted)
    for name in names:
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            raise refuse("import", name, accepted)
        if name.endswith(".py"):
            raise refuse("import", name, f"the name without .py, {name.removesuffix('.py')!r}")
    return names


def import_modules(names: Sequence[str]) -> None:
    """Imports modules of the user's, which may stand in the current directory, so that their classes are known."""
    if names and (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise BayesticketError(f"import: {name} imports {error.name}, which is not installed") from error
            raise refuse("import", name, f"a module in {os.getcwd()}, or an installed one") from error
        except Exception as error:
            raise BayesticketError(f"import: {name} raised {type(error).__name__}: {one_line(error)}") from error
