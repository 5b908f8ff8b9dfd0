"""Weight decay, the plateau's length, the KL flow and the extensions: properties, and solutions found another way."""

import math

import pytest
import scipy.integrate
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_theory import Draw, at_most, close, number, oracle, properties, scales, seeds

from bayesticket import theory
from bayesticket.errors import BayesticketError
from bayesticket.optim import as_optimizer, build_optimizer

rates = st.floats(1e-4, 1.0)
betas = st.tuples(st.sampled_from([0.0, 0.5, 0.9, 0.95]), st.sampled_from([0.3, 0.9, 0.95, 0.98, 0.999]))


# Contraction


@properties
@given(seeds, scales, rates, st.sampled_from([1e-3, 0.1, 1.0]))
def test_one_step_contracts(seed, scale, rate, lr):
    draw = Draw(seed)
    decay = rate / lr
    weight, direction = draw.normal(20, 3, 4), draw.normal(20, 3, 4, scale=scale)
    if draw.size(0, 1):  # the worst case of Young's inequality: D along −W
        weight = -direction * draw.uniform(20, 1, 1) * 3 / decay
    bound = direction.norm(dim=(-2, -1)).max().item()
    optimiser = theory.contraction(lr, decay, bound) if rate <= 1 else None
    after = ((1 - lr * decay) * weight - lr * direction).norm(dim=(-2, -1))
    before = weight.norm(dim=(-2, -1))
    at_most(after.square(), theory.contracted_square(before, optimiser))
    at_most(after, theory.norm_envelope(before, torch.ones_like(before), optimiser))
    # It is the best of its kind: attained where D is λ times −W.
    close(theory.contracted_square(number(optimiser.floor), optimiser), number(optimiser.floor**2))
    close(number((1 - rate) * optimiser.floor + lr * bound), number(optimiser.floor))


@properties
@given(seeds, betas, st.floats(1e-3, 0.5), st.floats(0.1, 1.9), st.sampled_from(["adamw", "lion", "muon", "sgd"]))
def test_optimisers_obey_their_contraction(seed, betas, lr, decay, name):
    draw = Draw(seed)
    shapes = {"blocks.0.mlp.W_in": (3, 5), "blocks.0.attn.W_Q": (2, 4, 3), "blocks.0.mlp.W_out": (5, 3)}
    weights = {key: torch.nn.Parameter(draw.normal(*shape)) for key, shape in shapes.items()}
    own = {} if name == "sgd" else {"betas": betas}
    optimiser = build_optimizer(as_optimizer(name, lr=lr, weight_decay=decay, **own), weights)
    start = {key: weight.detach().norm() for key, weight in weights.items()}
    bounds = {}
    for step in range(1, 13):
        for weight in weights.values():
            # Gradients that come and go, over many orders of magnitude.
            size = 10.0 ** draw.size(-6, 3) * (draw.uniform(*weight.shape) < 0.4)
            weight.grad = draw.normal(*weight.shape) * size
        before = {key: weight.detach().clone() for key, weight in weights.items()}
        optimiser.step()
        for key, weight in weights.items():
            if name == "sgd":
                bounds[key] = theory.sgd_contraction(lr, decay, weight.grad.norm().item())
            elif name == "adamw":
                bounds[key] = theory.adamw_contraction(lr, decay, weight.shape, betas, steps=step)
            elif name == "lion":
                bounds[key] = theory.lion_contraction(lr, decay, weight.shape)
            else:
                bounds[key] = theory.muon_contraction(lr, decay, weight.shape)
            direction = ((1 - lr * decay) * before[key] - weight.detach()) / lr
            at_most(direction.norm(), bounds[key].step_bound, 1e-9)
            at_most(weight.detach().norm() ** 2, theory.contracted_square(before[key].norm(), bounds[key]), 1e-9)
    if name in ("lion", "muon"):
        for key, weight in weights.items():
            at_most(weight.detach().norm(), theory.norm_envelope(start[key], number(12.0), bounds[key]), 1e-9)


