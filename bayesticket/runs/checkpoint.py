"""The state of a training run as named tensors and a note, from which it continues to the bit."""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from torch import Tensor

from bayesticket.errors import refuse, refuse_case, require_integer, require_number
from bayesticket.measures import Column
from bayesticket.model import load_parameters
from bayesticket.optim import optimizer_tensors, restore_optimizer
from bayesticket.runs.epochs import require_epochs

if TYPE_CHECKING:
    from bayesticket.runs.loop import Training

_PARTS = ("parameters", "optimizer", "state", "before", "after", "curves")


def checkpoint_of(training: "Training") -> tuple[dict[str, Tensor], dict[str, str]]:
    """All that is needed to continue: tensors named `<part>/<name>`, and a note of strings."""
    step = training.last_step  # the next record may need it
    parts: dict[str, Mapping[str, Tensor]] = {
        "parameters": training.parameters,
        "optimizer": optimizer_tensors(training.optimizer, training.parameters),
        "state": training.train.live.state(),
        "before": {} if step is None else step.before,
        "after": {} if step is None else step.after,
        "curves": {str(name): torch.tensor(column.to_numpy()) for name, column in training.records.curves().items()},
    }
    state = {
        "config": training.id,
        "epoch": training.epoch,
        "step": training.train.live.context.step,
        "seconds": training.seconds,
        "recorded_at": [record["epoch"] for record in training.records],
    }
    return joined(parts), {"state": json.dumps(state)}


def restore_checkpoint(training: "Training", tensors: Mapping[str, Tensor], note: Mapping[str, str]) -> None:
    """Puts a checkpoint of the same configuration back; raises unless everything fits."""
    state = json.loads(note.get("state", "{}"))
    _require_run(state, training.id)
    parts = by_part(tensors, _PARTS)
    _require_state(state, parts["curves"])
    load_parameters(training.model, parts["parameters"])
    restore_optimizer(training.optimizer, training.parameters, parts["optimizer"])
    training.train.live.restore_state(parts["state"])
    training.train.live.context.step = state["step"]
    training.epoch, training.seconds = state["epoch"], float(state["seconds"])
    if training.epoch:
        training.redraw(training.epoch - 1)
    if parts["before"]:  # in the model's own order, on which sums over all parameters depend in their last bit
        before, after = ({name: parts[part][name] for name in training.parameters} for part in ("before", "after"))
        training.last_step = training.step_of(training.epoch - 1, before, after)
    training.records.clear()
    for row, epoch in enumerate(state["recorded_at"]):
        training.records.add({"epoch": epoch, **{name: column[row].item() for name, column in parts["curves"].items()}})


def read_progress_so_far(
    run: str, tensors: Mapping[str, Tensor], note: Mapping[str, str]
) -> tuple[dict[str, Tensor], pd.DataFrame, int, float]:
    """What a checkpoint of the run with this id says: weights, curves, epochs trained, and in how many seconds."""
    state, parts = json.loads(note.get("state", "{}")), by_part(tensors, _PARTS)
    _require_run(state, run)
    _require_state(state, parts["curves"])
    index = pd.Index(state["recorded_at"], name="epoch", dtype="int64")
    names = sorted(parts["curves"], key=lambda name: Column.parse(name).order)
    columns = {name: parts["curves"][name].numpy() for name in names}
    curves = pd.DataFrame(columns, index=index, dtype="float64")
    return parts["parameters"], curves, state["epoch"], float(state["seconds"])


def _require_run(state: Mapping[str, Any], run: str) -> None:
    """Raises unless a checkpoint is one of the run with this id."""
    if state.get("config") != run:
        raise refuse("state", state.get("config"), f"a checkpoint of this configuration, {run}")


def _require_state(state: Mapping[str, Any], curves: Mapping[str, Tensor]) -> None:
    """Raises unless the numbers of a checkpoint could be those of a run."""
    for name in ("epoch", "step"):
        require_integer(name, state[name], least=0)
    require_number("seconds", state["seconds"], least=0)
    epochs = state["recorded_at"]
    require_epochs("recorded_at", epochs, last=state["epoch"])
    if any(len(column) != len(epochs) for column in curves.values()):
        raise refuse_case("curves", "a length of another size", f"{len(epochs)} records")


def joined(parts: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Tensors of several parts under one name each, `<part>/<name>`."""
    return {f"{part}/{name}": tensor for part, content in parts.items() for name, tensor in content.items()}


def by_part(tensors: Mapping[str, Tensor], names: Iterable[str]) -> dict[str, dict[str, Tensor]]:
    """The parts of these names that `joined` put together."""
    parts: dict[str, dict[str, Tensor]] = {part: {} for part in names}
    for name, tensor in tensors.items():
        part, _, rest = name.partition("/")
        parts[part][rest] = tensor
    return parts
