"""A configuration as plain JSON and tensors, and back."""

from collections.abc import Mapping

from torch import Tensor

from bayesticket.errors import BayesticketError, refuse
from bayesticket.runs.config import TrainConfig
from bayesticket.runs.versions import different_versions, parse_classes, versions
from bayesticket.specs import JSON, describe, restore


def restore_config(
    description: dict[str, JSON], tensors: dict[str, Tensor], made_with: Mapping[str, str] | None = None
) -> TrainConfig:
    """The configuration that `describe_config` wrote down; classes of yours have to be defined.

    Errors name the modules of such classes, which the header of the run has in `made_with`.
    """
    made_with = made_with or {}
    try:
        config = restore(description, tensors, parse_classes(made_with.get("classes", "")))
    except BayesticketError as error:
        if "bayesticket" not in (differences := different_versions(made_with, versions())):
            raise
        written, here = differences["bayesticket"]
        raise BayesticketError(f"{error}; it was written by bayesticket {written}, and this is {here}") from error
    if not isinstance(config, TrainConfig):
        raise refuse("config", config, "the description of a TrainConfig")
    return config


def describe_config(config: TrainConfig) -> tuple[dict[str, JSON], dict[str, Tensor]]:
    """A configuration as plain JSON, and the tensors it refers to."""
    tensors: dict[str, Tensor] = {}
    description = describe(config, tensors)
    assert isinstance(description, dict)
    return description, tensors
