"""The results of figures in small files, to draw and judge them without training: which runs, and each run's curves.

| file | what it holds |
|---|---|
| `NAME.json` | the ids of a figure's runs, by arm and seed |
| `curves/ID.parquet` | the header of a run, and its curves: `curve`, `epoch`, `value` |

A run has one file, whatever the number of figures that it is in, and no file of a run is removed.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bayesticket.errors import BayesticketError, refuse_case, refuse_name
from bayesticket.files import prepare_directory, read_json, reading, require_path, write_atomically
from bayesticket.paper import NAMES, find_figure
from bayesticket.paper.figure import SMOKE, Claim, Scale, arm_names, curves_of
from bayesticket.runs import Header, RunDirectory
from bayesticket.specs import spec_id
from bayesticket.sweeps import Configs, Runs, RunSummary, assemble

SHIPPED = Path(__file__).parent / "data"
"""The results at the paper's scale that come with the library; `names_in` says of which figures."""
CURVES = "curves"
"""The folder of the runs' files."""
FRACTIONS = ("accuracy", "share")
"""Curves with such a word in their name are kept as they are, because thresholds are read off them."""
BITS = 17
"""All other curves are rounded to as many significant bits: five digits, with a relative error of at most 2⁻¹⁷."""


def names_in(place: Path) -> list[str]:
    """The figures whose results are in a directory, in their order."""
    return [name for name in NAMES if (place / f"{name}.json").is_file()]


@dataclass(frozen=True)
class Results:
    """The curves of a figure's runs, and how each run was made; weights are not among results."""

    runs: Runs
    headers: dict[tuple[str, int], Header]
    """What `run.json` says of each run, by arm and seed."""

    @property
    def by_id(self) -> dict[str, Header]:
        """The headers of the different runs, by the id of their configuration."""
        return {header.id: header for header in self.headers.values()}

    def ids(self, claim: Claim) -> dict[str, list[str]]:
        """The ids of the runs that a claim rests on, by arm, one for each seed."""
        arms = arm_names(self.runs)
        for name in claim.arms:
            if name not in arms:
                raise refuse_name("arms", name, arms)
        return {arm: [self.headers[arm, seed].id for seed in self.runs.seeds] for arm in claim.arms or arms}


def collect(runs: Runs) -> Results:
    """The results of runs that are in a store, with the headers that are there."""
    directory = runs.curves["directory"]
    headers = {
        (name, seed): RunDirectory(str(directory.sel(intervention=name, seed=seed).item())).header()
        for name in arm_names(runs)
        for seed in runs.seeds
    }
    return Results(runs, headers)


def require_kept(configs: Configs, directory: Path, name: str, *, all_arms: bool) -> None:
    """Raises if a directory has results of runs that are not among these configurations, and so would be lost.

    With `all_arms=False`, only results of the arms in `configs` count.
    """
    if not (path := directory / f"{name}.json").exists():
        return
    there = _read_ids(path)
    arms, given = {arm for arm, _ in configs}, {key: spec_id(config) for key, config in configs.items()}
    for (arm, seed), run in there.items():
        if (all_arms or arm in arms) and given.get((arm, seed)) != run:
            raise BayesticketError(
                f"out: {directory} has results of {name} that would be lost: of “{arm}”, seed {seed}, as it is not run "
                "now; accepted: another directory"
            )


def write_results(results: Results, directory: str | os.PathLike[str], name: str) -> Path:
    """Writes `name.json`, and the files of those runs that have none there, or that of another training."""
    place = prepare_directory("directory", directory)
    folder, path = prepare_directory("directory", place / CURVES), place / f"{name}.json"
    seeds, arms = results.runs.seeds, arm_names(results.runs)
    for arm in arms:
        for seed, curves in curves_of(results.runs, arm).items():
            file = folder / f"{(header := results.headers[arm, seed]).id}.parquet"
            if not file.exists() or read_run(file).header != header:
                write_run(file, header, pd.DataFrame(curves))
    ids = {arm: [results.headers[arm, seed].id for seed in seeds] for arm in arms}
    text = json.dumps({"seeds": seeds, "runs": ids}, ensure_ascii=False, indent=1)
    write_atomically(path, lambda file: file.write_text(text, encoding="utf-8"))
    return path


