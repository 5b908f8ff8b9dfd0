"""Figures of one run, one for each family of measures: bounds, gradients, structure, capacity, frequencies.

A figure shows what the run recorded of its family, with the run's phases shaded behind it. A family is one module: the
measures to record, the panels, and what to look at.
"""

from bayesticket.figures.measures.bounds import plot_bounds
from bayesticket.figures.measures.capacity import plot_capacity
from bayesticket.figures.measures.families import FAMILIES, write_families
from bayesticket.figures.measures.family import Family
from bayesticket.figures.measures.frequencies import plot_frequencies
from bayesticket.figures.measures.gradients import plot_gradients
from bayesticket.figures.measures.structure import plot_structure

__all__ = [
    "FAMILIES",
    "Family",
    "plot_bounds",
    "plot_capacity",
    "plot_frequencies",
    "plot_gradients",
    "plot_structure",
    "write_families",
]
