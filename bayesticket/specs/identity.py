"""Ids: short names for what a specification computes."""

import hashlib
import json

from bayesticket.specs.base import Spec
from bayesticket.specs.describe import JSON, describe


def spec_id(given: Spec) -> str:
    """A short name for what a specification says; equal specifications have equal ids.

    Only fields that differ from their defaults count, so that a field that is added later, with a default, changes no
    id; nor does the order of fields.

    >>> from bayesticket.tasks import ModularAddition
    >>> spec_id(ModularAddition(p=7)) == spec_id(ModularAddition(p=7, n_distractors=1)) != spec_id(ModularAddition(p=5))
    True
    """
    return description_id(describe(given, {}))


def description_id(description: JSON) -> str:
    """The same id, of a specification that is written down already."""
    return hashlib.sha256(json.dumps(_as_floats(description), sort_keys=True).encode()).hexdigest()[:12]


def _as_floats(data: JSON) -> JSON:
    """The same with 1 written as 1.0, since the two are equal."""
    if isinstance(data, dict):
        return {name: _as_floats(entry) for name, entry in data.items()}
    if isinstance(data, list):
        return [_as_floats(entry) for entry in data]
    if isinstance(data, bool) or not isinstance(data, int):
        return data
    return float(data) if abs(data) <= 2**53 else data  # beyond, floats are not equal to all of them
