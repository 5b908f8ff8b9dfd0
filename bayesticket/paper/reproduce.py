"""Runs the paper's figures: trains missing runs, draws, judges, and writes pages and results."""

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from pathlib import Path

from bayesticket.errors import refuse, require_several
from bayesticket.files import prepare_directory
from bayesticket.paper import NAMES, find_figure
from bayesticket.paper.figure import PaperFigure, Scale
from bayesticket.paper.report import write_figure_page
from bayesticket.paper.results import collect, require_kept, write_results
from bayesticket.sweeps import Configs, Runs, load_runs, train_missing


def reproduce(
    figures: str | Iterable[str] = "all",
    *,
    scale: Scale | None = None,
    store: str | os.PathLike[str] = "runs",
    out: str | os.PathLike[str] = "reproduced",
    executor: Executor | None = None,
    workers: int | None = None,
    progress: bool | None = None,
) -> list[Path]:
    """Trains the runs that the store lacks, and writes a page and the results of each figure; returns the pages.

    Pages and results in `out` are replaced only by those of the same runs, or of these and more.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as here:
    ...     pages = reproduce("fig1", scale=Scale(seeds=1, epochs=10, p=5), store=f"{here}/runs", out=f"{here}/out")
    >>> [page.name for page in pages]
    ['fig1.html']
    """
    chosen = [find_figure(name) for name in require_names(figures)]
    if not isinstance(scale := Scale() if scale is None else scale, Scale):
        raise refuse("scale", scale, "a Scale, such as Scale(seeds=2, epochs=100, p=7)")
    directory = prepare_directory("out", out)

    def train(stages: Sequence[Configs]) -> None:
        together = {
            (f"{figure.name}, {arm}", seed): config
            for figure, stage in zip(chosen, stages, strict=True)
            for (arm, seed), config in stage.items()
        }
        if together:
            train_missing(together, store, executor=executor, workers=workers, progress=progress)

    first = [figure.configs(scale) for figure in chosen]
    for figure, configs in zip(chosen, first, strict=True):
        require_kept(configs, directory, figure.name, all_arms=figure.then is None)
    train(first)
    further = [
        {} if figure.then is None else figure.further(scale, load_runs(configs, store))
        for figure, configs in zip(chosen, first, strict=True)
    ]
    every = [{**before, **after} for before, after in zip(first, further, strict=True)]
    for figure, configs in zip(chosen, every, strict=True):
        require_kept(configs, directory, figure.name, all_arms=True)
    train(further)
    return [_write(figure, load_runs(configs, store), directory) for figure, configs in zip(chosen, every, strict=True)]


def require_names(figures: object) -> list[str]:
    """The names of figures, in their order; "all" is all of them."""
    if figures == "all":
        return list(NAMES)
    accepted = f"one or several of {', '.join(NAMES)}, or 'all'"
    listed = [figures] if isinstance(figures, str) else require_several("figures", figures, accepted)
    if not listed:
        raise refuse("figures", figures, accepted)
    for name in listed:
        find_figure(name)
    return [name for name in NAMES if name in listed]


def _write(figure: PaperFigure, runs: Runs, directory: Path) -> Path:
    results = collect(runs)
    write_results(results, directory, figure.name)
    return write_figure_page(figure, results, directory / f"{figure.name}.html")
