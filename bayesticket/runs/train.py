"""Training: from options to a run, checkpointed in a directory where one is given."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

import torch

from bayesticket.errors import BayesticketError, refuse_case, require_integer
from bayesticket.files import claimed_directory, new_directory, one_line, reading, require_path
from bayesticket.interventions import Intervention
from bayesticket.measures import Measure
from bayesticket.model import Architecture, HookedTransformer
from bayesticket.optim import LossFunction, Optimizer
from bayesticket.runs.checkpoint import checkpoint_of, restore_checkpoint
from bayesticket.runs.config import TrainConfig, configure
from bayesticket.runs.directory import RunDirectory
from bayesticket.runs.interrupt import Interrupted, deferred_interrupt
from bayesticket.runs.loop import NonFiniteLoss, Training
from bayesticket.runs.prepare import described_hooks
from bayesticket.runs.progress import Progress, reporting, require_progress
from bayesticket.runs.run import Run, describe_config, restore_config
from bayesticket.schedules import Strength
from bayesticket.tasks import AbstractTask, SplitBy
from bayesticket.threads import torch_threads

log = logging.getLogger("bayesticket")
CHECKPOINT_EVERY = 500
"""Epochs between checkpoints, unless told otherwise."""


class NotSaved(BayesticketError):
    """The run was trained but could not be saved, as when the disk is full; `run` holds it."""

    def __init__(self, message: str, run: Run):
        super().__init__(message)
        self.run = run


def train(
    task: AbstractTask,
    intervention: Intervention | None = None,
    *,
    model: Architecture | HookedTransformer | None = None,
    measures: Iterable[Measure] = (),
    seed: int = 0,
    init_seed: int | None = None,
    split_seed: int | None = None,
    batch_seed: int | None = None,
    train_fraction: float = 0.3,
    split_by: SplitBy = "example",
    epochs: int = 10_000,
    batch_size: int | None = None,
    optimizer: Optimizer | str = "adamw",
    lr: Strength | None = None,
    weight_decay: Strength | None = None,
    betas: tuple[float, float] | None = None,
    momentum: float | None = None,
    loss: LossFunction | None = None,
    warmup: int = 10,
    max_grad_norm: float | None = 1.0,
    record_every: int = 10,
    stop_after_grok: int | None = None,
    grok_threshold: float = 0.99,
    forward: Literal["auto", "fast", "full"] = "auto",
    device: str = "auto",
    dtype: Literal["float32", "float64"] | None = None,
    store: str | os.PathLike[str] | None = None,
    checkpoint_every: int = CHECKPOINT_EVERY,
    threads: int = 1,
    progress: bool | Progress | None = None,
) -> Run:
    """Trains a model on a task under an intervention, by default as the paper does; see `TrainConfig` for the options.

    `optimizer` is an optimiser, such as `Muon(lr=0.02)`, or a word: `"adamw"`, `"sgd"`, `"muon"`, `"lion"`. `lr`,
    `weight_decay`, `betas` and `momentum` replace its settings, which are by default a learning rate of 1e-3 and a
    weight decay of 1. The first two may be schedules, such as `Anneal(1e-3, 0.0, last=10_000)`. A HookedTransformer
    given as `model` is copied; the trained copy is `run.model`.

    With a `store`, a directory, the run is checkpointed there every `checkpoint_every` epochs and saved at the end. A
    store that holds this very run is continued where it was interrupted, or simply loaded where it is complete; any
    other is refused. Training uses one torch thread unless `threads` says otherwise: more are faster on a machine that
    does nothing else, and many times slower on one that does. `progress` shows a bar: True, False, on a terminal
    (None); or it is called after every record.

    >>> from bayesticket.tasks import ModularAddition
    >>> run = train(ModularAddition(p=5), epochs=20)
    >>> run.curves.index.tolist()
    [0, 10, 20]
    """
    config = configure(
        task=task,
        intervention=intervention,
        model=model,
        measures=measures,
        seed=seed,
        init_seed=init_seed,
        split_seed=split_seed,
        batch_seed=batch_seed,
        train_fraction=train_fraction,
        split_by=split_by,
        epochs=epochs,
        batch_size=batch_size,
        optimizer=optimizer,
        lr=lr,
        weight_decay=weight_decay,
        betas=betas,
        momentum=momentum,
        loss=loss,
        warmup=warmup,
        max_grad_norm=max_grad_norm,
        record_every=record_every,
        stop_after_grok=stop_after_grok,
        grok_threshold=grok_threshold,
        forward=forward,
        device=device,
        dtype=dtype,
    )
    return train_config(config, store=store, checkpoint_every=checkpoint_every, threads=threads, progress=progress)


def train_config(
    config: TrainConfig,
    *,
    store: str | os.PathLike[str] | RunDirectory | None = None,
    checkpoint_every: int = CHECKPOINT_EVERY,
    threads: int = 1,
    progress: bool | Progress | None = None,
    config_file: str | None = None,
    stop: Callable[[], bool] | None = None,
) -> Run:
    """Trains what a configuration says; `train` with its options in one object.

    The text of a file that the options were read from is kept in `run.json`. `stop` is asked after every epoch; when
    it says yes, training ends as it does on Ctrl-C.
    """
    require_integer("checkpoint_every", checkpoint_every, least=1)
    require_progress(progress)
    if not torch.is_grad_enabled():
        raise refuse_case("train", "a call with gradients switched off", "one outside torch.no_grad and inference_mode")
    directory = store if isinstance(store, RunDirectory | None) else RunDirectory(store)
    with torch_threads(threads):
        if directory is None:
            return _Session(Training(config, config_file), None, checkpoint_every).run_to_end(progress, stop)
        directory.require_run(describe_config(config)[0])
        if directory.is_complete():
            log.info("%s holds this run, complete; loading it", directory)
            return Run.load(directory.path)
        with claimed_directory(directory.field, directory.path):
            training = Training(config, config_file)  # raises where the configuration cannot be trained
        with directory.locked():
            return _continue(training, directory, checkpoint_every, progress, stop)


def _continue(
    training: Training,
    directory: RunDirectory,
    checkpoint_every: int,
    progress: bool | Progress | None,
    stop: Callable[[], bool] | None,
) -> Run:
    """Trains a run in its directory from the last checkpoint, or from the beginning."""
    if directory.is_complete():  # by whoever held the lock before
        return Run.load(directory.path)
    if directory.has_run() and training.config_file is None:
        training.config_file = directory.header().made_with.get("config_file")
    if (checkpoint := directory.read_checkpoint()) is not None:
        with reading(directory.checkpoint_path):
            restore_checkpoint(training, *checkpoint)
    directory.begin(training.as_run("running").header(), training.tensors)
    return _Session(training, directory, checkpoint_every).run_to_end(progress, stop)


def resume(
    store: str | os.PathLike[str],
    *,
    checkpoint_every: int = CHECKPOINT_EVERY,
    threads: int = 1,
    progress: bool | Progress | None = None,
) -> Run:
    """Continues an interrupted run from its store; the result equals, bit for bit, that of an uninterrupted one."""
    directory = RunDirectory(require_path("store", store, "the directory of a saved run"))
    header = directory.header()
    tensors = directory.tensors(header)
    with reading(directory.header_path):
        config = restore_config(header.config, tensors)
        hooks = described_hooks(header.config)
    if header.is_complete:
        return Run.load(directory.path)
    if hooks:
        raise BayesticketError(
            f"store: got {str(directory)!r}, where a model has hooks of its own on {', '.join(hooks)}, which no file "
            f"holds; accepted: bayesticket.train(…, model=…, store={str(directory)!r}) with that model and options"
        )
    return train_config(config, store=directory, checkpoint_every=checkpoint_every, threads=threads, progress=progress)


class _Session:
    """Trains a run to its end, with checkpoints in a directory, and leaves a state to resume from when interrupted."""

    def __init__(self, training: Training, directory: RunDirectory | None, checkpoint_every: int):
        self.training, self.directory, self.checkpoint_every = training, directory, checkpoint_every
        self.warned = False

    def run_to_end(self, progress: bool | Progress | None, stop: Callable[[], bool] | None) -> Run:
        """Trains until the run is over; raises `Interrupted`, `NonFiniteLoss` or `NotSaved`, each with the run."""
        training = self.training
        with deferred_interrupt() as interrupted:
            try:
                with reporting(progress, training.config, training.epoch, interrupted) as report:
                    self._take_epochs(report, stop, interrupted)
            except NonFiniteLoss as error:
                error.run = training.as_run("failed")
                try:
                    self._save(error.run)
                except NotSaved as unsaved:
                    log.warning("%s", unsaved)
                raise
            run = training.as_run("finished" if training.epoch == training.config.epochs else "stopped")
            self._save(run)
            if interrupted.is_set():
                raise Interrupted(f"interrupted after the last epoch, {run.epoch:,}: the run is complete", run)
            return run

    def _take_epochs(self, report: Progress, stop: Callable[[], bool] | None, interrupted: threading.Event) -> None:
        training = self.training
        started = time.perf_counter() - training.seconds
        while not training.is_over():
            training.take_epoch()
            training.seconds = time.perf_counter() - started
            if training.records and training.records[-1]["epoch"] == training.epoch - 1:
                report(training.epoch - 1, training.records[-1])
            if stop is not None and stop():
                interrupted.set()
            if interrupted.is_set() and not training.is_over():
                raise self._interrupted()
            if self.directory is not None and training.epoch % self.checkpoint_every == 0:
                self._try_checkpoint(self.directory)
        if training.records[-1]["epoch"] != training.epoch:
            training.record()
        report(training.epoch, training.records[-1])

    def _try_checkpoint(self, directory: RunDirectory) -> None:
        """Writes a checkpoint; a disk that is full for now is no reason to stop training."""
        tensors, note = checkpoint_of(self.training)
        try:
            directory.write_checkpoint(tensors, note)
        except BayesticketError as error:
            if not self.warned:
                log.warning("%s; training goes on, and the next checkpoint is tried in its turn", error)
            self.warned = True

    def _interrupted(self) -> Interrupted:
        training = self.training
        run, said = training.as_run("interrupted"), f"interrupted after epoch {training.epoch:,}"
        directory = self.directory
        try:
            if directory is None:
                directory = RunDirectory(new_directory(Path("interrupted"), training.id))
                directory.begin(training.as_run("running").header(), training.tensors)
            directory.write_checkpoint(*checkpoint_of(training))
        except (BayesticketError, OSError) as error:
            return Interrupted(
                f"{said}; its state could not be kept ({one_line(error)}), only `run` of this error", run
            )
        if described_hooks(training.description):
            return Interrupted(f"{said}; continue with the same call and store={str(directory)!r}", run)
        return Interrupted(f"{said}; continue with bayesticket.resume({str(directory)!r})", run, directory.path)

    def _save(self, run: Run) -> None:
        if self.directory is None:
            return
        try:
            self.directory.save(run.header(), run.tensors, run.curves, run.weights)
            self.directory.remove_checkpoint()
        except (BayesticketError, OSError) as error:
            raise NotSaved(f"{one_line(error)}; the trained run is kept as `run` of this error", run) from error
