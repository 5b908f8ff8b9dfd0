"""What is wrong with an optimiser, a loss, a measure or an intervention of one's own is said before training."""

import pytest
import torch
import torch.nn.functional as F
from helpers import refused
from small_runs import small_run

import bayesticket as bt


@bt.spec
class MlpNorm(bt.Measure):
    """Its curve would have the name of the library's MLPNorm."""

    def value(self, seen):
        return 0 * seen.loss + 42.0


def test_a_measure_with_the_name_of_a_default_one_is_refused():
    refused(lambda: small_run(measures=[MlpNorm()]), "measures: got 'mlp_norm'", "MLPNorm is recorded by default")


@bt.spec
class Unreduced(bt.LossFunction):
    how: str = "none"

    def __call__(self, logits, targets):
        loss = F.cross_entropy(logits, targets, reduction="none" if self.how == "none" else "mean")
        return {"none": loss, "number": loss.mean().item(), "detached": loss.detach()}[self.how]


@pytest.mark.parametrize(
    ("how", "said"),
    [("none", "got a tensor of shape (14,)"), ("number", "got 1.9"), ("detached", "got tensor(1.9")],
)
def test_a_loss_gives_one_number_that_can_be_differentiated(how, said):
    refused(lambda: small_run(loss=Unreduced(how)), "Unreduced: ", said, "a tensor of one number, differentiable")


class CountingSteps(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["n"] = self.state[parameter].get("n", 0) + 1


@bt.spec
class StepCounting(bt.Optimizer):
    def build(self, parameters):
        return CountingSteps(parameters.values(), lr=self.lr)


@bt.spec
class Newton(bt.Optimizer):
    def build(self, parameters):
        return torch.optim.LBFGS(parameters.values(), lr=self.lr)


@pytest.mark.parametrize("stored", [True, False])
def test_state_that_no_file_can_hold_is_found_after_the_first_step(stored, tmp_path):
    seen = []
    options = {"optimizer": StepCounting(), "store": tmp_path / "run" if stored else None}
    refused(
        lambda: small_run(**options, progress=lambda epoch, record: seen.append(epoch)), "optimizer state", "/n: got 1"
    )
    assert seen == []


def test_an_optimiser_that_needs_a_closure_is_refused():
    refused(lambda: small_run(optimizer=Newton()), "Newton.build: got LBFGS, whose step needs a closure")


@bt.spec
class Misspelt(bt.Intervention):
    def gradient(self, context, gradients):
        return gradients


def test_an_intervention_without_a_port_is_refused():
    refused(lambda: small_run(intervention=Misspelt()), "Misspelt: got an intervention that does nothing", "gradients")