@properties
@given(seeds, betas, st.integers(1, 60))
def test_adam_ratio_is_bounded_and_attained(seed, betas, steps):
    draw = Draw(seed)
    beta1, beta2 = betas
    bound = theory.adam_ratio_bound(betas, steps=steps)
    age = torch.arange(steps - 1, -1, -1, dtype=torch.float64)
    worst = (beta1 / beta2) ** age
    gradients = torch.cat([worst[None], draw.normal(50, steps) * 10.0 ** draw.normal(50, steps, scale=2.0)])
    mean = (1 - beta1) * (beta1**age * gradients).sum(-1) / (1 - beta1**steps)
    square = (1 - beta2) * (beta2**age * gradients.square()).sum(-1) / (1 - beta2**steps)
    ratio = mean.abs() / square.sqrt()
    at_most(ratio, bound)
    close(ratio[0], number(bound))
    # Adam takes what it is said to take, and more steps allow more.
    assert bound <= theory.adam_ratio_bound(betas, steps=steps + 1) * (1 + 1e-12)
    assert bound <= theory.adam_ratio_bound(betas) * (1 + 1e-12)


def test_adam_ratio_at_its_edges():
    assert theory.adam_ratio_bound((0.0, 0.0)) == 1
    assert theory.adam_ratio_bound((0.9, 0.9)) == pytest.approx(1)
    assert theory.adam_ratio_bound((0.0, 0.99)) == pytest.approx(10)
    assert theory.adam_ratio_bound((0.9, 0.81)) == theory.adam_ratio_bound((0.9, 0.0)) == math.inf
    assert theory.adam_ratio_bound((0.9, 0.0), steps=1) == 1
    assert theory.adam_ratio_bound((0.9, 0.0), steps=2) == math.inf
    assert theory.adam_ratio_bound((0.95, 0.3), steps=10**6) == math.inf
    assert theory.adam_ratio_bound((0.5, 0.25), steps=4) < math.inf
    assert theory.adam_ratio_bound((0.9, 0.999), steps=10**6) == pytest.approx(theory.adam_ratio_bound((0.9, 0.999)))


def test_newton_schulz_peak():
    from bayesticket.optim.muon import NEWTON_SCHULZ_COEFFICIENTS, newton_schulz

    a, b, c = NEWTON_SCHULZ_COEFFICIENTS
    x = torch.linspace(0, 1, 2_000_001, dtype=torch.float64)
    for _ in range(5):
        x = a * x + b * x**3 + c * x**5
        at_most(x, theory.NEWTON_SCHULZ_PEAK)
    close(x.max(), number(theory.NEWTON_SCHULZ_PEAK), 1e-6)
    singular = torch.linspace(0, 1, 400, dtype=torch.float64)
    at_most(torch.linalg.svdvals(newton_schulz(torch.diag(singular))), theory.NEWTON_SCHULZ_PEAK)


# The plateau


@properties
@given(seeds, st.floats(1e-3, 0.3), st.floats(0.0, 2.0))
def test_waits_bracket_every_trajectory(seed, rate, step_bound):
    draw = Draw(seed)
    lr = 0.05
    optimiser = theory.contraction(lr, rate / lr, step_bound)
    weight = draw.normal(6)
    weight *= (2 + 5 * draw.uniform(1)) * (1 + optimiser.floor) / weight.norm()
    start, radius = weight.norm(), 1.05 * optimiser.floor + 0.2
    least = theory.plateau_wait_least(start, radius, rate, optimiser.floor)
    most = theory.plateau_wait_most(start, radius, rate, optimiser.floor)
    at_most(least, most)
    close(theory.norm_envelope(start, most, optimiser), radius + 0 * start)
    style, steps = draw.size(0, 2), 0
    while weight.norm() > radius:
        direction = [weight, -weight, draw.normal(6)][style]
        weight = (1 - rate) * weight - lr * step_bound * direction / direction.norm()
        steps += 1
    assert least <= steps <= math.ceil(most + 1e-9)
    envelope = theory.norm_envelope(start, number(float(steps)), optimiser)
    at_most(weight.norm(), envelope)


@properties
@given(seeds, st.floats(1e-5, 0.5))
def test_pure_decay(seed, rate):
    norm, radius = Draw(seed).uniform(2, 10) * 50 + 0.1
    norm, radius = torch.maximum(norm, radius), torch.minimum(norm, radius)
    least = theory.plateau_wait_least(norm, radius, rate)
    close(norm * torch.exp(least * math.log1p(-rate)), radius)
    close(theory.plateau_wait_most(norm, radius, rate), 2 * least)
    at_most(2 * least, theory.plateau_wait_paper(norm, radius, rate))


