"""Where the last position attends, or the query at which a task asks."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
import torch
from einops import reduce
from jaxtyping import Float
from torch import Tensor

from bayesticket.errors import refuse
from bayesticket.figures.style import SHADES, TEMPLATE
from bayesticket.measures import attention_of
from bayesticket.runs import Run
from bayesticket.tasks import Examples


def attention_by_head(
    run: Run, *, layer: int = 0, epoch: int | None = None, query: int | None = None
) -> Float[Tensor, "head T"]:
    """The attention of a layer's last position, averaged over test examples, under the run's intervention.

    It is that at the end of the run, or after `epoch` epochs, where there is a snapshot. Of a task that asks at several
    positions it is that of a `query`, by default the last one whose answer can be known.
    """
    return reduce(_attention(run, layer, epoch, query), "n head key -> head key", "mean")


def mean_attention(
    run: Run, *, layer: int = 0, epoch: int | None = None, query: int | None = None
) -> Float[Tensor, "T"]:
    """The same averaged over heads too."""
    return reduce(_attention(run, layer, epoch, query), "n head key -> key", "mean")


def shown_query(examples: Examples) -> int:
    """The query that a picture of a single one shows: the last one whose answer can be known."""
    return examples.answerable[-1]


def query_in_words(examples: Examples, query: int | None = None) -> str:
    """How the title of a picture calls the query that it shows.

    >>> from bayesticket.tasks import ModularAddition
    >>> query_in_words(ModularAddition(p=7).examples(seed=0))
    'the last position'
    """
    query = shown_query(examples) if query is None else query % examples.n_positions
    name = "the last position" if query == examples.n_positions - 1 else f"position {query}"
    n = len(examples.answerable)
    return name if n == 1 else f"{name}, one of {n} queries"


def _attention(run: Run, layer: int, epoch: int | None, query: int | None) -> Float[Tensor, "n head T"]:
    config, epoch = run.config, run.epoch if epoch is None else epoch
    test = config.split().test
    chosen = shown_query(test) if query is None else query
    return attention_of(run.at(epoch), test, layer=layer, query=chosen, intervention=config.intervention, epoch=epoch)


def plot_patterns(patterns: Mapping[str, Float[Tensor, "T"]], labels: Sequence[str]) -> go.Figure:
    """Attention over positions as a heat map, with a row for each pattern, such as the oracle and the arms.

    >>> import torch
    >>> from bayesticket.tasks import ModularAddition
    >>> task = ModularAddition(p=7)
    >>> figure = plot_patterns({"oracle": task.examples(seed=0).oracle[0]}, task.position_labels)
    >>> figure.layout.xaxis.ticktext
    ('a', '+', 'b', 'noise', '=')
    """
    rows = list(patterns)
    for name in rows:
        if len(patterns[name]) != len(labels):
            raise refuse(f"patterns[{name!r}]", len(patterns[name]), f"one weight for each of {len(labels)} positions")
    weights = torch.stack([patterns[name].float() for name in rows]).cpu().numpy()
    figure = go.Figure(
        go.Heatmap(
            z=weights,
            x=list(range(len(labels))),
            y=rows,
            zmin=0,
            zmax=max(0.5, float(weights.max())),
            colorscale=SHADES,
            xgap=3,
            ygap=3,
            text=weights,
            texttemplate="%{text:.2f}" if len(labels) <= 12 else "",
            hovertemplate="%{y}: %{z:.4f}<extra></extra>",
            colorbar={"title": {"text": "weight"}, "thickness": 12, "outlinewidth": 0, "nticks": 4},
        )
    )
    figure.update_layout(template=TEMPLATE, height=110 + 46 * len(rows), margin={"t": 40, "b": 20})
    figure.update_yaxes(autorange="reversed", showline=False, ticks="", showgrid=False)
    figure.update_xaxes(
        tickvals=list(range(len(labels))), ticktext=labels, side="top", showline=False, ticks="", showgrid=False
    )
    return figure
