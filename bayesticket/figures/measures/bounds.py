"""The gradient in the attention scores and its bounds (Lemma 5.1)."""

import plotly.graph_objects as go

from bayesticket.figures.measures.columns import accuracy_row, entries_of
from bayesticket.figures.measures.family import Family
from bayesticket.figures.panels import Curve, Row
from bayesticket.figures.style import GREEN, GREY, INK, ORANGE, PURPLE, VERMILION, Panel
from bayesticket.runs import Run

_BOUNDS = (
    ("loose", "loose", "2R · L<sub>f</sub> · √(2L)", VERMILION, "solid", 2.0),
    ("scaled", "scaled", "2‖W<sub>V</sub>‖ max‖x‖ · L<sub>f</sub> · √(2L)", ORANGE, "solid", 2.0),
    ("paper", "the paper’s, ‖x‖ ≤ 1", "2‖W<sub>V</sub>‖ · L<sub>f</sub> · √(2L)", GREY, "dot", 2.0),
    ("global", "global", "α‖v − z‖ · L<sub>f</sub> · √(2L)", PURPLE, "solid", 2.0),
    ("local", "local", "α‖v − z‖ · ‖J‖ · √(2L)", GREEN, "solid", 2.0),
    ("measured", "measured", "|∂L/∂s|", INK, "solid", 3.2),
)


def _rows(run: Run) -> list[Row]:
    variants = entries_of(run, "explaining_away")
    chosen = variants[min(variants, key=len)] if variants else {}  # the variant with the fewest changed fields
    curves = [
        Curve(chosen[entry], name, colour, dash, width, formula=formula)
        for entry, name, formula, colour, dash, width in _BOUNDS
        if entry in chosen
    ]
    panel = Panel(
        "gradient in the attention scores, and its bounds",
        log=True,
        note="largest over positions, mean over examples",
    )
    return [Row(panel, curves, height=400), accuracy_row(run)]


BOUNDS = Family(
    "Explaining away: the gradient that is left, and its bounds",
    ("ExplainingAway()",),
    "The gradient that the task still sends into the attention scores (black) lies below four bounds, each looser "
    "than the one before (Lemma 5.1). The dotted line is the bound as the paper states it, for embeddings of norm 1; "
    "where they are longer, it is no bound. Look at whether the gradient and its bounds go down once the training "
    "examples are memorised, and at how many powers of ten lie between them.",
    _rows,
    ends_labelled=True,
)


def plot_bounds(run: Run) -> go.Figure:
    """The gradient in the attention scores and its bounds (Lemma 5.1) on one logarithmic axis, above the accuracies.

    If the run recorded several `ExplainingAway`, the one with the fewest changed fields is shown.

    >>> from bayesticket.measures import ExplainingAway
    >>> from bayesticket.tasks import ModularAddition
    >>> from bayesticket.runs import train
    >>> run = train(ModularAddition(p=5), measures=[ExplainingAway()], epochs=20)
    >>> [trace.name for trace in plot_bounds(run).data]
    ['loose', 'scaled', 'the paper’s, ‖x‖ ≤ 1', 'global', 'local', 'measured', 'train', 'test']
    """
    return BOUNDS.plot(run)
