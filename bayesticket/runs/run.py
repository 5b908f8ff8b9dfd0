"""A training run: its configuration, its curves and its weights."""

import math
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import pandas as pd
from torch import Tensor

from bayesticket.errors import BayesticketError, brief, refuse, refuse_name, require_number
from bayesticket.files import (
    is_partial,
    prepare_directory,
    read_json,
    read_tensors,
    reading,
    remove_partials,
    require_directory,
    require_path,
    versions,
    write_atomically,
    write_json,
    write_tensors,
)
from bayesticket.model import Architecture, HookedTransformer, build, load_parameters, move
from bayesticket.runs.config import TrainConfig
from bayesticket.specs import JSON, describe, restore

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from bayesticket.analysis import Phases

FORMAT = 1
Status = Literal["running", "finished", "stopped", "interrupted", "failed"]
COMPLETE: tuple[Status, ...] = ("finished", "stopped")
"""A run is complete when it has gone through all its epochs, or has stopped after grokking."""


@dataclass(frozen=True, eq=False)
class Run:
    """What a training run leaves: `curves` labelled by epoch, the trained `model`, and how it was made.

    A value recorded at epoch e is that of the model after e epochs, before the next one.
    """

    description: dict[str, JSON]
    """The configuration as plain JSON; `config` is the object."""
    tensors: dict[str, Tensor]
    """The tensors that the configuration refers to."""
    weights: dict[str, Tensor]
    """The trained parameters, under TransformerLens' names."""
    curves: pd.DataFrame
    """What was recorded, one column a measure, labelled by epoch."""
    epoch: int
    """How many epochs were trained."""
    status: Status = "finished"
    seconds: float = 0.0
    """Wall-clock time of the training."""
    made_with: dict[str, str] | None = None
    """Versions, threads, and which forward was used."""
    source: Path | None = None
    """The directory that it was loaded from, if any; what is wrong with it is said of its files."""

    @cached_property
    def config(self) -> TrainConfig:
        """The configuration."""
        with self._reading("run.json"):
            return restore_config(self.description, self.tensors)

    @cached_property
    def model(self) -> HookedTransformer:
        """A HookedTransformer with the trained weights, as it was built.

        It is without the hooks of the intervention, and without those that a model given to `train` had of its own.
        """
        with self._reading("run.json"):
            given = restore(self.description.get("model"), self.tensors) or Architecture()
        dtype = next(iter(self.weights.values())).dtype
        if isinstance(given, HookedTransformer):
            model = move(given, dtype)
        else:
            assert isinstance(given, Architecture)
            model = build(given, self.config.task, dtype=dtype)
        with self._reading("weights.safetensors"):
            load_parameters(model, self.weights)
        return model

    def _reading(self, name: str = "") -> AbstractContextManager[None]:
        return nullcontext() if self.source is None else reading(self.source / name)

    def grok_epoch(self, threshold: float = 0.99) -> int | None:
        """The first recorded epoch at which test accuracy reaches the threshold, or None when it never did."""
        return self._first_epoch("test_accuracy", threshold)

    def memorised_epoch(self, threshold: float = 0.99) -> int | None:
        """The first recorded epoch at which training accuracy reaches the threshold, or None."""
        return self._first_epoch("train_accuracy", threshold)

    def _first_epoch(self, curve: str, threshold: float) -> int | None:
        require_number("threshold", threshold, above=0.0)
        if curve not in self.curves:  # the run failed before its first record
            return None
        reached = (self.curves[curve] >= threshold).to_numpy()
        return int(self.curves.index[reached.argmax()]) if reached.any() else None

    def phases(self) -> "Phases":
        """The borders of the four phases (Section 5.1), read off the recorded curves; see `bayesticket.phases`."""
        from bayesticket.analysis import find_phases

        return find_phases(self.curves)

    def plot(self) -> "go.Figure":
        """Accuracy, attention, loss and norms against epochs, as a plotly Figure."""
        from bayesticket.figures import plot_run

        return plot_run(self)

    def __repr__(self) -> str:
        def shown(epoch: int | None) -> str:
            return "never" if epoch is None else f"at {epoch:,}"

        last = self.curves["test_accuracy"].iloc[-1] if len(self.curves) else float("nan")
        return (
            f"Run({self.status} after {self.epoch:,} epochs: memorised {shown(self.memorised_epoch())}, "
            f"grokked {shown(self.grok_epoch())}, test accuracy {last:.1%})"
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the run into a directory that is new, empty, or holds this very run; returns the directory.

        The rest are curves (`curves.parquet`), weights (`weights.safetensors`), and the tensors that the configuration
        refers to (`tensors.safetensors`); until all is written, `run.json` calls the run "running". A directory that
        holds more of this run than there is to save is refused.
        """
        directory = require_directory("path", path)
        require_same_run("path", directory, self.description)
        stored = read_header(directory) if (directory / "run.json").exists() else None
        if stored is not None:
            self._require_no_loss(directory, stored)
        prepare_directory("path", directory)
        remove_partials(directory)
        if stored is None or stored["status"] not in COMPLETE:  # a complete run is saved over itself
            write_json(directory / "run.json", self.header() | {"status": "running"})
        if self.tensors:
            write_tensors(directory / "tensors.safetensors", self.tensors)
        write_atomically(directory / "curves.parquet", lambda file: self.curves.to_parquet(file))
        write_tensors(directory / "weights.safetensors", self.weights)
        write_json(directory / "run.json", self.header())
        return directory

    def _require_no_loss(self, directory: Path, stored: dict) -> None:
        less_complete = stored["status"] in COMPLETE and self.status not in COMPLETE
        if less_complete or stored["epoch"] > self.epoch:
            raise BayesticketError(
                f"path: got {str(directory)!r}, which holds {stored['epoch']:,} epochs of this run "
                f"({stored['status']}); accepted: a directory without it, as there are {self.epoch:,} to save "
                f"({self.status})"
            )

    def header(self) -> dict[str, object]:
        """What `run.json` holds."""
        return {
            "format": FORMAT,
            "status": self.status,
            "epoch": self.epoch,
            "seconds": round(self.seconds, 3),
            "made_with": self.made_with or versions(),
            "config": self.description,
        }

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Run":
        """Reads a saved run; nothing in it is executed.

        A run whose configuration names a class of yours loads without it, except for `config`.
        """
        directory = require_path("path", path, "the directory of a saved run")
        header = read_header(directory)
        if header["status"] == "running":
            raise BayesticketError(f"{directory}: got a run that is not finished; accepted: bt.resume({str(path)!r})")
        weights, _ = read_tensors(directory / "weights.safetensors")
        return cls(
            description=header["config"],
            tensors=read_tensors_of(directory, header),
            weights=weights,
            curves=_read_curves(directory / "curves.parquet"),
            epoch=header["epoch"],
            status=header["status"],
            seconds=header["seconds"],
            made_with=header["made_with"],
            source=directory,
        )


def restore_config(description: dict[str, JSON], tensors: dict[str, Tensor]) -> TrainConfig:
    """The configuration that `describe_config` wrote down."""
    config = restore(description, tensors)
    if not isinstance(config, TrainConfig):
        raise refuse("config", config, "the description of a TrainConfig")
    return config


def describe_config(config: TrainConfig) -> tuple[dict[str, JSON], dict[str, Tensor]]:
    """A configuration as plain JSON, and the tensors it refers to."""
    tensors: dict[str, Tensor] = {}
    description = describe(config, tensors)
    assert isinstance(description, dict)
    return description, tensors


def _is_amount(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given < math.inf


_HEADER: dict[str, Callable[[object], bool]] = {
    "status": lambda given: isinstance(given, str),
    "epoch": lambda given: _is_amount(given) and isinstance(given, int),
    "seconds": _is_amount,
    "made_with": lambda given: isinstance(given, dict),
    "config": lambda given: isinstance(given, dict),
}


def read_tensors_of(directory: Path, header: dict) -> dict[str, Tensor]:
    """The tensors that the configuration of a saved run refers to."""
    with reading(directory / "run.json"):
        needed = _needs_tensors(header["config"])
    return read_tensors(directory / "tensors.safetensors")[0] if needed else {}


def read_header(directory: Path) -> dict:
    """Reads and checks a run's `run.json`."""
    path = directory / "run.json"
    if directory.exists() and not path.exists():
        raise refuse("path", str(directory), "the directory of a saved run, with a run.json")
    header = read_json(path)
    with reading(path):
        require_header(header)
    return header


def require_header(header: dict) -> None:
    """Refuses what `run.json` of a run does not say."""
    if header.get("format") != FORMAT:
        raise refuse("format", header.get("format"), f"a run.json of format {FORMAT}")
    for name, fits in _HEADER.items():
        if not fits(header.get(name)):
            raise refuse(name, header.get(name), "a run.json written by this library")
    if header["status"] not in get_args(Status):
        raise refuse_name("status", header["status"], get_args(Status))
    if header["config"].get("type") != "TrainConfig":
        raise refuse("config", header["config"].get("type"), "the description of a TrainConfig")


def require_same_run(field: str, directory: Path, description: dict[str, JSON]) -> None:
    """Refuses a directory that holds anything but this run, complete or not."""
    if (directory / "run.json").exists():
        stored = read_header(directory)["config"]
        if stored != description:
            names = [name for name in description if stored.get(name) != description[name]]
            name = names[0] if names else "type"
            raise BayesticketError(
                f"{field}: got {str(directory)!r}, which holds a different run ({name} is {brief(stored.get(name))}, "
                f"not {brief(description[name])}); accepted: a new directory, or one that holds this run"
            )
        return
    if not directory.exists():
        return
    foreign = [entry.name for entry in directory.iterdir() if not is_partial(entry)]
    if foreign:
        raise refuse(
            field, str(directory), f"a new or empty directory, or one that holds this run; it has {foreign[0]!r}"
        )


def _read_curves(path: Path) -> pd.DataFrame:
    with reading(path):
        curves = pd.read_parquet(path)
        kinds = {str(kind) for kind in curves.dtypes}
        if curves.index.name != "epoch" or curves.index.dtype != "int64" or not kinds <= {"float64"}:
            raise refuse("columns", dict(curves.dtypes.astype(str)), "the curves of a run, numbers by epoch")
        if len(curves) and not {"train_accuracy", "test_accuracy"} <= set(curves):
            raise refuse("columns", list(curves), "the curves of a run, with both accuracies")
        return curves


def _needs_tensors(data: JSON) -> bool:
    if isinstance(data, dict):
        return set(data) == {"tensor"} or any(map(_needs_tensors, data.values()))
    return isinstance(data, list) and any(map(_needs_tensors, data))
