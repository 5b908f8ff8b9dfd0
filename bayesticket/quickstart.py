"""The first thing to run: three models at the paper's full scale, with and without the prior, and a page about them."""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import torch
from tqdm import tqdm

from bayesticket.config import TrainConfig
from bayesticket.errors import BayesticketError, require_integer
from bayesticket.files import prepare_directory
from bayesticket.interventions import KLPrior
from bayesticket.model import Architecture
from bayesticket.run import COMPLETE, Run, describe_config, read_header, require_same_run
from bayesticket.symbolic import ModularAddition
from bayesticket.train import train_config

if TYPE_CHECKING:
    from bayesticket.plot import Section

LABELS = {"none": "no intervention", "kl": "KL to the oracle", "adversarial": "KL to the distractors"}
"""The arms: the names of their directories, and what they are called."""
ORDER = ("none", "adversarial", "kl")
"""Longest first, so that two processes end at about the same time."""
STRENGTH = 1.0
PATIENCE = 300
"""Epochs that a run goes on after it has grokked."""


@dataclass(frozen=True)
class Quickstart:
    """What `quickstart` leaves: the runs by arm, and the page."""

    runs: dict[str, Run]
    page: Path


def quickstart(
    out: str | os.PathLike[str] = "quickstart",
    *,
    epochs: int = 10_000,
    seed: int = 0,
    p: int = 113,
    workers: int = 2,
    open_browser: bool = False,
) -> Quickstart:
    """Trains modular addition without a prior, with one toward the oracle, and with one toward the distractors.

    The runs are kept in `out/runs`, and `out/index.html` shows them. What is complete there is not trained again, and
    what was interrupted goes on where it was. Ctrl-C ends the program, with a line on how to continue.
    """
    require_integer("workers", workers, least=1)
    directory = prepare_directory("out", out)
    configs = configurations(epochs=epochs, seed=seed, p=p)
    stores = {arm: directory / "runs" / arm for arm in configs}
    missing = [arm for arm in ORDER if not _is_complete(stores[arm], configs[arm])]
    if missing:
        try:
            train_in_processes([Job(arm, configs[arm], stores[arm]) for arm in missing], workers=workers)
        except KeyboardInterrupt:
            print(f"Stopped; what was trained is in {directory}. To continue, run the same command again.", flush=True)
            raise SystemExit(130) from None
    runs = {arm: Run.load(stores[arm]) for arm in configs}
    page = write_report(runs, directory / "index.html")
    print(table_of(runs))
    print(f"\n{page.resolve()}")
    if open_browser:
        webbrowser.open(page.resolve().as_uri())
    return Quickstart(runs, page)


def configurations(*, epochs: int, seed: int, p: int) -> dict[str, TrainConfig]:
    """The three runs: they differ in nothing but the prior."""
    arms = {"none": None, "kl": KLPrior(strength=STRENGTH), "adversarial": KLPrior("adversarial", strength=STRENGTH)}
    return {
        arm: TrainConfig(
            task=ModularAddition(p=p),
            intervention=prior,  # type: ignore[arg-type]  # None and a single one become a Recipe
            seed=seed,
            epochs=epochs,
            stop_after_grok=PATIENCE,
        )
        for arm, prior in arms.items()
    }


def _is_complete(store: Path, config: TrainConfig) -> bool:
    """Whether a store holds this run, complete; refuses one that holds anything else, before anything is started."""
    if not store.exists():
        return False
    require_same_run("store", store, describe_config(config)[0])
    return (store / "run.json").exists() and read_header(store)["status"] in COMPLETE


# Training in processes --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """A run to be trained in another process."""

    arm: str
    config: TrainConfig
    store: Path


@dataclass(frozen=True)
class Message:
    """What a worker says: that it is ready, how far its run is, or how that ended."""

    kind: Literal["ready", "progress", "done", "stopped", "failed"]
    arm: str = ""
    epoch: int = 0
    train_accuracy: float = 0.0
    test_accuracy: float = 0.0
    error: str = ""
    traceback: str = ""


def train_in_processes(jobs: Sequence[Job], *, workers: int) -> None:
    """Trains the jobs, begun in their order, in processes of one thread each.

    On Ctrl-C every run is checkpointed, and KeyboardInterrupt goes on. When one run fails the others are checkpointed
    too, and its error is raised here.
    """
    display = _display(jobs)
    team = Team(min(workers, len(jobs)))
    try:
        team.work(jobs, display)
    finally:
        display.close()
        team.dismiss()


