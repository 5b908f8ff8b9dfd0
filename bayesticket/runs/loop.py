"""The training loop: the state of a run between two epochs, and the step from one to the next."""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Literal

import torch
from torch import Tensor

from bayesticket.errors import BayesticketError
from bayesticket.measures import (
    DEFAULT_MEASURES,
    Measure,
    OptimizerStep,
    additional,
    observe,
    of_evaluation,
    run_forward,
    suited_to,
)
from bayesticket.model import (
    TokenRows,
    load_parameters,
    mounted,
    not_shared,
)
from bayesticket.optim import build_optimizer, mean_loss, set_rates, warmup_factor
from bayesticket.runs.config import TrainConfig, resolve_device
from bayesticket.runs.description import describe_config
from bayesticket.runs.halves import MountedHalf, columns_of, drawn_anew, forward_for, is_drawn_anew, rows_of
from bayesticket.runs.header import Part, Status
from bayesticket.runs.prepare import build_model
from bayesticket.runs.records import Records
from bayesticket.runs.rehearse import rehearse, rehearse_loss
from bayesticket.runs.run import Run
from bayesticket.runs.snapshots import Snapshot, SnapshotPlan, Snapshots, plan_as_text
from bayesticket.runs.stopping import require_recorded
from bayesticket.runs.versions import own_classes, versions
from bayesticket.seeding import seeded_generator
from bayesticket.specs import description_id, is_library_class
from bayesticket.tasks import Examples

log = logging.getLogger("bayesticket")


class NonFiniteLoss(BayesticketError):
    """The loss became infinite or undefined; `run` holds everything recorded before."""

    def __init__(self, message: str, run: Run | None = None):
        super().__init__(message)
        self.run = run


