"""Adds to the results that come with the library: trains the runs that have no file there, then writes the figure's.

python tools/add_results.py decay fig3 --seeds 10 --store runs

Runs in whose weights a figure finds something, such as tickets, are trained again where the store lacks them, and their
files are replaced, so that all of the figure is about the same trainings. After Ctrl-C the runs that have ended have
files, but for runs that are made from others' weights; the next call trains what is left, and writes the figure.
"""

import argparse
import sys
from pathlib import Path

from bayesticket.errors import BayesticketError
from bayesticket.files import prepare_directory
from bayesticket.paper import find_figure
from bayesticket.paper.figure import PaperFigure, Scale
from bayesticket.paper.results import CURVES, SHIPPED, Results, read_run, require_kept, write_results, write_run
from bayesticket.runs import RunDirectory
from bayesticket.specs import spec_id
from bayesticket.sweeps import Configs, RunSummary, assemble, train_missing


def add_results(
    figure: PaperFigure, scale: Scale, store: Path, results: Path = SHIPPED, workers: int | None = None
) -> None:
    """Trains the runs of a figure that are neither in the store nor among the results, and writes its results."""
    configs = figure.configs(scale)
    require_kept(configs, results, figure.name, all_arms=figure.then is None)
    found_in = {key: config for key, config in configs.items() if key[0] in figure.finds_in}
    try:
        _train({**_without_file(configs, results), **found_in}, store, workers)
    finally:
        _keep_ended(_without_file(configs, results), store, results)
    runs = _summaries(configs, store, results)
    if further := figure.further(scale, assemble(runs)):
        require_kept({**configs, **further}, results, figure.name, all_arms=True)
        _train(_without_file(further, results), store, workers)
        runs |= _summaries(further, store, results)
    headers = {key: run.header for key, run in runs.items()}
    write_results(Results(assemble(runs), headers), results, figure.name)


def _train(configs: Configs, store: Path, workers: int | None) -> None:
    if configs:
        train_missing(configs, store, workers=workers)


def _keep_ended(configs: Configs, store: Path, results: Path) -> None:
    """Writes the files of those runs in the store that have ended."""
    folder = prepare_directory("results", results / CURVES)
    for run in map(spec_id, configs.values()):
        if (directory := RunDirectory(store / run)).has_ended():
            header = directory.header()
            write_run(folder / f"{run}.parquet", header, directory.curves(header))


def _without_file(configs: Configs, results: Path) -> Configs:
    return {key: config for key, config in configs.items() if not _file(spec_id(config), results).exists()}


def _summaries(configs: Configs, store: Path, results: Path) -> dict[tuple[str, int], RunSummary]:
    return {key: _summary(spec_id(config), store, results) for key, config in configs.items()}


def _file(run: str, results: Path) -> Path:
    return results / CURVES / f"{run}.parquet"


def _summary(run: str, store: Path, results: Path) -> RunSummary:
    """A run from the store, or else from its file."""
    directory = RunDirectory(store / run)
    if not directory.has_ended():
        return read_run(_file(run, results))
    header = directory.header()
    return RunSummary(header, directory.curves(header), store / run)


def main() -> None:
    """Adds the figures that are named, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="+", metavar="FIGURE")
    parser.add_argument("--seeds", type=int, default=Scale().seeds)
    parser.add_argument("--store", type=Path, default=Path("runs"))
    parser.add_argument("--workers", type=int)
    given = parser.parse_args()
    try:
        figures, scale = [find_figure(name) for name in given.figures], Scale(seeds=given.seeds)
        for figure in figures:
            add_results(figure, scale, given.store, workers=given.workers)
            print(f"{figure.name}: in {SHIPPED}", flush=True)
    except (BayesticketError, KeyboardInterrupt) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
