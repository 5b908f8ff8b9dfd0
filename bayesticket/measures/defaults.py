"""What training records unless told otherwise."""

from collections.abc import Iterable
from dataclasses import replace

from bayesticket.errors import BayesticketError, refuse
from bayesticket.measures.attention import KLToOracle
from bayesticket.measures.base import AttentionMeasure, Measure
from bayesticket.measures.bound import BoundMeasure
from bayesticket.measures.gradients import AttentionGradient
from bayesticket.measures.masses import InformativeMass
from bayesticket.measures.norms import MLPNorm
from bayesticket.measures.performance import Accuracy, Loss
from bayesticket.model import HookedTransformer
from bayesticket.notices import notice
from bayesticket.tasks import Examples

DEFAULT_MEASURES: tuple[Measure, ...] = (
    Loss(),
    Accuracy(),
    KLToOracle(),
    InformativeMass("least"),
    InformativeMass("mean"),
    MLPNorm(),
    AttentionGradient(),
)
"""What training records unless told otherwise; see `suited_to` for models of several layers."""


def suited_to(model: HookedTransformer, batch: Examples, measures: Iterable[Measure]) -> tuple[Measure, ...]:
    """Default measures as a model can have them: of each layer where it has several, without those it cannot have.

    >>> from bayesticket.model import build_model
    >>> from bayesticket.tasks import ModularAddition
    >>> task = ModularAddition(p=7)
    >>> suited_to(build_model(task), task.split().train, [AttentionGradient()])
    (AttentionGradient(),)
    """
    suited: list[Measure] = []
    for measure in measures:
        if isinstance(measure, AttentionMeasure) and model.cfg.n_layers > 1:
            measure = replace(measure, layer="each")
        try:
            BoundMeasure.bind(measure, None, model, batch)
        except BayesticketError as error:
            notice(f"{type(measure).__name__} is not recorded. {error}")
        else:
            suited.append(measure)
    return tuple(suited)


def additional(default: Iterable[Measure], chosen: Iterable[Measure]) -> list[Measure]:
    """What is recorded beside the default: of a measure that is in it, the other parts of the split alone.

    >>> additional([KLToOracle()], [KLToOracle(), KLToOracle(half=("train", "test"))])
    [KLToOracle(half=('test',))]
    """
    kinds = {measure.name: type(measure) for measure in default}
    recorded = {measure.name: set(measure.recorded_on) for measure in default}
    further: list[Measure] = []
    for measure in chosen:
        if (taken := kinds.get(measure.name, type(measure))) is not type(measure):
            accepted = f"measures of another name; the library's {taken.__name__} is recorded by default"
            raise refuse("measures", measure.name, accepted)
        parts = tuple(part for part in measure.recorded_on if part not in recorded.get(measure.name, ()))
        if measure.name not in recorded:
            further.append(measure)
        elif parts:
            further.append(replace(measure, half=parts))
    return further
