"""Tasks: what is learned.

A task makes sequences with targets and says at which positions the answer can be read. To add one, derive a class
from `AbstractTask`; for data of your own `Task` is enough. A task also knows how its sequences are written out as text.
"""

from bayesticket.tasks.arithmetic import KOperandAddition, ModularAddition, ModularMultiplication
from bayesticket.tasks.base import AbstractTask, SplitBy
from bayesticket.tasks.examples import Examples, Split, uniform_over
from bayesticket.tasks.meaning import differing_token, places_in
from bayesticket.tasks.own import Task
from bayesticket.tasks.parity import AutoregressiveParity, SparseParity
from bayesticket.tasks.permutations import PermutationComposition
from bayesticket.tasks.symbolic import AbstractExpression, AbstractSymbolicTask

__all__ = [
    "AbstractExpression",
    "AbstractSymbolicTask",
    "AbstractTask",
    "AutoregressiveParity",
    "Examples",
    "KOperandAddition",
    "ModularAddition",
    "ModularMultiplication",
    "PermutationComposition",
    "SparseParity",
    "Split",
    "SplitBy",
    "Task",
    "differing_token",
    "places_in",
    "uniform_over",
]
