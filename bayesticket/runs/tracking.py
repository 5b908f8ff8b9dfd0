"""Trackers: where else the records of a run go while it is trained, such as to wandb; no part of its identity."""

import copy
import importlib
import logging
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Protocol, runtime_checkable

from bayesticket.errors import BayesticketError, one_line, refuse, refuse_case
from bayesticket.files import require_path
from bayesticket.runs.config import TrainConfig
from bayesticket.runs.description import describe_config
from bayesticket.runs.run import Run
from bayesticket.specs import JSON, description_id

log = logging.getLogger("bayesticket")


@runtime_checkable
class Tracking(Protocol):
    """What `tracker=` takes: an object of these three methods, of which each run gets a copy of its own."""

    def start(self, config: TrainConfig) -> None:
        """Called before the first epoch, and again where an interrupted run goes on."""

    def record(self, epoch: int, values: Mapping[str, float]) -> None:
        """Called with every record, in order; where a run goes on, first with those made before."""

    def finish(self, run: Run) -> None:
        """Called when the run has ended, is interrupted or has failed."""


class Tracker:
    """Sends records to a module with `init`, `log` and `finish`, such as wandb or trackio.

    `Tracker(wandb, project="grokking", mode="offline")`: what is given beside the module goes to its `init`, with the
    configuration and, unless given, the run's id as its name.
    """

    def __init__(self, module: Any, **options: Any):
        missing = [name for name in ("init", "log", "finish") if not callable(getattr(module, name, None))]
        if missing:
            raise refuse("module", module, f"a module such as wandb; it has no {' and no '.join(missing)}")
        # A module cannot be copied or sent to other processes, but its name can.
        self._module = module.__name__ if isinstance(module, ModuleType) else module
        self._options = options
        self._run: Any = None

    def start(self, config: TrainConfig) -> None:
        """Begins a run of the module's."""
        module = importlib.import_module(self._module) if isinstance(self._module, str) else self._module
        description, _ = describe_config(config)
        named = {"name": description_id(description), "config": flat(description)}
        begun = module.init(**{**named, **self._options})
        own = all(callable(getattr(begun, name, None)) for name in ("log", "finish"))
        self._run = begun if own else module

    def record(self, epoch: int, values: Mapping[str, float]) -> None:
        """Logs a record at its epoch."""
        self._run.log({name: value for name, value in values.items() if name != "epoch"}, step=epoch)

    def finish(self, run: Run) -> None:
        """Ends the module's run."""
        self._run.finish()


class TensorBoard:
    """Writes records for TensorBoard, into a directory for each run below the one given; needs `tensorboard`."""

    def __init__(self, directory: str | Path):
        self._directory = require_path("directory", directory, "the path of a directory")
        self._writer: Any = None

    def start(self, config: TrainConfig) -> None:
        """Opens the run's directory."""
        try:
            tensorboard = importlib.import_module("torch.utils.tensorboard")
        except ImportError as error:
            raise refuse_case("tracker", "TensorBoard, which is not installed", "pip install tensorboard") from error
        description, _ = describe_config(config)
        self._writer = tensorboard.SummaryWriter(str(self._directory / description_id(description)))

    def record(self, epoch: int, values: Mapping[str, float]) -> None:
        """Writes every curve's value at the epoch."""
        for name, value in values.items():
            if name != "epoch":
                self._writer.add_scalar(name, value, epoch)

    def finish(self, run: Run) -> None:
        """Closes the files."""
        self._writer.close()


def flat(description: Mapping[str, JSON], above: str = "") -> dict[str, JSON]:
    """A nested description as one level of entries, as trackers show settings.

    >>> flat({"seed": 1, "task": {"type": "ModularAddition", "p": 7}})
    {'seed': 1, 'task.type': 'ModularAddition', 'task.p': 7}
    """
    entries: dict[str, JSON] = {}
    for name, value in description.items():
        entries |= flat(value, f"{above}{name}.") if isinstance(value, dict) else {f"{above}{name}": value}
    return entries


def require_tracker(given: object) -> None:
    """Raises unless given a tracker, or None."""
    if given is not None and (isinstance(given, type) or not isinstance(given, Tracking)):
        raise refuse(
            "tracker", given, "an object with start, record and finish, such as Tracker(wandb, project='mine')"
        )


class Tracked:
    """A tracker at work on one run. If it raises, that is said, and training goes on without it."""

    def __init__(self, tracker: Tracking | None):
        self._tracker = copy.deepcopy(tracker)

    @property
    def at_work(self) -> bool:
        """Whether there is a tracker, and it has not failed."""
        return self._tracker is not None

    def tell(self, method: Literal["start", "record", "finish"], *given: object) -> None:
        """Calls a method of the tracker."""
        if self._tracker is None:
            return
        try:
            getattr(self._tracker, method)(*given)
        except Exception as error:
            kind = "" if isinstance(error, BayesticketError) else f"{type(error).__name__}: "
            log.warning("tracker: %s failed (%s%s); training goes on without it", method, kind, one_line(error))
            self._tracker = None