def read_results(directory: str | os.PathLike[str], name: str) -> Results:
    """Reads what `write_results` wrote; the runs have no weights, so that `runs.run(…)` raises.

    >>> results = read_results(SHIPPED, "fig5-standard")
    >>> results.runs.labels("intervention")[:2], results.runs.seeds
    (['no prior, random distractors', 'KL prior, random distractors'], [0, 1, 2, 3, 4])
    """
    place = require_path("directory", directory, "a directory with results")
    ids = _read_ids(place / f"{name}.json")
    runs = {key: read_run(place / CURVES / f"{run}.parquet") for key, run in ids.items()}
    headers = {key: run.header for key, run in runs.items()}
    return Results(Runs(assemble(runs).curves.assign_attrs(trained_by=training_command(name, headers))), headers)


def _read_ids(path: Path) -> dict[tuple[str, int], str]:
    """The ids of a figure's runs, by arm and seed."""
    content = read_json(path)
    with reading(path):
        seeds, runs = content["seeds"], content["runs"]
        if not (seeds and runs):
            raise refuse_case("runs", "no runs", "at least one")
        return {(arm, seed): run for arm, each in runs.items() for seed, run in zip(seeds, each, strict=True)}


def rounded(curve: pd.Series) -> pd.Series:
    """A curve as it is kept.

    >>> rounded(pd.Series([1 / 3], name="train_loss")).item(), rounded(pd.Series([1 / 3], name="share")).item()
    (0.3333320617675781, 0.3333333333333333)
    """
    if any(word in str(curve.name) for word in FRACTIONS):
        return curve
    mantissa, exponent = np.frexp(curve)
    return pd.Series(np.ldexp(np.round(mantissa * 2**BITS), exponent - BITS))


def write_run(path: Path, header: Header, curves: pd.DataFrame) -> None:
    """Writes the file of a run."""
    long = curves.dropna(axis=1, how="all").apply(rounded).reset_index().melt("epoch", var_name="curve")
    content = pa.Table.from_pandas(long.astype({"curve": "category"}), preserve_index=False)
    options: dict[str, Any] = {  # numbers byte by byte, which halves the file
        "compression": "brotli", "compression_level": 10, "write_statistics": False, "store_schema": False,
        "use_dictionary": ["curve"],
        "column_encoding": {"epoch": "DELTA_BINARY_PACKED", "value": "BYTE_STREAM_SPLIT"},
    }  # fmt: skip

    def write(file: Path) -> None:
        with pq.ParquetWriter(file, content.schema, **options) as writer:
            writer.write_table(content)
            writer.add_key_value_metadata({"run": json.dumps(header.as_json(), ensure_ascii=False)})

    write_atomically(path, write)


def read_run(path: Path) -> RunSummary:
    """Reads the file of a run."""
    with reading(path):
        file = pq.ParquetFile(path, read_dictionary=["curve"])
        header = Header.from_json(json.loads(file.metadata.metadata[b"run"]))
        if header.id != path.stem:
            raise refuse_case("id", header.id, f"{path.stem}, as the name of the file says")
        long = file.read().to_pandas()  # curve after curve, each with every epoch
        names, epochs = list(long["curve"].unique()), pd.Index(long["epoch"].unique(), name="epoch")
        values = long["value"].to_numpy().reshape(len(names), len(epochs))
        return RunSummary(header, pd.DataFrame(values.T, epochs, names))


def training_command(name: str, headers: Mapping[tuple[str, int], Header]) -> str:
    """The command that trains the runs of a figure again, with their weights; empty if none trains these very runs."""
    if name not in NAMES:
        return ""
    n_seeds, lengths = len({seed for _, seed in headers}), {header.epochs for header in headers.values()}
    for epochs in sorted(lengths):  # the arms of a figure may be trained for different times
        given = {"seeds": n_seeds, "epochs": epochs}
        for option, scale in (("", Scale()), (" --smoke", SMOKE)):
            configs = find_figure(name).configs(replace(scale, **given))
            if all(key in headers and headers[key].id == spec_id(config) for key, config in configs.items()):
                options = "".join(f" --{key} {n}" for key, n in given.items() if n != getattr(scale, key))
                return f"bayesticket reproduce {name}{option}{options} --store runs"
    return ""
