"""Small tasks with their functions in plain Python, and every layout of each."""

import itertools

import pytest
import torch

from bayesticket.tasks import (
    KOperandAddition,
    ModularAddition,
    ModularMultiplication,
    PermutationComposition,
    SparseParity,
)


def permutation_product(values, n):
    numbered = list(itertools.permutations(range(n)))
    sigma, tau = (numbered[value] for value in values)
    return numbered.index(tuple(sigma[tau[i]] for i in range(n)))


# A small task, the size of its operands' alphabet, and its function computed in plain Python.
CASES = {
    "addition": (ModularAddition, {"p": 7}, 7, lambda v: (v[0] + v[1]) % 7),
    "multiplication": (ModularMultiplication, {"p": 7}, 7, lambda v: v[0] * v[1] % 7),
    "three operands": (KOperandAddition, {"k": 3, "p": 5}, 5, lambda v: (v[0] + v[1] + v[2]) % 5),
    "one operand": (KOperandAddition, {"k": 1, "p": 5}, 5, lambda v: v[0]),
    "permutations": (PermutationComposition, {"n": 3}, 6, lambda v: permutation_product(v, 3)),
    "parity": (SparseParity, {"n": 8, "k": 3}, 2, lambda v: v[0] ^ v[1] ^ v[2]),
}


OPTIONS = {
    "fixed": {},
    "constant": {"distractors": "constant"},
    "dynamic": {"positions": "random"},
    "dynamic constant": {"positions": "random", "distractors": "constant"},
    "three distractors": {"n_distractors": 3},
    "dynamic, three distractors": {"positions": "random", "n_distractors": 3},
    "no distractor": {"n_distractors": 0},
}


def makes_sense(case, option):
    return case != "parity" or not {"n_distractors", "distractors"} & set(OPTIONS[option])


every_layout = pytest.mark.parametrize(
    ("case", "option"), [pair for pair in itertools.product(CASES, OPTIONS) if makes_sense(*pair)]
)


def build(case, option, **more):
    make, sizes, _, _ = CASES[case]
    return make(**sizes, **OPTIONS[option], **more)


def operands_of(examples):
    """The tokens at the informative positions, row by row, in their order."""
    return [
        tuple(token for token, marked in zip(row, marks, strict=True) if marked)
        for row, marks in zip(examples.tokens.tolist(), examples.informative.tolist(), strict=True)
    ]


def same(a, b):
    return all(torch.equal(getattr(a, name), getattr(b, name)) for name in ("tokens", "targets", "informative"))


def rows(examples):
    return list(map(tuple, examples.tokens.tolist()))
