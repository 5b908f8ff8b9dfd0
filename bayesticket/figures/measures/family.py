"""Families: measures that are shown together in one figure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pandas as pd
import plotly.graph_objects as go

from bayesticket.errors import BayesticketError, refuse_case
from bayesticket.figures.measures.columns import measures_of
from bayesticket.figures.panels import Row, draw
from bayesticket.runs import Run


@dataclass(frozen=True)
class Family:
    """Measures that are shown together in one figure."""

    heading: str
    measures: tuple[str, ...]
    """What to record for it, as it is written in `measures=[…]`."""
    text: str
    """What to look at, for any run."""
    rows: Callable[[Run], Sequence[Row]]
    """The panels of a run, from top to bottom."""
    derived: Callable[[Run], pd.DataFrame] | None = None
    """Further columns that the panels show, computed from the recorded ones."""
    ends_labelled: bool = False
    """Whether the curves of the first panel have their names at their right ends instead of in a legend."""

    def is_recorded(self, run: Run) -> bool:
        """Whether the run recorded some of the family."""
        return len(run.curves) > 0 and any(row.curves for row in self.rows(run))

    def plot(self, run: Run) -> go.Figure:
        """What the run recorded of the family; raises BayesticketError if that is nothing."""
        if not self.is_recorded(run):
            raise nothing_of(run, self)
        if self.derived is not None:
            run = replace(run, curves=run.curves.join(self.derived(run)))
        return draw(run, self.heading, self.rows(run), ends_labelled=self.ends_labelled)


def nothing_of(run: Run, *families: Family) -> BayesticketError:
    """The error for a run that recorded none of some families."""
    measures = measures_of(run)
    situation = f"a run that recorded {', '.join(measures)}" if measures else "a run without records"
    names = dict.fromkeys(name for family in families for name in family.measures)
    return refuse_case("run", situation, f"one that recorded some of measures=[{', '.join(names)}]")
