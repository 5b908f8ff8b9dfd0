"""Analysis: what is read off finished runs: grokking times and their statistics, phases, lottery tickets."""

from bayesticket.analysis.phases import (
    WINDOW,
    Phases,
    find_phases,
)
from bayesticket.analysis.stats import (
    Estimate,
    PowerLaw,
    Times,
    compare,
    excess,
    median_time,
    power_law,
    ratio_of_medians,
)
from bayesticket.analysis.tickets import (
    Ticket,
    find_ticket,
    jaccard_distance,
    random_ticket,
    retrain,
    rewind,
    same_norm,
    ticket_config,
)

__all__ = [
    "WINDOW",
    "Estimate",
    "Phases",
    "PowerLaw",
    "Ticket",
    "Times",
    "compare",
    "excess",
    "find_phases",
    "find_ticket",
    "jaccard_distance",
    "median_time",
    "power_law",
    "random_ticket",
    "ratio_of_medians",
    "retrain",
    "rewind",
    "same_norm",
    "ticket_config",
]
