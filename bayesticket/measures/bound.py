"""A measure bound to a model: at each of its places, on one part of the split, with what it returns checked."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from bayesticket.attention import place_label
from bayesticket.errors import BayesticketError, refuse, refuse_case
from bayesticket.measures.base import AnswerMeasure, AttentionMeasure, Measure, Observation
from bayesticket.measures.columns import Column, Half
from bayesticket.model import HookedTransformer, pattern_name
from bayesticket.tasks import Examples


@dataclass(frozen=True)
class BoundMeasure:
    """A measure at its places in a model, on a part of the split, with the names of its curves."""

    name: str
    """The name of its curve, without the entries."""
    part: Half | None
    """The part of the split that is measured; None for the whole batch."""
    places: Mapping[str, Measure]
    """The measure at each place, by the place's label."""
    labels: Mapping[str, tuple[str, ...]]
    """What the entries of a vector are called, by the place's label."""
    queries: Mapping[str, tuple[int, ...] | None]
    """The queries that it is taken at, one at a time, by the place's label; None for all that a batch has at once."""
    reads: Mapping[str, tuple[str, ...]]
    """The hook points whose activations it gets, by the place's label."""
    differentiates: Mapping[str, tuple[str, ...]]
    """The hook points whose gradients it gets, by the place's label."""

    @classmethod
    def bind(cls, measure: Measure, part: Half | None, model: HookedTransformer, batch: Examples) -> "BoundMeasure":
        """Binds a measure to a model and a part of the split; raises where model or batch cannot be measured."""
        # The name of a measure with a model for target changes with the hooks on it, and is asked for once.
        name = measure.named(part)
        places, queries = _at_queries(measure.places(model), batch)
        for place, each in places.items():
            for seen in _batches(batch, queries[place]):
                each.check(model, seen)
        gradients = {place: _names(each, "differentiates", model) for place, each in places.items()}
        reads = {place: (*_names(each, "reads", model), *gradients[place]) for place, each in places.items()}
        labels = {place: _labels(each, model) for place, each in places.items()}
        for place, own in labels.items():
            _columns(name, _entries(place, own))  # raises for labels that no column can have
        return cls(name, part, places, labels, queries, reads, gradients)

    @property
    def columns(self) -> list[str]:
        """The names of its columns as far as they are known before it is taken: without the numbers of a vector."""
        return [name for place, labels in self.labels.items() for name in _columns(self.name, _entries(place, labels))]

    @property
    def hook_names(self) -> list[str]:
        """The hook points that it reads, at all places."""
        return [name for names in self.reads.values() for name in names]

    def gradients_wanted(self) -> list[tuple[int | None, str]]:
        """The hook points whose gradients it gets, each with the query whose loss is meant, or None for all."""
        return [
            (query, name)
            for place, names in self.differentiates.items()
            for query in self.queries[place] or (None,)
            for name in names
        ]

    def value(self, seen: Observation | None, whole: Observation) -> Tensor:
        """The value on a part of the batch, a row for each place where there are several.

        Where the part is empty it is NaN, in the shape of the value on the whole.
        """
        values = [self._value_at(place, seen or whole) for place in self.places]
        value = values[0] if len(values) == 1 else torch.stack(values)
        return value if seen is not None else torch.full_like(value, torch.nan)

    def _value_at(self, place: str, seen: Observation) -> Tensor:
        measure, queries = self.places[place], self.queries[place]
        if queries is None:
            return self._value_of(place, seen)
        values = [self._value_of(place, seen.at(query)) for query in queries]
        if len(values) == 1:
            return values[0]
        if len({value.shape for value in values}) > 1:
            raise _no_query(measure, queries, "values of different lengths")
        return torch.stack(values).mean(0) if measure.pooling() == "mean" else torch.stack(values).amin(0)

    def _value_of(self, place: str, seen: Observation) -> Tensor:
        measure, reads, gradients = self.places[place], self.reads[place], self.differentiates[place]
        own = replace(
            seen,
            activations=Declared({name: seen.activations[name] for name in reads}, measure, "activations", "reads"),
            gradients=Declared(
                {name: seen.gradients[name] for name in gradients}, measure, "gradients", "differentiates"
            ),
        )
        value = measure.value(own)
        require_value(measure, value, self.labels[place])
        return value

    def numbers(self, value: Tensor) -> dict[str, float]:
        """A value as plain numbers, by the names of their columns."""
        numbers: dict[str, float] = {}
        for place, row in zip(self.places, value if len(self.places) > 1 else value[None], strict=True):
            labels = (self.labels[place] or tuple(map(str, range(len(row))))) if row.ndim else ()
            numbers |= dict(zip(_columns(self.name, _entries(place, labels)), row.flatten().tolist(), strict=True))
        return numbers


