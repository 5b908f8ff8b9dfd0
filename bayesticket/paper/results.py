"""What a figure's runs gave, in two small files: enough to draw and judge it again without training."""

import json
import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bayesticket.errors import BayesticketError, refuse
from bayesticket.files import prepare_directory, read_json, reading, require_path, write_atomically
from bayesticket.runs import Run, read_header, require_header
from bayesticket.specs import JSON, description_id, spec_id
from bayesticket.sweeps import Configs, Runs, assemble

PRECISE = ("train_accuracy", "test_accuracy")
"""Curves that are kept in double precision, since thresholds are read off them."""


@dataclass(frozen=True)
class Results:
    """A figure's runs, and how each was made."""

    runs: Runs
    headers: dict[tuple[str, int], dict[str, JSON]]
    """What `run.json` says of each run, by arm and seed."""

    @property
    def by_id(self) -> dict[str, dict[str, JSON]]:
        """The different runs, by the id of their configuration."""
        return {description_id(header["config"]): header for header in self.headers.values()}


def collect(runs: Runs) -> Results:
    """Adds to the runs of a sweep how they were made."""
    places = {
        (str(arm), int(seed)): Path(str(runs["directory"].sel(intervention=arm, seed=seed).item()))
        for arm in runs["intervention"].to_numpy()
        for seed in runs["seed"].to_numpy()
    }
    return Results(runs, {key: read_header(place) for key, place in places.items()})


def require_kept(configs: Configs, directory: Path, name: str, *, all_arms: bool) -> None:
    """Refuses a directory with results of runs that are not among these, of these arms alone or of all."""
    path = directory / f"{name}.json"
    if not path.exists():
        return
    with reading(path):
        there = {(each["arm"], each["seed"]): description_id(each["config"]) for each in read_json(path)["runs"]}
    arms, given = {arm for arm, _ in configs}, {key: spec_id(config) for key, config in configs.items()}
    for (arm, seed), run in there.items():
        if (all_arms or arm in arms) and given.get((arm, seed)) != run:
            raise BayesticketError(
                f"out: {directory} has results of {name} that would be lost: of “{arm}”, seed {seed}, as it is not run "
                "now; accepted: another directory"
            )


def write_results(results: Results, directory: str | os.PathLike[str], name: str) -> list[Path]:
    """Writes `name.parquet`, the curves, and `name.json`, how they were made; returns both paths."""
    place = prepare_directory("directory", directory)
    table = results.runs.drop_vars(["status", "trained", "seconds", "directory"]).to_dataframe()
    columns = [column for column in table if column not in ("intervention", "seed", "epoch")]
    table = table[columns].dropna(how="all")
    table = table.astype({column: "float64" if column in PRECISE else "float32" for column in columns})
    curves, made = place / f"{name}.parquet", place / f"{name}.json"
    content = pa.Table.from_pandas(table.reset_index().astype({"intervention": "category"}), preserve_index=False)
    write_atomically(curves, lambda file: pq.write_table(content, file, compression="zstd", compression_level=12))
    listed = [{"arm": arm, "seed": seed, **header} for (arm, seed), header in results.headers.items()]
    text = json.dumps({"runs": listed}, ensure_ascii=False, indent=1)
    write_atomically(made, lambda file: file.write_text(text, encoding="utf-8"))
    return [curves, made]


def read_results(directory: str | os.PathLike[str], name: str) -> Results:
    """Reads what `write_results` wrote."""
    place = require_path("directory", directory, "a directory with results")
    path = place / f"{name}.json"
    listed = read_json(path)
    with reading(path):
        headers = {(entry.pop("arm"), entry.pop("seed")): entry for entry in listed["runs"]}
        for header in headers.values():
            require_header(header)
    if not headers:
        raise refuse(str(path), "no runs", "at least one")
    if not (place / f"{name}.parquet").is_file():
        raise refuse("results", str(place), f"a directory with {name}.parquet beside {name}.json")
    with reading(place / f"{name}.parquet"):
        table = pd.read_parquet(place / f"{name}.parquet")
        by_run = defaultdict(lambda: table.iloc[:0])  # nothing is there of a run that diverged at once
        by_run |= iter(table.groupby(["intervention", "seed"], observed=True))
        runs = {key: _run_of(by_run[key], header) for key, header in headers.items()}
    arms, seeds = (list(dict.fromkeys(key[place] for key in headers)) for place in (0, 1))
    if len(runs) != len(arms) * len(seeds):
        raise refuse(str(path), f"{len(runs)} runs", f"{len(arms)} arms with {len(seeds)} seeds each")
    return Results(assemble(runs, arms, seeds), headers)


def _run_of(rows: pd.DataFrame, header: dict) -> Run:
    curves = rows.drop(columns=["intervention", "seed"]).set_index("epoch").astype("float64")
    curves = curves.dropna(axis=1, how="all")
    return Run(header["config"], {}, {}, curves, header["epoch"], header["status"], header["seconds"])