class Team:
    """Worker processes, a pipe to each. What is sent to a worker that trains makes it stop, with a checkpoint."""

    def __init__(self, size: int):
        context = multiprocessing.get_context("spawn")
        self.workers: dict[Connection, BaseProcess] = {}
        self.busy: set[Connection] = set()
        self.leaving: set[Connection] = set()
        with _ignoring_interrupts():
            for _ in range(size):
                ours, theirs = context.Pipe()
                process = context.Process(target=work, args=(theirs,), daemon=True)
                process.start()
                theirs.close()
                self.workers[ours] = process

    def work(self, jobs: Sequence[Job], display: "Display") -> None:
        """Hands out the jobs as workers become ready, until all are done."""
        pending = list(jobs)
        while pending or self.busy:
            for connection in wait([each for each in self.workers if each not in self.leaving]):
                assert isinstance(connection, Connection)
                message = self._hear(connection)
                if message.kind == "progress":
                    display.show(message)
                    continue
                self.busy.discard(connection)
                if message.kind == "failed":
                    error = BayesticketError(message.error)
                    error.add_note(message.traceback)
                    raise error
                if message.kind == "stopped":  # not by us: somebody sent the worker a signal
                    raise KeyboardInterrupt
                display.show(message)
                connection.send(pending[0] if pending else None)
                (self.busy if pending else self.leaving).add(connection)
                pending = pending[1:]

    def _hear(self, connection: Connection) -> Message:
        try:
            return connection.recv()
        except (EOFError, ConnectionError):
            self.busy.discard(connection)
            process = self.workers.pop(connection)
            process.join()
            raise BayesticketError(
                f"a training process ended by itself (exit code {process.exitcode}); "
                "what was trained is kept, run the same again to continue"
            ) from None

    def dismiss(self) -> None:
        """Ends all workers; those that train write a checkpoint first, unless Ctrl-C is pressed once more."""
        try:
            for connection, process in self.workers.items():
                if connection in self.busy:
                    with contextlib.suppress(OSError):
                        connection.send(None)
                elif connection not in self.leaving:  # still starting
                    process.terminate()
            for process in self.workers.values():
                process.join()
        finally:
            for process in self.workers.values():
                process.terminate()


@contextlib.contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Lets processes started inside ignore Ctrl-C, which a terminal sends to all: the parent alone decides."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def work(connection: Connection) -> None:
    """What a worker does: trains what it is sent, run after run, until it is sent None or its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, OSError):
        connection.send(Message("ready"))
        while (job := connection.recv()) is not None:
            outcome = _train(job, connection)
            connection.send(outcome)
            if outcome.kind != "done":
                return


def _train(job: Job, connection: Connection) -> Message:
    try:
        job.store.parent.mkdir(parents=True, exist_ok=True)
        run = train_config(job.config, store=job.store, progress=_Reporter(job.arm, connection))
    except KeyboardInterrupt:
        return Message("stopped", job.arm)
    except Exception as error:
        said = str(error) if isinstance(error, BayesticketError) else f"{type(error).__name__}: {error}"
        return Message("failed", job.arm, error=f"{LABELS[job.arm]}: {said}", traceback=traceback.format_exc())
    return Message("done", job.arm, run.epoch, *(run.curves[f"{half}_accuracy"].iloc[-1] for half in ("train", "test")))


class _Reporter:
    """Tells the parent how far a run is, and stops the run when the parent says so or is gone.

    Training notes a first SIGINT, to stop between two steps, and dies of a second one. Only the parent may give it,
    so that a Ctrl-C that reaches parent and worker alike counts once.
    """

    def __init__(self, arm: str, connection: Connection):
        self.arm, self.connection = arm, connection
        self.interrupt: object = None

    def __call__(self, epoch: int, record: Mapping[str, float]) -> None:
        if self.interrupt is None:
            self.interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self.connection.send(
                Message("progress", self.arm, epoch, record["train_accuracy"], record["test_accuracy"])
            )
            stop = self.connection.poll()
        except OSError:
            stop = True
        if stop and callable(self.interrupt):
            self.interrupt(signal.SIGINT, None)


# Progress ---------------------------------------------------------------------------------------------------------


class Display(Protocol):
    """Shows how far the runs are."""

    def show(self, message: Message) -> None:
        """Takes note of what a worker says."""
        ...

    def close(self) -> None:
        """Leaves the terminal in order."""
        ...


def _display(jobs: Sequence[Job]) -> Display:
    return Bars(jobs) if sys.stderr.isatty() else Lines(jobs)


class Bars:
    """A bar for each run, one below the other."""

    def __init__(self, jobs: Sequence[Job]):
        width = max(len(label) for label in LABELS.values())
        self.bars = {
            job.arm: tqdm(
                total=job.config.epochs,
                desc=LABELS[job.arm].ljust(width),
                position=place,
                unit="epoch",
                dynamic_ncols=True,
            )
            for place, job in enumerate(jobs)
        }
        self.begun: set[str] = set()

    def show(self, message: Message) -> None:
        """Moves the run's bar."""
        if message.kind == "ready":
            return
        bar = self.bars[message.arm]
        if message.arm not in self.begun:
            self.begun.add(message.arm)
            bar.reset()
            # Where it goes on, so that the pace is that of this time.
            bar.initial = bar.n = bar.last_print_n = message.epoch
        if message.kind == "done":
            bar.total = message.epoch
        bar.set_postfix_str(f"train {message.train_accuracy:.0%}, test {message.test_accuracy:.0%}", refresh=False)
        bar.update(message.epoch - bar.n)
        if message.kind == "done":
            bar.refresh()

    def close(self) -> None:
        """Closes the bars, from the last to the first."""
        for bar in reversed(self.bars.values()):
            bar.close()