def _at_queries(
    places: Mapping[str, Measure], batch: Examples
) -> tuple[dict[str, Measure], dict[str, tuple[int, ...] | None]]:
    """The measures at the places and queries that are asked for by name, and the queries that each is taken at."""
    found: dict[str, Measure] = {}
    queries: dict[str, tuple[int, ...] | None] = {}
    for place, measure in places.items():
        asked = measure.query if isinstance(measure, AttentionMeasure | AnswerMeasure) else -1
        if asked == "each":
            for query in batch.answerable:
                label = place + place_label(None, None, query)
                found[label], queries[label] = _at_end(measure), None if batch.queries is None else (query,)
            continue
        found[place] = measure
        queries[place] = None if measure.takes_all_queries and asked == -1 else _asked(measure, asked, batch)
        if queries[place] is not None:
            found[place] = _at_end(measure) if asked != -1 else measure
    return found, queries


def _asked(measure: Measure, query: int, batch: Examples) -> tuple[int, ...] | None:
    """The queries of a batch that a measure is taken at, one at a time; None where the batch has none of its own."""
    if batch.queries is None:
        if isinstance(measure, AnswerMeasure):
            batch.position_of(query)  # raises where no answer is read
        return None
    queries = batch.answerable if query == -1 else (batch.position_of(query),)
    if len(queries) > 1 and measure.pooling() is None:
        raise _no_query(measure, queries, "values that make no mean")
    return queries


def _batches(batch: Examples, queries: tuple[int, ...] | None) -> list[Examples]:
    return [batch] if queries is None else [batch.at(query) for query in queries]


def _at_end(measure: Measure) -> Measure:
    """A measure of one query, of what ends there."""
    assert isinstance(measure, AttentionMeasure | AnswerMeasure)
    return replace(measure, query=-1)


def _no_query(measure: Measure, queries: tuple[int, ...], what: str) -> BayesticketError:
    """The error for a measure that has to be told at which of several queries to be taken."""
    kind, one = type(measure).__name__, queries[-1]
    if isinstance(measure, AttentionMeasure | AnswerMeasure):
        accepted = f"query={one}, or query='each'"
    else:
        accepted = f"bt.measure(model, batch.at({one}), …), or `def pooling(self): return 'mean'` in the class"
    return refuse_case(kind, f"the queries {queries}, at which it has {what}", accepted)


@final
class Declared(dict[str, Tensor]):
    """Tensors by hook point; asking for one that the measure does not declare raises, and says what to write."""

    def __init__(self, tensors: Mapping[str, Tensor], measure: Measure, holder: str, method: str):
        super().__init__(tensors)
        self._measure, self._holder, self._method = type(measure).__name__, holder, method

    def __missing__(self, name: str) -> Tensor:
        raise refuse_case(
            f"{self._measure}.value",
            f"seen.{self._holder}[{name!r}], which {self._measure}.{self._method} does not name",
            f"`def {self._method}(self, model): return ({name!r},)` in the class",
        )


def require_value(measure: Measure, value: object, labels: tuple[str, ...]) -> None:
    """Raises unless a measure's value is a floating-point scalar or vector, with as many entries as labels."""
    kind, accepted = type(measure).__name__, "a floating-point tensor, a scalar or a vector"
    if value is None:
        raise refuse(f"{kind}.value", value, f"{accepted}, after `return`")
    if not isinstance(value, Tensor):
        raise refuse(f"{kind}.value", value, f"{accepted}, such as torch.tensor(0.5)")
    if not value.is_floating_point():
        raise refuse_case(f"{kind}.value", f"a tensor of {value.dtype}", f"{accepted}, such as value.float()")
    if value.ndim > 1 or not value.numel():
        situation = f"a tensor of shape {tuple(value.shape)}"
        raise refuse_case(f"{kind}.value", situation, f"{accepted}, such as value.mean() or value.flatten()")
    if labels and (value.ndim == 0 or len(labels) != len(value)):
        entries = "a scalar" if value.ndim == 0 else f"a vector of length {len(value)}"
        raise refuse_case(f"{kind}.labels", f"{len(labels)} labels for {entries}", "one label for each entry, or none")


def _names(measure: Measure, method: str, model: HookedTransformer) -> tuple[str, ...]:
    """The hook points that a measure declares by a method; raises unless these are names."""
    names = getattr(measure, method)(model)
    if isinstance(names, str) or not isinstance(names, Iterable) or not all(isinstance(n, str) for n in names):
        example = names if isinstance(names, str) else pattern_name(0)
        raise refuse(f"{type(measure).__name__}.{method}", names, f"a tuple of hook points, such as ({example!r},)")
    return tuple(names)


def _labels(measure: Measure, model: HookedTransformer) -> tuple[str, ...]:
    """What the entries of a measure's vector are called; raises unless the labels differ."""
    labels = measure.labels(model)
    if not isinstance(labels, tuple | list) or len(set(map(str, labels))) < len(labels):
        raise refuse(f"{type(measure).__name__}.labels", labels, "a tuple of different labels, one for each entry")
    return tuple(map(str, labels))


def _entries(place: str, labels: tuple[str, ...]) -> list[str]:
    """The entries of a column at a place: the place alone for a scalar."""
    return [f"{place}.{label}" if place else label for label in labels] or [place]


def _columns(name: str, entries: Iterable[str]) -> list[str]:
    """The names of a measure's columns, one for each entry."""
    column = Column.parse(name)
    return [str(replace(column, entry=entry)) for entry in entries]
