"""The shapes of arrays, checked at run time in every function of the library whose signature has arrays.

What is no array is left to pyright, which reads all signatures before a test runs. jaxtyping's own import hook would
wrap every function: calls take twice as long with it, and importing the library four times as long.
"""

import ast
import dataclasses
import functools
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder, SourceFileLoader
from types import CodeType
from typing import get_args

from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, jaxtyped

typed = beartype(conf=BeartypeConf(is_pep484_tower=True))


class Switch:
    """Whether shapes are checked; the tests of refusals turn it off, so that the library answers bad input alone."""

    on = True


def holds_arrays(kind: object) -> bool:
    """Whether an annotation is an array of some shape, or a container or union with one."""
    is_array = isinstance(kind, type) and issubclass(kind, AbstractArray)
    return is_array or any(holds_arrays(part) for part in get_args(kind))


def checked(made: Callable) -> Callable:
    """A function that checks the arrays it takes and returns, in one scope of axes; or a class with such an init."""
    if isinstance(made, type):
        if dataclasses.is_dataclass(made):
            made.__init__ = checked(made.__init__)
        return made
    kinds = made.__annotations__
    arrays = {name: kind for name, kind in kinds.items() if holds_arrays(kind)}
    if not arrays:
        return made
    made.__annotations__ = arrays
    checking = typed(made)
    made.__annotations__ = kinds

    @functools.wraps(made)
    def function(*given: object, **named: object) -> object:
        if not Switch.on:
            return made(*given, **named)
        with jaxtyped("context"):
            return checking(*given, **named)

    return function


class Decorating(ast.NodeTransformer):
    """Puts `checked` next to every function, below its other decorators, and above those of every class."""

    decorator = ast.parse("__import__('shapes').checked", mode="eval").body

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list.append(self.decorator)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.decorator_list.insert(0, self.decorator)
        return self.generic_visit(node)


class Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        """The code of a module with its checks, of which no file is kept."""
        tree = Decorating().visit(ast.parse(self.get_data(self.path)))
        return compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)


class Finder(MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] != "bayesticket":
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = Loader(spec.loader.name, spec.loader.path)
        return spec


def install() -> None:
    """Has modules of the library imported with their checks, unless a finder before this one knows better."""
    assert "bayesticket" not in sys.modules, "it has to be imported after this"
    sys.meta_path.insert(sys.meta_path.index(PathFinder), Finder())
