"""Which measures tell early that a run will grok, and when: computed from all runs whose results are at hand."""

from collections.abc import Iterable, Mapping

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from bayesticket.analysis import Auc, Estimate, at_risk, auc, rank_correlation, told_from
from bayesticket.figures import GREY, INK, PALETTE, TEMPLATE, Section, Table
from bayesticket.measures import CommutatorDefect, EffectiveRank, FourierGini
from bayesticket.paper.pooling import HORIZON, Labels, Pool, needs, pooled
from bayesticket.paper.readings import THRESHOLD
from bayesticket.paper.results import Results
from bayesticket.paper.words import listed

HEADING = "Which measures predict grokking"
SHOWN = (100, 200, 500, 1000, 2000, 4000)
"""The epochs in the tables."""
EPOCHS = tuple(sorted({*SHOWN, 40, 300, 400, 700, 1500, 2500, 3000}))
"""The epochs among which the first that tells is looked for."""
FEWEST = 6
"""With fewer settings of either kind no interval excludes ½; see `bayesticket.analysis.auc`."""
WANTED = {"effective rank": EffectiveRank(), "Fourier Gini": FourierGini(), "commutator defect": CommutatorDefect()}
"""Measures that one would look for, beside those that every run records."""
DRAWN = (
    *("kl_to_oracle", "attention_gradient", "mlp_norm", "train_loss"),
    *(measure.name for measure in WANTED.values()),
)
"""The curves that are drawn, as far as they were recorded."""
ALONE = "the setting alone"
"""What one knows without any measure: the share of the setting's other seeds that grok."""
TOGETHER, LAYOUTS, SETTINGS = "All runs together", "Within a layout", "Within a setting"
QUESTIONS = {
    TOGETHER: "is a run of which one knows nothing one of those that grok? A measure can answer this by telling to "
    "which arm the run belongs: a prior toward the oracle makes the divergence small.",
    LAYOUTS: "will a recipe grok on the task, and with the model, that one has? The setting still decides nearly all "
    f"of it, as the row “{ALONE}” shows; so a measure need not tell more than how the run is trained.",
    SETTINGS: "will this seed grok, all else given? Only this is what a measure tells beyond the settings, which one "
    "knows. It takes settings in which some seeds grok and others never do.",
}
"""Which runs are compared, and the question that this answers."""
READING = (
    "AUC: the probability that a run which will grok has a larger value than one that never will; ½ says nothing, and "
    "below ½ it is the smaller values that announce grokking. The direction is read off the same runs, and the "
    "intervals, of 95%, are two-sided. They resample settings and seeds, because runs share these, and each is for its "
    "own epoch. With few settings they are wide even where no two runs are in the wrong order. “Tells from” is the "
    f"first of the epochs {', '.join(f'{epoch:,}' for epoch in EPOCHS)} from which the interval stays on one side of "
    "½, or above 0.8 or below 0.2, up to the last of these; and whether larger or smaller values announce grokking. "
    f"“{ALONE.capitalize()}” is the share of a setting's other seeds that grok."
)
WHEN = (
    "And when? Among runs that grok, Spearman's correlation of the measure with the epochs that are left: where it is "
    "positive, larger values announce a longer wait. Within a layout or a setting, runs are ranked there alone. Only "
    "the correlations within a setting are about what the settings leave open."
)
CAPTION = (
    "AUC by epoch, within a layout. Dashed lines are of measures that need the oracle, and the dotted one is of the "
    "setting alone."
)
Found = Mapping[str, Mapping[int, Auc | None]]
"""Of each column, at each epoch."""
Correlated = Mapping[str, Mapping[int, Estimate | None]]
Values = Float[np.ndarray, "epochs runs"]
"""What each run recorded of a column at each of `EPOCHS`."""


