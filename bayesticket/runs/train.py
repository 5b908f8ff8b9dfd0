"""Training: from options to a run, checkpointed in a directory where one is given."""

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import torch

from bayesticket.errors import BayesticketError, refuse_case, require_integer
from bayesticket.files import claimed_directory, reading, require_path
from bayesticket.interventions import Intervention
from bayesticket.measures import Measure
from bayesticket.model import Architecture, HookedTransformer
from bayesticket.optim import LossFunction, Optimizer
from bayesticket.runs.checkpoint import restore_checkpoint
from bayesticket.runs.config import TrainConfig, configure
from bayesticket.runs.description import describe_config, restore_config
from bayesticket.runs.directory import RunDirectory
from bayesticket.runs.loop import Training
from bayesticket.runs.prepare import described_hooks
from bayesticket.runs.reporting import ProgressFunction, require_progress
from bayesticket.runs.run import Run
from bayesticket.runs.session import Session
from bayesticket.runs.snapshots import SnapshotPlan, Snapshots, as_plan, in_short, missing_epochs, plan_of_text
from bayesticket.runs.stopping import StopFunction, StopRule, split_stop
from bayesticket.runs.tracking import Tracking, require_tracker
from bayesticket.runs.versions import parts_before
from bayesticket.schedules import Strength
from bayesticket.tasks import AbstractTask, SplitBy
from bayesticket.threads import denormals_flushed, require_full_precision, torch_threads

log = logging.getLogger("bayesticket")
CHECKPOINT_EVERY = 500
"""Epochs between checkpoints, unless told otherwise."""


def train(
    task: AbstractTask,
    intervention: Intervention | None = None,
    *,
    model: Architecture | HookedTransformer | None = None,
    measures: Iterable[Measure] = (),
    evaluate: Mapping[str, AbstractTask] | None = None,
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
    stop_when: StopRule | StopFunction | None = None,
    forward: Literal["auto", "fast", "full"] = "auto",
    device: str = "auto",
    dtype: Literal["float32", "float64"] | None = None,
    store: str | os.PathLike[str] | None = None,
    checkpoint_every: int = CHECKPOINT_EVERY,
    snapshots: SnapshotPlan | Sequence[int] | None = None,
    threads: int = 1,
    progress: bool | ProgressFunction | None = None,
    tracker: Tracking | None = None,
) -> Run:
    """Trains a model on a task under an intervention, by default as the paper does; see `TrainConfig` for the options.

    `optimizer` is an optimiser, such as `Muon(lr=0.02)`, or a word: `"adamw"`, `"sgd"`, `"muon"`, `"lion"`. `lr`,
    `weight_decay`, `betas` and `momentum` replace its settings, which are by default a learning rate of 1e-3 and a
    weight decay of 1. The first two may be schedules, such as `Anneal(1e-3, 0.0, last=10_000)`. A HookedTransformer
    given as `model` is copied; the trained copy is `run.model`.

    `evaluate={"T=12": ModularAddition(p=113, n_distractors=8)}` records what the test half records on other tasks too,
    in curves such as `T=12/test_accuracy`: on the inputs of the test half, where both tasks have the same inputs, and
    else on all that are not in training. `Run.evaluate` says more. Like measures, evaluations are part of what the run
    is, as `stop_when` may ask about their curves.

    With a `store`, a directory, the run is checkpointed there every `checkpoint_every` epochs and saved at the end. A
    store that holds this very run is continued where it was interrupted, or simply loaded where it is complete; any
    other is refused. `snapshots` of the weights on the way, `Every(100)`, `LogSpaced(60)` or a list of epochs, are kept
    in the store, without one in memory: `run.at(epoch)` is the model as it was, `run.measure(…)` measures it then. They
    are not part of what the run is. Training uses one torch thread unless `threads` says otherwise: more are faster on
    a machine that does nothing else, and many times slower on one that does. `progress` shows a bar: True, False, on a
    terminal (None); or it is called after every record. A `tracker`, such as `Tracker(wandb, project="mine")`, is told
    every record too.

    `stop_when` ends training early, with the status "stopped". A rule, such as `Stalls("test_accuracy", over=2000)` or
    `Reaches("unseen_accuracy", 0.99, patience=200)`, is part of the configuration: the run is complete where the rule
    stops it. A function of each record, such as `lambda record: record["test_loss"] < 0.1`, is no data, and not part of
    the run's identity; nor is a `progress` function that returns True or raises `StopTraining`. A run that one of these
    has cut short is saved in its store, and loads, but is not complete: the same call without it trains the rest.

    >>> from bayesticket.tasks import ModularAddition
    >>> run = train(ModularAddition(p=5), epochs=20)
    >>> run.curves.index.tolist()
    [0, 10, 20]
    """
    rule, function = split_stop(stop_when)
    config = configure(
        task=task,
        intervention=intervention,
        model=model,
        measures=measures,
        evaluate=evaluate,
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
        stop_when=rule,
        forward=forward,
        device=device,
        dtype=dtype,
    )
    return train_config(
        config,
        store=store,
        checkpoint_every=checkpoint_every,
        snapshots=snapshots,
        threads=threads,
        progress=progress,
        stop_when=function,
        tracker=tracker,
    )


