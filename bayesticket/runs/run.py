"""A training run: its configuration, its curves and its weights."""

import os
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pandas as pd
from torch import Tensor

from bayesticket.errors import (
    BayesticketError,
    refuse,
    refuse_case,
    refuse_name,
    require_epochs,
    require_flag,
    require_integer,
)
from bayesticket.files import reading, require_path
from bayesticket.measures import Column, Measure, Measured
from bayesticket.model import HookedTransformer
from bayesticket.notebooks import html_lines, sparkline
from bayesticket.runs.checkpoint import read_progress_so_far
from bayesticket.runs.config import TrainConfig
from bayesticket.runs.description import restore_config
from bayesticket.runs.directory import RunDirectory
from bayesticket.runs.epochs import first_epoch, refuse_unrecorded, require_threshold, settled_epoch
from bayesticket.runs.header import Header, Part, Status
from bayesticket.runs.rebuild import rebuilt
from bayesticket.runs.snapshots import Snapshot, Snapshots, nearest, no_snapshot
from bayesticket.runs.versions import notice_other_versions, versions
from bayesticket.specs import JSON, description_id, restore
from bayesticket.tasks import AbstractTask, Examples, Split

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from bayesticket.analysis import Phases

MEMORISED = 0.99
"""The training accuracy that counts as memorising."""


