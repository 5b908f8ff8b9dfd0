"""The training loop."""

import copy
import json
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Literal

import pandas as pd
import torch
from torch import Tensor
from tqdm import tqdm

from bayesticket.attention import Permuted
from bayesticket.errors import BayesticketError, refuse, require_integer
from bayesticket.files import (
    claimed_directory,
    new_directory,
    one_line,
    read_tensors,
    reading,
    remove_partials,
    require_directory,
    require_path,
    versions,
    write_json,
    write_tensors,
)
from bayesticket.interventions import Intervention, Live, Recipe, as_recipe
from bayesticket.measures import DEFAULT_MEASURES, Half, Measure, Observer, OptimizerStep, observe, run_forward
from bayesticket.model import (
    Architecture,
    HookedTransformer,
    RowLayout,
    build,
    choose_forward,
    load_parameters,
    mounted,
    move,
    task_loss,
    unexplained_hooks,
)
from bayesticket.optim import make_optimizer, optimizer_tensors, restore_optimizer, set_learning_rate, warmup_factor
from bayesticket.runs.config import DTYPES, TrainConfig, resolve_device
from bayesticket.runs.run import (
    COMPLETE,
    Run,
    Status,
    describe_config,
    read_header,
    read_tensors_of,
    require_same_run,
    restore_config,
)
from bayesticket.seeding import seeded_generator
from bayesticket.specs import description_id
from bayesticket.tasks import AbstractTask, Examples

log = logging.getLogger("bayesticket")
Record = dict[str, float]
Progress = Callable[[int, Mapping[str, float]], None]
"""Called after every record with the epoch and what was recorded; a KeyboardInterrupt in it stops as Ctrl-C does."""


class Interrupted(KeyboardInterrupt):
    """Training was stopped by Ctrl-C; `run` holds what was recorded, and the message says how to continue.

    `store` is the directory to resume from, or None. As a KeyboardInterrupt it passes by `except Exception`, and
    ends a script with a traceback; to go on with what there is, catch it by name:

        try:
            run = bt.train(task)
        except bt.Interrupted as interrupted:
            print(interrupted)
            run = interrupted.run
    """

    def __init__(self, message: str, run: Run, store: Path | None = None):
        super().__init__(message)
        self.run, self.store = run, store


class NonFiniteLoss(BayesticketError):
    """The loss became infinite or undefined; `run` holds everything recorded before."""

    def __init__(self, message: str, run: Run | None = None):
        super().__init__(message)
        self.run = run


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
    epochs: int = 10_000,
    batch_size: int | None = None,
    optimizer: Literal["adamw", "sgd", "muon", "lion"] = "adamw",
    lr: float = 1e-3,
    weight_decay: float = 1.0,
    betas: tuple[float, float] = (0.9, 0.999),
    momentum: float = 0.0,
    warmup: int = 10,
    max_grad_norm: float | None = 1.0,
    record_every: int = 10,
    stop_after_grok: int | None = None,
    grok_threshold: float = 0.99,
    forward: Literal["auto", "fast", "full"] = "auto",
    device: str = "auto",
    dtype: Literal["float32", "float64"] | None = None,
    loss_dtype: Literal["float32", "float64"] | None = None,
    store: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 500,
    progress: bool | Progress | None = None,
) -> Run:
    """Trains a model on a task under an intervention, by default as the paper does; see `TrainConfig` for the options.

    A HookedTransformer given as `model` is copied; the trained copy is `run.model`. With a `store`, a directory, the
    run is checkpointed there every `checkpoint_every` epochs and saved at the end. A store that holds this very run
    is continued where it was interrupted, or simply loaded where it is complete; any other is refused.
    `progress` shows a bar: True, False, on a terminal (None); or it is called after every record.

    >>> from bayesticket.tasks import ModularAddition
    >>> run = train(ModularAddition(p=5), epochs=20)
    >>> run.curves.index.tolist()
    [0, 10, 20]
    """
    config = TrainConfig(
        task=task,
        intervention=as_recipe(intervention),
        model=Architecture() if model is None else model,
        measures=tuple(measures) if isinstance(measures, Iterable) else measures,
        seed=seed,
        init_seed=init_seed,
        split_seed=split_seed,
        batch_seed=batch_seed,
        train_fraction=train_fraction,
        epochs=epochs,
        batch_size=batch_size,
        optimizer=optimizer,
        lr=lr,
        weight_decay=weight_decay,
        betas=betas,
        momentum=momentum,
        warmup=warmup,
        max_grad_norm=max_grad_norm,
        record_every=record_every,
        stop_after_grok=stop_after_grok,
        grok_threshold=grok_threshold,
        forward=forward,
        device=device,
        dtype=dtype,
        loss_dtype=loss_dtype,
    )
    return train_config(config, store=store, checkpoint_every=checkpoint_every, progress=progress)


