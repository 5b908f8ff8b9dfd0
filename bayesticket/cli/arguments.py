"""Arguments of a command: one flag for each parameter, named alike, with the help that its documentation gives.

argparse takes the arguments apart and prints the help. Errors are those of the whole library: the field, what was
given, what is accepted.
"""

import argparse
import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from keyword import iskeyword
from typing import Any, TypeVar, get_type_hints

from bayesticket.cli.values import labelled, read_values, several, word_for
from bayesticket.errors import refuse_case, refuse_name
from bayesticket.interventions import Recipe

T = TypeVar("T")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a command, and how it is shown in the help."""

    name: str
    kind: object
    meaning: str
    default: str = ""
    """The default as the help shows it; nothing where the meaning says it."""
    positional: bool = False
    group: str = "options"

    @property
    def flag(self) -> str:
        """How it is given on the command line."""
        return self.name.upper() if self.positional else f"--{self.name.replace('_', '-')}"


def parameters_of_function(function: Callable[..., object]) -> list[Parameter]:
    """The parameters of a function, with what the part "Args:" of its docstring says of each."""
    meanings = dict(re.findall(r"^    (\w+): (.*(?:\n     +.*)*)", _part_args(function), flags=re.MULTILINE))
    hints = get_type_hints(function)
    return [
        Parameter(
            one.name.rstrip("_"),
            hints[one.name],
            " ".join(meanings.get(one.name, "").split()),
            _shown(one.default),
            one.kind is inspect.Parameter.POSITIONAL_ONLY,
        )
        for one in inspect.signature(function).parameters.values()
    ]


def parameters_of_fields(kind: type, group: str = "options") -> list[Parameter]:
    """The fields of a dataclass as parameters, with what the docstring below each says; `import_` is `import`."""
    meanings, hints, defaults = _documented(kind), get_type_hints(kind), kind()
    names = [field.name for field in fields(kind)]
    shown = {name: _shown(getattr(defaults, name)) for name in names}
    return [Parameter(name.rstrip("_"), hints[name], meanings[name], shown[name], group=group) for name in names]


def call(function: Callable[..., T], name: str, arguments: Sequence[str]) -> T:
    """Calls a function with what the command line says; `--help` shows its parameters and ends the program."""
    parameters = parameters_of_function(function)
    given = split_arguments(name, parameters, arguments, description_of(function))
    values = {one.name: value_of(one, given[one.name]) for one in parameters if one.name in given}
    positional = [values.pop(one.name) for one in parameters if one.positional]
    return function(*positional, **{f"{name}_" if iskeyword(name) else name: value for name, value in values.items()})


def split_arguments(
    name: str, parameters: Sequence[Parameter], arguments: Sequence[str], description: str
) -> dict[str, list[str] | bool]:
    """The texts that are given for each parameter; raises where arguments do not fit the parameters."""
    parser = _parser(name, parameters, description)
    try:
        known, unknown = parser.parse_known_args([_with_dashes(argument) for argument in arguments])
    except argparse.ArgumentError as error:
        switches = {f"{one.flag}/--no-{one.flag[2:]}": one for one in parameters}
        one = {one.flag: one for one in parameters}.get(str(error.argument_name)) or switches[str(error.argument_name)]
        raise refuse_case(one.name, "a value" if one.kind is bool else "too few values", _usage(one)) from None
    for argument in unknown:
        if argument.startswith("-"):
            flags = [one.flag for one in parameters if not one.positional]
            raise refuse_name("option", argument.partition("=")[0], flags)
        raise refuse_case(
            "arguments", f"{argument!r}, which belongs to no option", f"what bayesticket {name} --help shows"
        )
    given = {one.name: value for one in parameters if (value := getattr(known, one.name)) is not None}
    for one in parameters:
        if one.positional and one.name not in given:
            raise refuse_case(one.name, "nothing", one.meaning[0].lower() + one.meaning[1:].rstrip("."))
    return {each: [value] if isinstance(value, str) else value for each, value in given.items()}


def value_of(parameter: Parameter, given: list[str] | bool) -> object:
    """The value of a parameter from its texts."""
    return given if isinstance(given, bool) else read_values(parameter.name, given, parameter.kind)


def description_of(documented: Callable[..., object]) -> str:
    """What a docstring says before its list of arguments, without examples."""
    text = inspect.getdoc(documented) or ""
    return without_examples(text.partition("\nArgs:")[0])


def without_examples(text: str) -> str:
    """A docstring without its doctests.

    >>> without_examples("Adds." + chr(10) * 2 + ">" * 3 + " 1 + 1" + chr(10) + "2" + chr(10) * 2 + "More.")
    'Adds.\\n\\nMore.'
    """
    paragraphs = re.split(r"\n\s*\n", text.strip())
    return "\n\n".join(each for each in paragraphs if not each.lstrip().startswith(">>>"))


def _parser(name: str, parameters: Sequence[Parameter], description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        usage=" ".join(["bayesticket", name, *(one.flag for one in parameters if one.positional), "[OPTIONS]"]),
        description="\n\n".join(map(_filled, description.split("\n\n"))),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        exit_on_error=False,
    )
    groups = {one.group: parser.add_argument_group(one.group) for one in parameters if one.group != "options"}
    for one in parameters:
        group = groups.get(one.group, parser)
        shown = one.meaning + (f" (default: {one.default})" if one.default else "")
        text = shown.replace("%", "%%")
        if one.positional:
            group.add_argument(one.name, metavar=one.flag, nargs="?", help=text)
        elif one.kind is bool:
            group.add_argument(one.flag, dest=one.name, action=argparse.BooleanOptionalAction, default=None, help=text)
        else:
            group.add_argument(one.flag, dest=one.name, metavar=word_for(one.kind), help=text, **_taken(one))
    return parser


def _filled(paragraph: str) -> str:
    """A paragraph in lines of one length; one that is indented stays as it is."""
    return paragraph if paragraph.startswith("    ") else textwrap.fill(paragraph, 90)


def _taken(one: Parameter) -> dict[str, Any]:
    """How many texts follow a flag, for argparse."""
    if labelled(one.kind) is not None:
        return {"nargs": "+", "action": "extend"}
    if (each := several(one.kind)) is None:
        return {}
    if one.kind == tuple[str, ...]:  # one at a time, so that what follows can be the name of a file
        return {"action": "append"}
    return {"nargs": "+", "action": "extend"} if each[0] is None else {"nargs": each[0]}


def _usage(one: Parameter) -> str:
    """A flag as it is typed, such as `--betas FLOAT FLOAT`."""
    each = several(one.kind)
    number = 1 if each is None else each[0] or 1
    return " ".join([one.flag, *([word_for(one.kind)] * (0 if one.kind is bool else number))])


def _with_dashes(argument: str) -> str:
    """The same argument, its flag written with dashes: `--weight_decay=1` is `--weight-decay=1`."""
    flag, equals, value = argument.partition("=")
    return flag.replace("_", "-") + equals + value if re.fullmatch(r"--[a-z_-]+", flag) else argument


def _shown(default: object) -> str:
    """A default as the help shows it; nothing for defaults such as None and False."""
    if default is inspect.Parameter.empty or default is None or default is False or default == ():
        return ""
    return "" if isinstance(default, Recipe) and not default.parts else str(default)


def _part_args(function: Callable[..., object]) -> str:
    return (inspect.getdoc(function) or "").partition("\nArgs:\n")[2]


def _documented(kind: type) -> dict[str, str]:
    """The docstrings below the fields of a class."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    pairs = zip(tree.body, tree.body[1:], strict=False)
    return {
        ast.unparse(field.target): " ".join(inspect.cleandoc(below.value.value).split())
        for field, below in pairs
        if isinstance(field, ast.AnnAssign)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }
