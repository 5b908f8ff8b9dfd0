"""What a class of the user's does decides which runs are its own."""

import dataclasses
import functools
from pathlib import Path

import numpy as np
import pytest
import torch

import bayesticket as bt
from bayesticket.specs.code import code_hash


def times(factor):
    def decorate(function):
        @functools.wraps(function)
        def timed(*given):
            return factor * function(*given)

        return timed

    return decorate


def with_constant(value):
    class Own(bt.Intervention):
        constant = value

    return Own


def with_body(value):
    class Own(bt.Intervention):
        def project(self, context):
            return value  # the value is in the closure

    return Own


def with_call(value):
    class Own(bt.Intervention):
        __call__ = (lambda self: 1) if value == 1 else (lambda self: 2)

    return Own


def decorated(value):
    class Own(bt.Intervention):
        @times(value)
        def project(self, context):
            return 1

    return Own


def cached(value):
    class Own(bt.Intervention):
        @functools.cached_property
        def something(self):
            return value

    return Own


class OneThing(bt.Intervention):
    """One thing."""

    def project(self, context):
        """Does one thing."""
        return 1  # as it says


class AnotherThing(bt.Intervention):
    """Another."""

    def project(self, context):
        """Does another."""
        return 1


@dataclasses.dataclass
class NotFrozen:
    values: torch.Tensor


class Documented(bt.Intervention):
    def project(self, context):
        """Returns nothing where there is nothing."""
        return None if context is None else 1


class Undocumented(bt.Intervention):
    def project(self, context):
        return None if context is None else 1


@dataclasses.dataclass(frozen=True)
class MadeOne(bt.Intervention):
    values: list = dataclasses.field(default_factory=lambda: [1])


@dataclasses.dataclass(frozen=True)
class MadeTwo(bt.Intervention):
    values: list = dataclasses.field(default_factory=lambda: [2])


@pytest.mark.parametrize("make", [with_constant, with_body, with_call, decorated, cached])
def test_what_a_class_does_counts(make):
    assert code_hash(make(1)) == code_hash(make(1)) != code_hash(make(2)) != ""


@pytest.mark.parametrize(
    "pair",
    [
        ({"a": 1}, {"a": 2}),
        (torch.ones(2), torch.zeros(2)),
        (torch.float32, torch.float64),
        ({1, 2}, {1, 3}),
        ("a", "b"),
        (np.zeros(3), np.ones(3)),
        (range(3), range(4)),
        (Path("a"), Path("b")),
        (bt.Anneal(last=10), bt.Anneal(last=20)),
        (NotFrozen(torch.ones(1)), NotFrozen(torch.zeros(1))),
    ],
)
def test_constants_of_many_kinds_count(pair):
    one, other = map(with_constant, pair)
    assert code_hash(one) == code_hash(with_constant(pair[0])) != code_hash(other)


def test_what_it_says_of_itself_does_not_count():
    assert code_hash(OneThing) == code_hash(AnotherThing)


def test_a_docstring_may_be_added():
    assert code_hash(Documented) == code_hash(Undocumented)


def test_a_default_that_is_made_counts():
    assert code_hash(MadeOne) != code_hash(MadeTwo)


def test_an_address_does_not_count():
    assert code_hash(with_constant(object())) == code_hash(with_constant(object()))


def test_a_class_that_inherits_counts_what_it_inherits():
    here = {"__module__": __name__}
    assert code_hash(type("Own", (with_body(1),), here)) != code_hash(type("Own", (with_body(2),), here))


@pytest.mark.parametrize("kind", [bt.KLPrior, bt.AttentionEntropy, bt.ModularAddition, bt.Architecture])
def test_the_librarys_own_classes_have_none(kind):
    assert code_hash(kind) == ""
