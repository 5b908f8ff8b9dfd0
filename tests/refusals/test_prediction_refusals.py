"""Predictions are refused of labels that are those of other runs, and of epochs that are none."""

import numpy as np
from helpers import refused

from bayesticket.analysis import Times, at_risk, auc, rank_correlation


def test_labels_of_other_runs_are_refused():
    values, groks = np.arange(4.0), np.arange(4) > 1
    refused(lambda: auc(values, groks[1:]), "groks", "4 runs")
    refused(lambda: auc(values, groks, strata=np.arange(3)), "strata", "4 runs")
    refused(lambda: auc(values, groks, clusters=[groks, np.arange(5)]), "clusters", "4 runs")
    refused(lambda: rank_correlation(values, values[:2]), "others", "4 runs")
    refused(lambda: auc(values, groks, resamples=0), "resamples")
    refused(lambda: at_risk(Times.of([300], trained=[300]), -1), "epoch")
