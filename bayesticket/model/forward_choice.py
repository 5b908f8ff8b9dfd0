"""Which forward serves: the query-only one, or TransformerLens' own, which computes every position."""

from collections.abc import Iterable
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens import HookedTransformer

from bayesticket.errors import refuse, require_choice
from bayesticket.model.forward import FAST_HOOKS
from bayesticket.model.hooks import foreign_hooks, own_hooks
from bayesticket.model.names import POSITION_EMBEDDING
from bayesticket.model.one_layer import unusual_setting
from bayesticket.model.positions import has_no_hooks_but_placement, placement_of, require_places, rotates
from bayesticket.notices import notice

FORWARDS = ("auto", "fast", "full")


def full_forward(
    model: HookedTransformer,
    tokens: Int[Tensor, "n T"],
    position_ids: Int[Tensor, "n T"] | None = None,
    queries: tuple[int, ...] | None = None,
) -> Float[Tensor, "n *q d_vocab_out"]:
    """The logits at the last position by TransformerLens' own forward, or at each of some `queries`.

    Tokens are at given positions where some are; only models whose positions are drawn can be given any.
    """
    if position_ids is None:
        return _at_queries(model(tokens), queries)
    require_places(model, position_ids)
    placement = placement_of(model)
    assert placement is not None
    with placement.at(position_ids):
        return _at_queries(model(tokens), queries)


def _at_queries(
    logits: Float[Tensor, "n T d_vocab_out"], queries: tuple[int, ...] | None
) -> Float[Tensor, "n *q d_vocab_out"]:
    if queries is None:
        return logits[:, -1]
    return logits if len(queries) == logits.shape[1] else logits[:, list(queries)]


def why_full_for(queries: tuple[int, ...] | None, n_positions: int) -> str | None:
    """Why a task that asks at these positions needs the full forward, or None where it asks at the last alone.

    >>> why_full_for((1, 3), 4)
    'the task asks at several positions, and the query-only forward computes the last alone'
    """
    if queries is None or queries == (n_positions - 1,):
        return None
    where = "several positions" if len(queries) > 1 else f"position {max(queries)}"
    return f"the task asks at {where}, and the query-only forward computes the last alone"


def why_full(model: HookedTransformer, names: Iterable[str] = ()) -> str | None:
    """Why a model with hooks on these names needs the full forward, or None if the query-only forward is enough."""
    rotary = ("positional_embedding_type", "rotary_dim") if rotates(model) else ()
    if (setting := unusual_setting(model, allowed=rotary)) is not None:
        return f"the model has {setting}"
    if (module := foreign_hooks(model)) is not None:
        return f"the module {module!r} carries a PyTorch hook of its own"
    own = own_hooks(model)
    if POSITION_EMBEDDING in own and has_no_hooks_but_placement(model.hook_dict[POSITION_EMBEDDING]):
        own.remove(POSITION_EMBEDDING)  # which this forward does itself
    for name in [*names, *own]:
        if name not in FAST_HOOKS:
            return f"{name} is not computed by the query-only forward"
    return None


def choose_forward(
    forward: Literal["auto", "fast", "full"],
    model: HookedTransformer,
    names: Iterable[str] = (),
    reasons: Iterable[str | None] = (),
) -> Literal["fast", "full"]:
    """Chooses a forward; where "auto" has to use the full one, the reason is logged, once in a session."""
    require_choice("forward", forward, FORWARDS)
    if forward == "full":
        return "full"
    reason = why_full(model, names) or next((given for given in reasons if given is not None), None)
    if reason is None:
        return "fast"
    if forward == "fast":
        raise refuse("forward", "fast", f"'full' or 'auto', because {reason}")
    notice(f"using the full forward, because {reason}")
    return "full"