def test_waits_at_their_edges():
    norm = number([1.0, 3.0])
    assert theory.plateau_wait_least(norm, 2.0, 0.1)[0] == theory.plateau_wait_paper(norm, 2.0, 0.1)[0] == 0
    assert theory.plateau_wait_most(norm, 2.0, 0.1, floor=2.5).tolist() == [0.0, math.inf]
    assert theory.plateau_wait_most(norm, 2.0, 1.0).tolist() == [0.0, 0.0]
    assert theory.norm_envelope(norm, number([0.0, 1.0]), theory.contraction(1.0, 1.0, 0.0)).tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: theory.contraction(0.0, 1.0, 1.0), "lr"),
        (lambda: theory.contraction(0.1, 0.0, 1.0), "weight_decay"),
        (lambda: theory.contraction(0.1, 11.0, 1.0), r"lr \* weight_decay"),
        (lambda: theory.sgd_contraction(0.1, 1.0, -1.0), "step_bound"),
        (lambda: theory.muon_contraction(0.1, 1.0, (3,)), "shape"),
        (lambda: theory.lion_contraction(0.1, 1.0, (3, 0)), r"shape\[1\]"),
        (lambda: theory.adam_ratio_bound((0.9, 1.0)), r"betas\[1\]"),
        (lambda: theory.adam_ratio_bound((0.9, 0.99), steps=0), "steps"),
        (lambda: theory.plateau_wait_least(number(2.0), 1.0, 0.0), "rate"),
        (lambda: theory.plateau_wait_most(number(2.0), 1.0, 1.5), "rate"),
        (lambda: theory.score_flow(number([0.0, 0.0]), number([1.0, 0.0]), [2.0, 1.0], 1.0), r"times\[1\]"),
        (lambda: theory.score_flow(number([0.0, 0.0]), number([1.0, 0.0]), [1.0], -1.0), "rate"),
        (lambda: theory.sparse_asymptote(number(1.0), 1.0, 0, 3), "informative"),
    ],
)
def test_refusals(call, field):
    with pytest.raises(BayesticketError, match=field):
        call()


# The flow


@properties
@given(seeds, st.floats(0.1, 5.0))
def test_flow_against_scipy(seed, rate):
    draw = Draw(seed)
    keys = draw.size(2, 5)
    start = draw.normal(keys, scale=2.0)
    target = oracle(draw.support(keys, draw.size(1, keys))) if draw.size(0, 1) else draw.pattern(keys, scale=1.0)
    times = [0.0, 0.7, 3.0, 20.0]

    def slope(_, s):
        return rate * (target - torch.from_numpy(s).softmax(-1)).numpy()

    expected = scipy.integrate.solve_ivp(slope, (0, 20), start.numpy(), t_eval=times, rtol=1e-10, atol=1e-12).y.T
    close(theory.score_flow(start, target, times, rate), torch.from_numpy(expected.copy()), 1e-6)


@properties
@given(seeds, scales)
def test_flow_descends_at_its_slope(seed, scale):
    draw = Draw(seed)
    target = draw.pattern(5) if draw.size(0, 1) else oracle(draw.support(5, 2))
    scores = draw.normal(4, 5, scale=min(scale, 3.0))
    divergence = theory.divergence_flow(scores, target, [0.0, 0.5, 1.0, 10.0, 50.0], rate=1.3)
    at_most(divergence[:, 1:], divergence[:, :-1])
    close(divergence[:, 0], theory.kl_divergence(target, scores.softmax(-1)))
    # dD/dt by autograd: the gradient along the flow.
    scores = scores.requires_grad_()
    (gradient,) = torch.autograd.grad(theory.kl_divergence(target, scores.softmax(-1)).sum(), scores)
    slope = (gradient * 1.3 * (target - scores.detach().softmax(-1))).sum(-1)
    close(theory.divergence_slope(target, scores.detach().softmax(-1), 1.3), slope)


@properties
@given(seeds, st.floats(0.2, 8.0))
def test_delays_are_inverse_in_the_rate(seed, rate):
    draw = Draw(seed)
    scores, target = draw.normal(3, 4), oracle(draw.support(4, 2))
    fast = theory.divergence_flow(scores, target, [1.0 / rate, 9.0 / rate], rate)
    close(fast, theory.divergence_flow(scores, target, [1.0, 9.0], 1.0))


