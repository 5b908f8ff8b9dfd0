"""Pictures of one run, a figure for each family of measures: bounds, gradients, structure, capacity, frequencies.

A figure shows what the run recorded of its family and leaves out the rest, with the run's phases shaded behind it.
"""

import itertools
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import plotly.graph_objects as go

from bayesticket.analysis import WINDOW
from bayesticket.errors import BayesticketError, refuse
from bayesticket.figures.page import Section, write_page
from bayesticket.figures.panels import Curve, Row, draw, phases_of, untitled
from bayesticket.figures.plot import ACCURACY, INK, KL, MASS, PALETTE, TEST, TRAIN, Panel, label_of
from bayesticket.measures import KeyFrequencyCount, StructuralCondition
from bayesticket.runs import Run

BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, GREY = PALETTE

# Columns ----------------------------------------------------------------------------------------------------------


def parse_column(column: str) -> tuple[str, str, str]:
    """What a column of curves is of: its measure, the fields that differ from their defaults, and the entry.

    >>> parse_column("explaining_away[examples=None][measured]")
    ('explaining_away', 'examples=None', 'measured')
    >>> parse_column("kl_to_oracle[head=1]"), parse_column("distributed_mass[0]")
    (('kl_to_oracle', 'head=1', ''), ('distributed_mass', '', '0'))
    """
    measure, bracket, rest = column.partition("[")
    if not bracket:
        return measure, "", ""
    fields, between, entry = rest.removesuffix("]").rpartition("][")
    if between:
        return measure, fields, entry
    return (measure, entry, "") if "=" in entry else (measure, "", entry)


def _found(run: Run, measure: str, entry: str = "") -> list[tuple[str, str]]:
    """The columns of an entry of a measure, with the changed fields of each; there are several where these differ."""
    parsed = [(column, *parse_column(column)) for column in run.curves]
    found = [(column, fields) for column, kind, fields, part in parsed if (kind, part) == (measure, entry)]
    return sorted(found, key=lambda each: each[1])


def _entries(run: Run, measure: str) -> dict[str, dict[str, str]]:
    """The columns of a measure, by its changed fields and by entry, 2 before 10."""
    found: dict[str, dict[str, str]] = {}
    for column in sorted(run.curves, key=lambda column: [part.zfill(9) for part in re.split(r"(\d+)", column)]):
        kind, fields, entry = parse_column(column)
        if kind == measure and entry:
            found.setdefault(fields, {})[entry] = column
    return dict(sorted(found.items()))


_DASHES = ("solid", "dash", "dot", "dashdot")
_COLOURS = (BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION)
_DARK = (INK, "#8A8A8A")
_THIN = (SKY, PURPLE, ORANGE, BLUE, VERMILION, GREY)
"""For what is seen one position or head at a time."""


