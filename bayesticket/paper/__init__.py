"""The paper's figures: what each runs, draws and claims, and what was found. To add one, list its module here.

Most exist for both models: `fig1` is of the paper's minimal one, `fig1-standard` of a standard layer.
"""

import importlib

from bayesticket.errors import refuse_name
from bayesticket.paper.figure import STANDARD_NAME, PaperFigure

OF_BOTH_MODELS = (
    *("fig1", "fig2", "fig3", "controls", "fig4", "fig5", "conditions", "decay"),
    *("fig6", "fig7", "fig8", "fig9", "fig10", "fig11", "autoregressive", "practical"),
)
MODULES = (*OF_BOTH_MODELS, "equation9", "specification", "early")
NAMES = (*(name + model for name in OF_BOTH_MODELS for model in ("", STANDARD_NAME)), *MODULES[len(OF_BOTH_MODELS) :])
"""The figures of the minimal model, each with that of the standard layer after it, then those that vary the model."""


def find_figure(name: str) -> PaperFigure:
    """A figure by its name.

    >>> find_figure("fig1").title
    'Figure 1: the dynamics without any intervention'
    >>> find_figure("fig1-standard").title
    'Figure 1, standard layer: the dynamics without any intervention'
    """
    if name not in NAMES:
        raise refuse_name("figure", name, (*NAMES, "all"))
    module = name.removesuffix(STANDARD_NAME)
    figure = importlib.import_module(f"bayesticket.paper.{module}").FIGURE
    return figure if name == module else figure.standard
