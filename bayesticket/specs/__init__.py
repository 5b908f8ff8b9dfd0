"""Specifications: tasks, models, interventions, measures, optimisers and configurations as frozen data.

This room says how such data compare and print, how they are written as JSON and read back without executing anything,
and what their ids are. It knows nothing of what is specified: a class becomes a specification by `@spec` and a base
such as `Intervention`.
"""

from bayesticket.specs.base import Spec, changed, default_values, field_names, same, snake_case, spec
from bayesticket.specs.code import is_library_class, tensor_hash
from bayesticket.specs.describe import JSON, describe, describe_as, described_kind, modules_of, restore
from bayesticket.specs.identity import description_id, spec_id

__all__ = [
    "JSON",
    "Spec",
    "changed",
    "default_values",
    "describe",
    "describe_as",
    "described_kind",
    "description_id",
    "field_names",
    "is_library_class",
    "modules_of",
    "restore",
    "same",
    "snake_case",
    "spec",
    "spec_id",
    "tensor_hash",
]
