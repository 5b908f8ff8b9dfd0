"""Adds to the results that come with the library: trains the runs that have no file there, then writes the figure's.

python tools/results.py decay fig3 --seeds 10 --store runs

Runs of arms in which a figure finds something, such as tickets, are trained again where the store lacks their weights,
and their files are replaced, so that all of the figure is about the same trainings.
"""

import argparse
from pathlib import Path

from bayesticket.paper import find_figure
from bayesticket.paper.figure import PaperFigure, Scale
from bayesticket.paper.results import CURVES, SHIPPED, Results, read_run, write_results
from bayesticket.runs import RunDirectory
from bayesticket.specs import spec_id
from bayesticket.sweeps import Configs, RunSummary, assemble, load_runs, train_missing
from bayesticket.sweeps.sweep import is_complete


def file_of(run: str) -> Path:
    """The file of a run among the results, which may not be there."""
    return SHIPPED / CURVES / f"{run}.parquet"


def train(figure: PaperFigure, scale: Scale, store: Path, workers: int | None) -> Configs:
    """Trains what is in neither place; returns all configurations of the figure."""
    configs = figure.configs(scale)

    def train_those_without_file(configs: Configs) -> None:
        missing = {key: config for key, config in configs.items() if not file_of(spec_id(config)).exists()}
        if missing:
            train_missing(missing, store, workers=workers)

    if figure.then is None:
        train_those_without_file(configs)
        return configs
    train_missing(configs, store, workers=workers)
    further = figure.further(scale, load_runs(configs, store))
    train_those_without_file(further)
    return {**configs, **further}


def summary(run: str, store: Path, is_stored: bool) -> RunSummary:
    """A run from the store, or else from its file."""
    if not is_stored:
        return read_run(file_of(run))
    directory = RunDirectory(store / run)
    header = directory.header()
    return RunSummary(header, directory.curves(header), store / run)


def add(figure: PaperFigure, scale: Scale, store: Path, workers: int | None) -> None:
    """Trains a figure's missing runs, and writes its results."""
    configs = train(figure, scale, store, workers)
    runs = {
        key: summary(run := spec_id(config), store, is_complete(store / run, config)) for key, config in configs.items()
    }
    headers = {key: run.header for key, run in runs.items()}
    write_results(Results(assemble(runs), headers), SHIPPED, figure.name)


def main() -> None:
    """Adds the figures that are named, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="+", metavar="FIGURE")
    parser.add_argument("--seeds", type=int, default=Scale().seeds)
    parser.add_argument("--store", type=Path, default=Path("runs"))
    parser.add_argument("--workers", type=int)
    given = parser.parse_args()
    for name in given.figures:
        add(find_figure(name), Scale(seeds=given.seeds), given.store, given.workers)
        print(f"{name}: in {SHIPPED}", flush=True)


if __name__ == "__main__":
    main()
