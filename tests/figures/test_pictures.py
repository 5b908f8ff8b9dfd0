"""Pictures of runs side by side, and as files."""

from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
from figure_cases import named

from bayesticket.errors import BayesticketError
from bayesticket.figures import side_by_side, write_picture
from bayesticket.runs import Run


def test_side_by_side_draws_two_columns(runs: dict[str, Run]):
    first, second = named(side_by_side(runs), "kl")
    assert np.array_equal(first.y, runs["kl"].curves["test_accuracy"])
    assert np.array_equal(second.y, runs["kl"].curves["informative_mass_mean"])


def test_a_picture_that_cannot_be_drawn_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*args: object, **options: object) -> bytes:
        raise ValueError("\nImage export requires the kaleido package\nmore")

    monkeypatch.setattr(go.Figure, "to_image", fail)
    with pytest.raises(BayesticketError, match=r"picture: .*Image export requires.*accepted: .*kaleido"):
        write_picture(go.Figure(), tmp_path / "a.png", width=10, height=10)
    assert not list(tmp_path.iterdir())
