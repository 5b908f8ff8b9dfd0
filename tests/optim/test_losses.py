"""The losses against their formulas, and where they stop giving gradient."""

import pytest
import torch
import torch.nn.functional as F
from helpers import refused
from hypothesis import given, settings
from hypothesis import strategies as st

import bayesticket as bt
from bayesticket.optim import CrossEntropy, StableMax


@pytest.mark.parametrize("loss", [CrossEntropy, StableMax])
def test_no_other_dtype_can_be_asked_for(loss):
    refused(lambda: loss(dtype="float16"), "dtype: got 'float16'; accepted: ", "'float64'")


def test_the_loss_is_computed_in_the_dtype_that_is_asked_for():
    logits, targets = torch.tensor([[30.0, 0.0]], requires_grad=True), torch.tensor([0])
    assert CrossEntropy()(logits, targets) == 0
    loss = CrossEntropy("float64")(logits, targets)
    assert loss.dtype == torch.float64
    assert loss.item() == pytest.approx(9.36e-14, rel=1e-2)
    loss.backward()
    assert logits.grad.dtype == torch.float32
    assert logits.grad[0, 1] > 0
    many = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    expected = F.cross_entropy(many, torch.arange(6) % 4)
    torch.testing.assert_close(CrossEntropy()(many, torch.arange(6) % 4), expected)


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10_000), scale=st.floats(0.01, 100.0))
def test_stablemax_is_its_formula(seed, scale):
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(5, 4, generator=generator, dtype=torch.float64)
    targets = torch.randint(4, (5,), generator=generator)
    s = [[x + 1 if x >= 0 else 1 / (1 - x) for x in row] for row in logits.tolist()]
    expected = -sum(torch.tensor(row[y] / sum(row)).log() for row, y in zip(s, targets.tolist(), strict=True)) / 5
    assert StableMax()(logits, targets).item() == pytest.approx(expected.item(), rel=1e-5)


def test_stablemax_gives_gradient_where_the_softmax_underflows():
    logits = torch.tensor([[200.0, 0.0]], requires_grad=True)
    for loss, vanishes in ((CrossEntropy(), True), (StableMax(), False)):
        (gradient,) = torch.autograd.grad(loss(logits, torch.tensor([0])), logits)
        assert bool((gradient == 0).all()) == vanishes
        assert gradient.isfinite().all()


def test_gradients_of_stablemax_are_those_of_finite_differences():
    # At 1 the branch that is not taken would divide by 0.
    logits = torch.tensor([[0.3, -1.2, 2.0], [-0.7, 0.4, -3.0], [1.0, 0.0, 1.0]], dtype=torch.float64)
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: StableMax()(x, torch.tensor([1, 2, 0])), (logits,))


def test_a_model_trains_on_another_loss_and_says_so():
    task, small = bt.ModularAddition(p=5), bt.Architecture(d_model=8, d_mlp=8)
    runs = {loss: bt.train(task, loss=loss, model=small, epochs=20, lr=1e-2) for loss in (CrossEntropy(), StableMax())}
    for loss, run in runs.items():
        assert run.config.loss == loss
        assert run.curves["train_loss"].iloc[-1] < run.curves["train_loss"].iloc[0]
        logits = run.model(task.split().train.tokens)[:, -1]
        assert run.curves["train_loss"].iloc[-1] == pytest.approx(
            loss(logits, task.split().train.targets).item(), rel=1e-5
        )
    assert not runs[CrossEntropy()].curves.equals(runs[StableMax()].curves)


def test_a_loss_of_ones_own_is_one_class():
    @bt.spec
    class SquaredError(bt.LossFunction):
        def __call__(self, logits, targets):
            return (logits - F.one_hot(targets, logits.shape[-1])).square().mean()

    run = bt.train(bt.ModularAddition(p=5), loss=SquaredError(), model=bt.Architecture(d_model=8, d_mlp=8), epochs=10)
    assert run.curves["train_loss"].iloc[-1] < run.curves["train_loss"].iloc[0]