def prediction_sections(results: Iterable[Results]) -> list[Section]:
    """What the measures predict in all these runs; nothing where there are too few settings of either kind."""
    pool = pooled(results)
    if pool is None:
        return []
    recorded = {column: pool.values(column, EPOCHS) for column in pool.columns}
    tables = {column: table for column, table in recorded.items() if _is_enough(pool, table)}
    if not tables:
        return []
    strata: dict[str, Labels | None] = {TOGETHER: None, LAYOUTS: pool.layouts, SETTINGS: pool.settings}
    found = {name: separations(pool, tables, labels) for name, labels in strata.items()}
    when = {name: correlations(pool, tables, labels) for name, labels in strata.items()}
    asked = [f"{name}: {question}" for name, question in QUESTIONS.items()]
    return [
        Section("", [_about(pool), *asked, READING], auc_table(pool, found)),
        Section("", [CAPTION], draw(found[LAYOUTS])),
        Section("", [WHEN], when_table(pool, when)),
        Section("", [*_lacking(pool), *_further(len(recorded) - len(tables))]),
    ]


def _is_enough(pool: Pool, table: Values) -> bool:
    """Whether enough settings of either kind recorded a column at an epoch that is shown."""
    for epoch in SHOWN:
        known = at_risk(pool.times, epoch) & ~np.isnan(table[EPOCHS.index(epoch)])
        kinds = (known & pool.times.reached, known & ~pool.times.reached)
        if min(len(set(pool.settings[kind].tolist())) for kind in kinds) >= FEWEST:
            return True
    return False


def separations(pool: Pool, recorded: Mapping[str, Values], strata: Labels | None) -> Found:
    """The AUC of each column at each epoch, and that of the setting alone."""
    tables = {ALONE: np.tile(pool.share_of_others, (len(EPOCHS), 1)), **recorded}
    found: dict[str, dict[int, Auc | None]] = {name: {} for name in tables}
    for place, epoch in enumerate(EPOCHS):
        risk = at_risk(pool.times, epoch)
        groks, clusters = pool.times.reached[risk], (pool.settings[risk], pool.seeds[risk])
        within = None if strata is None else strata[risk]
        for name, table in tables.items():
            found[name][epoch] = auc(table[place, risk], groks, strata=within, clusters=clusters)
    return found


def correlations(pool: Pool, tables: Mapping[str, Values], strata: Labels | None) -> Correlated:
    """The rank correlation of each column with the epochs left, among runs that grok."""
    found: dict[str, dict[int, Estimate | None]] = {name: {} for name in tables}
    for epoch in SHOWN:
        chosen = at_risk(pool.times, epoch) & pool.times.reached
        left, clusters = pool.times.epochs[chosen] - epoch, (pool.settings[chosen], pool.seeds[chosen])
        within = None if strata is None else strata[chosen]
        for name, table in tables.items():
            found[name][epoch] = rank_correlation(
                table[EPOCHS.index(epoch), chosen], left, strata=within, clusters=clusters
            )
    return found


# In words and tables ----------------------------------------------------------------------------------------------


def _about(pool: Pool) -> str:
    """Which runs, and what counts as grokking."""
    n, grok = len(pool.times), int(pool.times.reached.sum())
    layouts = len(set(pool.layouts.tolist()))
    kinds = f"{len(set(pool.settings.tolist()))} settings in {layouts} layout{'' if layouts == 1 else 's'}"
    others = "; ".join(f"{count} {reason}" for reason, count in pool.left_out.items())
    return (
        f"A run groks when unseen accuracy reaches {THRESHOLD:.0%} within {HORIZON:,} epochs; then it is at risk no "
        f"longer. Of {n} different runs, of {kinds}, {grok} grok and {n - grok} do not"
        f"{f' (left out: {others})' if others else ''}. Runs of one setting differ in their seed alone; those of one "
        "layout share task, model and split."
    )


def _lacking(pool: Pool) -> list[str]:
    """Which of the measures that one would look for were not recorded by all runs."""
    n = {name: sum(measure.name in each for each in pool.curves) for name, measure in WANTED.items()}
    few = [f"{name} ({n[name] or 'none'} of them)" for name in WANTED if n[name] < len(pool.times)]
    if not few:
        return []
    again = "Results keep no weights, so it takes training again to measure more."
    return [f"Not all {len(pool.times)} runs recorded {listed(few)}. {again}"]


