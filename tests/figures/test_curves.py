"""Bands are medians and quartiles, and axes hold what is drawn."""

import numpy as np
import plotly.graph_objects as go
import pytest

from bayesticket.errors import BayesticketError
from bayesticket.figures import KL, PALETTE, finish_arms, stacked
from bayesticket.figures.curves import band, fit_log_axes
from bayesticket.figures.style import LOSS


class TestBand:
    def test_is_the_median_and_the_quartiles(self):
        values = np.random.default_rng(0).normal(size=(7, 4))
        lower, upper, median = band(range(4), values, name="kl", colour=PALETTE[0])
        for drawn, quantile in ((lower, 25), (median, 50), (upper, 75)):
            np.testing.assert_allclose(drawn.y, np.percentile(values, quantile, axis=0))
        assert upper.fill == "tonexty"
        assert [trace.showlegend for trace in (lower, upper, median)] == [False, False, None]

    def test_leaves_out_missing_values_and_counts_the_rest(self):
        values = [[1.0, np.nan, np.nan], [3.0, 5.0, np.nan]]
        *_, median = band([0, 10, 20], values, name="kl", colour=PALETTE[0])
        assert median.x.tolist() == [0, 10]
        assert median.y.tolist() == [2.0, 5.0]
        assert median.customdata[:, 2].tolist() == [2, 1]

    def test_refuses_values_of_another_shape(self):
        with pytest.raises(BayesticketError, match=r"values: got \(2, 3\).*\(seeds, 2\)"):
            band([0, 10], np.zeros((2, 3)), name="kl", colour=PALETTE[0])


@pytest.mark.parametrize("values", [[1.0, 1.0], [1e-9, 1e3], [0.0, 0.0], [np.nan, 0.5], [0.7, 1.1]])
def test_log_axes_hold_what_is_drawn(values: list[float]):
    panels = (LOSS, KL)
    figure = stacked(panels).add_trace(go.Scatter(x=[0, 1], y=values, yaxis="y"))
    fit_log_axes(figure, panels)
    shown = [np.log10(value) for value in values if value > 0]
    if shown:
        low, high = figure.layout.yaxis.range
        assert low < min(shown) <= max(shown) < high
        assert high - low > 0.99


def test_a_legend_of_several_lines_has_room_above_panels_of_the_same_height():
    def finished(n):
        figure = stacked([LOSS]).add_traces([go.Scatter(name=f"arm {place}", showlegend=True) for place in range(n)])
        finish_arms(figure, [LOSS], 100)
        top, bottom = figure.layout.margin.t, figure.layout.margin.b or 0
        return top, figure.layout.height - top - bottom

    (few, height), (many, same) = finished(2), finished(20)
    assert many > few
    assert same == height
