"""How the sum is computed: losses with and without the key frequencies, and the spectrum."""

from collections.abc import Mapping

import plotly.graph_objects as go
import torch

from bayesticket.figures.measures.columns import (
    COLOURS,
    accuracy_row,
    entries_of,
    in_words,
    lines,
    lines_by_setting,
    losses,
)
from bayesticket.figures.measures.family import Family
from bayesticket.figures.panels import Curve, Row
from bayesticket.figures.style import GREEN, PURPLE, Panel
from bayesticket.measures import KeyFrequencyCount, is_key
from bayesticket.runs import Run

_PALE = "#B4B4B4"


def _rows(run: Run) -> list[Row]:
    by_keys = [
        *lines(run, "test_restricted_loss", "test, key frequencies alone", GREEN, width=2.6),
        *lines(run, "excluded_loss", "train, without them", PURPLE, width=2.6),
    ]
    shares = [
        Row(
            Panel(f"share of each frequency in {in_words(fields) or 'W_E'}"),
            _frequencies(run, entries),
            height=170,
            from_zero=True,
        )
        for fields, entries in entries_of(run, "frequency_shares").items()
    ]
    count = lines_by_setting(run, "key_frequency_count", "the logits")
    coefficient = lines_by_setting(run, "fourier_gini", "W_E")
    return [
        Row(Panel("loss", log=True), by_keys, losses(run), height=230),
        *shares,
        Row(Panel("number of key frequencies"), count, height=110, from_zero=True, integers=True),
        Row(Panel("Gini coefficient of the spectrum", span=(-0.03, 1.03)), coefficient, height=110),
        accuracy_row(run),
    ]


def _frequencies(run: Run, columns: Mapping[str, str]) -> list[Curve]:
    """Those that are key at the end in colours, the largest first; beneath them the others, thin and grey."""
    last = run.curves[list(columns.values())].ffill().iloc[-1].sort_values(ascending=False)
    key = is_key(torch.from_numpy(last.to_numpy(dtype=float, copy=True)), KeyFrequencyCount.above).tolist()
    keys = list(last.index[key])
    colours = dict(zip(keys, COLOURS, strict=False))
    others = [column for column in columns.values() if column not in colours]
    frequencies = {column: frequency for frequency, column in columns.items()}
    return [
        *(Curve(column, "", _PALE, width=0.9, in_legend=False, in_hover=False) for column in others),
        *(Curve(column, f"w = {frequencies[column]}", colour) for column, colour in colours.items()),
    ]


FREQUENCIES = Family(
    "Frequencies: how the sum is computed",
    ("RestrictedLoss()", "ExcludedLoss()", "KeyFrequencyCount()", "FourierGini()", "FrequencyShares('logits')"),
    "Look at whether the loss by the key frequencies alone falls below the test loss, and the loss without them rises "
    "above the train loss: then the answer comes from these waves. The frequencies that are not key at the end are "
    "grey.",
    _rows,
)


def plot_frequencies(run: Run) -> go.Figure:
    """Losses with and without the key frequencies, and how the spectrum concentrates on a few of them."""
    return FREQUENCIES.plot(run)
