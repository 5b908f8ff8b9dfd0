"""Figures: everything that is drawn, and the pages that hold it.

`style` has the look that all figures share, `curves` and `panels` the parts that they are made of; `measures` has a
figure for each family of measures. A figure reads what a run recorded and computes no result of its own.
"""

from bayesticket.figures.arms import add_band, plot_arms
from bayesticket.figures.attention import attention_by_head, mean_attention, plot_patterns
from bayesticket.figures.curves import axis_name, finish_arms, stacked
from bayesticket.figures.film import film
from bayesticket.figures.matrices import plot_circle, plot_heads, plot_norms, plot_ov, plot_pattern, plot_qk
from bayesticket.figures.measures import (
    FAMILIES,
    Family,
    plot_bounds,
    plot_capacity,
    plot_frequencies,
    plot_gradients,
    plot_structure,
    write_families,
)
from bayesticket.figures.page import Cell, Fold, Notes, Section, Table, write_page
from bayesticket.figures.pictures import side_by_side, write_picture
from bayesticket.figures.runs import plot_run, plot_runs
from bayesticket.figures.strips import Strip, add_strips, strips_of_arm, strips_of_run
from bayesticket.figures.style import (
    ACCURACY,
    GREY,
    INK,
    KL,
    MASS,
    PALETTE,
    SHADES,
    TEMPLATE,
    Look,
    Panel,
    look,
    shades,
)

__all__ = [
    "ACCURACY",
    "FAMILIES",
    "GREY",
    "INK",
    "KL",
    "MASS",
    "PALETTE",
    "SHADES",
    "TEMPLATE",
    "Cell",
    "Family",
    "Fold",
    "Look",
    "Notes",
    "Panel",
    "Section",
    "Strip",
    "Table",
    "add_band",
    "add_strips",
    "attention_by_head",
    "axis_name",
    "film",
    "finish_arms",
    "look",
    "mean_attention",
    "plot_arms",
    "plot_bounds",
    "plot_capacity",
    "plot_circle",
    "plot_frequencies",
    "plot_gradients",
    "plot_heads",
    "plot_norms",
    "plot_ov",
    "plot_pattern",
    "plot_patterns",
    "plot_qk",
    "plot_run",
    "plot_runs",
    "plot_structure",
    "shades",
    "side_by_side",
    "stacked",
    "strips_of_arm",
    "strips_of_run",
    "write_families",
    "write_page",
    "write_picture",
]
