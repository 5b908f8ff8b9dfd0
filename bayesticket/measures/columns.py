"""What a curve is called, and values labelled by such names."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from torch import nn

from bayesticket.errors import refuse_case, refuse_name
from bayesticket.notebooks import html_table
from bayesticket.specs import Spec, changed

Half = Literal["train", "test", "unseen"]
"""A part of the split: the training half, the test half, or the test examples whose orbit training has not seen."""


@dataclass(frozen=True)
class Column:
    """The name of a curve in parts: `evaluation/half_measure[fields][entry]`; only the measure is always there.

    `str(column)` writes the name and `Column.parse(name)` reads it; each undoes the other.

    >>> str(Column("restricted_loss", fields="keys=(1, 3)", entry="3", half="test"))
    'test_restricted_loss[keys=(1, 3)][3]'
    >>> Column.parse("explaining_away[examples=None][measured]")
    Column(measure='explaining_away', fields='examples=None', entry='measured', half=None, evaluation='')
    >>> Column.parse("kl_to_target[head=1]").fields, Column.parse("weight_norms[embed.W_E]").entry
    ('head=1', 'embed.W_E')
    >>> str(Column("accuracy", half="test", evaluation="T=12"))
    'T=12/test_accuracy'
    """

    measure: str
    """The measure's class in snake case."""
    fields: str = ""
    """The fields that differ from their defaults, as `name=value,name=value`."""
    entry: str = ""
    """The label of an entry of a vector, or its number."""
    half: Half | None = None
    """The part of the split, where the name has it; other curves are of the training half."""
    evaluation: str = ""
    """The label of what the run is evaluated on beside its own examples, as `train(…, evaluate={label: task})` has."""

    def __post_init__(self):
        given = (self.measure, self.fields, self.entry, self.half, self.evaluation)
        if (read := _parts(str(self))) != given:
            raise refuse_case(
                "column",
                f"the name {str(self)!r}, which would be read as measure, fields, entry, half and evaluation {read}",
                "measures that are not called Train…, Test… or Unseen…, labels of entries without '=' and brackets, "
                "and of evaluations without '/' and brackets",
            )

    def __str__(self) -> str:
        half = f"{self.half}_" if self.half else ""
        evaluation = f"{self.evaluation}/" if self.evaluation else ""
        return evaluation + half + self.measure + "".join(f"[{part}]" for part in (self.fields, self.entry) if part)

    @classmethod
    def parse(cls, name: str) -> "Column":
        """The parts of a name; a name of another form counts as a measure."""
        return cls(*_parts(name))

    @property
    def curve(self) -> str:
        """The measure, and evaluation and part of the split where the name has them: without fields and entry."""
        return str(replace(self, fields="", entry=""))

    @property
    def quantity(self) -> str:
        """The entry without layer, head and query that it names, as `measured` of `L1.measured`; empty for `L1H0`."""
        return _PLACE.sub("", self.entry)

    @property
    def place(self) -> dict[str, int]:
        """The layer, the head and the query that the entry names.

        >>> Column.parse("attention_entropy[layer=each,head=each][L1H0]").place, Column.parse("mlp_norm").place
        ({'layer': 1, 'head': 0}, {})
        """
        found = _PLACE.match(self.entry)
        return {name: int(at) for name, at in found.groupdict().items() if at is not None} if found else {}

    @property
    def setting(self) -> str:
        """The fields, with the layer, head and query that the entry names in place of "each".

        >>> Column.parse("explaining_away[examples=None,head=each][H1.measured]").setting
        'examples=None,head=1'
        """
        kept = re.sub(r"(^|,)(layer|head|query)=each(?=,|$)", "", self.fields).removeprefix(",")
        return ",".join([*([kept] if kept else []), *(f"{name}={at}" for name, at in self.place.items())])

    @property
    def order(self) -> tuple[tuple[str | int, ...], ...]:
        """A key to sort columns by, with entry 2 before entry 10.

        >>> names = ["mean_pattern[10]", "mean_pattern[2]", "accuracy"]
        >>> sorted(names, key=lambda name: Column.parse(name).order)
        ['accuracy', 'mean_pattern[2]', 'mean_pattern[10]']
        """
        parts = (self.evaluation, self.half or "", self.measure, self.fields, self.entry)
        return tuple(_natural(part) for part in parts)


_PLACE = re.compile(r"^(?=[LHQ])(?:L(?P<layer>\d+))?(?:H(?P<head>\d+))?(?:Q(?P<query>\d+))?(?:\.|$)")
"""The layer, head and query at the beginning of an entry, as `attention.place_label` writes them."""


def _parts(name: str) -> tuple[str, str, str, Half | None, str]:
    """Measure, fields, entry, half and evaluation of a name."""
    evaluation, slash, own = name.partition("/")  # entries have slashes too, in brackets
    if not (evaluation and slash) or "[" in evaluation or "]" in evaluation:
        evaluation, own = "", name
    half = next((half for half in get_args(Half) if own.startswith(f"{half}_")), None)
    measure, bracket, rest = own.removeprefix(f"{half}_").partition("[")
    first, between, last = rest.removesuffix("]").rpartition("][")
    complete = rest.endswith("]") if bracket else True
    if not complete or not measure or (bracket and not last) or (between and not first):
        return name, "", "", None, ""
    if between or "=" not in last:
        return measure, first, last, half, evaluation
    return measure, last, "", half, evaluation


def _natural(text: str) -> tuple[str | int, ...]:
    """A text with its numbers as numbers; they stand at every second place, so that two such keys compare."""
    return tuple(int(part) if place % 2 else part for place, part in enumerate(re.split(r"(\d+)", text)))


def changed_fields(given: Spec, without: Iterable[str] = ()) -> str:
    """The fields of a specification that differ from their defaults, as a column shows them."""
    fields = {name: value for name, value in changed(given) if name not in without}
    return ",".join(f"{name}={'model' if isinstance(value, nn.Module) else value}" for name, value in fields.items())


def names_evaluation(label: object) -> bool:
    """Whether the names of curves can begin with a label.

    >>> names_evaluation("T=12"), names_evaluation("a/b"), names_evaluation("")
    (True, False, False)
    """
    if not isinstance(label, str) or not label.isprintable() or label != label.strip():
        return False
    return bool(label) and not {"/", "[", "]"} & set(label)


def of_evaluation(label: str, values: Mapping[str, float]) -> dict[str, float]:
    """Values under the names that they have in the curves of an evaluation.

    >>> of_evaluation("T=12", {"test_loss": 0.5})
    {'T=12/test_loss': 0.5}
    """
    return {str(replace(Column.parse(name), evaluation=label)): value for name, value in values.items()}


class Measured(Mapping[str, float]):
    """Numbers by the names of their columns; prints as a table.

    >>> Measured({"accuracy": 0.5, "distributed_mass[0]": 1.25})
    accuracy              0.5
    distributed_mass[0]  1.25
    """

    def __init__(self, values: Mapping[str, float]):
        self._values = dict(values)

    def __getitem__(self, name: str) -> float:
        if name not in self._values:
            raise KeyError(str(refuse_name("column", name, self._values)))
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return html_table(["measure", "value"], [[name, f"{value:.6g}"] for name, value in self.items()])

    def __repr__(self) -> str:
        if not self:
            return "nothing measured"
        shown = {name: f"{value:.6g}" for name, value in self.items()}
        wide, long = max(map(len, shown)), max(map(len, shown.values()))
        return "\n".join(f"{name:<{wide}}  {value:>{long}}" for name, value in shown.items())