def train_config(
    config: TrainConfig,
    *,
    store: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 500,
    progress: bool | Progress | None = None,
    config_file: str | None = None,
    stop: Callable[[], bool] | None = None,
) -> Run:
    """Trains what a configuration says; `train` with its options in one object.

    The text of a file that the options were read from is kept in `run.json`. `stop` is asked after every epoch; when
    it says yes, training ends as it does on Ctrl-C.
    """
    require_integer("checkpoint_every", checkpoint_every, least=1)
    _require_progress(progress)
    if not torch.is_grad_enabled():
        raise refuse("train", "a call with gradients switched off", "one outside torch.no_grad and inference_mode")
    if store is None:
        return Training(config, config_file).run_to_end(None, checkpoint_every, progress, stop)
    directory = require_directory("store", store)
    require_same_run("store", directory, describe_config(config)[0])
    header = read_header(directory) if (directory / "run.json").exists() else None
    if header is not None and header["status"] in COMPLETE:
        log.info("%s holds this run, complete; loading it", directory)
        return Run.load(directory)
    if header is not None and config_file is None:
        config_file = header["made_with"].get("config_file")
    with claimed_directory("store", directory):
        training = Training(config, config_file)  # refuses what cannot be trained
    remove_partials(directory)
    if (directory / "checkpoint.safetensors").exists():
        training.restore(directory / "checkpoint.safetensors")
    training.begin(directory)
    return training.run_to_end(directory, checkpoint_every, progress, stop)


def resume(
    store: str | os.PathLike[str], *, checkpoint_every: int = 500, progress: bool | Progress | None = None
) -> Run:
    """Continues an interrupted run from its store; the result equals, bit for bit, that of an uninterrupted one."""
    directory = require_path("store", store, "the directory of a saved run")
    header = read_header(directory)
    tensors = read_tensors_of(directory, header)
    with reading(directory / "run.json"):
        config = restore_config(header["config"], tensors)
        hooks = described_hooks(header["config"])
    if header["status"] in COMPLETE:
        return Run.load(directory)
    if hooks:
        raise BayesticketError(
            f"store: got {str(directory)!r}, where a model has hooks of its own on {', '.join(hooks)}, which no file "
            f"holds; accepted: bayesticket.train(…, model=…, store={str(directory)!r}) with that model and options"
        )
    return train_config(config, store=directory, checkpoint_every=checkpoint_every, progress=progress)