@pytest.mark.parametrize(("k", "m"), [(1, 1), (2, 3), (2, 1), (3, 2)])
def test_sparse_flow_has_a_closed_form(k, m):
    target = oracle(torch.arange(k + m) < k)
    times = [0.0, 1.0, 10.0, 100.0, 3000.0]
    divergence = theory.divergence_flow(torch.zeros(k + m).double(), target, times, rate=2.0)
    assert divergence[0].item() == pytest.approx(math.log((k + m) / k))
    passed = theory.sparse_delay(divergence[:1], divergence, 2.0, k, m)
    torch.testing.assert_close(passed, number(times), rtol=1e-7, atol=1e-7)
    asymptote = theory.sparse_asymptote(number(times[-1]), 2.0, k, m)
    assert (divergence[-1] / asymptote).item() == pytest.approx(1, abs=0.01)


def test_uneven_starts_come_to_the_same_asymptote():
    draw = Draw(0)
    target = oracle(torch.tensor([True, False, True, False, False]))
    divergence = theory.divergence_flow(draw.normal(4, 5), target, [1e2, 4e3], rate=1.0)
    ratio = divergence / theory.sparse_asymptote(number([1e2, 4e3]), 1.0, 2, 3)
    assert (ratio[:, 1] > 0.6).all()
    assert (ratio[:, 1] < 1.4).all()
    assert ((ratio[:, 1] - 1).abs() < (ratio[:, 0] - 1).abs() + 0.02).all()


@properties
@given(seeds, scales)
def test_pl_ratio_is_bounded_everywhere(seed, scale):
    draw = Draw(seed)
    keys = draw.size(2, 6)
    target = draw.pattern(keys, scale=1.0) if draw.size(0, 1) else oracle(draw.support(keys, draw.size(1, keys)))
    pattern = draw.pattern(40, keys, scale=min(scale, 3.0))
    gap = (pattern - target).square().sum(-1)
    at_most(theory.pl_constant(target, pattern) * theory.kl_divergence(target, pattern), gap)
    close(theory.pl_ratio(target, pattern) * theory.kl_divergence(target, pattern), gap)
    # Where it holds along the way, the exponential does bound the flow, and Eq. 53 the delay.
    if (target > 0).all():
        scores = pattern.log()[:3]
        times = torch.linspace(0, 8, 9, dtype=torch.float64)
        states = theory.score_flow(scores, target, times.tolist(), 1.0).softmax(-1)
        divergence = theory.divergence_flow(scores, target, times.tolist(), 1.0)
        mu = theory.pl_constant(target, states).min().item()
        at_most(divergence[:, 1:], theory.exponential_divergence(divergence[:, :1], times[1:], 1.0, mu * 0.9), 1e-9)
        delay = theory.exponential_delay(divergence[:, :1], divergence[:, 1:], 1.0, mu * 0.9)
        at_most(times[1:].expand_as(delay)[divergence[:, 1:] > 1e-8], delay[divergence[:, 1:] > 1e-8], 1e-9)


def test_pl_ratio_near_a_target_of_full_support():
    draw = Draw(2)
    target = number([0.2, 0.3, 0.5])
    nudge = draw.normal(200, 3)
    pattern = target + 1e-4 * (nudge - nudge.mean(-1, keepdim=True))
    ratio = theory.pl_ratio(target, pattern)
    at_most(theory.pl_constant_paper(target, target > 0) * 0.999, ratio)
    at_most(ratio, 2 * 0.5 * 1.001)
    close(theory.pl_constant(target, pattern), theory.pl_constant_paper(target, target > 0).expand(200), 1e-2)


def test_exponential_at_its_own_delay():
    start, goal = number([0.7, 0.2]), number([0.1, 0.3])
    delay = theory.exponential_delay(start, goal, 1.5, 0.4)
    close(theory.exponential_divergence(start, delay, 1.5, 0.4), torch.minimum(start, goal))


# Extensions