def _further(n: int) -> list[str]:
    return [f"Left out: {n} curves that runs of fewer than {FEWEST} settings of either kind recorded."] if n else []


def auc_table(pool: Pool, found: Mapping[str, Found]) -> Table:
    """A row for each measure, under a heading for each choice of pairs."""
    rows, headings = [], {}
    for name, measures in found.items():
        headings[len(rows)] = name
        if name == TOGETHER:
            rows.append(["runs that grok, that never do", "", "", "", *(_at_risk(pool, epoch) for epoch in SHOWN)])
        pairs = {
            epoch: max((one.pairs for each in measures.values() if (one := each[epoch])), default=0) for epoch in SHOWN
        }
        rows.append(["pairs of runs", "", "", "", *(f"{pairs[epoch]:,}" for epoch in SHOWN)])
        for column, each in measures.items():
            if column == ALONE and name == SETTINGS:  # there it is smaller for a run that groks, by its definition
                continue
            shown = [str(each[epoch] or "–") for epoch in SHOWN]
            need = "no measure" if column == ALONE else needs(column)
            rows.append([column, need, _told(each, 0.5), _told(each, 0.8), *shown])
    columns = ("measure", "needs", "tells from", "above 0.8 from", *(f"epoch {epoch:,}" for epoch in SHOWN))
    return Table(columns, rows, wordy=True, headings=headings)


def _at_risk(pool: Pool, epoch: int) -> str:
    risk, groks = at_risk(pool.times, epoch), pool.times.reached
    return f"{(risk & groks).sum()}, {(risk & ~groks).sum()}"


def _told(found: Mapping[int, Auc | None], level: float) -> str:
    """From when, and by which values."""
    if not any(each and each.reach > level for each in found.values()):
        return "too few settings"
    told = told_from(found, level)
    return "–" if told is None else f"{told[0]:,}, {told[1]}"


def when_table(pool: Pool, when: Mapping[str, Correlated]) -> Table:
    """A row for each measure, under a heading for each choice of runs that are ranked together."""
    rows: list[list[str]] = []
    headings = {}
    for name, measures in when.items():
        headings[len(rows)] = name
        if name == TOGETHER:
            rows.append(["runs", "", *(_at_risk(pool, epoch).split(",")[0] for epoch in SHOWN)])
        for column, each in measures.items():
            rows.append([column, needs(column), *(_correlation(each[epoch]) for epoch in SHOWN)])
    columns = ("measure", "needs", *(f"epoch {epoch:,}" for epoch in SHOWN))
    return Table(columns, rows, wordy=True, headings=headings)


def _correlation(found: Estimate | None) -> str:
    if found is None or found.value is None:
        return "–"
    ends = "" if found.low is None or found.high is None else f" [{found.low:z.2f}, {found.high:z.2f}]"
    return f"{found.value:z.2f}{ends}".replace("-", "−")


def draw(found: Found) -> go.Figure:
    """The AUC of some measures by epoch, with the interval where the mouse is."""
    figure = go.Figure()
    names = [name for name in DRAWN if name in found]
    for name, colour in zip((*names, ALONE), (*PALETTE[: len(names)], GREY), strict=True):
        known = {epoch: each for epoch, each in found[name].items() if each}
        dash = "dot" if name == ALONE else "dash" if needs(name) == "the oracle" else "solid"
        figure.add_scatter(
            x=list(known), y=[each.value for each in known.values()], name=name, mode="lines+markers",
            line={"color": colour, "dash": dash}, customdata=[[each.low, each.high] for each in known.values()],
            hovertemplate="%{y:.2f} [%{customdata[0]:.2f}, %{customdata[1]:.2f}]",
        )  # fmt: skip
    figure.add_hline(y=0.5, line={"color": INK, "width": 1})
    figure.update_layout(
        template=TEMPLATE, height=420, margin={"t": 70}, hovermode="x unified",
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
    )  # fmt: skip
    figure.update_xaxes(type="log", title_text="epoch", tickformat=",d", hoverformat=",d", dtick="D2")
    figure.update_yaxes(title_text="AUC", range=[-0.02, 1.02])
    return figure
