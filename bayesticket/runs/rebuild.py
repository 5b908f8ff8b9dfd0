"""The model of a run, built again from its description and its weights."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress

from torch import Tensor

from bayesticket.errors import BayesticketError
from bayesticket.model import (
    Architecture,
    HookedTransformer,
    build,
    load_parameters,
    made_for,
    move,
    require_parameters,
)
from bayesticket.tasks import AbstractTask


def rebuilt(
    given: object,
    weights: Mapping[str, Tensor],
    task: Callable[[], AbstractTask],
    reading_weights: Callable[[], AbstractContextManager[None]],
) -> HookedTransformer:
    """A model as its configuration gives it, an architecture or a model, with the weights of a run on a task."""
    dtype = next(iter(weights.values())).dtype
    if isinstance(given, HookedTransformer):
        model = move(given, dtype)
        with suppress(BayesticketError):  # a task of a class that is not defined here
            made_for(model, task())
    else:
        assert isinstance(given, Architecture | None)
        architecture = given or Architecture()
        with reading_weights():
            require_parameters(architecture.settings(task()), weights)
        model = build(architecture, task(), dtype=dtype)
    with reading_weights():
        load_parameters(model, weights)
    return model
