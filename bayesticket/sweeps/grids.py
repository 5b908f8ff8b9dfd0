"""Grids: axes along which the runs of a sweep differ, as data."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Unpack

import numpy as np

from bayesticket.errors import refuse, refuse_case, refuse_name, require_choice, require_several
from bayesticket.interventions import Intervention
from bayesticket.runs import SharedOptions, TrainConfig, configure_from, option_names
from bayesticket.sweeps.dataset import Label
from bayesticket.tasks import AbstractTask


@dataclass(frozen=True, repr=False)
class Grid:
    """Axes along which runs differ: names of options, and on each axis values by label."""

    axes: Mapping[str, Mapping[Label, object]]

    def configs(
        self, task: AbstractTask | None, *, seeds: Iterable[int], **options: Unpack[SharedOptions]
    ) -> dict[tuple[Label, ...], TrainConfig]:
        """The configurations of all runs, by one label for each axis and then the seed.

        `options` are those of `train` that all runs have in common. The task may be None if it is one of the axes.
        """
        common: dict[str, object] = dict(options)
        if task is not None or "task" not in self.axes:
            common = {"task": task, **common}
        known = [name for name in option_names() if name not in ("task", "seed", *self.axes)]
        for name in common:
            if name in self.axes:
                raise refuse_case(name, "an axis of the sweep and an option of the same name", "one of the two")
            if name != "task":
                require_choice("option", name, known)
        if "measures" in common:  # it may be an iterator, which can be read once
            common["measures"] = require_several("measures", common["measures"], "a sequence of Measure objects")
        arms: dict[tuple[Label, ...], TrainConfig] = {}
        for labels in itertools.product(*self.axes.values()):
            own = {axis: self.axes[axis][label] for axis, label in zip(self.axes, labels, strict=True)}
            arms[labels] = configure_from(None, common | own)
        return {(*labels, seed): replace(arm, seed=seed) for seed in seeds for labels, arm in arms.items()}

    def __repr__(self) -> str:
        axes = (f"{axis}: {', '.join(map(str, values))}" for axis, values in self.axes.items())
        return f"Grid({' × '.join(axes)})"


def grid(**axes: object) -> Grid:
    """Axes for a sweep: each keyword is an option of `train`, and the sweep trains every combination.

    A mapping gives values by label. Plain numbers and strings may be given as a sequence, and are their own labels.

    >>> from bayesticket.interventions import KLPrior
    >>> grid(intervention={"none": None, "kl": KLPrior()}, lr=[3e-4, 1e-3])
    Grid(intervention: none, kl × lr: 0.0003, 0.001)
    """
    if not axes:
        raise refuse_case("grid", "no axes", "at least one, such as lr=[3e-4, 1e-3]")
    return Grid({axis: _values(axis, given) for axis, given in axes.items()})


def _values(axis: str, given: object) -> dict[Label, object]:
    """The values on an axis by label; raises unless they make an axis."""
    if axis == "seed":
        raise refuse_case("seed", "seeds as an axis of the grid", "seeds=range(5) in the call of sweep")
    if axis == "grok_threshold":
        raise refuse_case(
            axis, "thresholds as an axis", "runs.grok_epochs(threshold), which reads any off the same runs"
        )
    if axis not in option_names():
        raise refuse_name("axis", axis, [name for name in option_names() if name not in ("seed", "grok_threshold")])
    accepted = 'values by label, such as {"a": …, "b": …}, or a sequence of numbers or strings'
    if isinstance(given, Mapping):
        values = dict(given)
    else:
        listed = [one.item() if isinstance(one, np.generic) else one for one in require_several(axis, given, accepted)]
        if any(not _is_label(one) for one in listed):
            raise refuse(axis, listed, accepted)
        values = dict(zip(listed, listed, strict=True))
        if len(values) < len(listed):
            raise refuse(axis, listed, "values that are all different")
    if not values:
        raise refuse(axis, given, "at least one value")
    if not all(map(_is_label, values)) or len({isinstance(label, str) for label in values}) > 1:
        raise refuse(axis, list(values), "labels that are all strings, or all numbers")
    if axis == "intervention":
        for label, one in values.items():
            if one is not None and not isinstance(one, Intervention):
                raise refuse(f"intervention[{label!r}]", one, "an Intervention, several joined by +, or None")
    return values


def _is_label(given: object) -> bool:
    return isinstance(given, str | int | float) and not isinstance(given, bool) and given == given  # NaN is none
