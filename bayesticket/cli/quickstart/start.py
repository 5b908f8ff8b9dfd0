"""The command: trains the three models, shows their curves meanwhile, and writes the page."""

import webbrowser
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bayesticket.cli.quickstart.account import table_of
from bayesticket.cli.quickstart.arms import EPOCHS, LABELS, ORDER, configurations
from bayesticket.cli.quickstart.live import live_curves
from bayesticket.cli.quickstart.report import write_report
from bayesticket.errors import require_integer
from bayesticket.files import prepare_directory
from bayesticket.runs import Run, RunDirectory, TrainConfig, describe_config
from bayesticket.specs import spec_id
from bayesticket.sweeps import load_runs, train_missing


@dataclass(frozen=True)
class Quickstart:
    """What `quickstart` leaves: the runs by arm, and the page."""

    runs: dict[str, Run]
    page: Path


def quickstart(
    out: Path | str = Path("quickstart"),
    *,
    epochs: int = EPOCHS,
    seed: int = 0,
    p: int = 113,
    workers: int = 3,
    open_browser: bool = False,
) -> Quickstart:
    """Trains modular addition without a prior, with one toward the oracle, and with one toward the distractors.

    The runs are kept in `out/runs`, and `out/index.html` shows them. What is complete there is not trained again, and
    what was interrupted goes on where it was. Ctrl-C ends the program, with a line on how to continue.

    At the full scale two cores take about a minute. Meanwhile a terminal shows the curves of test accuracy,
    and a log file a line every five seconds.

    Args:
        out: Directory for the runs and the page.
        epochs: Most epochs to train; a run that has grokked ends earlier.
        seed: Decides initialisation and split, the same for all three runs.
        p: The modulus of the addition.
        workers: Processes to train in, one thread each; with three no core waits while the last run is trained.
        open_browser: Show the page in a browser at the end.
    """
    require_integer("workers", workers, least=1)
    directory = prepare_directory("out", out)
    arms = configurations(epochs=epochs, seed=seed, p=p)
    configs = {(LABELS[arm], seed): arms[arm] for arm in ORDER}
    store = directory / "runs"
    _require_no_others(store, arms)
    try:
        train_missing(configs, store, workers=workers, display=live_curves)
    except KeyboardInterrupt:
        print(f"Stopped; what was trained is in {directory}. To continue, run the same command again.", flush=True)
        raise SystemExit(130) from None
    loaded = load_runs(configs, store)
    runs = {arm: loaded.run(LABELS[arm]) for arm in arms}
    page = write_report(runs, directory / "index.html")
    print(table_of(runs))
    print(f"\n{page.resolve()}")
    if open_browser:
        webbrowser.open(page.resolve().as_uri())
    return Quickstart(runs, page)


def _require_no_others(store: Path, arms: Mapping[str, TrainConfig]) -> None:
    """Raises where the store holds other runs, since the page about those would be replaced."""
    ids = {spec_id(config) for config in arms.values()}
    for path in sorted(store.iterdir()) if store.exists() else ():
        if path.name not in ids and RunDirectory(path).has_run():
            RunDirectory(path, "out").require_run(describe_config(arms["none"])[0])
