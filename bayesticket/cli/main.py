"""The command line: `bayesticket quickstart | train | resume | sweep | reproduce | report | bench`.

Nothing heavy is imported before a command needs it, so that `bayesticket --help` answers at once.
"""

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bayesticket.runs import Run

USAGE = """usage: bayesticket COMMAND [OPTIONS]

Why do transformers grok? Interventions, measures and fast training for small TransformerLens models.

commands:
  quickstart  train the paper's model three ways, and show in a page what happens
  train       train one model
  resume      continue an interrupted run
  sweep       train many models, as a TOML file says
  reproduce   run figures of the paper, and say what they show
  report      put the results of all figures on one page
  bench       measure how fast training is, as ratios taken side by side

`bayesticket COMMAND --help` shows a command's options.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code."""
    typed = arguments is None
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0
    name, rest = arguments[0], arguments[1:]
    if name == "--version":
        from bayesticket import __version__

        print(f"bayesticket {__version__}")
        return 0
    if name not in COMMANDS:
        print(f"bayesticket: {name!r} is not a command; accepted: {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    if typed and name == "quickstart" and not {"-h", "--help"} & set(rest):
        _prepare()
    return _run(COMMANDS[name], rest)


def _prepare() -> None:
    """Has the worker processes import what they need while this one imports the same, which takes seconds."""
    from bayesticket.sweeps.forkserver import start_early

    print("loading PyTorch and TransformerLens", file=sys.stderr, flush=True)
    start_early()


def _run(command: Callable[[Sequence[str]], None], arguments: Sequence[str]) -> int:
    from bayesticket.errors import BayesticketError

    try:
        command(arguments)
    except BayesticketError as error:
        print(f"bayesticket: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        print(f"bayesticket: {_what_to_do_after(error)}", file=sys.stderr)
        return 130
    return 0


def _what_to_do_after(interrupt: KeyboardInterrupt) -> str:
    from bayesticket.runs import Interrupted

    if isinstance(interrupt, Interrupted) and interrupt.store is not None:
        classes = str((interrupt.run.made_with or {}).get("classes", ""))
        modules = dict.fromkeys(name.rpartition(".")[0] for name in classes.split(", ") if name)
        imports = [word for module in modules for word in ("--import", module)]
        command = shlex.join(["bayesticket", "resume", str(interrupt.store), *imports])
        return f"interrupted after epoch {interrupt.run.epoch:,}; continue with: {command}"
    return str(interrupt) or "interrupted"


def train(arguments: Sequence[str]) -> None:
    """Trains one model, as the paper does unless told otherwise."""
    import logging

    from bayesticket.cli.options import read_train_options
    from bayesticket.runs import train_config

    logging.basicConfig(format="%(message)s")
    options = read_train_options(arguments)
    run = train_config(
        options.config,
        store=options.store,
        checkpoint_every=options.checkpoint_every,
        snapshots=options.snapshots,
        threads=options.threads,
        config_file=options.config_file,
    )
    _show_run(run, options.store)


def resume(arguments: Sequence[str]) -> None:
    """Continues an interrupted run from its store, bit for bit as if it had not been interrupted."""
    from bayesticket.cli.arguments import call
    from bayesticket.cli.options import import_modules, require_modules
    from bayesticket.runs import CHECKPOINT_EVERY, resume

    def command(
        store: Path, /, import_: tuple[str, ...] = (), checkpoint_every: int = CHECKPOINT_EVERY, threads: int = 1
    ) -> None:
        """Continues an interrupted run from its store, bit for bit as if it had not been interrupted.

        Args:
            store: The directory that the run is kept in.
            import_: A module of yours to import first, which defines what the run is made of; may be repeated.
            checkpoint_every: Epochs between checkpoints.
            threads: torch threads; as many as the run had, if the result is to be the same to the bit.
        """
        import_modules(require_modules(list(import_)))
        _show_run(resume(store, checkpoint_every=checkpoint_every, threads=threads), store)

    call(command, "resume", arguments)


def _show_run(run: "Run", store: Path | None) -> None:
    """Prints what became of a run; writes its curves into its directory, if it has one."""
    from bayesticket.files import write_atomically

    print(run)
    if store is not None:
        page = store / "curves.html"
        write_atomically(page, lambda temporary: run.plot().write_html(temporary))
        print(f"kept in {store}, curves in {page}; load it with bayesticket.Run.load({str(store)!r})")


def sweep(arguments: Sequence[str]) -> None:
    """Trains many models, as a TOML file says, and shows them on a page."""
    from bayesticket.cli.sweep import sweep

    sweep(arguments)


def quickstart(arguments: Sequence[str]) -> None:
    """Trains without a prior, with the KL prior, and with an adversarial prior; shows what happens in a page."""
    from bayesticket.cli.arguments import call
    from bayesticket.cli.quickstart import quickstart

    call(quickstart, "quickstart", arguments)


def reproduce(arguments: Sequence[str]) -> None:
    """Runs figures of the paper, and writes a page and the data of each."""
    from bayesticket.cli.arguments import call
    from bayesticket.paper.figure import SMOKE, Scale
    from bayesticket.paper.reproduce import reproduce

    def command(
        figure: str,
        /,
        seeds: int | None = None,
        epochs: int | None = None,
        workers: int | None = None,
        store: Path = Path("runs"),
        out: Path = Path("reproduced"),
        smoke: bool = False,
    ) -> None:
        """Runs figures of the paper: p = 113, 10,000 epochs, seeds 0 to 4. What is stored is not run again.

        Args:
            figure: Which one: fig1 to fig11, controls (of fig3), conditions, decay, autoregressive, practical, each
                also as NAME-standard; equation9, specification, early; or all.
            seeds: How many seeds, 0 to N - 1; 5 by default.
            epochs: Most epochs of a run; 10,000 by default.
            workers: Processes to train in, one thread each; as many as there are cores by default.
            store: Directory for the runs.
            out: Directory for the pages and the data.
            smoke: Run it tiny, only to see that it runs.
        """
        scale = SMOKE if smoke else Scale()
        given = {name: value for name, value in (("seeds", seeds), ("epochs", epochs)) if value is not None}
        pages = reproduce(figure, scale=replace(scale, **given), store=store, out=out, workers=workers, progress=True)
        for page in pages:
            print(page.resolve())

    call(command, "reproduce", arguments)


def report(arguments: Sequence[str]) -> None:
    """Puts the results of all figures on one page, without training."""
    from bayesticket.cli.arguments import call
    from bayesticket.paper.report import write_report

    def command(results: Path | None = None, out: Path = Path("report.html")) -> None:
        """Puts the results of all figures on one page, without training.

        Args:
            results: Directory with results, as `reproduce` writes them; by default those that come with the library.
            out: The page.
        """
        print(write_report(results, out).resolve())

    call(command, "report", arguments)


def bench(arguments: Sequence[str]) -> None:
    """Measures how fast training is, as ratios taken side by side in one run."""
    from bayesticket.cli.arguments import call
    from bayesticket.cli.bench import main

    call(main, "bench", arguments)


COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "quickstart": quickstart,
    "train": train,
    "resume": resume,
    "sweep": sweep,
    "reproduce": reproduce,
    "report": report,
    "bench": bench,
}
