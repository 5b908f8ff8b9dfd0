"""The directory of a run: the one owner of its files.

| file | what it holds | when it is there |
|---|---|---|
| `run.json` | the header: configuration, status, versions | from the beginning of the run |
| `tensors.safetensors` | tensors that the configuration refers to | where there are any |
| `checkpoint.safetensors` | all that is needed to continue to the bit | while the run is not complete |
| `curves.parquet`, `weights.safetensors` | what was recorded, and the trained weights | when it has ended or stopped |
| `snapshots/` | weights on the way, a file an epoch | where snapshots were asked for |

Beside the directory there may be two hidden files: a lock, held while the run is trained, and a progress file.

`run.json` holds the sizes and SHA-256 of the other files, and its own; checkpoints and snapshots hold theirs. What does
not agree with it was damaged, or belongs to another run, and is not read.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow.parquet as parquet
from filelock import FileLock, Timeout
from torch import Tensor

from bayesticket.errors import BayesticketError, refuse, refuse_case, shown
from bayesticket.files import (
    Fingerprint,
    is_partial,
    json_digest,
    new_directory,
    prepare_directory,
    read_json,
    read_sealed,
    read_tensors,
    reading,
    remove_partials,
    require_directory,
    require_fingerprint,
    require_path,
    write_atomically,
    write_json,
    write_sealed,
    write_tensors,
)
from bayesticket.runs.config import TrainConfig
from bayesticket.runs.header import COMPLETE, Header, Status, require_format, require_records
from bayesticket.specs import JSON, describe, description_id, field_names

MOST_RECORDS = 10_000_000
"""A file of curves with more rows is not read; training would run out of memory long before."""


class Busy(BayesticketError):
    """The run is being trained by another process, which holds its lock."""


class RunDirectory:
    """The directory of one run: which run it holds, how far that is, and how its files are written and read."""

    def __init__(self, path: str | os.PathLike[str], field: str = "store", *, damaged: bool = False):
        self.path, self.field = require_path(field, path, "the path of a directory"), field
        self.path = self.path if self.path.name else self.path.absolute()
        if not self.path.name:
            raise refuse(field, str(path), "the path of a directory below the root")
        self.accepts_damage = damaged
        """Whether files are read that are not those that were written."""
        self.header_path, self.checkpoint_path = self.path / "run.json", self.path / "checkpoint.safetensors"
        self.curves_path, self.weights_path = self.path / "curves.parquet", self.path / "weights.safetensors"
        self.tensors_path, self.snapshots_path = self.path / "tensors.safetensors", self.path / "snapshots"
        self.lock_path = self.path.with_name(f".{self.path.name}.lock")
        self.progress_path = self.path.with_name(f".{self.path.name}.progress")
        self._lock = FileLock(self.lock_path, timeout=0)
        self._written: dict[str, Fingerprint] = {}
        """The fingerprints of the files that were written here, by name."""

    def __str__(self) -> str:
        return str(self.path)

    # Which run it is

    def has_run(self) -> bool:
        """Whether the directory holds a run, complete or not."""
        return os.path.exists(self.header_path)  # False as well where nobody may look

    def header(self) -> Header:
        """What `run.json` says; raises where there is none, or where it is damaged."""
        return self._read_header()[0]

    def _read_header(self) -> tuple[Header, dict[str, JSON]]:
        """What `run.json` says, and the fingerprints of the files that it names."""
        if os.path.exists(self.path) and not self.has_run():
            raise refuse("path", str(self.path), "the directory of a saved run, with a run.json")
        data = read_json(self.header_path)
        with reading(self.header_path):
            require_format(data)
            digest = data.pop("sha256", None)
            if digest != json_digest(data) and not self.accepts_damage:
                raise ValueError("other text than was written")
            files = data.pop("files", {})
            if not isinstance(files, dict):
                raise refuse("files", files, "the fingerprint of each file by its name")
            return Header.from_json(data), files

    def status(self) -> Status | None:
        """The status of the run; None where there is no run."""
        return self.header().status if self.has_run() else None

    def is_complete(self) -> bool:
        """Whether the directory holds a run that needs no more training."""
        return self.has_run() and self.header().is_complete

    def has_ended(self) -> bool:
        """Whether the directory holds a run that was trained to its end, or until its loss became undefined."""
        return self.is_complete() or self.has_failed()

    def has_failed(self) -> bool:
        """Whether the directory holds a run whose loss became infinite or undefined."""
        return self.status() == "failed"

    def require_named(self) -> None:
        """Raises where a directory that is named after the run it should hold, as in a sweep, holds another."""
        if self.has_run() and (stored := self.header().id) != self.path.name:
            with reading(self.header_path):
                raise refuse_case("content", f"the run {stored}", f"{self.path.name}, as the directory is named")

    def require_run(self, description: dict[str, JSON]) -> None:
        """Raises unless the directory can be written to, and is new, empty, or holds the run of this configuration."""
        require_directory(self.field, self.path)
        if self.has_run():
            stored = self.header().config
            if description_id(stored) != description_id(description):
                raise BayesticketError(
                    f"{self.field}: got {str(self.path)!r}, which holds a different run "
                    f"({_difference(stored, description)}); accepted: a new directory, or one that holds this run"
                )
        elif self.path.exists():
            foreign = [entry.name for entry in self.path.iterdir() if not is_partial(entry)]
            if foreign and not (foreign == [self.tensors_path.name] and self._has_tensors_of(description)):
                accepted = f"a new or empty directory, or one that holds this run; it has {foreign[0]!r}"
                raise refuse(self.field, str(self.path), accepted)

    # Writing

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the lock of the run; raises `Busy` where another process holds it. May be nested."""
        prepare_directory(self.field, self.path.parent)
        try:
            self._lock.acquire()
        except Timeout:
            raise Busy(
                f"{self.field}: got {str(self.path)!r}, a run that another process is training; accepted: the same "
                "call when that has ended"
            ) from None
        try:
            yield
        finally:
            self._remove_lock_of_ended_run()
            self._lock.release()

    def is_trained_now(self) -> bool:
        """Whether a process, perhaps this one, holds the lock of the run."""
        if not self.lock_path.exists():
            return False
        try:
            with FileLock(self.lock_path, timeout=0):
                return False
        except Timeout:
            return True

    def _remove_lock_of_ended_run(self) -> None:
        """Removes the lock file of a run that needs no more training: whoever waits for it then loads the run."""
        with suppress(BayesticketError):
            if self.has_ended():
                self.lock_path.unlink(missing_ok=True)

    def begin(self, header: Header, tensors: Mapping[str, Tensor]) -> None:
        """Makes the directory that of a run: its tensors first, so that `run.json` names none that are not there."""
        prepare_directory(self.field, self.path)
        remove_partials(self.path)
        self._write_tensors(header, tensors)
        self.write_header(header)

    def write_header(self, header: Header) -> None:
        """Writes `run.json`, with the fingerprints of the files that were written here."""
        data = {**header.as_json(), "files": dict(sorted(self._written.items()))}
        write_json(self.header_path, {**data, "sha256": json_digest(data)})

    def discard_results(self) -> None:
        """Removes the curves and weights of a run that goes on: they are out of date from then on."""
        for path in (self.curves_path, self.weights_path):
            path.unlink(missing_ok=True)
            self._written.pop(path.name, None)

    def write_checkpoint(self, tensors: Mapping[str, Tensor], note: Mapping[str, str]) -> None:
        """Writes all that is needed to continue; one file, whole or not at all."""
        write_sealed(self.checkpoint_path, tensors, note)

    def read_checkpoint(self) -> tuple[dict[str, Tensor], dict[str, str]] | None:
        """The last checkpoint, if there is one."""
        if not self.checkpoint_path.exists():
            return None
        return read_sealed(self.checkpoint_path, damaged=self.accepts_damage)

    def save(
        self, header: Header, tensors: Mapping[str, Tensor], curves: pd.DataFrame, weights: Mapping[str, Tensor]
    ) -> None:
        """Writes a run that has ended; until all is written, `run.json` calls it running.

        Raises where the directory holds more of the run than there is to save.
        """
        self.require_run(header.config)
        stored = self.header() if self.has_run() else None
        if stored is not None:
            self._require_no_more_trained(stored, header)
        if stored is None or not stored.is_complete:  # a complete run is saved over itself
            self.begin(replace(header, status="running"), tensors)
        else:
            remove_partials(self.path)
            self._write_tensors(header, tensors)
        self._written[self.curves_path.name] = write_atomically(self.curves_path, lambda file: curves.to_parquet(file))
        self._written[self.weights_path.name] = write_tensors(self.weights_path, weights)
        self.write_header(header)

    def remove_checkpoint(self) -> None:
        """Removes the checkpoint, when the run is complete."""
        self.checkpoint_path.unlink(missing_ok=True)

    def abandon(self) -> None:
        """Removes a run of which nothing is kept: what `begin` has written, and what `save` has begun to write."""
        self.discard_results()
        shutil.rmtree(self.snapshots_path, ignore_errors=True)
        self.header_path.unlink(missing_ok=True)
        self.tensors_path.unlink(missing_ok=True)

    def set_aside(self) -> Path:
        """Moves a directory that cannot be read out of the way; returns where it is now."""
        aside = new_directory(self.path.parent, f"{self.path.name}.damaged")
        aside.rmdir()
        return self.path.rename(aside)

    def _write_tensors(self, header: Header, tensors: Mapping[str, Tensor]) -> None:
        if tensors:
            self._written[self.tensors_path.name] = write_tensors(self.tensors_path, tensors, {"run": header.id})

    def _has_tensors_of(self, description: dict[str, JSON]) -> bool:
        """Whether the tensors are those of a run whose beginning was cut off before its header was written."""
        return read_tensors(self.tensors_path)[1].get("run") == description_id(description)

    def _require_no_more_trained(self, stored: Header, header: Header) -> None:
        less_complete = stored.is_complete and not header.is_complete
        if less_complete or stored.epoch > header.epoch:
            raise BayesticketError(
                f"{self.field}: got {str(self.path)!r}, which holds {stored.epoch:,} epochs of this run "
                f"({stored.status}); accepted: a directory without it, as there are {header.epoch:,} to save "
                f"({header.status})"
            )

    # Reading

    def has_results(self) -> bool:
        """Whether curves and weights can be read; those of a run that is trained are in its checkpoint."""
        status = self.status()
        return status in (*COMPLETE, "failed") or (status == "interrupted" and self.weights_path.exists())

    def _require_intact(self, path: Path) -> None:
        """Raises unless a file is that which was written with the run."""
        if not self.accepts_damage:
            require_fingerprint(path, self._read_header()[1].get(path.name))

    def tensors(self, header: Header) -> dict[str, Tensor]:
        """The tensors that the configuration refers to."""
        with reading(self.header_path):
            needed = _needs_tensors(header.config)
        if not needed:
            return {}
        self._require_intact(self.tensors_path)
        return read_tensors(self.tensors_path)[0]

    def weights(self, header: Header) -> dict[str, Tensor]:
        """The trained weights; those of a run that is complete are finite."""
        self._require_intact(self.weights_path)
        weights, _ = read_tensors(self.weights_path)
        with reading(self.weights_path):
            if not weights:
                raise refuse_case("weights", "no tensor", "the trained weights of a run")
            for name, weight in weights.items():
                if header.is_complete and not weight.isfinite().all():
                    raise refuse_case(f"weights[{name!r}]", "entries that are not finite", "weights of a complete run")
        return weights

    def curves(self, header: Header) -> pd.DataFrame:
        """What was recorded, labelled by epoch."""
        self._require_intact(self.curves_path)
        with reading(self.curves_path):
            metadata, most = parquet.read_metadata(self.curves_path), min(header.n_records, MOST_RECORDS)
            if (n_rows := metadata.num_rows) > most or (header.is_complete and n_rows < most):
                raise refuse_case("rows", f"{n_rows:,}", f"{most:,} records of {header.epoch:,} epochs")
            stored = {field.name: str(field.type) for field in metadata.schema.to_arrow_schema()}
            if not set(stored.values()) <= {"double", "int64"}:
                raise refuse("columns", stored, "the curves of a run, numbers by epoch")
            curves = pd.read_parquet(self.curves_path)
            kinds = {str(kind) for kind in curves.dtypes}
            if curves.index.name != "epoch" or curves.index.dtype != "int64" or not kinds <= {"float64"}:
                raise refuse("columns", dict(curves.dtypes.astype(str)), "the curves of a run, numbers by epoch")
            if len(curves) and not {"train_accuracy", "test_accuracy"} <= set(curves):
                raise refuse("columns", list(curves), "the curves of a run, with both accuracies")
            require_records(header, curves)
            return curves


def _needs_tensors(data: JSON) -> bool:
    if isinstance(data, dict):
        return set(data) == {"tensor"} or any(map(_needs_tensors, data.values()))
    return isinstance(data, list) and any(map(_needs_tensors, data))


def _difference(stored: dict[str, JSON], description: dict[str, JSON]) -> str:
    """The first setting in which two configurations differ, in words."""
    name = next(name for name in [*description, *stored] if stored.get(name) != description.get(name))
    defaults = {name: describe(getattr(TrainConfig(), name), {})} if name in field_names(TrainConfig) else {}
    there, asked_for = (shown((defaults | data).get(name)) for data in (stored, description))
    return f"{name} is {there}, not {asked_for}"
