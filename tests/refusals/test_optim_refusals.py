"""What optimisers refuse, without run-time type checks: settings of the wrong type."""

import pytest
import torch
from torch.nn import Parameter

from bayesticket.errors import BayesticketError
from bayesticket.optim import OPTIMIZERS, make_optimizer, set_learning_rate, warmup_factor

SETTINGS = {"lr": 0.03, "weight_decay": 0.5, "betas": (0.9, 0.98), "momentum": 0.0}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("junk", ["0.1", True, None, torch.tensor(0.1)])
@pytest.mark.parametrize("field", ["lr", "weight_decay", "momentum"])
def test_settings_that_are_no_numbers(name, field, junk):
    with pytest.raises(BayesticketError, match=f"^{field}: got ") as caught:
        make_optimizer(name, {"W": Parameter(torch.ones(2, 3))}, **(SETTINGS | {field: junk}))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("junk", ["0.1", None, True])
def test_betas_that_are_no_numbers(junk):
    with pytest.raises(BayesticketError, match=r"^betas\[1\]: got "):
        make_optimizer("adamw", {"W": Parameter(torch.ones(2, 3))}, **(SETTINGS | {"betas": (0.9, junk)}))


@pytest.mark.parametrize("junk", ["1", None, True, 1.5])
def test_steps_and_rates_that_are_no_numbers(junk):
    optimizer = make_optimizer("sgd", {"W": Parameter(torch.ones(2, 3))}, **SETTINGS)
    with pytest.raises(BayesticketError, match=r"^step: got "):
        warmup_factor(junk, 4)
    with pytest.raises(BayesticketError, match=r"^warmup: got "):
        warmup_factor(0, junk)
    if junk != 1.5:
        with pytest.raises(BayesticketError, match=r"^lr: got "):
            set_learning_rate(optimizer, junk)