class Training:
    """The state of a training run between two epochs, and how to take the next one."""

    def __init__(self, config: TrainConfig, config_file: str | None = None):
        keep_freed_memory()
        self.config, self.config_file = config, config_file
        self.description, self.tensors = describe_config(config)  # refuses what could not be kept
        self.id = description_id(self.description)
        self.device = resolve_device(config.device)
        split = config.task.split(config.train_fraction, config.seed_of("split"))
        self.train, self.test = split.train.to(self.device), split.test.to(self.device)
        self.first_draw = self.train
        self.model = _build_model(config, self.train, self.test, self.device)
        self.loss_dtype = getattr(torch, config.loss_dtype) if config.loss_dtype else None

        self.live = Live(config.intervention, self.model, self.train, seed=config.seed_of("batch"))
        editing = tuple(part for part in self.live.parts if type(part).edits is not Intervention.edits)
        for part in editing:
            _require_target_of_both_halves(part, len(self.train), len(self.test))
        self.test_live = Live(Recipe(editing), self.model, self.test)  # priors are not for examples held out
        measures = (*DEFAULT_MEASURES, *config.measures)
        self.observer = Observer(self.model, _of_half(measures, "train"), self.train)
        self.test_observer = Observer(self.model, _of_half(measures, "test"), self.test)
        names = [*self.live.hook_names, *self.observer.hook_names, *self.test_observer.hook_names]
        reasons = [*self.live.reasons(), *self.observer.reasons(), *self.test_observer.reasons()]
        self.forward: Literal["fast", "full"] = choose_forward(config.forward, self.model, names, reasons)

        self.optimizer = make_optimizer(
            config.optimizer,
            dict(self.model.named_parameters()),
            lr=config.lr,
            weight_decay=config.weight_decay,
            betas=config.betas,
            momentum=config.momentum,
        )
        self.trained = [p for p in self.model.parameters() if p.requires_grad]
        self.epoch, self.seconds, self.grokked_at = 0, 0.0, math.inf
        self.records: list[Record] = []
        self.last_step: OptimizerStep | None = None
        self.warned = False
        self.layout, self.test_layout = self._layout(self.train), self._layout(self.test)
        self.live.epoch = self.test_live.epoch = 0
        with self.live:
            pass  # projects the weights, so that what is recorded at epoch 0 is what training starts from

    # The loop

    def run_to_end(
        self,
        directory: Path | None,
        checkpoint_every: int,
        progress: bool | Progress | None,
        stop: Callable[[], bool] | None = None,
    ) -> Run:
        """Trains until the last epoch, keeping checkpoints in the directory; see `train`."""
        with _deferred_interrupt() as interrupted:
            try:
                with _progress(progress, self.config, self.epoch, interrupted) as report:
                    self._take_epochs(directory, checkpoint_every, report, stop, interrupted)
            except NonFiniteLoss as error:
                error.run = self.as_run("failed")
                try:
                    _save(error.run, directory)
                except NotSaved as unsaved:
                    log.warning("%s", unsaved)
                raise
            run = self.as_run("finished" if self.epoch == self.config.epochs else "stopped")
            _save(run, directory)
            if interrupted.is_set():
                raise Interrupted(f"interrupted after the last epoch, {self.epoch:,}: the run is complete", run)
            return run

    def _take_epochs(
        self,
        directory: Path | None,
        checkpoint_every: int,
        report: Progress,
        stop: Callable[[], bool] | None,
        interrupted: threading.Event,
    ) -> None:
        started = time.perf_counter() - self.seconds
        while not self.is_over():
            self.take_epoch()
            self.seconds = time.perf_counter() - started
            if self.records and self.records[-1]["epoch"] == self.epoch - 1:
                report(self.epoch - 1, self.records[-1])
            if stop is not None and stop():
                interrupted.set()
            if interrupted.is_set() and not self.is_over():
                raise self._interrupted(directory)
            if directory is not None and self.epoch % checkpoint_every == 0:
                self._try_checkpoint(directory)
        if self.records[-1]["epoch"] != self.epoch:
            self.record()
        report(self.epoch, self.records[-1])

    def is_over(self) -> bool:
        """Whether all epochs are done, or enough of them since the model grokked."""
        patience = self.config.stop_after_grok
        stopped = patience is not None and self.epoch >= self.grokked_at + patience
        return self.epoch >= self.config.epochs or stopped

    def take_epoch(self) -> None:
        """Trains one epoch, recording the state before it where a record is due."""
        config = self.config
        self.live.epoch = self.test_live.epoch = self.epoch
        if config.task.redraw_each_epoch:
            self._redraw(self.epoch)
        set_learning_rate(self.optimizer, config.lr * warmup_factor(self.epoch, config.warmup))
        due = self.epoch % config.record_every == 0
        if config.batch_size is None:
            values = self._observe_test() if due else {}
            values |= self._step(None, self.layout, record=due)
            if due:
                self._keep(values)
        else:
            if due:
                self.record()
            for index in self._batches(config.batch_size):
                self._step(index, self._layout(self.train, index))
        self.epoch += 1

    def _step(self, index: Tensor | None, layout: RowLayout | None, *, record: bool = False) -> Record:
        """One optimiser step on the selected examples, and the training half's record where one is due."""
        batch = self.train if index is None else self.train.select(index)
        self.live.context.select(index)
        with self.live, mounted(self.model, self.observer.hooks) if record else nullcontext():
            logits = run_forward(self.forward, self.model, batch, layout)
            loss = task_loss(logits, batch.targets, self.loss_dtype)
            terms = {"task": loss, **self.live.penalties()}
            total = torch.stack([term.to(loss.dtype) for term in terms.values()]).sum() if len(terms) > 1 else loss
            if not math.isfinite(total.item()):
                raise NonFiniteLoss(_blame(self.epoch, terms))
            gradients: Mapping[str, Tensor] = {}
            if record:  # measures ask for the gradients of the task's loss alone
                gradients = self.observer.gradients_of_backward() if total is loss else self.observer.gradients(loss)
            total.backward()
            values = self._values(self.live, self.observer, batch, logits, loss, gradients, "train") if record else {}
            if self.config.max_grad_norm is not None:
                torch.nn.utils.clip_grad_norm_(self.trained, self.config.max_grad_norm)
            self._take_optimizer_step()
            self.live.project()
        return values

    def _take_optimizer_step(self) -> None:
        followed = self.observer.follows_steps and (self.epoch + 1) % self.config.record_every == 0
        before = self._copy_parameters() if followed else {}
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.last_step = None
        if followed:
            self.last_step = self._optimizer_step(self.epoch, before, self._copy_parameters())

    def _optimizer_step(self, epoch: int, before: dict[str, Tensor], after: dict[str, Tensor]) -> OptimizerStep:
        config = self.config
        lr = config.lr * warmup_factor(epoch, config.warmup)
        return OptimizerStep(before, after, config.optimizer, lr, config.weight_decay, config.betas, config.momentum)

    def _copy_parameters(self) -> dict[str, Tensor]:
        return {name: parameter.detach().clone() for name, parameter in self.model.named_parameters()}

    # Recording

    def record(self) -> None:
        """Records the current state, in a forward pass of its own."""
        self.live.epoch = self.test_live.epoch = self.epoch
        self.live.context.select(None)
        values = self._observe_test()
        values |= self._observe(self.live, self.observer, self.train, self.layout, "train")
        self._keep(values)

    def _observe_test(self) -> Record:
        return self._observe(self.test_live, self.test_observer, self.test, self.test_layout, "test")

    def _observe(self, live: Live, observer: Observer, batch: Examples, layout: RowLayout | None, half: Half) -> Record:
        def loss(logits: Tensor, targets: Tensor) -> Tensor:
            loss = task_loss(logits, targets, self.loss_dtype)
            if not math.isfinite(loss.item()) and half == "train":
                raise NonFiniteLoss(_blame(self.epoch, {"task": loss}))
            return loss

        seen = observe(
            self.model,
            batch,
            observer,
            edits=live.edits,
            forward=self.forward,
            layout=layout,
            loss=loss,
            step=self.last_step,
        )
        return observer.numbers(seen.values, half)

    def _values(
        self,
        live: Live,
        observer: Observer,
        batch: Examples,
        logits: Tensor,
        loss: Tensor,
        gradients: Mapping[str, Tensor],
        half: Half,
    ) -> Record:
        edited = tuple(name for name, _ in live.edits)
        values = observer.values(batch, logits, loss, gradients, edited=edited, step=self.last_step)
        return observer.numbers(values, half)

    def _keep(self, values: Record) -> None:
        self.records.append({"epoch": self.epoch, **{name: values[name] for name in sorted(values)}})
        if values["test_accuracy"] >= self.config.grok_threshold:
            self.grokked_at = min(self.grokked_at, self.epoch)

    # Data

    def _layout(self, batch: Examples, index: Tensor | None = None) -> RowLayout | None:
        if self.forward == "full":
            return None
        return RowLayout(batch.tokens if index is None else batch.tokens[index], self.model.cfg.n_heads)

    def _batches(self, size: int) -> Iterator[Tensor]:
        generator = seeded_generator(self.config.seed_of("batch"), f"batches, epoch {self.epoch}")
        order = torch.randperm(len(self.train), generator=generator).to(self.device)
        return iter(order.split(size))

    def _redraw(self, epoch: int) -> None:
        seed = self.config.seed_of("split")
        # Each epoch's draw is a function of its number, so that a resumed run sees the same ones.
        self.train = self.config.task.redraw(self.first_draw, seed=_mix(seed, epoch))
        self.live.context.replace(self.train)
        self.layout = self._layout(self.train)

    # Keeping

    def as_run(self, status: Status) -> Run:
        """The run so far."""
        return Run(
            description=self.description,
            tensors=self.tensors,
            weights={name: parameter.cpu() for name, parameter in self._copy_parameters().items()},
            curves=_frame(self.records),
            epoch=self.epoch,
            status=status,
            seconds=self.seconds,
            made_with=versions() | {"forward": self.forward, "device": self.device} | self._config_note(),
        )

    def _config_note(self) -> dict[str, str]:
        return {} if self.config_file is None else {"config_file": self.config_file}

    def checkpoint(self, directory: Path) -> None:
        """Writes all that is needed to continue to the bit; one file, whole or not at all."""
        tensors = {f"parameters/{name}": p for name, p in self.model.named_parameters()}
        tensors |= {f"optimizer/{name}": t for name, t in optimizer_tensors(self.optimizer).items()}
        if self.last_step is not None:  # the next record may need it
            tensors |= {f"before/{name}": p for name, p in self.last_step.before.items()}
            tensors |= {f"after/{name}": p for name, p in self.last_step.after.items()}
        columns = {name: torch.tensor(column.to_numpy()) for name, column in _frame(self.records).items()}
        tensors |= {f"curves/{name}": column for name, column in columns.items()}
        state = {
            "config": self.id,
            "epoch": self.epoch,
            "step": self.live.context.step,
            "seconds": self.seconds,
            "recorded_at": [record["epoch"] for record in self.records],
        }
        write_tensors(directory / "checkpoint.safetensors", tensors, {"state": json.dumps(state)})

    def _try_checkpoint(self, directory: Path) -> None:
        """Writes a checkpoint; a disk that is full for now is no reason to stop training."""
        try:
            self.checkpoint(directory)
        except BayesticketError as error:
            if not self.warned:
                log.warning("%s; training goes on, and the next checkpoint is tried in its turn", error)
            self.warned = True

    def restore(self, path: Path) -> None:
        """Puts the state of a checkpoint back."""
        tensors, note = read_tensors(path)
        with reading(path):
            self._restore(tensors, json.loads(note.get("state", "{}")))

    def _restore(self, tensors: Mapping[str, Tensor], state: dict) -> None:
        if state.get("config") != self.id:
            raise refuse("state", state.get("config"), f"a checkpoint of this configuration, {self.id}")
        parts: dict[str, dict[str, Tensor]] = {
            part: {} for part in ("parameters", "optimizer", "before", "after", "curves")
        }
        for name, tensor in tensors.items():
            part, _, rest = name.partition("/")
            parts[part][rest] = tensor
        load_parameters(self.model, parts["parameters"])
        restore_optimizer(self.optimizer, parts["optimizer"])
        for name in ("epoch", "step"):
            require_integer(name, state[name], least=0)
        self.epoch, self.seconds, self.live.context.step = state["epoch"], float(state["seconds"]), state["step"]
        if self.config.task.redraw_each_epoch and self.epoch:
            self._redraw(self.epoch - 1)
        if parts["before"]:  # in the model's own order, on which sums over all parameters depend in their last bit
            names = [name for name, _ in self.model.named_parameters()]
            before, after = ({name: parts[part][name] for name in names} for part in ("before", "after"))
            self.last_step = self._optimizer_step(self.epoch - 1, before, after)
        self.records, self.grokked_at = [], math.inf
        for row, epoch in enumerate(state["recorded_at"]):
            values = {name: column[row].item() for name, column in parts["curves"].items()}
            self.records.append({"epoch": epoch, **values})
            if values["test_accuracy"] >= self.config.grok_threshold:
                self.grokked_at = min(self.grokked_at, epoch)

    def _interrupted(self, directory: Path | None) -> Interrupted:
        run, said = self.as_run("interrupted"), f"interrupted after epoch {self.epoch:,}"
        try:
            if directory is None:
                directory = new_directory(Path("interrupted"), self.id)
                self.begin(directory)
            self.checkpoint(directory)
        except (BayesticketError, OSError) as error:
            return Interrupted(
                f"{said}; its state could not be kept ({one_line(error)}), only `run` of this error", run
            )
        if described_hooks(self.description):
            return Interrupted(f"{said}; continue with the same call and store={str(directory)!r}", run)
        return Interrupted(f"{said}; continue with bayesticket.resume({str(directory)!r})", run, directory)

    def begin(self, directory: Path) -> None:
        """Writes down what is trained; `run.json` first, which makes the directory that of this run."""
        write_json(directory / "run.json", self.as_run("running").header())
        if self.tensors:
            write_tensors(directory / "tensors.safetensors", self.tensors)


