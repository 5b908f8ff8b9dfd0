"""Pruning by magnitude: which matrices of a model are pruned, and which of their weights are kept."""

from collections.abc import Iterable, Mapping
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bayesticket.errors import refuse, require_choice, require_number, require_several
from bayesticket.model import is_matrix, is_position_embedding, parameter_kind

Scope = Literal["global", "matrix"]
"""Whether the weights of all matrices are ranked together, or those of each matrix separately."""


def named_matrices(parameters: Iterable[str], matrices: Iterable[str] | None = None) -> list[str]:
    """Full names of the matrices that are pruned, in the model's order; see `find_ticket`.

    >>> parameters = ["embed.W_E", "pos_embed.W_pos", "blocks.0.attn.W_Q", "blocks.0.attn.b_Q", "blocks.1.attn.W_Q"]
    >>> named_matrices(parameters)
    ['embed.W_E', 'blocks.0.attn.W_Q', 'blocks.1.attn.W_Q']
    >>> named_matrices(parameters, ["W_pos", "blocks.1.attn.W_Q"])
    ['pos_embed.W_pos', 'blocks.1.attn.W_Q']
    """
    known = [name for name in parameters if is_matrix(name)]
    if matrices is None:
        return [name for name in known if not is_position_embedding(name)]
    wanted = 'names of matrices, such as ["W_Q", "W_K"], or None'
    if not (chosen := require_several("matrices", matrices, wanted)):
        raise refuse("matrices", matrices, wanted)
    accepted = list(dict.fromkeys([*map(parameter_kind, known), *known]))
    for name in chosen:
        require_choice("matrices", name, accepted)
    return [name for name in known if name in chosen or parameter_kind(name) in chosen]


def require_sparsity(sparsity: object) -> None:
    """Raises unless `0 ≤ sparsity < 1`."""
    require_number("sparsity", sparsity, least=0.0, below=1.0)


def magnitude_masks(
    weights: Mapping[str, Tensor], sparsity: float, *, scope: Scope = "global"
) -> dict[str, Bool[Tensor, "..."]]:
    """Marks the weights of largest magnitude: all but the `round(sparsity · n)` smallest of `n`; see `find_ticket`.

    One is always marked. Among equal magnitudes those that come first are removed. Of weights that belong to no run,
    `Ticket(magnitude_masks(weights, 0.6))` makes a ticket.

    >>> weights = {"W": torch.tensor([1.0, -5.0]), "V": torch.tensor([-2.0, 2.0])}
    >>> magnitude_masks(weights, 0.5)
    {'W': tensor([False,  True]), 'V': tensor([False,  True])}
    """
    require_sparsity(sparsity)
    require_choice("scope", scope, get_args(Scope))
    if not weights:
        raise refuse("weights", weights, "at least one matrix, by its name")
    for name, weight in weights.items():
        if not torch.isfinite(weight).all():
            raise refuse(f"weights[{name!r}]", weight[~torch.isfinite(weight)][0].item(), "finite weights")
    flat = {name: weight.detach().abs().flatten() for name, weight in weights.items()}
    if scope == "matrix":
        kept = [keep_largest(magnitudes, n_removed(sparsity, len(magnitudes))) for magnitudes in flat.values()]
    else:
        together = torch.cat(list(flat.values()))
        sizes = [len(magnitudes) for magnitudes in flat.values()]
        kept = keep_largest(together, n_removed(sparsity, len(together))).split(sizes)
    return {name: mask.view(weights[name].shape) for name, mask in zip(weights, kept, strict=True)}


def n_removed(sparsity: float, n: int) -> int:
    """How many of n weights a sparsity removes; one always stays.

    >>> n_removed(0.6, 10), n_removed(0.999, 10)
    (6, 9)
    """
    return min(round(sparsity * n), n - 1)


def keep_largest(magnitudes: Float[Tensor, "n"], n_removed: int) -> Bool[Tensor, "n"]:
    """Marks all but the `n_removed` smallest; among equal ones those that come first are removed.

    >>> keep_largest(torch.tensor([3.0, 1.0, 1.0, 1.0]), 2)
    tensor([ True, False, False,  True])
    """
    kept = torch.ones_like(magnitudes, dtype=torch.bool)
    kept[magnitudes.argsort(stable=True)[:n_removed]] = False
    return kept