def _lines(
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
    """An entry of a measure: one colour, and a dash for each of several settings of its fields."""
    first, curves = _DASHES.index(dash), []
    for place, (column, fields) in enumerate(_found(run, measure, entry)):
        shown = f"{name}, {_readable(fields)}" if fields else name
        dash = _DASHES[(first + place) % len(_DASHES)]
        curves.append(Curve(column, shown, colour, dash, width, in_legend or bool(fields)))
    return curves


def _settings(
    run: Run, measure: str, default: str, entry: str = "", *, colours: Sequence[str] = _COLOURS, dash: str = "solid"
) -> list[Curve]:
    """An entry of a measure: a colour for each setting of its fields, called by what differs from the defaults."""
    found = zip(_found(run, measure, entry), itertools.cycle(colours), strict=False)
    return [Curve(column, _readable(fields) or default, colour, dash) for (column, fields), colour in found]


def _singly(columns: Iterable[str], name: str) -> list[Curve]:
    """Thin curves of what is recorded one by one: numbered from 1."""
    found = zip(columns, itertools.cycle(_THIN), strict=False)
    return [Curve(column, f"{name} {place}", colour, width=1.4) for place, (column, colour) in enumerate(found, 1)]


_WORDS = {
    "=": " ", ",": ", ", "tau derived": "derived τ", "tau ": "τ = ", "of raw": "between two tokens (Δ raw)",
    "of unembed": "W_U", "of logits": "the logits", "of ": "", "target ": "",
}  # fmt: skip


def _readable(fields: str) -> str:
    """The changed fields of a measure, in a few words."""
    for written, said in _WORDS.items():
        fields = fields.replace(written, said)
    return fields if len(fields) <= 40 else f"{fields[:39]}…"


def _recorded(run: Run, *curves: Curve) -> list[Curve]:
    return [curve for curve in curves if curve.column in run.curves]


def _accuracy(run: Run) -> Row:
    curves = (Curve("train_accuracy", "train", TRAIN, "dash"), Curve("test_accuracy", "test", TEST))
    return Row(ACCURACY, beside=_recorded(run, *curves), height=110, context=True)


def _losses(run: Run) -> list[Curve]:
    return _recorded(
        run, Curve("train_loss", "train", TRAIN, "dash", 1.6), Curve("test_loss", "test", TEST, "solid", 1.6)
    )


# Bounds and gradients ---------------------------------------------------------------------------------------------

_CHAIN = (
    ("loose", "loose", "2R · L<sub>f</sub> · √(2L)", VERMILION, "solid", 2.0),
    ("unit", "the paper’s, R = 1", "2 · L<sub>f</sub> · √(2L)", GREY, "dot", 2.0),
    ("global", "global", "α‖v − z‖ · L<sub>f</sub> · √(2L)", PURPLE, "solid", 2.0),
    ("local", "local", "α‖v − z‖ · ‖J‖ · √(2L)", GREEN, "solid", 2.0),
    ("measured", "measured", "|∂L/∂s|", INK, "solid", 3.2),
)


def _bounds_rows(run: Run) -> list[Row]:
    variants = _entries(run, "explaining_away")
    chosen = variants[min(variants, key=len)] if variants else {}  # of several the one with the fewest changes
    curves = [
        Curve(chosen[entry], f"<b>{name}</b><br><span style='color:{INK}'>{formula}</span>", colour, dash, width)
        for entry, name, formula, colour, dash, width in _CHAIN
        if entry in chosen
    ]
    title = "gradient in the attention scores, and its bounds</b> (largest over positions, mean over examples)<b>"
    return [Row(Panel(title, log=True), curves, height=400), _accuracy(run)]


def _gradient_rows(run: Run) -> list[Row]:
    recorded = _lines(run, "attention_gradient", "recorded", "#D9A3C6", width=1.2)
    smooth = _lines(run, "attention_gradient", f"median of {WINDOW} records", "#A8508A", "smooth", width=2.6)
    divergence = _recorded(run, Curve("kl_to_oracle", "KL", GREEN, in_legend=False))
    return [
        Row(Panel("gradient of the task loss in the attention, ‖∂L/∂M‖", log=True), [*recorded, *smooth], height=260),
        Row(KL, beside=divergence, context=True),
        _accuracy(run),
    ]


# Structure --------------------------------------------------------------------------------------------------------


def _structure_rows(run: Run) -> list[Row]:
    by_position = [
        curve
        for entries in _entries(run, "informative_mass_by_position").values()
        for curve in _singly(entries.values(), "position")
    ]
    mean = _lines(run, "informative_mass_mean", "all of them, mean", GREEN, width=2.4)
    least = _lines(run, "informative_mass_least", "least in any example", GREEN, dash="dot", width=2.4)
    thresholds = _settings(run, "structural_condition", "", "threshold", colours=_DARK)
    shares = [
        *_settings(run, "structural_condition", f"τ = {StructuralCondition().tau}"),
        *_settings(run, "structural_condition", "", "share", colours=_DARK, dash="dash"),
    ]
    divergences = [
        *_lines(run, "kl_to_oracle", "the oracle", GREEN),
        *_settings(run, "kl_to_target", "uniform", colours=(ORANGE, PURPLE, SKY, VERMILION, BLUE)),
    ]
    entropy = _lines(run, "attention_entropy", "entropy", BLUE, in_legend=False)
    margins = _settings(run, "separability_margin", "from the distractors’ centroid (Δ)", "margin")
    pooled: list[Curve] = []
    for *positions, lowest, heads in (list(entries.values()) for entries in _entries(run, "distributed_mass").values()):
        pooled += _singly(positions, "position")
        pooled.append(Curve(lowest, "least in any example", GREEN, "dot", 2.4))
        pooled.append(Curve(heads, "effective number of heads", INK, "dash"))
    return [
        Row(MASS, [*by_position, *mean, *least], height=190),
        Row(Panel("least attention on an informative position, and τ", log=True), thresholds, least),
        Row(Panel("share of inputs that satisfy B(τ)", span=(-0.03, 1.03), percent=True), shares, height=110),
        Row(Panel("divergence of attention from its target, in nats", log=True), divergences),
        Row(Panel("entropy of attention, in nats"), entropy, height=110, from_zero=True),
        Row(Panel("separability margin of the values"), margins, from_zero=True),
        Row(Panel("informative mass of all heads together"), pooled, from_zero=True),
        _accuracy(run),
    ]


# Capacity ---------------------------------------------------------------------------------------------------------

_PARTS = {
    "W_E": (ORANGE, "solid"), "W_pos": (ORANGE, "dash"), "W_U": (ORANGE, "dot"),
    "W_Q": (GREEN, "solid"), "W_K": (GREEN, "dash"), "W_V": (GREEN, "dot"), "W_O": (GREEN, "dashdot"),
    "W_in": (BLUE, "solid"), "W_out": (BLUE, "dash"),
}  # fmt: skip


def _weight_norms(run: Run) -> list[Curve]:
    """The norms of the matrices, in the order of `_PARTS`; with the layer's number where there are several."""
    columns = [item for entries in _entries(run, "weight_norms").values() for item in entries.items()]
    layers = {entry.split(".")[1] for entry, _ in columns if entry.startswith("blocks.")}
    curves = []
    for entry, column in columns:
        name, layer = entry.rsplit(".", 1)[-1], entry.split(".")[1]
        if name in _PARTS:
            shown = f"{layer}.{name}" if len(layers) > 1 and layer in layers else name
            curves.append(Curve(column, shown, *_PARTS[name], 1.6))
    return sorted(curves, key=lambda curve: list(_PARTS).index(curve.name.rsplit(".", 1)[-1]))


def _capacity_rows(run: Run) -> list[Row]:
    steepness = [
        *_lines(run, "lipschitz_bounds", "factors", VERMILION, "factors"),
        *_lines(run, "lipschitz_bounds", "products", ORANGE, "products"),
        *_lines(run, "lipschitz_bounds", "centred", PURPLE, "centred"),
        *_lines(run, "lipschitz_bounds", "steepest example", SKY, "steepest"),
        *_lines(run, "lipschitz_bounds", "mean of examples", GREEN, "local"),
    ]
    steps = [
        *_lines(run, "contraction", "observed", INK, "observed"),
        *_lines(run, "contraction", "pure decay, 2λ − λ²", BLUE, "decay", dash="dash"),
        *_lines(run, "contraction", "promised, λ = lr · weight decay", ORANGE, "rate", dash="dot"),
    ]
    interaction = [
        Curve(column, f"‖M‖ of {entry}", colour, "dash")
        for entries in _entries(run, "interaction_norm").values()
        for (entry, column), colour in zip(entries.items(), itertools.cycle(_COLOURS[1:]), strict=False)
    ]
    norms = [*_lines(run, "mlp_norm", "MLP", INK, width=2.8), *_weight_norms(run)]
    condition = _lines(run, "norm_condition", "in N", BLUE, in_legend=False)
    scaled = _lines(run, "normalized_mlp_loss", "train, MLP scaled to a fixed norm", PURPLE, width=2.4)
    rank = _lines(run, "effective_rank", "effective rank", BLUE, in_legend=False)
    variance = _lines(run, "score_variance", "variance over the keys", BLUE)
    return [
        Row(Panel("Frobenius norm", log=True), norms, height=210),
        Row(
            Panel("in the set N of the norm condition (1) or not (0)", span=(-0.1, 1.1)),
            condition,
            height=60,
            whole=True,
        ),
        Row(Panel("steepness, from z to the logits", log=True), steepness, height=180),
        Row(Panel("class margin"), _settings(run, "class_margin", "least")),
        Row(Panel("share of ‖θ‖² that a step takes"), steps),
        Row(Panel("loss", log=True), scaled, _losses(run)),
        Row(Panel("effective rank before the unembedding"), rank, height=110, from_zero=True),
        Row(Panel("attention scores", log=True), [*variance, *interaction]),
        _accuracy(run),
    ]


# Frequencies ------------------------------------------------------------------------------------------------------

_PALE = "#B4B4B4"


def _frequency_rows(run: Run) -> list[Row]:
    losses = [
        *_lines(run, "test_restricted_loss", "test, key frequencies alone", GREEN, width=2.6),
        *_lines(run, "excluded_loss", "train, without them", PURPLE, width=2.6),
    ]
    shares = [
        Row(
            Panel(f"share of each frequency in {_readable(fields) or 'W_E'}"),
            _frequencies(run, entries),
            height=170,
            from_zero=True,
        )
        for fields, entries in _entries(run, "frequency_shares").items()
    ]
    count = _settings(run, "key_frequency_count", "W_E")
    coefficient = _settings(run, "fourier_gini", "W_E")
    return [
        Row(Panel("loss", log=True), losses, _losses(run), height=230),
        *shares,
        Row(Panel("number of key frequencies"), count, height=110, from_zero=True, whole=True),
        Row(Panel("Gini coefficient of the spectrum", span=(-0.03, 1.03)), coefficient, height=110),
        _accuracy(run),
    ]


def _frequencies(run: Run, columns: Mapping[str, str]) -> list[Curve]:
    """The frequencies that are key at the end, the largest by name; the others thin and grey, beneath them."""
    last = run.curves[list(columns.values())].ffill().iloc[-1].sort_values(ascending=False)
    keys = [column for column in last.index if last[column] * len(last) > KeyFrequencyCount.above]
    colours = dict(zip(keys, _COLOURS, strict=False))
    others = [column for column in columns.values() if column not in colours]
    return [
        *(Curve(column, "", _PALE, width=0.9, in_legend=False, in_hover=False) for column in others),
        *(Curve(column, f"w = {parse_column(column)[2]}", colour) for column, colour in colours.items()),
    ]


# Families ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Family:
    """Measures that are looked at together."""

    heading: str
    measures: tuple[str, ...]
    """What to record for it, as it is written in `measures=[…]`."""
    text: str
    """What to look at, whatever the numbers are."""
    rows: Callable[[Run], Sequence[Row]]
    ends_labelled: bool = False


BOUNDS = Family(
    "Explaining away: the gradient that is left, and its bounds",
    ("ExplainingAway()",),
    "What the task still teaches attention (black) lies below three bounds, each looser than the one before "
    "(Lemma 5.1); dotted is the loosest as the paper states it, for values of norm 1, which is no bound where "
    "values are longer. Look at whether the gradient and its bounds go down once the training examples are memorised, "
    "and at how many powers of ten lie between them.",
    _bounds_rows,
    ends_labelled=True,
)
GRADIENTS = Family(
    "Gradients: when attention is taught",
    ("AttentionGradient()",),
    "The phases are read off these curves: the plateau begins where the gradient has fallen, after memorising, to half "
    "of its peak, and resurgence where it has doubled again while the divergence from the oracle has halved. Look at "
    "whether test accuracy rises before that, or after.",
    _gradient_rows,
)
STRUCTURE = Family(
    "Structure: where attention is, and should be",
    ("InformativeMass()", "KLToOracle()", "AttentionEntropy()", "StructuralCondition()", "SeparabilityMargin()"),
    "Look at which comes first, attention on the informative positions (the mean, and the least that any example "
    "gives) or test accuracy. A derived τ is what the model's own margin and steepness ask of the structural "
    "condition B(τ); where it is missing, some training example is still answered wrongly.",
    _structure_rows,
)
CAPACITY = Family(
    "Capacity: how large the weights are, and how steep the model",
    ("MLPNorm()", "WeightNorms()", "LipschitzBounds()", "ClassMargin()", "Contraction()", "EffectiveRank()"),
    "Look at what grows until the training examples are memorised, what shrinks afterwards, and when. Where a step "
    "takes as much as pure decay would, weight decay alone moves the norm; where it takes less, the optimiser gives "
    "back what decay takes.",
    _capacity_rows,
)
FREQUENCIES = Family(
    "Frequencies: how the sum is computed",
    ("RestrictedLoss()", "ExcludedLoss()", "KeyFrequencyCount()", "FourierGini()", "FrequencyShares()"),
    "Look at whether the loss by the key frequencies alone falls below the test loss, and the loss without them rises "
    "above the train loss: then the answer comes from these waves. The frequencies that are not key at the end are "
    "grey.",
    _frequency_rows,
)
FAMILIES = (BOUNDS, GRADIENTS, STRUCTURE, CAPACITY, FREQUENCIES)
"""All families, in the order of a page."""


def plot_bounds(run: Run) -> go.Figure:
    """The gradient in the attention scores and its bounds (Lemma 5.1) on one logarithmic axis, above the accuracies.

    Of several `ExplainingAway` it shows the one with the fewest changed fields.

    >>> from bayesticket.measures import ExplainingAway
    >>> from bayesticket.tasks import ModularAddition
    >>> from bayesticket.runs import train
    >>> run = train(ModularAddition(p=5), measures=[ExplainingAway()], epochs=20)
    >>> [trace.name.split("</b>")[0].removeprefix("<b>") for trace in plot_bounds(run).data]
    ['loose', 'the paper’s, R = 1', 'global', 'local', 'measured', 'train', 'test']
    """
    return _plot(run, BOUNDS)


def plot_gradients(run: Run) -> go.Figure:
    """The task's gradient in the attention, with the divergence and the accuracies that the phases rest on."""
    return _plot(run, GRADIENTS)


def plot_structure(run: Run) -> go.Figure:
    """Attention on the informative positions, divergence, entropy, structural condition and separability margin."""
    return _plot(run, STRUCTURE)


def plot_capacity(run: Run) -> go.Figure:
    """Norms, Lipschitz bounds, class margin, contraction, and what else says how much the model can fit."""
    return _plot(run, CAPACITY)


def plot_frequencies(run: Run) -> go.Figure:
    """Losses with and without the key frequencies, and how the spectrum condenses."""
    return _plot(run, FREQUENCIES)


def write_families(run: Run, path: str | os.PathLike[str]) -> Path:
    """Writes a page with a figure for every family that the run recorded; returns its path."""
    families = [family for family in FAMILIES if _is_recorded(run, family)]
    if not families:
        raise _nothing_of(run, *FAMILIES)
    found = phases_of(run)
    one = f"This is one run ({label_of(run)}), {run.epoch:,} epochs long: an illustration, not evidence."
    shading = "" if found is None else f"Its phases are shaded in every figure: {found}. "
    how = "Drag over a part to enlarge it, double-click to go back, click a name to hide a curve."
    sections = [Section("", [one, f"{shading}{how}"])]
    sections += [Section(family.heading, [family.text], untitled(_plot(run, family))) for family in families]
    return write_page(path, "A training run, measure by measure", sections)


def _plot(run: Run, family: Family) -> go.Figure:
    if not _is_recorded(run, family):
        raise _nothing_of(run, family)
    run = _with_derived(run)
    return draw(run, family.heading, family.rows(run), ends_labelled=family.ends_labelled)


def _is_recorded(run: Run, family: Family) -> bool:
    return len(run.curves) > 0 and any(row.curves for row in family.rows(run))


def _nothing_of(run: Run, *families: Family) -> BayesticketError:
    recorded = list(dict.fromkeys(parse_column(column)[0] for column in run.curves)) if len(run.curves) else []
    names = dict.fromkeys(name for family in families for name in family.measures)
    return refuse("run", recorded, f"a run that recorded some of measures=[{', '.join(names)}]")


def _with_derived(run: Run) -> Run:
    """The run with two more entries: the smoothed gradient that phases are read off, and what decay alone would do."""
    derived = {}
    for column, _ in _found(run, "attention_gradient"):
        derived[f"{column}[smooth]"] = run.curves[column].rolling(WINDOW, center=True, min_periods=1).median()
    for column, _ in _found(run, "contraction", "rate"):
        derived[f"{column.removesuffix('[rate]')}[decay]"] = 1 - (1 - run.curves[column]) ** 2
    return replace(run, curves=run.curves.assign(**derived))
