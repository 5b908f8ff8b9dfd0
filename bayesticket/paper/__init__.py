"""The paper's figures: what each runs, draws and claims, and what was found. To add one, list its module here."""

import importlib

from bayesticket.errors import refuse_name
from bayesticket.paper.figure import PaperFigure

NAMES = ("fig1", "fig2", "fig3", "controls", "fig4", "fig5")


def find_figure(name: str) -> PaperFigure:
    """A figure by its name.

    >>> find_figure("fig1").title
    'Figure 1: the dynamics without any intervention'
    """
    if name not in NAMES:
        raise refuse_name("figure", name, (*NAMES, "all"))
    return importlib.import_module(f"bayesticket.paper.{name}").FIGURE
