"""Figures: everything that is drawn, and the pages that hold it."""

from bayesticket.figures.arms import (
    add_band,
    plot_arms,
)
from bayesticket.figures.families import (
    plot_bounds,
)
from bayesticket.figures.page import (
    Section,
    Table,
    write_page,
)
from bayesticket.figures.plot import (
    ACCURACY,
    INK,
    KL,
    MASS,
    PALETTE,
    TEMPLATE,
    Panel,
    finish_arms,
    mean_attention,
    plot_patterns,
    plot_run,
    plot_runs,
    position_labels,
    side_by_side,
    stacked,
    write_picture,
)

__all__ = [
    "ACCURACY",
    "INK",
    "KL",
    "MASS",
    "PALETTE",
    "TEMPLATE",
    "Panel",
    "Section",
    "Table",
    "add_band",
    "finish_arms",
    "mean_attention",
    "plot_arms",
    "plot_bounds",
    "plot_patterns",
    "plot_run",
    "plot_runs",
    "position_labels",
    "side_by_side",
    "stacked",
    "write_page",
    "write_picture",
]
