"""What optimisers refuse, without run-time type checks: settings of the wrong type."""

import pytest
import torch
from torch.nn import Parameter

from bayesticket.errors import BayesticketError
from bayesticket.optim import SGD, AdamW, Lion, Muon, build_optimizer, scale_learning_rates, warmup_factor


@pytest.mark.parametrize("kind", [AdamW, SGD, Muon, Lion])
@pytest.mark.parametrize("junk", ["0.1", True, None, torch.tensor(0.1)])
@pytest.mark.parametrize("field", ["lr", "weight_decay"])
def test_settings_that_are_no_numbers(kind, field, junk):
    with pytest.raises(BayesticketError, match=f"^{field}: got ") as caught:
        kind(**{field: junk})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("junk", ["0.1", True, None, torch.tensor(0.1)])
def test_a_momentum_that_is_no_number(junk):
    with pytest.raises(BayesticketError, match=r"^momentum: got "):
        SGD(momentum=junk)


@pytest.mark.parametrize("junk", ["0.1", None, True])
def test_betas_that_are_no_numbers(junk):
    with pytest.raises(BayesticketError, match=r"^betas\[1\]: got "):
        AdamW(betas=(0.9, junk))


@pytest.mark.parametrize("junk", [(0.9,), (), 0.9, "ab", (0.9, 0.9, 0.9)])
def test_betas_that_are_not_two(junk):
    with pytest.raises(BayesticketError, match=r"^betas: got .*accepted: two numbers"):
        Lion(betas=junk)


@pytest.mark.parametrize("junk", ["1", None, True, 1.5])
def test_steps_and_rates_that_are_no_numbers(junk):
    optimizer = build_optimizer(SGD(), {"W": Parameter(torch.ones(2, 3))})
    with pytest.raises(BayesticketError, match=r"^step: got "):
        warmup_factor(junk, 4)
    with pytest.raises(BayesticketError, match=r"^warmup: got "):
        warmup_factor(0, junk)
    if junk != 1.5:
        with pytest.raises(BayesticketError, match=r"^factor: got "):
            scale_learning_rates(optimizer, junk)
