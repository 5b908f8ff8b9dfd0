"""The norm that a mask leaves of a matrix, at any size of the matrix."""

import pytest
import torch

from bayesticket.analysis.ticket_controls import norm_kept


@pytest.mark.parametrize("scale", [1e-6, 0.5, 1.0, 3.0, 1e6])
def test_the_norm_that_is_kept_is_a_share_whatever_the_scale(scale):
    weight = scale * torch.randn(6, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mask = torch.rand(6, 7, generator=torch.Generator().manual_seed(1)) > 0.5
    assert norm_kept(weight, mask).item() == pytest.approx((weight[mask].norm() / weight.norm()).item(), rel=1e-12)
