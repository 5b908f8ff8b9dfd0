"""The inputs of a symbolic task: all of them, or a sample where they are too many."""

import itertools

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Int
from torch import Tensor

MOST_ENUMERATED = 65_536
"""A task with more inputs draws `n_samples` of them instead of listing them all."""


def all_rows(n_values: int, n_digits: int) -> Int[Tensor, "n digits"]:
    """Every row of `n_digits` values, the last one changing fastest.

    >>> all_rows(2, 2).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    place_values = n_values ** torch.arange(n_digits - 1, -1, -1)
    numbers = rearrange(torch.arange(n_values**n_digits), "row -> row 1")
    return numbers // place_values % n_values


def distinct_rows(n_values: int, n_digits: int, *, n: int, generator: torch.Generator) -> Int[Tensor, "n digits"]:
    """The first `n` distinct rows of an endless uniform draw: a uniform sample without repeats."""
    rows: dict[bytes, None] = {}
    while len(rows) < n:
        drawn = torch.randint(n_values, (n, n_digits), generator=generator)
        rows.update(dict.fromkeys(row.tobytes() for row in drawn.numpy()))
    kept = b"".join(itertools.islice(rows, n))
    return torch.from_numpy(np.frombuffer(kept, dtype=np.int64).reshape(n, n_digits).copy())