class Training:
    """The state of a training run between two epochs."""

    def __init__(
        self,
        config: TrainConfig,
        config_file: str | None = None,
        plan: SnapshotPlan | None = None,
        *,
        measures: Sequence[Measure] | None = None,
    ):
        """With `measures`, these alone are observed, in place of the default and the configuration's."""
        keep_freed_memory()
        self.config, self.config_file, self.plan = config, config_file, plan
        self.description, self.tensors = describe_config(config)  # raises where a part cannot be stored
        self.id = description_id(self.description)
        self.snapshots = Snapshots(self.id)
        """In memory, unless `train` has put those of a directory in their place."""
        self.device = resolve_device(config.device)
        split = config.split()
        train, test = split.train.to(self.device), split.test.to(self.device)
        if test.unseen is not None and not test.unseen.any():
            log.warning("no test example is unseen: training has one of each orbit, and the unseen curves are NaN")
        self.first_draw = train
        """The training half as it was drawn at first, of which `redraw` replaces distractors and positions."""
        self.model = not_shared(build_model(config, self.device))
        if measures is None:
            default = suited_to(self.model, train, DEFAULT_MEASURES)
            measures = (*default, *additional(default, config.measures))
        self.measures = tuple(measures)
        self.train = MountedHalf.to_train_on(train, config, self.model, self.measures, len(test))
        self.test = self.train.held_out("test", test, self.measures)
        self.evaluations = {
            label: self.train.evaluation(label, task, config, self.measures)
            for label, task in (config.evaluate or {}).items()
        }
        """What is observed beside both halves, by label."""
        halves = [self.train, self.test, *self.evaluations.values()]
        require_recorded(config.stop_when, columns_of((self.train, self.test), self.evaluations))
        self.forward: Literal["fast", "full"] = forward_for(config, halves)
        self.parameters = dict(self.model.named_parameters())
        self.trained = [parameter for parameter in self.parameters.values() if parameter.requires_grad]
        self.optimizer = build_optimizer(config.optimizer, self.parameters)
        set_rates(self.optimizer, config.optimizer, 0, config.warmup)
        self.epoch, self.seconds, self.records = 0, 0.0, Records(config)
        self.earlier: tuple[Part, ...] = ()
        """The parts that were trained before with other versions, where the run goes on."""
        self.last_step: OptimizerStep | None = None
        for half in halves:
            half.rows, half.live.epoch = self._rows_of(half.batch), 0
        with self.train.live:
            pass  # projects the weights, so that what is recorded at epoch 0 is what training starts from
        rehearse_loss(config.loss, self.model.cfg.d_vocab_out, train.targets.flatten())
        rehearse(self.train.live, self.model, config.loss, forward=self.forward, batch_size=config.batch_size)
        if not all(is_library_class(type(measure)) for measure in self.measures):
            for half in reversed(halves):
                self._observe(half)  # mistakes in measures are found before training

    def is_over(self) -> bool:
        """Whether all epochs are done, or as many as the configuration wants after what was recorded."""
        return self.epoch >= min(self.config.epochs, self.records.stop_at)

    # Steps

    def take_epoch(self) -> None:
        """Trains one epoch, and records the state before it where a record is due."""
        config = self.config
        self._set_epoch()
        self.redraw(self.epoch)
        set_rates(self.optimizer, config.optimizer, self.epoch, config.warmup)
        due = self.epoch % config.record_every == 0
        if config.batch_size is None:
            values = self._observe(self.test) | self._observe_others() if due else {}
            values |= self._step(None, self.train.rows, record=due)
            if due:
                self._keep(values)
        else:
            if due:
                self.record()
            for index in self._batches(config.batch_size):
                self._step(index, self._rows_of(self.train.batch, index), record=False)
        self.epoch += 1

    def _set_epoch(self) -> None:
        for half in (self.train, self.test, *self.evaluations.values()):
            half.live.epoch = self.epoch

    def _step(self, index: Tensor | None, rows: TokenRows | None, *, record: bool) -> dict[str, float]:
        """One optimiser step on the selected examples, and the training half's record where one is due."""
        live, observer = self.train.live, self.train.observer
        batch = self.train.batch if index is None else self.train.batch.select(index)
        live.select(index)
        with live, mounted(self.model, observer.hooks) if record else nullcontext():
            logits = run_forward(self.forward, self.model, batch, rows)
            loss = mean_loss(self.config.loss, logits, batch.targets)
            terms = {"task": loss, **live.penalties()}
            total = torch.stack([term.to(loss.dtype) for term in terms.values()]).sum() if len(terms) > 1 else loss
            if not math.isfinite(total.item()):
                raise _not_finite(self.epoch, terms)
            gradients: Mapping[str, Tensor] = {}
            at: Mapping[int, Mapping[str, Tensor]] = {}
            if record:  # measures ask for the gradients of the task's loss alone
                at = observer.gradients_at(logits, batch, self.config.loss)
                gradients = observer.gradients_of_backward() if total is loss else observer.gradients(loss)
            total.backward()
            values = self._values_of_step(batch, logits, loss, gradients, at) if record else {}
            if live.changes_gradients:
                live.gradients()
            if self.config.max_grad_norm is not None:
                torch.nn.utils.clip_grad_norm_(self.trained, self.config.max_grad_norm)
            self._take_optimizer_step()
            live.project()
        return values

    def _values_of_step(
        self,
        batch: Examples,
        logits: Tensor,
        loss: Tensor,
        gradients: Mapping[str, Tensor],
        gradients_at: Mapping[int, Mapping[str, Tensor]],
    ) -> dict[str, float]:
        """The training half's record, from the forward pass of a step, so that it costs none of its own."""
        observer, edited = self.train.observer, tuple(name for name, _ in self.train.live.edits)
        step, loss_of = self.last_step, self.config.loss
        values = observer.values(
            batch, logits, loss, gradients, edited=edited, step=step, loss_of=loss_of, gradients_at=gradients_at
        )
        return observer.numbers(values)

    def _take_optimizer_step(self) -> None:
        followed = self.train.observer.follows_steps and (self.epoch + 1) % self.config.record_every == 0
        before = self.copy_parameters() if followed else {}
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.last_step = self.step_of(self.epoch, before, self.copy_parameters()) if followed else None

    def step_of(self, epoch: int, before: dict[str, Tensor], after: dict[str, Tensor]) -> OptimizerStep:
        """The optimiser step of an epoch, for measures that follow steps."""
        optimizer = self.config.optimizer
        lr = optimizer.lr_at(epoch) * warmup_factor(epoch, self.config.warmup)
        return OptimizerStep(before, after, optimizer, lr, optimizer.weight_decay_at(epoch))

    def copy_parameters(self) -> dict[str, Tensor]:
        """The parameters as they are now, by name."""
        return {name: parameter.detach().clone() for name, parameter in self.parameters.items()}

    # Recording

    def record(self) -> None:
        """Records the current state, in a forward pass of its own."""
        self._keep(self.observed())

    def _observe(self, half: MountedHalf) -> dict[str, float]:
        """Runs the model on one half, and measures it."""

        def loss(logits: Tensor, targets: Tensor) -> Tensor:
            loss = self.config.loss(logits, targets)
            if half.name != "other" and not math.isfinite(loss.item()):
                raise _not_finite(self.epoch, {"task" if half.name == "train" else "test loss": loss})
            return loss

        seen = observe(
            self.model,
            half.batch,
            half.observer,
            edits=half.live.edits,
            forward=self.forward,
            rows=half.rows,
            loss=loss,
            step=self.last_step,
        )
        return half.observer.numbers(seen.values)

    def _keep(self, values: Mapping[str, float]) -> None:
        self.train.live.require_no_hidden_state()
        self.records.add({"epoch": self.epoch, **values})

    def observed(self) -> dict[str, float]:
        """What a record of the current state says."""
        self._set_epoch()
        self.train.live.select(None)
        train = self._observe(self.train)  # first: where both losses are undefined, it is training that has failed
        return self._observe(self.test) | self._observe_others() | train

    def _observe_others(self) -> dict[str, float]:
        """What is recorded of the evaluations, by the names of their curves."""
        observed = {label: self._observe(half) for label, half in self.evaluations.items()}
        return {
            name: value for label, values in observed.items() for name, value in of_evaluation(label, values).items()
        }

    def observed_on(self, examples: Examples, measures: Sequence[Measure]) -> dict[str, float]:
        """What measures say of other examples in the current state, on all of them and on the unseen ones."""
        half = self.train.held_out("other", examples.to(self.device), measures, "any")
        self.forward = forward_for(self.config, [self.train, half])
        half.live.epoch, half.rows = self.epoch, self._rows_of(half.batch)
        return self._observe(half)

    # Snapshots

    def snapshot(self) -> Snapshot:
        """What the run is now."""
        weights = {name: parameter.cpu() for name, parameter in self.copy_parameters().items()}
        return Snapshot(self.epoch, weights, self.train.live.state(), self.train.live.context.step)

    def return_to(self, snapshot: Snapshot, *, is_end: bool) -> None:
        """Makes the run again what it was, as far as measures see it: optimiser and records stay as they are."""
        assert snapshot.state is not None
        assert snapshot.step is not None
        load_parameters(self.model, snapshot.weights)
        self.train.live.restore_state(snapshot.state)
        self.train.live.context.step, self.epoch, self.last_step = snapshot.step, snapshot.epoch, None
        # Records are of what the next step sees, the last one of the last step.
        self.redraw(self.epoch - 1 if is_end else self.epoch)

    # Data

    def _batches(self, size: int) -> Iterator[Tensor]:
        generator = seeded_generator(self.config.seed_of("batch"), f"batches, epoch {self.epoch}")
        order = torch.randperm(len(self.train.batch), generator=generator).to(self.device)
        return iter(order.split(size))

    def redraw(self, epoch: int) -> None:
        """Draws for the training half what an epoch has drawn anew: distractors, positions, or nothing."""
        if is_drawn_anew(self.config, self.model):
            self.train.batch = drawn_anew(self.first_draw, self.config, self.model, epoch)
            self.train.live.context.replace(self.train.batch)
            self.train.rows = self._rows_of(self.train.batch)

    def _rows_of(self, batch: Examples, index: Tensor | None = None) -> TokenRows | None:
        return rows_of(batch, self.model, self.forward, index)

    # Results

    def as_run(self, status: Status, *, cut_short: bool = False) -> Run:
        """The run so far."""
        note = {} if self.config_file is None else {"config_file": self.config_file}
        if self.plan is not None:
            note["snapshots"] = plan_as_text(self.plan)
        return Run(
            description=self.description,
            tensors=self.tensors,
            weights={name: parameter.cpu() for name, parameter in self.copy_parameters().items()},
            curves=self.records.curves(),
            epoch=self.epoch,
            status=status,
            seconds=self.seconds,
            made_with=versions()
            | {"forward": self.forward, "device": self.device}
            | own_classes(self.description)
            | note,
            recorded=tuple(map(repr, self.measures)),
            cut_short=cut_short,
            earlier=self.earlier,
            snapshots=self.snapshots,
        )


def _not_finite(epoch: int, terms: Mapping[str, Tensor]) -> NonFiniteLoss:
    """The error for a loss that is not finite; it names the terms that are not."""
    values = {name: term.item() for name, term in terms.items()}
    named = [f"{name} is {value}" for name, value in values.items() if not math.isfinite(value)]
    reason = ", ".join(named) or "their sum overflows"
    return NonFiniteLoss(f"loss: not finite at epoch {epoch} ({reason}); what was recorded before is kept in the run")


def keep_freed_memory() -> None:
    """Makes glibc reuse the megabytes that every step frees, instead of returning them and faulting them in again.

    Its threshold for doing so grows to the largest block ever freed, up to 32 MiB; without this a step is a quarter
    slower. Harmless with any other allocator.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)
