"""The header of a run: what `run.json` says of it."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Literal, cast, get_args

import pandas as pd

from bayesticket.errors import refuse, refuse_case, require_choice, shown
from bayesticket.runs.config import TrainConfig
from bayesticket.runs.epochs import require_epochs
from bayesticket.specs import JSON, description_id

FORMAT = 3
Status = Literal["running", "finished", "stopped", "interrupted", "failed"]
COMPLETE: tuple[Status, ...] = ("finished", "stopped")
"""A run is complete when it has gone through all its epochs, or has stopped where its configuration says so."""
MATTER = ("bayesticket", "torch", "transformer-lens", "numpy", "python", "processor")
"""Of what a run was made with, that on which the last bits of its numbers may depend."""


@dataclass(frozen=True)
class Part:
    """What the epochs of a run up to one of them were trained with."""

    until: int
    made_with: dict[str, str]


@dataclass(frozen=True)
class Header:
    """What `run.json` says of a run."""

    config: dict[str, JSON]
    """The configuration as `describe` writes it: the settings that differ from the defaults."""
    status: Status
    epoch: int
    """How many epochs were trained."""
    seconds: float
    """Wall-clock time of the training."""
    made_with: dict[str, str]
    """Versions, Python, threads, device, and which forward was used."""
    recorded: tuple[str, ...] = ()
    """The measures that were recorded, as they print."""
    cut_short: bool = False
    """Whether a function given to `train` has stopped it, before the end that its configuration says."""
    earlier: tuple[Part, ...] = ()
    """The parts before the last one that were trained with other versions."""

    @cached_property
    def id(self) -> str:
        """The id of the configuration."""
        return description_id(self.config)

    @property
    def grok_threshold(self) -> float:
        """The test accuracy that counts as grokking in this run."""
        return float(self.config.get("grok_threshold", TrainConfig.grok_threshold))  # type: ignore[arg-type]

    @property
    def epochs(self) -> int:
        """How many epochs the configuration wants."""
        return int(self.config.get("epochs", TrainConfig.epochs))  # type: ignore[arg-type]

    @property
    def record_every(self) -> int:
        """Epochs between two records."""
        return int(self.config.get("record_every", TrainConfig.record_every))  # type: ignore[arg-type]

    @property
    def n_records(self) -> int:
        """How many records there are of the epochs that were trained, with one at the end."""
        return -(-self.epoch // self.record_every) + 1

    @property
    def is_complete(self) -> bool:
        """Whether the run has gone through all its epochs, or has stopped where its configuration says so."""
        return self.status in COMPLETE and not self.cut_short

    def as_json(self) -> dict[str, object]:
        """The header as plain JSON."""
        return {
            "format": FORMAT,
            "id": self.id,
            "status": self.status,
            "epoch": self.epoch,
            "seconds": round(self.seconds, 3),
            "made_with": self.made_with,
            "recorded": list(self.recorded),
            "config": self.config,
            **({"cut_short": True} if self.cut_short else {}),
            **({"earlier": [asdict(part) for part in self.earlier]} if self.earlier else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> "Header":
        """A header from what `as_json` gave; raises unless it is one."""
        require_format(data)
        for name, kind in _KINDS.items():
            given = data.get(name)
            if isinstance(given, bool) or not isinstance(given, kind) or (kind is not dict and _is_negative(given)):
                raise refuse(name, given, "a run.json written by this library")
        require_choice("status", data["status"], get_args(Status))
        config = cast("dict[str, JSON]", data["config"])
        if config.get("type") != "TrainConfig":
            raise refuse("config", config.get("type"), "the description of a TrainConfig")
        if data.get("id") != (own_id := description_id(config)):
            raise refuse("id", data.get("id"), f"{own_id!r}, that of the configuration beside it")
        recorded = tuple(map(str, data.get("recorded", ())))  # type: ignore[arg-type]
        known = (data[name] for name in ("status", "epoch", "seconds", "made_with"))
        earlier = tuple(Part(part["until"], dict(part["made_with"])) for part in data.get("earlier", ()))  # type: ignore[attr-defined]
        header = cls(config, *known, recorded, data.get("cut_short") is True, earlier)  # type: ignore[arg-type]
        for made_with in (header.made_with, *(part.made_with for part in earlier)):
            require_versions(made_with)
        if header.epoch > header.epochs:
            raise refuse("epoch", header.epoch, f"at most {header.epochs}, the epochs that the run is to have")
        return header


def require_format(data: Mapping[str, object]) -> None:
    """Raises unless a header is in the format of this version."""
    written = data.get("format")
    if written == FORMAT:
        return
    made_with = data.get("made_with")
    version = made_with.get("bayesticket") if isinstance(made_with, dict) else None
    by = f", written by bayesticket {version}" if version else ""
    raise refuse_case("format", f"{shown(written)}{by}", f"a run.json of format {FORMAT}, which this version reads")


def require_versions(made_with: Mapping[str, object]) -> None:
    """Raises unless what a run was made with are texts, versions on one line, and threads are counted."""
    for name, given in made_with.items():
        if not isinstance(given, str) or (name in MATTER and not given.isprintable()):
            raise refuse(f"made_with[{name!r}]", given, "a text of one line" if name in MATTER else "a text")
    threads = made_with.get("threads", "1")
    if not str(threads).isdecimal():
        raise refuse("made_with['threads']", threads, "a number of threads")


def require_records(header: Header, curves: pd.DataFrame) -> None:
    """Raises unless curves have the records of a run, in order, and in each of them both accuracies."""
    require_epochs("epochs", curves.index.to_list(), last=header.epoch)
    if header.is_complete and curves.index[-1] != header.epoch:
        raise refuse("epochs", curves.index[-1].item(), f"a last record at epoch {header.epoch:,}")
    if len(curves):
        accuracies = curves[["train_accuracy", "test_accuracy"]]
        if not ((accuracies >= 0) & (accuracies <= 1)).to_numpy().all():
            raise refuse_case("columns", "an accuracy that is not between 0 and 1", "the curves of a run")


_KINDS: dict[str, type | tuple[type, ...]] = {
    "status": str,
    "epoch": int,
    "seconds": (int, float),
    "made_with": dict,
    "config": dict,
}


def _is_negative(given: object) -> bool:
    return isinstance(given, int | float) and not 0 <= given < math.inf  # NaN too
