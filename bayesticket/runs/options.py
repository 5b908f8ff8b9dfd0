"""The options of a run as keywords, for functions that pass them on: editors and type checkers then know each one."""

from collections.abc import Iterable, Mapping
from typing import Literal, TypedDict

from bayesticket.interventions import Intervention
from bayesticket.measures import Measure
from bayesticket.model import Architecture, HookedTransformer
from bayesticket.optim import LossFunction, Optimizer
from bayesticket.runs.stopping import StopRule
from bayesticket.schedules import Strength
from bayesticket.tasks import AbstractTask, SplitBy


class SharedOptions(TypedDict, total=False):
    """What all runs of a sweep may have in common: the options of `train` without task and seed.

    Settings that only an optimiser of your own has are not among them: give the optimiser as an object.
    """

    intervention: Intervention | None
    model: Architecture | HookedTransformer | None
    measures: Iterable[Measure]
    evaluate: Mapping[str, AbstractTask] | None
    init_seed: int | None
    split_seed: int | None
    batch_seed: int | None
    train_fraction: float
    split_by: SplitBy
    epochs: int
    batch_size: int | None
    optimizer: Optimizer | str
    lr: Strength | None
    weight_decay: Strength | None
    betas: tuple[float, float] | None
    momentum: float | None
    loss: LossFunction | None
    warmup: int
    max_grad_norm: float | None
    record_every: int
    stop_after_grok: int | None
    grok_threshold: float
    stop_when: StopRule | None
    forward: Literal["auto", "fast", "full"]
    device: str
    dtype: Literal["float32", "float64"] | None


class Options(SharedOptions, total=False):
    """The options of `train` that decide what a run computes."""

    task: AbstractTask
    seed: int
