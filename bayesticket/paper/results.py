"""The results of a figure in two small files: its runs' curves and headers, to draw and judge it without training."""

import json
import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bayesticket.errors import BayesticketError, refuse, refuse_case, refuse_name
from bayesticket.files import prepare_directory, read_json, reading, require_path, write_atomically
from bayesticket.paper import NAMES, find_figure
from bayesticket.paper.figure import SMOKE, Claim, Scale, arm_names
from bayesticket.runs import Header, RunDirectory
from bayesticket.specs import description_id, spec_id
from bayesticket.sweeps import Configs, Runs, RunSummary, assemble

SHIPPED = Path(__file__).parent / "data"
"""The results at the paper's scale that come with the library; `names_in` says of which figures."""
PRECISE = ("train_accuracy", "test_accuracy", "unseen_accuracy")
"""Curves that are kept in double precision, because thresholds are read off them."""


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
    """Writes `name.parquet`, the curves, and `name.json`, the headers; returns both paths."""
    place = prepare_directory("directory", directory)
    table = results.runs.curves.reset_coords(drop=True).to_dataframe().dropna(how="all").dropna(axis=1, how="all")
    table = table.astype({column: "float64" if column in PRECISE else "float32" for column in table})
    curves, made = place / f"{name}.parquet", place / f"{name}.json"
    content = pa.Table.from_pandas(table.reset_index().astype({"intervention": "category"}), preserve_index=False)
    numbers = [field.name for field in content.schema if pa.types.is_floating(field.type)]
    options: dict[str, Any] = {  # numbers byte by byte, which halves the file
        "compression": "zstd", "compression_level": 19, "use_dictionary": ["intervention"],
        "use_byte_stream_split": numbers,
    }  # fmt: skip
    write_atomically(curves, lambda file: pq.write_table(content, file, **options))
    listed = [{"arm": arm, "seed": seed, **header.as_json()} for (arm, seed), header in results.headers.items()]
    text = json.dumps({"runs": listed}, ensure_ascii=False, indent=1)
    write_atomically(made, lambda file: file.write_text(text, encoding="utf-8"))
    return [curves, made]


def read_results(directory: str | os.PathLike[str], name: str) -> Results:
    """Reads what `write_results` wrote; the runs have no weights, so that `runs.run(…)` raises.

    >>> results = read_results(SHIPPED, "fig5-standard")
    >>> results.runs.labels("intervention")[:2], results.runs.seeds
    (['no prior, random distractors', 'KL prior, random distractors'], [0, 1, 2, 3, 4])
    """
    place = require_path("directory", directory, "a directory with results")
    path = place / f"{name}.json"
    listed = read_json(path)
    with reading(path):
        headers = {(entry["arm"], entry["seed"]): Header.from_json(entry) for entry in listed["runs"]}
    if not headers:
        raise refuse_case(str(path), "no runs", "at least one")
    arms, seeds = (list(dict.fromkeys(key[place] for key in headers)) for place in (0, 1))
    if len(headers) != len(arms) * len(seeds):
        raise refuse_case(str(path), f"{len(headers)} runs", f"{len(arms)} arms with {len(seeds)} seeds each")
    if not (place / f"{name}.parquet").is_file():
        raise refuse("results", str(place), f"a directory with {name}.parquet beside {name}.json")
    with reading(place / f"{name}.parquet"):
        table = pd.read_parquet(place / f"{name}.parquet")
        by_run = defaultdict(lambda: table.iloc[:0])  # a run that diverged at once has no rows
        by_run |= iter(table.groupby(["intervention", "seed"], observed=True))
        records = {key: _record(by_run[key], header) for key, header in headers.items()}
    curves = assemble(records).curves
    return Results(Runs(curves.assign_attrs(trained_by=training_command(name, headers))), headers)


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


def _record(rows: pd.DataFrame, header: Header) -> RunSummary:
    curves = rows.drop(columns=["intervention", "seed"]).set_index("epoch").astype("float64")
    return RunSummary(header, curves.dropna(axis=1, how="all"))
