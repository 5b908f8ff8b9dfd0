"""Analysis: what finished runs show: grokking times and their statistics, phases, lottery tickets.

Everything here reads runs that exist; only tickets train new ones. Times of runs that never grokked are censored, never
left out.
"""

from bayesticket.analysis.comparisons import (
    Comparison,
    compare_times,
    log_rank_excess,
    log_rank_p,
    log_rank_trend,
    ratio_of_medians,
)
from bayesticket.analysis.overlap import jaccard_by_matrix, jaccard_distance
from bayesticket.analysis.phases import WINDOW, Phases, find_phases, find_phases_by_norm, smoothed
from bayesticket.analysis.power_law import PowerLaw, added_rates, power_law
from bayesticket.analysis.prediction import Auc, Prediction, at_risk, auc, predict, rank_correlation, told_from
from bayesticket.analysis.pruning import magnitude_masks
from bayesticket.analysis.ticket_controls import random_ticket, same_norm
from bayesticket.analysis.tickets import Ticket, find_ticket, retrain, rewind, ticket_config, weights_after
from bayesticket.analysis.times import Estimate, Times, median_time

__all__ = [
    "WINDOW",
    "Auc",
    "Comparison",
    "Estimate",
    "Phases",
    "PowerLaw",
    "Prediction",
    "Ticket",
    "Times",
    "added_rates",
    "at_risk",
    "auc",
    "compare_times",
    "find_phases",
    "find_phases_by_norm",
    "find_ticket",
    "jaccard_by_matrix",
    "jaccard_distance",
    "log_rank_excess",
    "log_rank_p",
    "log_rank_trend",
    "magnitude_masks",
    "median_time",
    "power_law",
    "predict",
    "random_ticket",
    "rank_correlation",
    "ratio_of_medians",
    "retrain",
    "rewind",
    "same_norm",
    "smoothed",
    "ticket_config",
    "told_from",
    "weights_after",
]
