"""The recorded columns of a run, by measure, fields and entry, and the curves that are drawn of them."""

import itertools
from collections.abc import Iterable, Sequence

from bayesticket.figures.panels import Curve, Row
from bayesticket.figures.style import (
    ACCURACY,
    BLUE,
    GREEN,
    GREY,
    INK,
    OKABE_ITO,
    ORANGE,
    PALETTE,
    PURPLE,
    SKY,
    TEST,
    TRAIN,
    VERMILION,
)
from bayesticket.measures import Column
from bayesticket.runs import Run

_FURTHER = PALETTE[len(OKABE_ITO) :]
COLOURS = (BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, *_FURTHER)
"""The colours of a measure's settings."""
DARK = (INK, "#8A8A8A")
"""The colours of thresholds and other reference values."""
_SINGLE = (SKY, PURPLE, ORANGE, BLUE, VERMILION, GREY, *_FURTHER)
_DASHES = ("solid", "dash", "dot", "dashdot")


def measures_of(run: Run) -> list[str]:
    """The names of the measures that a run recorded, in the order of its columns."""
    return list(dict.fromkeys(Column.parse(name).curve for name in run.curves)) if len(run.curves) else []


def columns_of(run: Run, measure: str, entry: str = "") -> list[tuple[str, str]]:
    """The columns of one entry of a measure, each with its setting: several if it was recorded with several."""
    columns = sorted(map(Column.parse, run.curves), key=lambda column: column.order)
    wanted = [column for column in columns if (column.curve, column.quantity) == (measure, entry)]
    return [(str(column), column.setting) for column in wanted]


def entries_of(run: Run, measure: str) -> dict[str, dict[str, str]]:
    """The columns of a measure with several entries, by setting and by entry, with entry 2 before entry 10."""
    found: dict[str, dict[str, str]] = {}
    for column in sorted(map(Column.parse, run.curves), key=lambda column: column.order):
        if column.curve == measure and column.quantity:
            found.setdefault(column.setting, {})[column.quantity] = str(column)
    return dict(sorted(found.items()))


def lines(
    run: Run,
    measure: str,
    name: str,
    colour: str,
    entry: str = "",
    *,
    dash: str = "solid",
    width: float = 2.0,
    in_legend: bool = True,
) -> list[Curve]:
    """One entry of a measure, in one colour, with a dash for each setting of the measure's fields."""
    first, curves = _DASHES.index(dash), []
    for place, (column, fields) in enumerate(columns_of(run, measure, entry)):
        shown = f"{name}, {in_words(fields)}" if fields else name
        dash = _DASHES[(first + place) % len(_DASHES)]
        curves.append(Curve(column, shown, colour, dash, width, in_legend or bool(fields)))
    return curves


def lines_by_setting(
    run: Run, measure: str, default: str, entry: str = "", *, colours: Sequence[str] = COLOURS, dash: str = "solid"
) -> list[Curve]:
    """One entry of a measure, with a colour for each setting of the measure's fields, named by the changed fields."""
    found = zip(columns_of(run, measure, entry), itertools.cycle(colours), strict=False)
    return [Curve(column, in_words(fields) or default, colour, dash) for (column, fields), colour in found]


def numbered(columns: Iterable[str], name: str) -> list[Curve]:
    """Thin curves of entries such as positions, numbered from 1, each in its own colour."""
    found = zip(columns, itertools.cycle(_SINGLE), strict=False)
    return [Curve(column, f"{name} {place}", colour, width=1.4) for place, (column, colour) in enumerate(found, 1)]


_WORDS = {
    "=": " ", ",": ", ", "tau derived": "derived τ", "tau ": "τ = ", "of raw": "between two tokens (Δ raw)",
    "of unembed": "W_U", "of embed": "W_E", "of logits": "the logits", "of ": "", "target ": "",
}  # fmt: skip


def in_words(fields: str) -> str:
    """The changed fields of a measure in a few words.

    >>> in_words("tau=0.1,head=1")
    'τ = 0.1, head 1'
    """
    for written, said in _WORDS.items():
        fields = fields.replace(written, said)
    return fields if len(fields) <= 40 else f"{fields[:39]}…"


def recorded(run: Run, *curves: Curve) -> list[Curve]:
    """Those of the curves that the run recorded."""
    return [curve for curve in curves if curve.column in run.curves]


def accuracy_row(run: Run) -> Row:
    """Both accuracies, which stand below every family of measures."""
    curves = (Curve("train_accuracy", "train", TRAIN, "dash"), Curve("test_accuracy", "test", TEST))
    return Row(ACCURACY, context=recorded(run, *curves), height=110, context_only=True)


def losses(run: Run) -> list[Curve]:
    """Both losses, for comparison."""
    train, test = Curve("train_loss", "train", TRAIN, "dash", 1.6), Curve("test_loss", "test", TEST, "solid", 1.6)
    return recorded(run, train, test)
