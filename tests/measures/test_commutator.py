"""The commutator defect against Hessians, and against two orders of plain gradient steps."""

import copy
import statistics

import pytest
import torch
import torch.nn.functional as F
from catalog import ADDITION, FORWARDS, model_of
from helpers import properties, refused, seeds, value_of
from hypothesis import given
from hypothesis import strategies as st

import bayesticket as bt
from bayesticket.measures import CommutatorDefect, commutator_defect

BATCH = ADDITION.split(0.6).train


@given(seed=seeds, lr=st.floats(1e-4, 0.5))
@properties
def test_of_quadratic_losses_it_is_the_commutator_of_their_hessians_at_any_rate(seed, lr):
    generator = torch.Generator().manual_seed(seed)
    one, other = (torch.randn(4, 4, dtype=torch.float64, generator=generator) for _ in range(2))
    one, other = one + one.T, other + other.T
    weights = torch.randn(4, dtype=torch.float64, generator=generator)
    expected = (other @ one @ weights - one @ other @ weights).norm() / (
        (one @ weights).norm() * (other @ weights).norm()
    )
    found = commutator_defect(lambda w: one @ w, lambda w: other @ w, weights, lr)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)


def test_gradients_that_shrink_alone_make_it_larger():
    hessian = torch.tensor([[2.0, 1.0], [1.0, 3.0]], dtype=torch.float64)
    other = torch.tensor([[1.0, 0.0], [0.0, 2.0]], dtype=torch.float64)
    large, small = (
        commutator_defect(lambda w: hessian @ w, lambda w: other @ w, scale * torch.ones(2, dtype=torch.float64), 1e-3)
        for scale in (1.0, 0.01)
    )
    torch.testing.assert_close(small, 100 * large)


def pairs_of(measure, batch):
    return list(measure._drawn(batch))


@pytest.mark.parametrize("forward", FORWARDS)
@pytest.mark.parametrize("options", [{}, {"residual": True}, {"n_heads": 1}, {"n_layers": 2}], ids=str)
def test_it_is_the_median_of_two_orders_of_plain_steps(forward, options):
    if forward == "fast" and "n_layers" in options:
        pytest.skip("the query-only forward serves one layer")
    model, measure = model_of(ADDITION, **options), CommutatorDefect(pairs=4, batch_size=8, lr=0.01)

    def stepped(model, batch):
        moved = copy.deepcopy(model)
        loss = F.cross_entropy(moved(batch.tokens)[:, -1], batch.targets)
        gradients = torch.autograd.grad(loss, list(moved.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(moved.parameters(), gradients, strict=True):
                parameter -= measure.lr * gradient
        return moved

    def apart(one, other):
        return sum((a - b).square().sum() for a, b in zip(one.parameters(), other.parameters(), strict=True)).sqrt()

    defects = []
    for a, b in pairs_of(measure, BATCH):
        by_a, by_b = stepped(model, a), stepped(model, b)
        defects.append((apart(stepped(by_a, b), stepped(by_b, a)) / (apart(model, by_a) * apart(model, by_b))).item())
    found = value_of(measure, model, BATCH, forward=forward)
    assert found == pytest.approx(statistics.median(defects), rel=1e-6)


def test_small_steps_do_not_drown_in_the_rounding_of_float32():
    model = model_of(ADDITION, n_heads=1).float()
    model.cfg.dtype = torch.float32
    coarse, fine = (value_of(CommutatorDefect(pairs=2, batch_size=10, lr=lr), model, BATCH) for lr in (1e-6, 1e-8))
    assert fine == pytest.approx(coarse, rel=1e-2)


def test_the_two_batches_of_a_pair_have_no_common_example():
    for one, other in pairs_of(CommutatorDefect(pairs=5, batch_size=1000), BATCH):
        both = torch.cat([one.tokens, other.tokens])
        assert len(one) == len(other) == len(BATCH) // 2
        assert len(both.unique(dim=0)) == len(both)


def test_training_is_the_same_with_it_and_a_snapshot_gives_what_training_recorded():
    measure = CommutatorDefect(pairs=2, batch_size=8)
    options = {"epochs": 12, "record_every": 4, "seed": 1, "model": bt.Architecture(d_model=8, d_mlp=8)}
    plain = bt.train(ADDITION, bt.KLPrior(), **options)
    run = bt.train(ADDITION, bt.KLPrior(), measures=[measure], snapshots=bt.Every(4), **options)
    assert all(torch.equal(run.weights[name], plain.weights[name]) for name in plain.weights)
    recorded = run.curves[measure.name]
    assert recorded.notna().all()
    assert list(run.measure(measure)) == pytest.approx(list(recorded), rel=1e-6)


def test_weights_that_are_not_trained_stay():
    model = model_of(ADDITION, n_heads=1)
    whole = value_of(CommutatorDefect(pairs=1, batch_size=8), model, BATCH)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name == "unembed.W_U")
    (one, other), lr = pairs_of(CommutatorDefect(pairs=1, batch_size=8), BATCH)[0], 1e-3

    def gradient_on(batch):
        _, cache = model.run_with_cache(batch.tokens)
        final = cache["blocks.0.hook_resid_post"][:, -1].detach()

        def gradient(weights):  # a linear classifier's, in closed form
            shares = (final @ weights.view_as(model.unembed.W_U) + model.unembed.b_U).softmax(-1)
            return (final.T @ (shares - F.one_hot(batch.targets, shares.shape[1])) / len(batch)).flatten().detach()

        return gradient

    expected = commutator_defect(gradient_on(one), gradient_on(other), model.unembed.W_U.detach().flatten(), lr)
    found = value_of(CommutatorDefect(pairs=1, batch_size=8), model, BATCH)
    assert found == pytest.approx(expected.item(), rel=1e-6)
    assert found != pytest.approx(whole, rel=0.1)


def test_bad_input():
    refused(lambda: CommutatorDefect(pairs=0), "pairs", "0")
    refused(lambda: CommutatorDefect(batch_size=0), "batch_size", "0")
    refused(lambda: CommutatorDefect(lr=0.0), "lr", "0.0")
    model = model_of(ADDITION)
    refused(lambda: bt.measure(model, BATCH.select(slice(1)), CommutatorDefect()), "1 example", "at least 2")
    still = model_of(ADDITION).requires_grad_(False)
    refused(lambda: bt.measure(still, BATCH, CommutatorDefect()), "no parameter that is trained")
    edited = bt.FrozenAttention("oracle")
    refused(lambda: bt.measure(model, BATCH, CommutatorDefect(), intervention=edited), "CommutatorDefect")
