"""Tasks: what is learned.

A task makes sequences with targets and says at which positions the answer can be read. To add one, derive a frozen
dataclass from `AbstractTask`; your own data need only `Task`."""

from bayesticket.tasks.base import (
    AbstractTask,
    Examples,
    Split,
    Task,
    require_informative_rows,
    require_seed,
    uniform_over,
)
from bayesticket.tasks.symbolic import (
    AbstractSymbolicTask,
    KOperandAddition,
    ModularAddition,
    ModularMultiplication,
    PermutationComposition,
    SparseParity,
)

__all__ = [
    "AbstractSymbolicTask",
    "AbstractTask",
    "Examples",
    "KOperandAddition",
    "ModularAddition",
    "ModularMultiplication",
    "PermutationComposition",
    "SparseParity",
    "Split",
    "Task",
    "require_informative_rows",
    "require_seed",
    "uniform_over",
]