@dataclass(frozen=True, eq=False)
class Run:
    """What a training run leaves: `curves` labelled by epoch, the trained `model`, and how it was made.

    A value recorded at epoch e is that of the model after e epochs, before the next one.
    """

    description: dict[str, JSON]
    """The configuration as plain JSON, of which defaults are left out; `config` is the object."""
    tensors: dict[str, Tensor]
    """The tensors that the configuration refers to."""
    weights: dict[str, Tensor]
    """The trained parameters, under TransformerLens' names."""
    curves: pd.DataFrame
    """What was recorded, one column a measure, labelled by epoch."""
    epoch: int
    """How many epochs were trained."""
    status: Status = "finished"
    seconds: float = 0.0
    """Wall-clock time of the training."""
    made_with: dict[str, str] | None = None
    """Versions, Python, threads, device, and which forward was used."""
    recorded: tuple[str, ...] = ()
    """The measures that were recorded, as they print."""
    cut_short: bool = False
    """Whether a function given to `train` has stopped it, before the end that its configuration says."""
    earlier: tuple[Part, ...] = ()
    """The parts before the last one that were trained with other versions."""
    source: Path | None = None
    """The directory that it was loaded from, if any; errors about its content name its files."""
    snapshots: Mapping[int, Snapshot] = field(default_factory=dict, repr=False)
    """What the run was on its way, by epoch, where snapshots were asked for."""

    @cached_property
    def id(self) -> str:
        """The id of the configuration: runs of equal configurations have equal ids."""
        return description_id(self.description)

    @cached_property
    def config(self) -> TrainConfig:
        """The configuration."""
        with self._reading("header"):
            return restore_config(self.description, self.tensors, self.made_with)

    @cached_property
    def model(self) -> HookedTransformer:
        """A HookedTransformer with the trained weights, as it was built.

        It is without the hooks of the intervention, and without those that a model given to `train` had of its own.
        """
        return self._model_with(self.weights)

    def at(self, epoch: int, *, nearest: bool = False) -> HookedTransformer:
        """The model as it was after so many epochs: at the end, or where there is a snapshot, or at the `nearest`."""
        return self._model_with(self.weights_at(self.nearest_epoch(epoch) if nearest else epoch))

    def weights_at(self, epoch: int) -> dict[str, Tensor]:
        """The weights as they were after so many epochs, at the end or where there is a snapshot."""
        return dict(self._snapshot(epoch).weights)

    def nearest_epoch(self, epoch: int) -> int:
        """The nearest epoch of which there is a snapshot, or the last one trained."""
        require_integer("epoch", epoch, least=0)
        return nearest(epoch, self._epochs_kept())

    def measure(self, *measures: Measure, epochs: Iterable[int] | None = None) -> pd.DataFrame | pd.Series:
        """Measures the run at some epochs, by default at all snapshots: what recording would have given there.

        Columns are those that the measures have in `curves`, on the halves that training records them on, under the
        interventions as they were. A single column is a Series.
        """
        from bayesticket.runs.afterwards import measure_afterwards

        kept = self._epochs_kept()
        chosen = kept if epochs is None else require_epochs(epochs)
        found = measure_afterwards(self, measures, [self._snapshot(epoch) for epoch in chosen])
        return pd.Series(found.iloc[:, 0]) if len(found.columns) == 1 else found

    def evaluate(self, on: AbstractTask | Split | Examples, *measures: Measure, epoch: int | None = None) -> Measured:
        """Loss, accuracy and other measures on another task, such as the same one in longer sequences.

        It is over inputs that training has not seen: where both tasks have the same, as with another number of
        distractors, those of the run's test half, with distractors and positions of the other task, drawn with the seed
        of the run's split; `unseen_accuracy` is over those whose orbit training has not seen. Of a task with other
        inputs they are all that are not in training. Of a split the test half is taken as it is, of `Examples` all.
        Edits of the intervention are in force. Names are those of `bt.measure`. `epoch` is one with a snapshot, by
        default the last. Raises where sequences are too long for the model's `n_ctx`, or tokens mean something else.
        """
        from bayesticket.runs.afterwards import evaluate_afterwards

        return evaluate_afterwards(self, on, measures, self._snapshot(self.epoch if epoch is None else epoch))

    def _epochs_kept(self) -> list[int]:
        """The epochs of which the weights are there."""
        return sorted({*self.snapshots, self.epoch})

    def _snapshot(self, epoch: int) -> Snapshot:
        require_integer("epoch", epoch, least=0)
        if epoch in self.snapshots:
            return self.snapshots[epoch]
        if epoch != self.epoch:
            raise no_snapshot(epoch, self._epochs_kept())
        return Snapshot(epoch, self.weights, state=None, step=None)

    def _model_with(self, weights: Mapping[str, Tensor]) -> HookedTransformer:
        with self._reading("header"):
            given = restore(self.description.get("model"), self.tensors)
        return rebuilt(given, weights, lambda: self.config.task, lambda: self._reading("weights"))

    def _reading(self, what: Literal["header", "weights"]) -> AbstractContextManager[None]:
        """Names the file that is at fault where its content cannot be used."""
        if self.source is None:
            return nullcontext()
        directory = RunDirectory(self.source)
        return reading(directory.header_path if what == "header" else directory.weights_path)

    @property
    def grok_threshold(self) -> float:
        """The test accuracy that counts as grokking in this run."""
        return self.header().grok_threshold

    def grok_epoch(self, threshold: float | None = None, *, curve: str = "test_accuracy") -> int | None:
        """The first recorded epoch at which test accuracy reaches the threshold, by default the run's own; or None.

        With `curve="unseen_accuracy"` it is that of the accuracy on test examples whose orbit training has not seen.
        Raises where the run has records, but no value of the curve.
        """
        return first_epoch(self._reaches(curve, threshold))

    def memorised_epoch(self, threshold: float = MEMORISED) -> int | None:
        """The first recorded epoch at which training accuracy reaches the threshold, or None."""
        return first_epoch(self._reaches("train_accuracy", threshold))

    def stable_after(self, threshold: float | None = None, *, curve: str = "test_accuracy") -> int | None:
        """The recorded epoch from which on test accuracy stays at the threshold; or None.

        Threshold and curve are those of `grok_epoch`.
        """
        return settled_epoch(self._reaches(curve, threshold))

    def _reaches(self, curve: str, threshold: float | None) -> pd.Series:
        threshold = self.grok_threshold if threshold is None else threshold
        require_threshold("threshold", threshold, curve, above=0.0)
        if not len(self.curves):  # the run failed before its first record
            return pd.Series(dtype=bool)
        if not isinstance(curve, str) or curve not in self.curves:
            raise refuse_name("curve", curve, list(self.curves))
        values = pd.Series(self.curves[curve])
        if values.isna().all():
            raise refuse_unrecorded(curve, "this run")
        return values >= threshold

    def phases(
        self, by: Literal["gradient", "norm"] = "gradient", *, curve: str = "test_accuracy", layer: int | None = None
    ) -> "Phases":
        """The borders of the four phases (Section 5.1), read off the recorded curves.

        Plateau and resurgence are read off the gradient in the attention (`bayesticket.analysis.find_phases`), or with
        `by="norm"` off training loss and the MLP's norm (`find_phases_by_norm`). The curve is that of `grok_epoch`. Of
        a model of several layers, `layer` says which one's gradient and divergence are read.
        """
        from bayesticket.analysis import find_phases, find_phases_by_norm

        readings = {"gradient": find_phases, "norm": find_phases_by_norm}
        if not isinstance(by, str) or by not in readings:
            raise refuse_name("by", by, readings)
        columns = {"divergence": self._of_layer("kl_to_oracle", layer)}
        if by == "gradient":
            columns["gradient"] = self._of_layer("attention_gradient", layer)
        return readings[by](self.curves, grokking=self.grok_threshold, curve=curve, **columns)

    def _of_layer(self, measure: str, layer: int | None) -> str:
        """The column of a default measure at a layer; raises where the run has several layers, and none is named."""
        columns = {name: Column.parse(name) for name in self.curves}
        layers = {
            int(column.entry.removeprefix("L")): name
            for name, column in columns.items()
            if (column.half, column.measure, column.fields) == (None, measure, "layer=each")
        } or {0: measure}
        if layer is None and len(layers) == 1:
            return layers[0]
        if isinstance(layer, bool) or not isinstance(layer, int | None) or layer not in layers:
            accepted = " or ".join(f"layer={n}" for n in layers)
            if layer is None:
                raise refuse_case("layer", "a run of several layers", accepted)
            raise refuse("layer", layer, accepted)
        return layers[layer]

    def plot(self) -> "go.Figure":
        """Accuracy, attention, loss and norms against epochs, as a plotly Figure."""
        from bayesticket.figures import plot_run

        return plot_run(self)

    def __repr__(self) -> str:
        def shown(epoch: int | None) -> str:
            return "never" if epoch is None else f"at {epoch:,}"

        last = self.curves["test_accuracy"].iloc[-1] if len(self.curves) else float("nan")
        return (
            f"Run({self.status} after {self.epoch:,} epochs: memorised {shown(self.memorised_epoch())}, "
            f"grokked {shown(self.grok_epoch())}, test accuracy {last:.1%})"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows: how the run ended, and its accuracies as a sparkline."""
        from bayesticket.figures.style import TEST, TRAIN, UNSEEN

        accuracies = (("train", "train", TRAIN), ("test", "test", TEST), ("unseen", "test, unseen", UNSEEN))
        shown = [
            (name, colour, self.curves.index.to_list(), self.curves[f"{half}_accuracy"].to_list())
            for half, name, colour in accuracies
            if f"{half}_accuracy" in self.curves
        ]
        return html_lines(repr(self), f"run {self.id}") + sparkline(shown, f"accuracies up to epoch {self.epoch:,}")

    def header(self) -> Header:
        """What `run.json` says of the run."""
        made_with = self.made_with or versions()
        return Header(
            self.description,
            self.status,
            self.epoch,
            self.seconds,
            made_with,
            self.recorded,
            self.cut_short,
            self.earlier,
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the run into a directory that is new, empty, or holds this very run; returns the directory.

        A directory that holds more of this run than there is to save is refused, and so is one that another process
        trains; see `RunDirectory` for the files.
        """
        directory = RunDirectory(path, "path")
        directory.require_run(self.description)
        with directory.locked():
            directory.save(self.header(), self.tensors, self.curves, self.weights)
            Snapshots(self.id, directory.snapshots_path).take(self.snapshots)
        return directory.path

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, partial: bool = False, damaged: bool = False) -> "Run":
        """Reads a saved run; nothing in it is executed.

        With `partial`, a run that is not finished, or is still being trained, is read as its last checkpoint has it. A
        run whose configuration names a class of yours loads without it, except for `config`. A file that is not the
        one that was written is refused; with `damaged`, it is read as far as it can be.
        """
        require_flag("partial", partial)
        require_flag("damaged", damaged)
        directory = RunDirectory(require_path("path", path, "the directory of a saved run"), "path", damaged=damaged)
        header = directory.header()
        if directory.has_results():
            weights, curves = directory.weights(header), directory.curves(header)
            epoch, seconds = header.epoch, header.seconds
        elif not partial:
            raise BayesticketError(
                f"{directory}: got a run that is not finished; accepted: bt.resume({str(path)!r}), or partial=True"
            )
        elif (checkpoint := directory.read_checkpoint()) is None:
            raise refuse_case("path", f"a run without a checkpoint in {directory}", "one that has been trained longer")
        else:
            with reading(directory.checkpoint_path):
                weights, curves, epoch, seconds = read_progress_so_far(header.id, *checkpoint)
        notice_other_versions(header)
        return cls(
            description=header.config,
            tensors=directory.tensors(header),
            weights=weights,
            curves=curves,
            epoch=epoch,
            status=header.status,
            seconds=seconds,
            made_with=header.made_with,
            recorded=header.recorded,
            cut_short=header.cut_short,
            earlier=header.earlier,
            source=directory.path,
            snapshots=Snapshots(header.id, directory.snapshots_path, damaged=damaged),
        )
