"""Measuring a run when it is over: what recording would have given, from the snapshots that it left."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from bayesticket.errors import refuse, refuse_case
from bayesticket.measures import Accuracy, Loss, Measure, Measured, additional
from bayesticket.runs.config import TrainConfig
from bayesticket.runs.evaluation import examples_of
from bayesticket.runs.loop import Training
from bayesticket.runs.prepare import described_hooks
from bayesticket.runs.records import Records
from bayesticket.runs.run import Run
from bayesticket.runs.snapshots import Snapshot
from bayesticket.tasks import AbstractTask, Examples, Split
from bayesticket.threads import denormals_flushed, require_full_precision, torch_threads


def measure_afterwards(run: Run, measures: Sequence[Measure], snapshots: Sequence[Snapshot]) -> pd.DataFrame:
    """The measures of a run at some of its epochs, one column a curve, labelled by epoch."""
    require_full_precision("measure")
    if not measures:
        raise refuse_case("measures", "none", "at least one Measure, such as AttentionEntropy()")
    _require_measurable(run, measures, "bt.measure(run.at(…), …)")
    config = _config_of(run)
    with torch_threads(_threads_of(run)), denormals_flushed():
        training = Training(config, measures=measures)
        records = Records(config)
        for snapshot in sorted(snapshots, key=lambda each: each.epoch):
            training.return_to(_with_state(snapshot, training), is_end=snapshot.epoch == run.epoch)
            records.add({"epoch": snapshot.epoch, **training.observed()})
    return records.curves()


def evaluate_afterwards(
    run: Run, on: AbstractTask | Split | Examples, measures: Sequence[Measure], snapshot: Snapshot
) -> Measured:
    """Loss, accuracy and other measures of a run at one of its epochs, on other examples than its own."""
    require_full_precision("evaluate")
    _require_measurable(run, measures, "bt.measure(run.at(…), batch, …)")
    default = (Loss(), Accuracy())
    with torch_threads(_threads_of(run)), denormals_flushed():
        training = Training(replace(_config_of(run), evaluate=None), measures=())
        examples = examples_of(on, training.config, training.model, "evaluate")
        training.return_to(_with_state(snapshot, training), is_end=snapshot.epoch == run.epoch)
        return Measured(training.observed_on(examples, [*default, *additional(default, measures)]))


def _config_of(run: Run) -> TrainConfig:
    """The configuration of a run as far as measures depend on it."""
    forward = "full" if run.header().made_with.get("forward") == "full" else "auto"
    return replace(run.config, measures=(), stop_when=None, stop_after_grok=None, forward=forward)


def _threads_of(run: Run) -> int:
    return int(run.header().made_with.get("threads", "1"))


def _require_measurable(run: Run, measures: Sequence[Measure], alternative: str) -> None:
    """Raises unless given measures that see one state of a run alone, and a run that can be set up again."""
    for measure in measures:
        if not isinstance(measure, Measure):
            raise refuse("measures", measure, "Measure objects, such as AttentionEntropy()")
        if measure.follows_steps:
            accepted = "measures of one state; an optimiser step can only be recorded, by train(…, measures=…)"
            raise refuse("measures", measure, accepted)
    if hooks := described_hooks(run.description):
        raise refuse_case(
            "run",
            f"a model with hooks of its own on {', '.join(hooks)}, which no file holds",
            alternative,
        )


def _with_state(snapshot: Snapshot, training: Training) -> Snapshot:
    """A snapshot with state of interventions; raises where there is one that was not kept."""
    if snapshot.state is not None:
        return snapshot
    if state := training.train.live.state():
        raise refuse_case(
            "epochs",
            f"epoch {snapshot.epoch:,}, of which the state of {', '.join(sorted(state))} was not kept",
            "epochs of snapshots",
        )
    return replace(snapshot, state={}, step=0)
