"""The runs of a sweep as one dataset: curves by axis, seed and epoch, and what is read off them."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import xarray as xr

from bayesticket.errors import refuse, refuse_case, refuse_name, require_choice, require_integer, require_several
from bayesticket.notebooks import html_table
from bayesticket.runs import MEMORISED, Run, first_epoch, refuse_unrecorded, require_threshold

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from bayesticket.analysis import Comparison, Prediction, Times

Label = str | int | float
"""The name of a value on an axis: of an intervention its name, of a learning rate the number itself."""


@dataclass(frozen=True, eq=False, repr=False)
class Runs:
    """The runs of a sweep; `curves` is the xarray Dataset of what they recorded.

    An arm is one combination of labels on the axes. Methods take the label on the first axis by position and the others
    by name: `runs.times("kl")` in a sweep over interventions, `runs.times("kl", lr=1e-3)` in one over learning rates
    too. Axes of one label need not be named.
    """

    curves: xr.Dataset
    """Dimensions: the axes of the sweep, then `seed` and `epoch`. A curve is NaN where a run did not record it.

    Coordinates of each run: its `status`, how many epochs it was `trained`, the `seconds` that this took, its
    `directory`, the `id` of its configuration, and its `grok_threshold`. The attribute `trained_by`, of runs that were
    read from results, is the command that trains them; `scheduled` has, as JSON, the recipes with schedules by id.
    """

    def __post_init__(self):
        needed = ("seed", "epoch", "status", "trained", "seconds", "directory", "id", "grok_threshold")
        missing = [name for name in needed if name not in self.curves.coords]
        if missing or not {"seed", "epoch"} <= set(self.curves.dims):
            without = missing[0] if missing else "its dimensions seed and epoch"
            raise refuse_case("curves", f"a dataset without {without}", "the dataset of a sweep; see runs.sel")

    # Selecting ----------------------------------------------------------------------------------------------------

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the axes along which the arms differ, seeds not included."""
        return tuple(str(axis) for axis in self.curves["trained"].dims if axis != "seed")

    @property
    def seeds(self) -> list[int]:
        """The seeds, in order."""
        return self.labels("seed")  # type: ignore[return-value]

    def labels(self, axis: str) -> list[Label]:
        """The labels on an axis, or the seeds, in order."""
        require_choice("axis", axis, (*self.axes, "seed"))
        return self.curves[axis].to_numpy().tolist()

    def sel(self, **axes: Label | Iterable[Label]) -> "Runs":
        """The runs with these labels: one label drops its axis, a list keeps it. Seeds always keep theirs.

        `runs.sel(lr=1e-3, seed=[0, 1])` are the runs of two seeds at one learning rate.
        """
        return Runs(self.curves.sel({axis: self._wanted(axis, given) for axis, given in axes.items()}))

    def _wanted(self, axis: str, given: object) -> object:
        """What xarray is asked for; raises unless all of it is there."""
        known = self.labels(axis)
        several = isinstance(given, Iterable) and not isinstance(given, str)
        chosen = require_several(axis, given, "a label, or several") if several else [given]
        wanted = [one.item() if isinstance(one, np.generic) else one for one in chosen]
        for one in wanted:
            _require_known(axis, one, known)
        if several and not wanted:
            raise refuse(axis, given, "at least one label")
        return wanted if several or axis == "seed" else wanted[0]

    def _arm(self, arm: object, axes: Mapping[str, object]) -> "Runs":
        """The runs of one arm, without any axis but seed and epoch."""
        chosen = dict(axes)
        unnamed = [axis for axis in self.axes if axis not in chosen]
        if arm is not None:
            if not unnamed:
                raise refuse_case("arm", f"{arm!r}, where every axis has its label", "no label by position")
            chosen[unnamed[0]] = arm
        for axis, given in chosen.items():
            _require_known(axis, given, self.labels(axis))
        for axis in self.axes:
            if axis not in chosen:
                if len(labels := self.labels(axis)) > 1:
                    raise refuse_case(axis, "no label", f"one of {', '.join(map(repr, labels))}")
                chosen[axis] = labels[0]
        return Runs(self.curves.sel(chosen))

    def run(self, arm: Label | None = None, seed: int | None = None, **axes: Label) -> Run:
        """One of the runs, with its weights; `seed` may be left out if there is only one."""
        one = self._arm(arm, axes)
        if seed is None and len(one.seeds) > 1:
            raise refuse_case("seed", "no seed", f"one of {', '.join(map(repr, one.seeds))}")
        chosen = one.sel(seed=one.seeds[0] if seed is None else [seed])
        directory = str(chosen.curves["directory"].item())
        if not directory:
            command, place = self.curves.attrs.get("trained_by"), chosen.curves["id"].item()
            trained = f"; “{command}” trains them, this one into runs/{place}" if command else ""
            given = "runs that were read from results, which hold curves but no weights"
            raise refuse_case("run", given, f"runs loaded from a store{trained}")
        return Run.load(directory)

    # Grokking times -----------------------------------------------------------------------------------------------

    def grok_epochs(self, threshold: float | None = None, *, curve: str = "test_accuracy") -> pd.DataFrame:
        """The first recorded epoch at which each run's test accuracy reaches the threshold; <NA> where it never did.

        The threshold is by default each run's own `grok_threshold`. One row for each arm, one column for each seed.
        With `curve="unseen_accuracy"` the epochs are those of the accuracy on test examples whose orbit training has
        not seen. Raises where a run has records, but no value of the curve.
        """
        return self._first_epochs(curve, threshold)

    def memorised_epochs(self, threshold: float = MEMORISED) -> pd.DataFrame:
        """The first recorded epoch at which each run's training accuracy reaches the threshold."""
        return self._first_epochs("train_accuracy", threshold)

    def _first_epochs(self, curve: str, threshold: float | None) -> pd.DataFrame:
        columns = pd.Index(self.seeds, name="seed")
        rows = np.array(self._reached(curve, threshold), dtype=object).reshape(-1, len(columns))
        return pd.DataFrame(rows, index=self._rows(), columns=columns).astype("Int64")

    def _reached(self, curve: str, threshold: float | None) -> list[int | None]:
        """The first epoch at which each run reaches the threshold, in the order of axes and seeds."""
        if threshold is not None:
            require_threshold("threshold", threshold, curve, above=0.0)
        if not isinstance(curve, str) or curve not in self.curves.data_vars:
            raise refuse_name("curve", curve, map(str, self.curves.data_vars))
        dims = (*self.axes, "seed")
        values = self.curves[curve].transpose(*dims, "epoch").to_numpy()
        if np.isnan(values).all(-1).any():
            self._require_recorded(curve)
        own = self.curves["grok_threshold"].transpose(*dims).to_numpy()
        least = own if threshold is None else np.full_like(own, threshold)
        epochs = pd.Index(self.curves["epoch"].to_numpy())
        runs = zip(values.reshape(least.size, -1), least.flat, strict=True)
        return [first_epoch(pd.Series(run >= enough, index=epochs)) for run, enough in runs]

    def _require_recorded(self, curve: str) -> None:
        """Raises where a run has no value of this curve, although it has some of another."""
        silent = self.curves[curve].isnull().all("epoch")
        silent &= self.curves.notnull().any("epoch").to_array().any("variable")
        dims, selected = (*self.axes, "seed"), self._selected()
        runs = itertools.product(*map(self.labels, dims))
        for labels, without in zip(runs, silent.transpose(*dims).to_numpy().flat, strict=True):
            if without:
                raise refuse_unrecorded(curve, name_of((*selected.values(), *labels), (*selected, *dims)))

    def _selected(self) -> dict[str, Label]:
        """The labels that were selected, by axis."""
        return {str(name): found.item() for name, found in self.curves.coords.items() if found.ndim == 0}

    def _rows(self) -> pd.Index:
        """One row for each arm; where no axis is left, one row with the labels that were selected."""
        labels = {axis: self.labels(axis) for axis in self.axes}
        if not labels:
            labels = {axis: [label] for axis, label in self._selected().items()} or {"runs": ["all"]}
        if len(labels) == 1:
            ((axis, only),) = labels.items()
            return pd.Index(only, name=axis)
        return pd.MultiIndex.from_product(list(labels.values()), names=list(labels))

    def times(
        self,
        arm: Label | None = None,
        threshold: float | None = None,
        *,
        curve: str = "test_accuracy",
        **axes: Label,
    ) -> "Times":
        """The grokking times of an arm, censored at the end of training where a run never grokked.

        Threshold and curve are those of `grok_epochs`.
        """
        from bayesticket.analysis import Times

        one = self._arm(arm, axes)
        return Times.of(one._reached(curve, threshold), [int(end) for end in one.curves["trained"].to_numpy()])

    def compare(
        self,
        arm: Label,
        other: Label,
        threshold: float | None = None,
        *,
        curve: str = "test_accuracy",
        **axes: Label,
    ) -> "Comparison":
        """Two arms by their grokking times: both medians with intervals, their ratio, and the log-rank p.

        `runs.compare("kl", "none", lr=1e-3)` compares interventions at one learning rate;
        `runs.compare(1e-3, 3e-4, intervention="kl")` compares learning rates under one intervention. Threshold and
        curve are those of `grok_epochs`.
        """
        from bayesticket.analysis import compare_times

        one, two = (self.times(label, threshold, curve=curve, **axes) for label in (arm, other))
        unnamed = [axis for axis in self.axes if axis not in axes]
        names = tuple(name_of([label], unnamed[:1]) if unnamed else str(label) for label in (arm, other))
        return compare_times(one, two, names=(names[0], names[1]))

    def predict(
        self, measure: str, epoch: int, threshold: float | None = None, *, curve: str = "test_accuracy"
    ) -> "Prediction":
        """What a measure at an epoch tells of the runs that have not grokked yet: whether they will, and when.

        `runs.predict("kl_to_oracle", 500)` compares runs of all arms, where a measure may tell only which arm a run is
        of, and beside that runs of the same arm; see `bayesticket.analysis.predict`. Threshold and curve are those of
        `grok_epochs`.
        """
        from bayesticket.analysis import Times, predict

        if not isinstance(measure, str) or measure not in self.curves.data_vars:
            raise refuse_name("measure", measure, map(str, self.curves.data_vars))
        require_integer("epoch", epoch, least=0)
        if epoch not in self.curves["epoch"]:
            raise refuse("epoch", epoch, "an epoch at which runs were recorded, such as those of runs.curves")
        runs = self.curves.transpose(*self.axes, "seed", "epoch")
        times = Times.of(self._reached(curve, threshold), runs["trained"].to_numpy().ravel().tolist())
        values = runs[measure].sel(epoch=epoch).to_numpy().ravel().astype(float)
        arms, seeds = np.divmod(np.arange(values.size), len(self.seeds))
        return predict(values, times, epoch, arms=arms, seeds=seeds, measure=measure)

    # Showing ------------------------------------------------------------------------------------------------------

    def plot(self, colour: str | None = None, facet: str | None = None) -> "go.Figure":
        """Accuracy, attention and loss against epochs, median and quartiles over seeds, as a plotly Figure.

        Lines are coloured by the axis `colour`; each label on the axis `facet` has a column of panels. See
        `bayesticket.figures.plot_arms`.
        """
        from bayesticket.figures import plot_arms

        return plot_arms(self, colour=colour, facet=facet)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{axis}: {len(self.labels(axis))}" for axis in (*self.axes, "seed"))
        n_seeds, failed = len(self.seeds), self.curves["status"] == "failed"
        grokked = self.grok_epochs().notna().sum(axis=1)
        diverged = failed.transpose(*self.axes, "seed").to_numpy().reshape(-1, n_seeds).sum(axis=1)
        lines = [f"Runs({sizes})"]
        for row, n_grokked, n_failed in zip(grokked.index, grokked, diverged, strict=True):
            name = name_of(row if isinstance(row, tuple) else (row,), grokked.index.names)
            tail = f", {n_failed} diverged" if n_failed else ""
            lines.append(f"    {name}: {n_grokked} of {n_seeds} grokked{tail}")
        if len(lines) > _MOST_LINES:
            lines[_MOST_LINES:] = [f"    … ({len(grokked)} arms in all)"]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """What a notebook shows: a row for each arm, with how many of its runs grokked, and when."""
        from bayesticket.analysis import median_time

        arms, rows = self._rows(), []
        for label in arms[:_MOST_ROWS]:
            labels = label if isinstance(label, tuple) else (label,)
            times = self.times(**dict(zip(self.axes, labels, strict=False)))
            median = str(median_time(times)) if times.reached.any() else "never"
            rows.append([*labels, f"{int(times.reached.sum())} of {len(times)}", median])
        if len(arms) > _MOST_ROWS:
            rows.append([f"… ({len(arms)} arms in all)"])
        return html_table([*map(str, arms.names), "grokked", "median epoch, 95% interval"], rows)


_MOST_LINES, _MOST_ROWS = 20, 100


def _require_known(axis: str, given: object, known: list[Label]) -> None:
    if isinstance(given, str) and given not in known and all(isinstance(label, str) for label in known):
        raise refuse_name(axis, given, map(str, known))
    if isinstance(given, bool) or not isinstance(given, str | int | float | np.number) or given not in known:
        raise refuse(axis, given, ", ".join(map(repr, known)))


def name_of(labels: Iterable[object], axes: Iterable[str]) -> str:
    """An arm in words: strings as they are, numbers with the name of their axis.

    >>> name_of(("kl", 0.001), ("intervention", "lr"))
    'kl, lr 0.001'
    """
    named = zip(labels, axes, strict=True)
    return ", ".join(label if isinstance(label, str) else f"{axis} {label:g}" for label, axis in named)
