"""Snapshots: what a run was at some epochs on its way, kept beside it, and no part of its identity."""

import abc
import bisect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from bayesticket.errors import BayesticketError, refuse, refuse_case, require_integer, require_several
from bayesticket.files import prepare_directory, read_sealed, reading, write_sealed
from bayesticket.runs.checkpoint import by_part, joined
from bayesticket.runs.header import Header
from bayesticket.specs import Spec, describe, restore, spec

# When they are taken ----------------------------------------------------------------------------------------------


class SnapshotPlan(Spec, abc.ABC):
    """At which epochs snapshots are taken; the end of the run is always one more. To add one, write `epochs_of`."""

    @abc.abstractmethod
    def epochs_of(self, last: int) -> Sequence[int]:
        """The epochs, from 0 to `last`, of a run of `last` epochs."""


@spec
class Every(SnapshotPlan):
    """A snapshot every so many epochs, from epoch 0 on.

    >>> list(Every(100).epochs_of(350))
    [0, 100, 200, 300]
    """

    epochs: int

    def __post_init__(self):
        require_integer("epochs", self.epochs, least=1)

    def epochs_of(self, last: int) -> Sequence[int]:
        """The multiples, and 0."""
        return range(0, last + 1, self.epochs)


@spec
class LogSpaced(SnapshotPlan):
    """About so many snapshots at epochs that grow by a constant factor, and one at epoch 0.

    Early ones fall on the same epoch, where the factor is less than one epoch, and are taken once.

    >>> list(LogSpaced(5).epochs_of(10_000))
    [0, 1, 10, 100, 1000, 10000]
    """

    n: int

    def __post_init__(self):
        require_integer("n", self.n, least=2)

    def epochs_of(self, last: int) -> Sequence[int]:
        """The rounded powers, each once, and 0."""
        return [0, *dict.fromkeys(np.geomspace(1, last, self.n).round().astype(int).tolist())]


@spec
class At(SnapshotPlan):
    """Snapshots at these epochs; a list of epochs stands for it.

    >>> list(At((500, 0, 20)).epochs_of(1000))
    [0, 20, 500]
    """

    epochs: tuple[int, ...]

    def __post_init__(self):
        given = require_several("snapshots", self.epochs, "epochs, such as [0, 500, 2000]")
        for epoch in given:
            require_integer("snapshots", epoch, least=0)
        if not given:
            raise refuse("snapshots", self.epochs, "at least one epoch")
        object.__setattr__(self, "epochs", tuple(given))

    def epochs_of(self, last: int) -> Sequence[int]:
        """The epochs in order; raises where the run does not come so far."""
        if (largest := max(self.epochs)) > last:
            raise refuse_case("snapshots", f"epoch {largest:,}", f"epochs of the run, from 0 to {last:,}")
        return sorted(set(self.epochs))


def as_plan(given: SnapshotPlan | Sequence[int] | None) -> SnapshotPlan | None:
    """A plan, epochs as a plan, or None."""
    if given is None or isinstance(given, SnapshotPlan):
        return given
    if isinstance(given, str | type):
        raise refuse("snapshots", given, "Every(100), LogSpaced(60), or epochs, such as [0, 500, 2000]")
    return At(given)  # type: ignore[arg-type]


def plan_as_text(plan: SnapshotPlan) -> str:
    """A plan as the header of a run has it."""
    return json.dumps(describe(plan, {}))


def plan_of_text(text: str | None) -> SnapshotPlan | None:
    """The plan that `plan_as_text` wrote down; None where nothing is written."""
    plan = None if text is None else restore(json.loads(text), {})
    if not isinstance(plan, SnapshotPlan | None):
        raise refuse("snapshots", text, "a plan, as Every(100)")
    return plan


# What they hold ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Snapshot:
    """What a run was after so many epochs, before the next one."""

    epoch: int
    weights: Mapping[str, Tensor]
    """The parameters, by name."""
    state: Mapping[str, Tensor] | None
    """The state of the interventions; None where it was not kept, at the end of a run without snapshots."""
    step: int | None
    """How many optimiser steps had been taken; None where that was not kept."""