def _build_model(config: TrainConfig, train: Examples, test: Examples, device: str) -> HookedTransformer:
    if isinstance(config.model, Architecture):
        dtype = getattr(torch, config.dtype or "float32")
        return build(config.model, config.task, seed=config.seed_of("init"), dtype=dtype, device=device)
    own = str(next(config.model.parameters()).dtype).removeprefix("torch.")
    if config.dtype is None and own not in DTYPES:
        raise refuse("model", f"parameters of {own}", f"{' or '.join(DTYPES)}, or another together with `dtype`")
    given, task = config.model.cfg, config.task
    needed = {"n_ctx": task.n_positions, "d_vocab": task.d_vocab, "d_vocab_out": task.d_vocab_out}
    for name, least in needed.items():
        if getattr(given, name) < least:
            raise refuse(f"model.cfg.{name}", getattr(given, name), f"at least {least}, which the task needs")
    if names := unexplained_hooks(config.model):
        log.warning("the model's own hooks on %s act in training, but are not saved with the run", ", ".join(names))
    return move(move(copy.deepcopy(config.model), getattr(torch, config.dtype or own)), device)


def _require_target_of_both_halves(part: Intervention, n_train: int, n_test: int) -> None:
    """Refuses an edit by a tensor with a row for each training example: the test half needs rows of its own."""
    target = getattr(part, "target", None)
    while isinstance(target, Permuted):
        target = target.target
    if isinstance(target, Tensor) and target.ndim > 1 and 1 < len(target) != n_train + n_test:
        raise refuse(
            f"{type(part).__name__}.target",
            f"a tensor with {len(target)} rows",
            f"{n_train + n_test} rows, one for each of task.examples(seed), since both halves are edited",
        )