@properties
@given(seeds, scales)
def test_score_variance_is_bounded(seed, scale):
    draw = Draw(seed)
    d, keys, root = draw.size(1, 5), draw.size(1, 6), 1.7
    M, query, tokens = draw.normal(8, d, d, scale=scale), draw.normal(8, d), draw.normal(8, keys, d, scale=scale)
    scores = torch.einsum("nd,nde,nke->nk", query, M, tokens) / root
    variance = theory.score_variance(scores)
    close(variance, ((scores - scores.mean(-1, keepdim=True)) ** 2).mean(-1))
    at_most(variance, theory.score_variance_bound(M, query, tokens, root))
    # Shift-invariant, as the softmax is; and with unit norms, the paper's form.
    close(theory.score_variance(scores + 3.0) / (1 + variance), variance / (1 + variance))
    query, tokens = query / query.norm(dim=-1, keepdim=True), tokens / tokens.norm(dim=-1, keepdim=True)
    scores = torch.einsum("nd,nde,nke->nk", query, M, tokens) / root
    at_most(theory.score_variance_bound(M, query, tokens, root), theory.score_variance_bound_paper(M, root))
    at_most(theory.score_variance(scores), theory.score_variance_bound_paper(M, root))


def test_score_variance_bound_is_attained():
    query, along = number([0.6, 0.8]), number([1.0, 0.0])
    tokens = number([-1.0, 1.0])[:, None] * along
    M = torch.outer(query, along)
    variance = theory.score_variance(query @ M @ tokens.mT)
    close(variance, theory.score_variance_bound(M, query, tokens, 1.0))
    close(variance, theory.score_variance_bound_paper(M, 1.0))


@properties
@given(seeds)
def test_decay_of_the_factors_costs_the_nuclear_norm(seed):
    draw = Draw(seed)
    W_Q, W_K = draw.normal(5, 3), draw.normal(5, 3)
    M = W_Q @ W_K.mT
    nuclear, frobenius = torch.linalg.matrix_norm(M, "nuc"), torch.linalg.matrix_norm(M)
    cost = (W_Q.square().sum() + W_K.square().sum()) / 2
    at_most(nuclear, cost)
    at_most(frobenius, nuclear)
    U, S, Vh = torch.linalg.svd(M, full_matrices=False)
    balanced = (U * S.sqrt(), Vh.mT * S.sqrt())
    close(balanced[0] @ balanced[1].mT, M)
    close(sum(factor.square().sum() for factor in balanced) / 2, nuclear)


@properties
@given(seeds, st.floats(0.0, 2.0))
def test_distributed_mass(seed, threshold):
    draw = Draw(seed)
    heads = draw.size(1, 4)
    pattern, support = draw.pattern(10, heads, 5), draw.support(5, 2)
    mass = theory.distributed_mass(pattern)
    close(mass.sum(-1), torch.full((10,), float(heads)).double())
    expected = [all(row[i] >= threshold for i in range(5) if support[i]) for row in mass.tolist()]
    assert theory.distributed_condition(pattern, support, threshold).tolist() == expected
    # One head that satisfies the condition alone satisfies it for all.
    alone = theory.structural_condition(pattern, support, threshold).any(-1)
    assert theory.distributed_condition(pattern, support, threshold)[alone].all()
    effective = theory.effective_heads(pattern[..., 0])
    at_most(1, effective)
    at_most(effective, heads)


@properties
@given(seeds, scales)
def test_heads_together_hold_two_inputs_apart(seed, scale):
    # Eq. 15 over heads: Σ_h (α_h + α'_h) times the largest ‖W_O^(h)‖ Δ_h.
    draw = Draw(seed)
    heads, width, d_model = draw.size(1, 4), draw.size(1, 3), 4
    weight, other_weight = draw.uniform(2, 20, heads)
    offset, other_offset = draw.normal(2, 20, heads, width, scale=scale)
    W_O = draw.normal(heads, width, d_model)
    difference = theory.pooled_difference(weight, other_weight, offset, other_offset)
    distance = torch.einsum("nhd,hdm->nm", difference, W_O).norm(dim=-1)
    stretch = theory.spectral_norm(W_O) * torch.maximum(offset.norm(dim=-1), other_offset.norm(dim=-1))
    pooled = theory.distributed_mass(weight[..., None]) + theory.distributed_mass(other_weight[..., None])
    at_most(distance, pooled.squeeze(-1) * stretch.amax(-1))