class Snapshots(Mapping[int, Snapshot]):
    """The snapshots of a run by epoch, in order: files of a directory, each read when it is asked for, or in memory.

    A file is whole or not there, says of which run and epoch it is, and holds a digest of its own.
    """

    def __init__(self, run: str, directory: Path | None = None, *, damaged: bool = False):
        self._run, self._directory, self._accepts_damage = run, directory, damaged
        self._kept: dict[int, Snapshot] = {}

    def add(self, snapshot: Snapshot) -> None:
        """Keeps a snapshot, in place of one of the same epoch."""
        if self._directory is None:
            self._kept[snapshot.epoch] = snapshot
            return
        prepare_directory("store", self._directory)
        tensors = joined({"weights": snapshot.weights, "state": snapshot.state or {}})
        note = {"state": json.dumps({"config": self._run, "epoch": snapshot.epoch, "step": snapshot.step})}
        write_sealed(self._path(snapshot.epoch), tensors, note)

    def take(self, others: Mapping[int, Snapshot]) -> None:
        """Adds those of other snapshots of the same run that are not there yet."""
        for epoch in sorted(set(others) - set(self)):
            self.add(others[epoch])

    def __iter__(self) -> Iterator[int]:
        if self._directory is None:
            return iter(sorted(self._kept))
        if not self._directory.is_dir():
            return iter(())
        named = (_NAME.fullmatch(path.name) for path in self._directory.iterdir())
        return iter(sorted(int(found[1]) for found in named if found))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, epoch: object) -> bool:  # without reading the file, as Mapping would
        return epoch in list(self)

    def __getitem__(self, epoch: int) -> Snapshot:
        if epoch not in self:
            raise KeyError(epoch)
        return self._kept[epoch] if self._directory is None else self._read(epoch)

    def _read(self, epoch: int) -> Snapshot:
        path = self._path(epoch)
        tensors, note = read_sealed(path, damaged=self._accepts_damage)
        with reading(path):
            state = json.loads(note["state"])
            if (state["config"], state["epoch"]) != (self._run, epoch):
                raise refuse_case(
                    "content",
                    f"epoch {state['epoch']} of the run {state['config']}",
                    f"epoch {epoch} of the run {self._run}",
                )
            require_integer("step", state["step"], least=0)
            parts = by_part(tensors, ("weights", "state"))
            return Snapshot(epoch, parts["weights"], parts["state"], state["step"])

    def _path(self, epoch: int) -> Path:
        assert self._directory is not None
        return self._directory / f"{epoch:08d}.safetensors"

    def __repr__(self) -> str:
        return f"Snapshots({in_short(list(self))})"


_NAME = re.compile(r"(\d{8,})\.safetensors")


def missing_epochs(plan: SnapshotPlan, there: Mapping[int, Snapshot], header: Header) -> list[int]:
    """The epochs of a plan, as far as the run was trained, at which there is no snapshot."""
    return sorted({epoch for epoch in plan.epochs_of(header.epochs) if epoch <= header.epoch} - set(there))


def nearest(epoch: int, epochs: Sequence[int]) -> int:
    """The nearest of some epochs in order; of two as near, the earlier.

    >>> nearest(140, [0, 100, 200]), nearest(150, [0, 100, 200]), nearest(900, [0, 100, 200])
    (100, 100, 200)
    """
    place = bisect.bisect_left(epochs, epoch)
    return min(epochs[max(place - 1, 0) : place + 1], key=lambda other: abs(other - epoch))


def spread(epochs: Sequence[int], most: int) -> list[int]:
    """At most so many of some epochs, evenly by their order, with the first and the last.

    >>> spread([0, 1, 2, 4, 8, 16], 3)
    [0, 2, 16]
    """
    places = np.linspace(0, len(epochs) - 1, min(most, len(epochs))).round().astype(int)
    return [epochs[place] for place in dict.fromkeys(places.tolist())]


def in_short(epochs: Sequence[int]) -> str:
    """Epochs in order, the middle ones left out where there are many.

    >>> in_short([0, 10]), in_short(range(0, 10_001, 10))
    ('0, 10', '0, 10, 20, 30, …, 9,990, 10,000')
    """
    shown = [f"{epoch:,}" for epoch in epochs]
    return ", ".join(shown if len(shown) <= 8 else [*shown[:4], "…", *shown[-2:]]) or "none"


def no_snapshot(epoch: object, epochs: Sequence[int]) -> BayesticketError:
    """Builds the error for an epoch at which there is no snapshot; it names those that there are.

    >>> no_snapshot(140, [0, 100, 200])
    BayesticketError('epoch: got 140, of which there is no snapshot; accepted: 0, 100, 200')
    """
    return refuse_case("epoch", f"{epoch}, of which there is no snapshot", in_short(epochs))
