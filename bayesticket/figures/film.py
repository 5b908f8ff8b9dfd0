"""A film of one or two runs: one slider moves attention, spectrum, neurons, accuracy and the path of the weights."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import torch
from einops import rearrange, reduce
from jaxtyping import Float
from torch import Tensor

from bayesticket.errors import BayesticketError, refuse, refuse_case, require_integer
from bayesticket.figures.attention import query_in_words, shown_query
from bayesticket.figures.page import Film, Frame, Moving, Section, write_page
from bayesticket.figures.runs import label_of
from bayesticket.figures.style import BLUE, GREY, INK, SHADES, TEMPLATE, TEST, TRAIN, UNSEEN
from bayesticket.files import require_path
from bayesticket.measures import FrequencyShares, activations_of, measure, neuron_frequencies
from bayesticket.model import HookedTransformer, mlp_post_name, pattern_name
from bayesticket.runs import Run, spread
from bayesticket.tasks import Examples

HEIGHT = 230
"""Pixels of most figures."""


def film(runs: Run | Mapping[str, Run], path: str | os.PathLike[str] = "film.html", *, frames: int = 60) -> Path:
    """Writes a page on which one slider moves a run, or two runs side by side, through training; returns its path.

    The runs need snapshots: `train(…, snapshots=LogSpaced(60))`. There are at most so many frames, spread evenly over
    the epochs of all snapshots. At each of them a run is shown as it was at the nearest snapshot; one that ended
    earlier, as it ended. The page needs no network. The arrow keys move the slider too.
    """
    require_integer("frames", frames, least=2)
    require_path("path", path, "the path of a page")
    shown = _named(runs)
    titles = [f"{name}: {label_of(run)}" if name else label_of(run) for name, run in shown.items()]
    section = Section("", [*titles, _ABOUT], moving_figures(shown, frames=frames))
    return write_page(path, "From the first epoch to the last", [section])


def moving_figures(runs: Mapping[str, Run], *, frames: int) -> Film:
    """The figures of a film, a column for each run."""
    epochs = spread(sorted({epoch for run in runs.values() for epoch in run.snapshots}), frames)
    paths, moments = _paths(runs, epochs), {name: _moments(run, epochs) for name, run in runs.items()}
    largest = max((share for each in moments.values() for moment in each for share in moment.spectrum), default=1.0)
    columns = {
        name: [
            _accuracy(run, epochs),
            _attention(run, moments[name]),
            *([_spectrum(moments[name], largest), _neurons(moments[name])] if moments[name][0].spectrum else []),
            _path(paths[name]),
        ]
        for name, run in runs.items()
    }
    return Film([f"epoch {epoch:,}" for epoch in epochs], columns)


_ABOUT = (
    "Move the slider, press the arrow keys, or let it play. The path of the weights is shown in the two principal "
    "components that explain most of it. Smooth paths often look like arcs there, so that an arc alone says little."
)


def _named(runs: object) -> dict[str, Run]:
    """The runs by name; raises unless there are one or two, each with snapshots."""
    named = {"": runs} if isinstance(runs, Run) else dict(runs) if isinstance(runs, Mapping) else {}
    if not 1 <= len(named) <= 2 or not all(isinstance(run, Run) for run in named.values()):
        raise refuse("runs", runs, 'a Run, or two by name, such as {"none": run, "kl": other}')
    for name, run in named.items():
        if len(run.snapshots) < 2:
            where = f"runs[{name!r}]" if name else "runs"
            raise refuse_case(where, "a run without snapshots", "one trained with snapshots=bt.LogSpaced(60)")
    return named


# What is shown ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Moment:
    """What is looked at in a run at one epoch."""

    attention: Float[Tensor, "head key"]
    spectrum: Sequence[float] = ()
    """Shares of the frequencies in the embedding, where the task has frequencies."""
    neurons: tuple[Sequence[int], Sequence[float]] = ((), ())
    """Of each neuron the frequency that it follows most, and the share of its variation that this explains."""


def _moments(run: Run, epochs: Sequence[int]) -> list[_Moment]:
    test = run.config.split().test
    asked = test.at(shown_query(test))
    kept = {epoch: run.nearest_epoch(epoch) for epoch in epochs}
    frequencies = _has_frequencies(run.model, asked)
    seen = {epoch: _moment(run, epoch, test, asked, frequencies=frequencies) for epoch in dict.fromkeys(kept.values())}
    return [seen[kept[epoch]] for epoch in epochs]


def _has_frequencies(model: HookedTransformer, batch: Examples) -> bool:
    try:
        FrequencyShares().check(model, batch)
    except BayesticketError:
        return False
    return True


def _moment(run: Run, epoch: int, test: Examples, asked: Examples, *, frequencies: bool) -> _Moment:
    model, layers = run.at(epoch), range(run.model.cfg.n_layers)
    neurons = [mlp_post_name(layers[-1])] if frequencies else []
    names = [*map(pattern_name, layers), *neurons]
    read = activations_of(model, test, *names, intervention=run.config.intervention, epoch=epoch)
    query = shown_query(test)
    patterns = [reduce(read[pattern_name(layer)][:, :, query], "n head key -> head key", "mean") for layer in layers]
    attention = torch.cat(patterns)
    if not frequencies:
        return _Moment(attention)
    shares = list(measure(model, asked, FrequencyShares()).values())
    most, share = neuron_frequencies(read[neurons[0]][:, query], asked, model.cfg.d_vocab_out)
    return _Moment(attention, shares, (most.tolist(), share.tolist()))


# Figures ----------------------------------------------------------------------------------------------------------


def _figure(x: str, y: str, *, height: int = HEIGHT) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(template=TEMPLATE, height=height, margin={"l": 55, "r": 15, "t": 12, "b": 45})
    figure.update_xaxes(title_text=x)
    figure.update_yaxes(title_text=y)
    return figure


def _accuracy(run: Run, epochs: Sequence[int]) -> Moving:
    figure = _figure("epoch", "")
    for column, name, colour, dash in (
        ("train_accuracy", "train", TRAIN, "dash"),
        ("test_accuracy", "test", TEST, "solid"),
        ("unseen_accuracy", "test, unseen", UNSEEN, "dot"),
    ):
        if column in run.curves and not pd.Series(run.curves[column]).isna().all():
            figure.add_scatter(
                x=run.curves.index, y=_rounded(run.curves[column]), name=name, line={"color": colour, "dash": dash}
            )
    figure.update_yaxes(range=[-0.03, 1.03], tickformat=".0%")
    figure.update_xaxes(range=[0, max(epochs[-1], 1)], tickformat=",d", nticks=6)
    figure.update_layout(legend={"orientation": "h", "x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom"})
    figure.update_layout(margin={"t": 32})
    figure.add_vline(x=epochs[0], line={"color": INK, "width": 2})
    frames: list[Frame] = [({}, {"shapes[0].x0": epoch, "shapes[0].x1": epoch}, []) for epoch in epochs]
    return Moving("Accuracy", figure, frames)


def _attention(run: Run, moments: Sequence[_Moment]) -> Moving:
    labels, cfg = list(run.config.task.position_labels), run.model.cfg
    rows = [
        f"layer {layer}, head {head}" if cfg.n_layers > 1 else f"head {head}"
        for layer in range(cfg.n_layers)
        for head in range(cfg.n_heads)
    ]
    weights = [[_rounded(row) for row in moment.attention] for moment in moments]
    figure = _figure("", "", height=60 + 42 * len(rows))
    figure.add_heatmap(
        z=weights[0], x=list(range(len(labels))), y=rows, zmin=0, zmax=1, colorscale=SHADES, xgap=3, ygap=3,
        showscale=False, texttemplate="%{z:.2f}", hovertemplate="%{y}: %{z:.4f}<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(tickvals=list(range(len(labels))), ticktext=labels, showgrid=False, showline=False)
    figure.update_yaxes(autorange="reversed", showgrid=False, showline=False)
    return Moving(
        f"Attention of {query_in_words(run.config.split().test)}, mean over test examples",
        figure,
        [({"z": [each]}, {}, [0]) for each in weights],
    )


def _spectrum(moments: Sequence[_Moment], largest: float) -> Moving:
    shares = [_rounded(moment.spectrum) for moment in moments]
    figure = _figure("frequency", "share")
    figure.add_bar(x=list(range(1, len(shares[0]) + 1)), y=shares[0], marker={"color": BLUE})
    figure.update_yaxes(range=[0, 1.05 * largest])
    return Moving(
        "Frequencies of the embedding, shares of its squared norm",
        figure,
        [({"y": [each]}, {}, [0]) for each in shares],
    )


def _neurons(moments: Sequence[_Moment]) -> Moving:
    points = [(moment.neurons[0], _rounded(moment.neurons[1])) for moment in moments]
    figure = _figure("frequency that it follows most", "share explained")
    figure.add_scatter(
        x=points[0][0], y=points[0][1], mode="markers", marker={"color": GREY, "size": 5, "opacity": 0.5}
    )
    figure.update_yaxes(range=[0, 1.03], tickformat=".0%")
    figure.update_xaxes(range=[0, max(max(x) for x, _ in points) + 1])
    return Moving(
        "Neurons of the MLP: mean activation by the first operand, a dot for each neuron",
        figure,
        [({"x": [x], "y": [y]}, {}, [0]) for x, y in points],
    )


# The path of the weights ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Path:
    """The weights of a run at the frames in two principal components, and what each explains of all variance."""

    points: Float[np.ndarray, "frame 2"]
    explained: tuple[float, float]
    span: tuple[tuple[float, float], tuple[float, float]]
    """What the axes show, the same for runs that share components."""
    alone: bool
    """Whether the components are those of this run alone."""


def _paths(runs: Mapping[str, Run], epochs: Sequence[int]) -> dict[str, _Path]:
    """The path of each run: in the components of all runs together where their weights can be compared."""
    weights = {name: _flat(run, epochs) for name, run in runs.items()}
    if len({rows.shape[1] for rows in weights.values()}) > 1:
        return {name: _in_components([rows], alone=True)[0] for name, rows in weights.items()}
    return dict(zip(weights, _in_components(list(weights.values()), alone=len(weights) == 1), strict=True))


def _flat(run: Run, epochs: Sequence[int]) -> Float[Tensor, "frame parameters"]:
    kept = {epoch: run.nearest_epoch(epoch) for epoch in epochs}
    rows = {
        epoch: torch.cat([rearrange(weight, "... -> (...)") for weight in run.weights_at(epoch).values()])
        for epoch in dict.fromkeys(kept.values())
    }
    return torch.stack([rows[kept[epoch]] for epoch in epochs]).double()


def _in_components(paths: Sequence[Float[Tensor, "frame parameters"]], *, alone: bool) -> list[_Path]:
    """The first two principal components of the rows of all paths together; see `_Path`."""
    rows = torch.cat(list(paths))
    centred = rows - rows.mean(0)
    values, vectors = torch.linalg.eigh(centred @ centred.T)
    values = values.flip(0).clamp_min(0)
    points = (vectors.flip(1) * values.sqrt())[:, :2].numpy()
    total = max(float(values.sum()), 1e-30)
    low, high = points.min(0), points.max(0)
    margin = 0.06 * np.maximum(high - low, 1e-9)
    span = ((low[0] - margin[0], high[0] + margin[0]), (low[1] - margin[1], high[1] + margin[1]))
    explained = (float(values[0]) / total, float(values[1]) / total)
    split = np.split(points, np.cumsum([len(path) for path in paths])[:-1])
    return [_Path(part, explained, span, alone) for part in split]


def _path(path: _Path) -> Moving:
    first, second = (f"{name}, {share:.0%}" for name, share in zip(("first", "second"), path.explained, strict=True))
    figure = _figure(first, second, height=HEIGHT + 40)
    x, y = _rounded(path.points[:, 0]), _rounded(path.points[:, 1])
    figure.add_scatter(x=x, y=y, mode="lines", line={"color": GREY, "width": 1}, hoverinfo="skip", showlegend=False)
    figure.add_scatter(x=x[:1], y=y[:1], mode="markers", marker={"color": BLUE, "size": 11}, showlegend=False)
    figure.update_xaxes(range=path.span[0])
    figure.update_yaxes(range=path.span[1])
    of = "of this run" if path.alone else "of both runs together"
    return Moving(
        f"All weights, in the two principal components {of}, with their shares of the variance",
        figure,
        [({"x": [[a]], "y": [[b]]}, {}, [1]) for a, b in zip(x, y, strict=True)],
    )


def _rounded(values: "Iterable[float] | Tensor", digits: int = 4) -> list[float]:
    """Numbers with so many digits, which keeps a page small."""
    return [float(f"{float(value):.{digits}g}") for value in values]
