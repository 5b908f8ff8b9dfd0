"""What the ports of an intervention have to give, and the errors where they give something else."""

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Literal, get_args

from jaxtyping import Float
from torch import Tensor

from bayesticket.errors import BayesticketError, refuse, refuse_case, require_choice
from bayesticket.interventions.context import Context
from bayesticket.model import NamedHook, mlp_post_name

if TYPE_CHECKING:
    from bayesticket.interventions.base import Intervention


Port = Literal["init", "edits", "reads", "penalty", "gradients", "project", "check", "why_full"]
"""The methods of an intervention by which it acts."""


def require_ports(parts: Iterable["Intervention"]) -> None:
    """Raises where a part of a recipe does nothing at any port, as one with a misspelt port does."""
    for part in parts:
        if not any(map(part.fills, get_args(Port))):
            accepted = f"one with a port, of these names: {', '.join(get_args(Port))}"
            raise refuse_case(type(part).__name__, "an intervention that does nothing", accepted)


def initial_state(part: "Intervention", context: Context) -> dict[str, Tensor]:
    """The state that a part of a recipe begins with; raises unless it is tensors by name."""
    state = part.init(context)
    if not isinstance(state, Mapping):
        raise refuse(f"{type(part).__name__}.init", state, "a mapping from names to tensors")
    for name, tensor in state.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise refuse(f"{type(part).__name__}.init", {name: tensor}, "a mapping from names to tensors")
    return dict(state)


def edits_of(part: "Intervention", context: Context) -> list[NamedHook]:
    """The hooks of a part; raises unless they are functions by hook point."""
    edits, accepted = part.edits(context), "a list of (hook point, function)"
    if isinstance(edits, str) or not isinstance(edits, Iterable):
        raise refuse(f"{type(part).__name__}.edits", edits, accepted)
    hooks = list(edits)
    for hook in hooks:
        if not (isinstance(hook, tuple) and len(hook) == 2 and isinstance(hook[0], str) and callable(hook[1])):
            raise refuse(f"{type(part).__name__}.edits", hook, accepted)
    return hooks


def names_read_by(part: "Intervention") -> tuple[str, ...]:
    """The hook points that a penalty reads; raises unless they are names."""
    names = part.reads()
    if isinstance(names, str) or not isinstance(names, Iterable) or any(not isinstance(name, str) for name in names):
        raise refuse(f"{type(part).__name__}.reads", names, f"a tuple of names, such as {(mlp_post_name(0),)!r}")
    return tuple(names)


class Activations(dict[str, Tensor]):
    """The activations that a penalty reads; a hook point that `reads` does not name raises what to write."""

    def __init__(self, part: "Intervention", read: Mapping[str, Tensor]):
        super().__init__(read)
        self._part = part

    def __missing__(self, hook: object) -> Tensor:
        raise BayesticketError(
            f"{type(self._part).__name__}.penalty: got activations[{hook!r}], which `reads` does not name; accepted: "
            f"`def reads(self): return {(*self, hook)!r}`"
        )


def require_term(part: "Intervention", term: object) -> Float[Tensor, ""] | None:
    """The term of a penalty; raises unless it is a scalar tensor, or None and meant to be."""
    field, accepted = f"{type(part).__name__}.penalty", "a scalar tensor, or None where there is no term"
    if term is None:
        if part.reads() and _never_returns(type(part).penalty):
            raise refuse_case(field, "no `return` after reading activations", accepted)
        return None
    if not isinstance(term, Tensor):
        raise refuse(field, term, accepted)
    if term.ndim:
        raise refuse_case(field, f"a tensor of shape {tuple(term.shape)}", f"{accepted}; .mean() or .sum() make one")
    return term


@functools.cache
def _never_returns(function: Callable[..., object]) -> bool:
    """Whether a function has no `return` statement; False where its source is not at hand."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError):
        return False
    return isinstance(tree.body[0], ast.FunctionDef) and not any(map(_returns, tree.body[0].body))


def _returns(node: ast.AST) -> bool:
    """Whether a statement is a return, or contains one that is not of a function inside."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
        return False
    return isinstance(node, ast.Return) or any(map(_returns, ast.iter_child_nodes(node)))


def new_gradients(part: "Intervention", context: Context, before: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The gradients that a part changes; raises unless each fits the parameter it is for."""
    given, field = part.gradients(context, before), f"{type(part).__name__}.gradients"
    if not isinstance(given, Mapping):
        raise refuse(field, given, "a mapping from names of parameters to gradients; {} changes none")
    for name, gradient in given.items():
        require_choice(field, name, before)
        wanted = (before[name].shape, before[name].dtype)
        if not isinstance(gradient, Tensor) or (gradient.shape, gradient.dtype) != wanted:
            shown = gradient if not isinstance(gradient, Tensor) else f"{gradient.dtype} {tuple(gradient.shape)}"
            accepted = f"a tensor of {before[name].dtype} and shape {tuple(before[name].shape)}"
            raise refuse(f"{field}[{name!r}]", shown, accepted)
    return given