class Lines:
    """A plain line every so often, where there is no terminal."""

    def __init__(self, jobs: Sequence[Job], *, every: float = 15.0):
        self.every, self.began = every, time.monotonic()
        self.shown = self.began
        self.state = {job.arm: f"{LABELS[job.arm]}: waiting" for job in jobs}
        names = ", ".join(LABELS[job.arm] for job in jobs)
        print(f"training {len(jobs)} runs of at most {jobs[0].config.epochs:,} epochs: {names}", file=sys.stderr)

    def show(self, message: Message) -> None:
        """Prints where all runs are when it is time to, or when one has ended."""
        if message.kind == "ready":
            return
        self.state[message.arm] = (
            f"{LABELS[message.arm]}: epoch {message.epoch:,}{', done' if message.kind == 'done' else ''}, "
            f"train {message.train_accuracy:.0%}, test {message.test_accuracy:.0%}"
        )
        now = time.monotonic()
        if message.kind == "done" or now - self.shown >= self.every:
            self.shown = now
            print(f"{now - self.began:4.0f} s | {' | '.join(self.state.values())}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Nothing to put in order."""


# Report -----------------------------------------------------------------------------------------------------------

COLUMNS = (
    "arm",
    "memorised",
    "grokked",
    "final test accuracy",
    "informative mass least / mean",
    "epochs",
    "seconds",
)


def rows_of(runs: Mapping[str, Run]) -> list[list[str]]:
    """The numbers of each run, as text, in the order of `COLUMNS`."""

    def row(arm: str, run: Run) -> list[str]:
        last = run.curves.iloc[-1]
        reached = [
            f"not in {run.epoch:,} epochs" if epoch is None else f"{epoch:,}"
            for epoch in (run.memorised_epoch(), run.grok_epoch())
        ]
        mass = f"{last['informative_mass_least']:.3f} / {last['informative_mass_mean']:.3f}"
        accuracy = f"{last['test_accuracy']:.1%}"
        return [LABELS[arm], *reached, accuracy, mass, f"{run.epoch:,}", f"{run.seconds:.0f}"]

    return [row(arm, run) for arm, run in runs.items()]


def table_of(runs: Mapping[str, Run]) -> str:
    """The runs as a plain text table."""
    rows = [list(COLUMNS), *rows_of(runs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        " | ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join([lines[0], "-+-".join("-" * width for width in widths), *lines[1:]])


def findings(runs: Mapping[str, Run]) -> list[str]:
    """What the three runs show, in paragraphs that follow from the numbers, whatever these are."""
    seed = runs["none"].config.seed
    return [
        f"{_comparison(runs['none'], runs['kl'])} {_control(runs['kl'], runs['adversarial'])}",
        f"This is one seed (seed {seed}): an illustration, not evidence. Another seed may come out differently.",
        *(_account(arm, run) for arm, run in runs.items()),
    ]


_SUBJECTS = {
    "none": "Without a prior the model",
    "kl": "With a KL prior that draws attention to the operands (the oracle) it",
    "adversarial": "With a KL prior of the same strength that draws attention to everything but the operands it",
}


def _account(arm: str, run: Run) -> str:
    memorised, grokked, last = run.memorised_epoch(), run.grok_epoch(), run.curves.iloc[-1]
    never = f"in {run.epoch:,} epochs"
    first = f"did not memorise {never}" if memorised is None else f"memorised at epoch {memorised:,}"
    second = f"did not grok {never}" if grokked is None else f"grokked at epoch {grokked:,}"
    return (
        f"{_SUBJECTS[arm]} {first} and {second}; at the end its test accuracy was {last['test_accuracy']:.1%}, "
        f"and {last['informative_mass_mean']:.1%} of its attention was on the operands."
    )


def _comparison(none: Run, kl: Run) -> str:
    without, prior = none.grok_epoch(), kl.grok_epoch()
    if without is None and prior is None:
        return "Neither the model without a prior nor the one with the prior toward the oracle grokked."
    if without is None:
        return "The model with the prior toward the oracle grokked; the one without a prior did not."
    if prior is None:
        return "The model without a prior grokked; the one with the prior toward the oracle did not."
    if without == prior:
        return f"Without a prior and with the one toward the oracle the model grokked at the same epoch, {prior:,}."
    return (
        f"With the prior toward the oracle the model grokked at epoch {prior:,}, "
        f"{abs(without - prior):,} epochs {'earlier' if prior < without else 'later'} than without a prior."
    )


def _control(kl: Run, adversarial: Run) -> str:
    oracle, distractors = kl.grok_epoch(), adversarial.grok_epoch()
    if distractors is not None:
        return f"The model with the prior toward the distractors grokked at epoch {distractors:,}."
    if oracle is None:
        return "Nor did the one with the prior toward the distractors."
    return (
        "The model with a prior of the same strength toward the distractors did not grok, "
        "so here it mattered where the prior points."
    )


def write_report(runs: Mapping[str, Run], path: Path) -> Path:
    """Writes the page about the runs; returns its path."""
    from bayesticket.plot import write_page

    return write_page(path, "With and without a prior on attention: three runs", _sections(runs))


def _sections(runs: Mapping[str, Run]) -> "list[Section]":
    from bayesticket.plot import Section, Table, mean_attention, plot_patterns, plot_runs, position_labels

    config = runs["none"].config
    labels = position_labels(config.task)
    split = config.task.split(config.train_fraction, config.seed_of("split"))
    patterns = {"oracle": split.test.oracle.mean(0), **{LABELS[arm]: mean_attention(run) for arm, run in runs.items()}}
    question = (
        f"A small transformer reads “{' '.join(labels)}” and is to answer, at the last position, a + b modulo "
        f"{config.task.d_vocab_out}. It sees {len(split.train):,} of the {len(split.train) + len(split.test):,} pairs "
        f"in training. Memorised means that training accuracy has reached 99%, grokked that test accuracy has."
    )
    return [
        Section("", [question, *findings(runs)]),
        Section("In numbers", [], Table(COLUMNS, rows_of(runs))),
        Section(
            "Through training",
            [
                f"A dot marks grokking; a run is stopped {PATIENCE} epochs after it, and its curves end there. "
                "Drag over a part to enlarge it, double-click to go back, click a name to hide a run."
            ],
            plot_runs({LABELS[arm]: run for arm, run in runs.items()}),
        ),
        Section(
            "Where the last position attends",
            ["Attention at the end of training, averaged over the test examples; the oracle needs only the operands."],
            plot_patterns(patterns, labels),
        ),
        Section(
            "How it was made",
            [
                "The runs differ in the prior alone. Each is stored in a directory of its own beside this page, "
                "such as runs/kl, to be read with bayesticket.Run.load."
            ],
            Table(("setting", "value"), _settings(runs), wordy=True),
        ),
    ]


def _settings(runs: Mapping[str, Run]) -> list[list[str]]:
    config, made_with = runs["none"].config, runs["none"].made_with or {}
    split = config.task.split(config.train_fraction, config.seed_of("split"))
    return [
        ["task", f"ModularAddition(p={config.task.d_vocab_out})"],
        *([LABELS[arm], _prior_of(run)] for arm, run in runs.items()),
        ["examples", f"{len(split.train):,} to train on, {len(split.test):,} to test on"],
        ["model", f"one layer, {_sizes_of(config)}, ReLU, no LayerNorm"],
        [
            "optimiser",
            f"{config.optimizer}, learning rate {config.lr:g}, betas {config.betas}, "
            f"weight decay {config.weight_decay:g}",
        ],
        ["schedule", f"{config.warmup} epochs of warm-up, gradient norm clipped at {config.max_grad_norm}"],
        ["epochs", f"{config.epochs:,} at most, full batch; recorded every {config.record_every}"],
        ["seed", str(config.seed)],
        ["made with", ", ".join(f"{name} {value}" for name, value in made_with.items())],
    ]


def _prior_of(run: Run) -> str:
    priors = [part for part in run.config.intervention.parts if isinstance(part, KLPrior)]
    return " + ".join(f"KLPrior({each.target!r}, strength={each.strength})" for each in priors) or "–"


def _sizes_of(config: TrainConfig) -> str:
    assert isinstance(config.model, Architecture)
    return f"d_model {config.model.d_model}, heads {config.model.n_heads}, d_mlp {config.model.d_mlp}"


# Picture ----------------------------------------------------------------------------------------------------------


def readme_picture(runs: Mapping[str, Run], path: str | os.PathLike[str]) -> Path:
    """Writes test accuracy and informative mass of the three arms side by side, as a PNG of 1200 × 450 pixels."""
    from bayesticket.plot import side_by_side, write_picture

    figure = side_by_side({LABELS[arm]: run for arm, run in runs.items()})
    return write_picture(figure, path, width=1200, height=450)