def described_hooks(data: object) -> list[str]:
    """Where models in a description carry hooks of their own, teachers among them."""
    if isinstance(data, dict):
        own = data.get("own_hooks") if data.get("type") == "HookedTransformer" else None
        return [*map(str, own or ()), *(name for entry in data.values() for name in described_hooks(entry))]
    return [name for entry in data for name in described_hooks(entry)] if isinstance(data, list) else []


def _save(run: Run, directory: Path | None) -> None:
    if directory is None:
        return
    try:
        run.save(directory)
        (directory / "checkpoint.safetensors").unlink(missing_ok=True)
    except (BayesticketError, OSError) as error:
        raise NotSaved(f"{one_line(error)}; the trained run is kept as `run` of this error", run) from error


def _of_half(measures: Iterable[Measure], half: Half) -> list[Measure]:
    return [measure for measure in measures if half in measure.halves]


def _frame(records: list[Record]) -> pd.DataFrame:
    names = [name for name in records[0] if name != "epoch"] if records else []
    index = pd.Index([int(record["epoch"]) for record in records], name="epoch", dtype="int64")
    return pd.DataFrame({name: [record[name] for record in records] for name in names}, index=index, dtype="float64")


def _blame(epoch: int, terms: Mapping[str, Tensor]) -> str:
    broken = {name: term.item() for name, term in terms.items() if not math.isfinite(term.item())}
    named = ", ".join(f"{name} is {value}" for name, value in broken.items()) or "their sum overflows"
    return f"loss: not finite at epoch {epoch} ({named}); what was recorded before is kept in the run"


