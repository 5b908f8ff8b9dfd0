"""Where the tokens of a sequence sit among the positions of a model, which may be more than the sequence is long."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, final

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens import HookedTransformer
from transformer_lens.components.abstract_attention import AbstractAttention
from transformer_lens.components.pos_embed import PosEmbed
from transformer_lens.hook_points import HookPoint

from bayesticket.errors import refuse_case
from bayesticket.model.hooks import only_permanent
from bayesticket.model.names import POSITION_EMBEDDING

Positions = Literal["learned", "drawn", "none", "rotary"]
"""What tells a model where a token stands; see `Architecture.positions`."""


def draws_positions(model: HookedTransformer) -> bool:
    """Whether training draws the positions of a model's tokens."""
    architecture = getattr(model, "architecture", None)
    return architecture is not None and architecture.positions == "drawn"


def rotates(model: HookedTransformer) -> bool:
    """Whether a model was built with rotary positions."""
    architecture = getattr(model, "architecture", None)
    return architecture is not None and architecture.positions == "rotary"


def rotated(
    attention: AbstractAttention, vectors: Float[Tensor, "heads rows d_head"], positions: Int[Tensor, "rows"]
) -> Float[Tensor, "heads rows d_head"]:
    """Queries or keys turned by the angles of their positions."""
    flipped = attention.rotate_every_two(vectors)
    return vectors * attention.rotary_cos[positions] + flipped * attention.rotary_sin[positions]


def draw_position_ids(n: int, n_positions: int, n_ctx: int, generator: torch.Generator) -> Int[Tensor, "n T"]:
    """For each of n sequences the query at the last position of a model, the others drawn from those before it.

    Every subset is as likely as any other, and tokens keep their order.

    >>> draw_position_ids(2, 3, 9, torch.Generator().manual_seed(0))
    tensor([[6, 7, 8],
            [1, 3, 8]])
    """
    # In float64 ties do not occur; a sort would resolve them in favour of early positions.
    keys = torch.rand(n, n_ctx - 1, generator=generator, dtype=torch.float64, device="cpu")
    before = keys.argsort(dim=1)[:, : n_positions - 1].sort(dim=1).values
    return torch.cat([before, torch.full((n, 1), n_ctx - 1)], dim=1)


def first_position(model: HookedTransformer, n_positions: int) -> int:
    """The position of the first token of a sequence, where nothing is drawn.

    It is 0, but with drawn positions sequences end at the model's last position, where training has the query.
    """
    return model.cfg.n_ctx - n_positions if draws_positions(model) else 0


def position_embeddings(
    model: HookedTransformer, n_positions: int, position_ids: Int[Tensor, "n T"] | None = None
) -> Float[Tensor, "*n T d_model"]:
    """The position embeddings of a sequence, or with `position_ids` those of each sequence of a batch."""
    if position_ids is not None:
        return model.pos_embed.W_pos[position_ids]
    first = first_position(model, n_positions)
    return model.pos_embed.W_pos[first : first + n_positions]


def require_places(model: HookedTransformer, position_ids: Int[Tensor, "n T"] | None) -> None:
    """Raises where a batch says which positions its tokens have, and the model cannot follow it."""
    if position_ids is None:
        return
    if not draws_positions(model):
        raise refuse_case("batch", "position_ids", "a batch without, or a model of Architecture(positions='drawn')")
    if (largest := int(position_ids.max())) >= model.cfg.n_ctx:
        raise refuse_case("batch", f"position {largest}", f"positions of the model, 0 to {model.cfg.n_ctx - 1}")


@final
class Placement:
    """The permanent hook of a model whose positions are drawn: it gives tokens the embeddings of their positions.

    Each thread has its own, since copies of a model may run in different threads.
    """

    def __init__(self, pos_embed: PosEmbed):
        self.pos_embed, self._drawn = pos_embed, threading.local()

    def __reduce__(self):
        return type(self), (self.pos_embed,)

    def place(self, embedding: Float[Tensor, "n T d_model"], hook: HookPoint) -> Float[Tensor, "n T d_model"]:
        """The embeddings of the positions that are drawn, or of the last ones of the model."""
        drawn, table = getattr(self._drawn, "ids", None), self.pos_embed.W_pos
        if drawn is not None:
            return table[drawn]
        return table[len(table) - embedding.shape[1] :].expand_as(embedding)

    @contextmanager
    def at(self, position_ids: Int[Tensor, "n T"]) -> Iterator[None]:
        """Has the tokens of a batch at these positions, for a forward pass of this thread."""
        self._drawn.ids = position_ids
        try:
            yield
        finally:
            del self._drawn.ids


def placement_of(model: HookedTransformer) -> Placement | None:
    """The placement of a model whose positions are drawn."""
    for hook in model.hook_dict[POSITION_EMBEDDING]._forward_hooks.values():
        owner = getattr(getattr(hook, "function", None), "__self__", None)
        if isinstance(owner, Placement):
            return owner
    return None


def has_no_hooks_but_placement(point: HookPoint) -> bool:
    """Whether a hook point carries no hooks but that by which a model places its tokens."""
    hooks = only_permanent(point)
    return hooks is not None and all(isinstance(getattr(hook, "__self__", None), Placement) for hook in hooks)
