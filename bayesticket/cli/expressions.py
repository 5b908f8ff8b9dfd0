"""Specifications typed as text, on the command line and in TOML files: read by grammar, never evaluated."""

import ast
import inspect

from bayesticket.errors import BayesticketError, refuse, refuse_name, require_choice
from bayesticket.interventions import Intervention, Recipe, as_recipe
from bayesticket.optim import Optimizer, as_optimizer
from bayesticket.specs import Spec, field_names, is_library_class

_NESTED_TOO_DEEPLY = (RecursionError, MemoryError)


def parse_spec(text: str, field: str = "specification", kind: type[Spec] = Spec) -> Spec:
    """Reads what a specification of some kind prints as: names of this library, literals, `+` between interventions.

    >>> parse_spec("KLPrior(strength=Anneal(1.0, 0.0, last=500)) + NormMatch(radius=30)")
    KLPrior(strength=Anneal(last=500)) + NormMatch(radius=30)
    """
    try:
        value = _build(ast.parse(text.strip(), mode="eval").body, text, field, kind)
    except (SyntaxError, UnicodeError, *_NESTED_TOO_DEEPLY) as error:
        raise refuse(field, text, f"an expression such as {', '.join(kind_names(kind)[:3])}(…)") from error
    if not isinstance(value, kind):
        raise refuse_name(field, text, kind_names(kind))
    return value


def parse_intervention(text: str, field: str = "intervention") -> Recipe:
    """Reads an intervention; "none" is the empty one."""
    if text.strip().lower() in ("", "none"):
        return Recipe()
    return as_recipe(parse_spec(text, field, Intervention))


def parse_optimizer(text: str, field: str = "optimizer") -> Optimizer:
    """Reads an optimiser: a word, such as "adamw", or what it prints as.

    >>> parse_optimizer("lion"), parse_optimizer("Muon(lr=0.02)")
    (Lion(), Muon(lr=0.02))
    """
    if text.strip().isidentifier() and text.strip() not in Spec.kinds:
        return as_optimizer(text.strip())
    parsed = parse_spec(text, field, Optimizer)
    assert isinstance(parsed, Optimizer)
    return parsed


def kind_names(kind: type[Spec]) -> list[str]:
    """Names of the specifications of one kind that can be written."""
    return [name for name, known in Spec.kinds.items() if issubclass(known, kind) and not _is_base(known)]


def _is_base(kind: type[Spec]) -> bool:
    """Whether a class of the library is there for others to derive from; its classes are bases or final."""
    derived = [each for each in kind.__subclasses__() if Spec.kinds.get(each.__name__) is each]
    return inspect.isabstract(kind) or any(map(is_library_class, derived))


def _build(node: ast.expr, text: str, field: str, kind: type[Spec] = Spec) -> object:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _build(node.left, text, field, kind), _build(node.right, text, field, kind)
        if isinstance(left, Intervention) and isinstance(right, Intervention):
            return left + right
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _call(node, node.func.id, text, field, kind)
    if isinstance(node, ast.Name):
        return _call(ast.Call(node, [], []), node.id, text, field, kind)
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(_build(entry, text, field) for entry in node.elts)
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise refuse(field, text, "names of this library, literals, and + between interventions") from error


def _call(node: ast.Call, name: str, text: str, field: str, kind: type[Spec]) -> Spec:
    require_choice(field, name, kind_names(kind))
    known = field_names(Spec.kinds[name])
    arguments = [_build(argument, text, field) for argument in node.args]
    keywords = {str(keyword.arg): _build(keyword.value, text, field) for keyword in node.keywords}
    for keyword in keywords:
        require_choice(f"{field}: {name}", keyword, known)
    try:
        return Spec.kinds[name](*arguments, **keywords)
    except TypeError as error:
        raise BayesticketError(
            f"{field}: {name}: {str(error).removeprefix(name)}; accepted: {', '.join(known)}"
        ) from error
