"""The attention of a teacher, another model that reads the same tokens."""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from bayesticket.errors import BayesticketError, refuse_case
from bayesticket.model import HookedTransformer, mounted, pattern_name, require_finite, require_in_memory, task_of
from bayesticket.notices import notice
from bayesticket.specs import Spec, field_names
from bayesticket.tasks import AbstractTask, Examples, differing_token


def teacher_attention(
    teacher: HookedTransformer,
    examples: Examples,
    layer: int,
    query: int,
    heads: Sequence[int] | None,
    positions: Sequence[int] | None = None,
) -> Float[Tensor, "n heads T"]:
    """The attention of a model at one layer and query; a model with one head gives its attention to all heads.

    With `positions` it reads the tokens there alone, in order, and its attention is placed there, 0 elsewhere.
    """
    whole = examples.n_positions
    places = tuple(range(whole)) if positions is None else tuple(positions)
    if places[-1] >= whole:
        raise refuse_case("teacher", f"position {places[-1]}", f"positions of the sequences, 0 to {whole - 1}")
    if query % whole not in places:
        accepted = f"positions with {query % whole}, where the query stands"
        raise refuse_case("teacher", f"positions {places}", accepted)
    tokens = examples.tokens[:, list(places)]
    own_heads = None if heads is None or teacher.cfg.n_heads == 1 else list(heads)
    _require_fitting(teacher, tokens.shape[1], int(tokens.max()), layer, own_heads)
    kept: list[Tensor] = []
    chosen, own_query = slice(None) if own_heads is None else own_heads, places.index(query % whole)
    with (
        mounted(teacher, [(pattern_name(layer), lambda pattern, hook: kept.append(pattern[:, chosen, own_query]))]),
        torch.no_grad(),
    ):
        require_finite("teacher", teacher)
        teacher(tokens.to(teacher.cfg.device))
    attention = kept[0].to(examples.tokens.device)
    if positions is None:
        return attention
    placed = attention.new_zeros(*attention.shape[:-1], whole)
    placed[..., list(places)] = attention
    return placed


def _require_fitting(
    teacher: HookedTransformer, n_positions: int, largest: int, layer: int, heads: list[int] | None
) -> None:
    """Raises unless a teacher can read so many tokens, up to the largest, and has the layer and the heads."""
    architecture, cfg = getattr(teacher, "architecture", None), teacher.cfg
    built_for = n_positions if architecture is None or architecture.n_ctx is not None else cfg.n_ctx
    if cfg.n_ctx < n_positions or built_for != n_positions:
        accepted = f"one with {n_positions} positions, or bt.Teacher(…, positions=(…)), which says where it reads"
        raise refuse_case("teacher", f"a model with {cfg.n_ctx} positions", accepted)
    if cfg.d_vocab <= largest:
        raise refuse_case("teacher", f"a model with {cfg.d_vocab} tokens", f"one with a token {largest}")
    if layer >= cfg.n_layers:
        raise refuse_case("teacher", f"a model of {cfg.n_layers} layers", f"one with a layer {layer}")
    if heads is not None and max(heads) >= cfg.n_heads:
        raise refuse_case("teacher", f"a model of {cfg.n_heads} heads", f"one with a head {max(heads)}, or one head")
    require_in_memory("teacher", teacher)


# What its tokens mean ---------------------------------------------------------------------------------------------


def teachers_of(given: Spec) -> Iterator[tuple[str, HookedTransformer]]:
    """The models whose attention a specification has for a target, at any depth, each with the field it stands in."""
    for name in field_names(type(given)):
        value = getattr(given, name)
        if isinstance(value, HookedTransformer) and name in ("target", "model"):
            yield f"{type(given).__name__}.{name}", value
        elif isinstance(value, Spec):
            yield from teachers_of(value)


def require_same_tokens(given: Spec, task: AbstractTask) -> None:
    """Raises where a teacher was made for a task in which a token means something else than in this one.

    Tokens that the teacher does not know are left to the sequences, which may not have them where it reads.
    """
    for field, teacher in teachers_of(given):
        if (own := task_of(teacher)) is None:
            continue
        if (found := differing_token(task, own, n_tokens=own.d_vocab)) is not None:
            token, symbol, known = found
            accepted = f"one of a task with the tokens of {task!r}, in which it is {symbol!r}; or copy.deepcopy(model)"
            raise refuse_case(
                field, f"a teacher of {own!r}, in which token {token} is {known!r}", f"{accepted}, taken as it is"
            )


def notice_of_edits(field: str, run: object) -> None:
    """Says once that a run was trained under edits, which its model as a teacher is without."""
    try:
        parts = run.config.intervention.parts  # type: ignore[attr-defined]
    except (AttributeError, BayesticketError):  # no run, or one of a class that is not defined here
        return
    if editing := [repr(part) for part in parts if part.fills("edits")]:
        bare = "as a target its attention is that of the bare model, without them"
        notice(f"{field}: the run was trained under {' + '.join(editing)}; {bare}")