def _mix(seed: int, epoch: int) -> int:
    return int(torch.randint(2**31, (), generator=seeded_generator(seed, f"redraw, epoch {epoch}")))


def keep_freed_memory() -> None:
    """Makes glibc reuse the megabytes that every step frees, instead of giving them back and faulting them in again.

    Its threshold for doing so grows to the largest block ever freed, up to 32 MiB; without this a step is a quarter
    slower. Harmless with any other allocator.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)


def _require_progress(progress: object) -> None:
    if progress is not None and not isinstance(progress, bool) and not callable(progress):
        raise refuse("progress", progress, "True, False, None, or a function of the epoch and what was recorded")


@contextmanager
def _progress(
    progress: bool | Progress | None, config: TrainConfig, epoch: int, interrupted: threading.Event
) -> Iterator[Progress]:
    if callable(progress):

        def tell(reached: int, values: Mapping[str, float]) -> None:
            try:
                progress(reached, values)
            except KeyboardInterrupt:  # between two steps, so that stopping can be orderly
                interrupted.set()

        yield tell
        return
    # None leaves it to tqdm: shown on a terminal, silent elsewhere.
    disable = None if progress is None else not progress
    with tqdm(total=config.epochs, initial=epoch, unit="epoch", disable=disable, dynamic_ncols=True) as bar:

        def show(reached: int, values: Mapping[str, float]) -> None:
            bar.set_postfix_str(
                f"train {values['train_accuracy']:.0%}, test {values['test_accuracy']:.0%}", refresh=False
            )
            bar.update(reached - bar.n)

        yield show


@contextmanager
def _deferred_interrupt() -> Iterator[threading.Event]:
    """Notes a first Ctrl-C instead of raising it, so that training can stop between two steps; a second one raises."""
    interrupted = threading.Event()
    ignored = signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None)  # by whoever started this process
    if ignored or threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def note(number: int, frame: object) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()

    previous = signal.signal(signal.SIGINT, note)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, previous)
