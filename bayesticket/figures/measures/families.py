"""All families, and a page with a figure for each that a run recorded."""

import os
from pathlib import Path

from bayesticket.figures.measures.bounds import BOUNDS
from bayesticket.figures.measures.capacity import CAPACITY
from bayesticket.figures.measures.family import nothing_of
from bayesticket.figures.measures.frequencies import FREQUENCIES
from bayesticket.figures.measures.gradients import GRADIENTS
from bayesticket.figures.measures.structure import STRUCTURE
from bayesticket.figures.page import Section, write_page
from bayesticket.figures.panels import untitled
from bayesticket.figures.phases import phases_in_words, phases_of
from bayesticket.figures.runs import label_of
from bayesticket.runs import Run

FAMILIES = (BOUNDS, GRADIENTS, STRUCTURE, CAPACITY, FREQUENCIES)
"""All families, in the order of a page."""


def write_families(run: Run, path: str | os.PathLike[str]) -> Path:
    """Writes a page with a figure for every family that the run recorded; returns its path."""
    families = [family for family in FAMILIES if family.is_recorded(run)]
    if not families:
        raise nothing_of(run, *FAMILIES)
    found = phases_in_words(run)
    one = f"This is one run ({label_of(run)}), {run.epoch:,} epochs long: an illustration, not evidence."
    shading = f"Its phases: {'; '.join(found)}. " if found else ""
    if phases_of(run) is not None:
        shading += "The first reading is shaded in every figure. "
    how = "Drag over a part to enlarge it, double-click to go back, click a name to hide a curve."
    sections = [Section("", [one, f"{shading}{how}"])]
    sections += [Section(family.heading, [family.text], untitled(family.plot(run))) for family in families]
    return write_page(path, "A training run, measure by measure", sections)