def train_config(
    config: TrainConfig,
    *,
    store: str | os.PathLike[str] | RunDirectory | None = None,
    checkpoint_every: int = CHECKPOINT_EVERY,
    snapshots: SnapshotPlan | Sequence[int] | None = None,
    threads: int = 1,
    progress: bool | ProgressFunction | None = None,
    stop_when: StopFunction | None = None,
    tracker: Tracking | None = None,
    config_file: str | None = None,
    stop: Callable[[], bool] | None = None,
) -> Run:
    """Trains what a configuration says; `train` with its options in one object.

    The text of a file that the options were read from is kept in `run.json`. `stop` is asked after every epoch; when
    it says yes, training ends as it does on Ctrl-C.
    """
    require_integer("checkpoint_every", checkpoint_every, least=1)
    require_progress(progress)
    require_tracker(tracker)
    require_full_precision("train")
    if not torch.is_grad_enabled():
        raise refuse_case("train", "a call with gradients switched off", "one outside torch.no_grad and inference_mode")
    if (plan := as_plan(snapshots)) is not None:
        plan.epochs_of(config.epochs)  # raises where the run does not come so far
    directory = store if isinstance(store, RunDirectory | None) else RunDirectory(store)

    def run_to_end(training: Training) -> Run:
        session = Session(training, directory, checkpoint_every, stop_when, tracker)
        return session.run_to_end(progress, stop)

    with torch_threads(threads), denormals_flushed():
        if directory is None:
            return run_to_end(Training(config, config_file, plan))
        directory.require_run(describe_config(config)[0])
        if directory.is_complete():
            log.info("%s holds this run, complete; loading it", directory)
            return _loaded(directory, plan)
        with claimed_directory(directory.field, directory.path):
            training = Training(config, config_file, plan)  # raises where the configuration cannot be trained
        with directory.locked():
            if directory.is_complete():  # by whoever held the lock before
                return _loaded(directory, plan)
            _begin_or_continue(directory, training)
            return run_to_end(training)


def _loaded(directory: RunDirectory, plan: SnapshotPlan | None) -> Run:
    """A complete run; where it lacks snapshots that are asked for, it is said, since it is not trained again."""
    run = Run.load(directory.path)
    if plan is not None and (missing := missing_epochs(plan, run.snapshots, run.header())):
        log.warning(
            "%s holds this run, complete, without snapshots at epochs %s; another directory gets them",
            directory,
            in_short(missing),
        )
    return run


def _begin_or_continue(directory: RunDirectory, training: Training) -> None:
    """Has a run continue from the last checkpoint in its directory, where there is one, and writes its header."""
    before = directory.header() if directory.has_run() else None
    if before is not None:
        training.config_file = training.config_file or before.made_with.get("config_file")
        with reading(directory.header_path):
            training.plan = training.plan or plan_of_text(before.made_with.get("snapshots"))
    training.snapshots = Snapshots(training.id, directory.snapshots_path)
    if (checkpoint := directory.read_checkpoint()) is not None:
        with reading(directory.checkpoint_path):
            restore_checkpoint(training, *checkpoint)
        if before is not None:
            training.earlier = parts_before(before, training.epoch)
    directory.begin(training.as_run("running").header(), training.tensors)
    directory.discard_results()


def resume(
    store: str | os.PathLike[str],
    *,
    checkpoint_every: int = CHECKPOINT_EVERY,
    threads: int = 1,
    progress: bool | ProgressFunction | None = None,
    tracker: Tracking | None = None,
) -> Run:
    """Continues an interrupted run from its store; the result equals, bit for bit, that of an uninterrupted one."""
    directory = RunDirectory(require_path("store", store, "the directory of a saved run"))
    header = directory.header()
    tensors = directory.tensors(header)
    with reading(directory.header_path):
        config = restore_config(header.config, tensors, header.made_with)
        hooks = described_hooks(header.config)
    if header.is_complete:
        return Run.load(directory.path)
    if hooks:
        raise BayesticketError(
            f"store: got {str(directory)!r}, where a model has hooks of its own on {', '.join(hooks)}, which no file "
            f"holds; accepted: bayesticket.train(…, model=…, store={str(directory)!r}) with that model and options"
        )
    return train_config(
        config,
        store=directory,
        checkpoint_every=checkpoint_every,
        threads=threads,
        progress=progress,
        tracker=tracker,
    )
