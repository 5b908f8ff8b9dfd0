"""Where the paper's form fails as stated: one concrete example each. `docs/theory.md` tells the same in words."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from test_theory import Draw, at_most, close, number, oracle, properties, seeds

import bayesticket as bt
from bayesticket import theory
from bayesticket.optim import as_optimizer, build_optimizer


def optimiser_of(name, weight, **options):
    settings = {"lr": 0.01, "weight_decay": 1.0} | options
    return build_optimizer(as_optimizer(name, **settings), {"blocks.0.mlp.W_in": weight})


# Section 4


def test_zero_error_does_not_need_the_condition_of_every_input():
    # Token A at the informative position gets all attention, B almost none; z alone tells them apart with margin.
    weight, other_weight = number(0.99), number(0.01)
    offset, other_offset = number([1.0]), number([-1.0])
    pooled = torch.stack([weight * offset, other_weight * other_offset])
    logits = torch.cat([pooled - 0.49, 0.49 - pooled], -1)
    assert logits.argmax(-1).tolist() == [0, 1]
    gamma, lipschitz = (logits[0] - logits[1]).norm(), number(2.0).sqrt()
    tau = theory.structural_threshold(gamma, lipschitz, 1.0)
    assert weight + other_weight >= tau - 1e-12  # what Eq. 27 proves
    informative = torch.tensor([True, False])
    patterns = torch.stack([torch.stack([w, 1 - w]) for w in (weight, other_weight)])
    assert not theory.structural_condition(patterns, informative, tau).any()  # what Theorem 4.3 asks of both
    divergence = theory.kl_divergence(number([1.0, 0.0]), patterns)
    assert (divergence > theory.divergence_bound(tau.clamp_max(1), 1)).all()  # so Cor. 4.5 does not follow


def test_two_inputs_below_the_threshold_contradict_nothing():
    # Both get 0.6 τ: together more than τ, so the chain of Eq. 26 closes.
    tau = number(0.5)
    weight = 0.6 * tau
    distance = theory.pooled_difference(weight, weight, number([1.0]), number([-1.0])).norm()
    gamma = tau  # L = 1 and Δ_max = 1
    assert weight < tau
    assert distance >= gamma


def test_threshold_from_the_smallest_margin_is_too_large():
    weight, offset, other_offset = number(0.1), number([10.0]), number([0.1])
    gamma = theory.pooled_difference(weight, weight, offset, other_offset).norm()
    one = number(1.0)
    assert 2 * weight >= theory.structural_threshold(gamma, one, 10.0)
    assert 2 * weight < theory.structural_threshold(gamma, one, 0.1)


def test_zero_error_confines_no_norm():
    # The minimal model, without residual path and biases: scale the MLP, and no prediction changes.
    draw = Draw(0)
    W_O, W_in, W_out, W_U = draw.normal(3, 4), draw.normal(4, 8), draw.normal(8, 4), draw.normal(4, 5)
    pooled = draw.normal(50, 3)
    thresholds = []
    for scale in (1e-3, 1.0, 1e3):
        logits = (pooled @ W_O @ (scale * W_in)).relu() @ (scale * W_out) @ W_U
        assert torch.equal(logits.argmax(-1), ((pooled @ W_O @ W_in).relu() @ W_out @ W_U).argmax(-1))
        lipschitz = theory.lipschitz_products(W_O, scale * W_in, scale * W_out, W_U, mlp_residual=False)
        thresholds.append(theory.structural_threshold((logits[0] - logits[1]).norm(), lipschitz, 1.0))
    close(thresholds[0], thresholds[1])  # γ and L scale alike: τ is what is left
    close(thresholds[2], thresholds[1])


def test_a_small_divergence_does_not_give_the_condition():
    # Eqs. 7 and 53 stop the clock when D falls to Cor. 4.5's bound.
    pattern, informative, tau = number([0.88, 0.06, 0.06]), torch.tensor([True, True, False]), number(0.2)
    divergence = theory.kl_divergence(oracle(informative), pattern)
    assert divergence < theory.divergence_bound(tau, 2)
    assert not theory.structural_condition(pattern, informative, tau)
    assert divergence > theory.sufficient_divergence(tau, 2)


# Appendix A.3 and C.2


def test_the_condition_does_not_hold_inputs_apart():
    # α a = α' b: both weights well above τ, the two tokens' values 1 apart, and the pooled values the same.
    weight, other_weight = number(0.5), number(0.25)
    offset, other_offset = number([1.0]), number([2.0])
    assert theory.pooled_difference(weight, other_weight, offset, other_offset).norm() == 0
    assert (offset - other_offset).norm() == 1
    assert theory.distance_lower(weight, other_weight, 1.0, 2.0) < 0  # Eq. 18 is right, and empty


def test_the_oracle_itself_may_not_separate_the_classes():
    # Parity of two signs, pooled by the oracle: both odd inputs at 0, between the even ones.
    signs = number([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    pooled = theory.pool(number([0.5, 0.5]), signs[..., None]).squeeze(-1)
    assert pooled.tolist() == [1.0, 0.0, 0.0, -1.0]
    even = signs.prod(-1) > 0
    for slope in (-1.0, 1.0):  # no threshold on a line separates them
        assert (slope * pooled[even]).min() < (slope * pooled[~even]).max()


def test_oracle_attention_cannot_tell_the_order_of_operands():
    # Values are a token's part plus a position's part, so equal weights make z symmetric in the operands.
    task = bt.PermutationComposition(n=3)
    model = bt.build_model(task, seed=0, d_model=16, d_mlp=32, n_heads=2, dtype=torch.float64)
    batch = task.split(train_fraction=0.3, seed=0).test
    informative = batch.informative.expand(len(batch), -1) if batch.informative.ndim == 1 else batch.informative
    with model.hooks(fwd_hooks=bt.FrozenAttention("oracle").hooks(batch)):
        logits = model(batch.tokens)[:, -1]
    operands = batch.tokens[informative].reshape(len(batch), 2).tolist()
    first = {tuple(pair): index for index, pair in enumerate(operands)}
    swapped = [(index, first[(b, a)]) for (a, b), index in first.items() if (b, a) in first and a != b]
    different = [(i, j) for i, j in swapped if batch.targets[i] != batch.targets[j]]
    assert different
    for i, j in different:
        close(logits[i], logits[j])  # one answer to two questions


@pytest.mark.parametrize(("n", "ceiling"), [(3, 0.75), (4, 0.604), (5, 0.529)])
def test_ceiling_of_oracle_attention_on_permutations(n, ceiling):
    permutations = list(itertools.permutations(range(n)))
    commuting = sum(all(a[b[i]] == b[a[i]] for i in range(n)) for a, b in itertools.product(permutations, permutations))
    pairs = len(permutations) ** 2
    assert (commuting + (pairs - commuting) / 2) / pairs == pytest.approx(ceiling, abs=5e-4)


def test_equation_21_never_beats_equation_18():
    # As near as the two weights may be to each other.
    for gap in (0.1, 1e-2, 1e-4, 1e-8):
        weight, other_weight = number(0.4), number(0.4 - gap)
        linear = theory.distance_lower(weight, other_weight, 1.0, 1.0)
        assert theory.distance_lower_mismatched(weight, other_weight, 1.0, 1.0) < linear


def test_equation_20_fails_without_its_condition():
    weight, other_weight = number(0.5), number(0.25)
    offset, other_offset = number([1.0]), number([2.0])
    assert not theory.orderings_agree(weight, other_weight, offset, other_offset)
    assert theory.distance_lower_aligned(weight, other_weight, 1.0) > 0.35  # and the distance is 0


# Appendix B


def adam_ratios(gradients, silence=10**6):
    """Steps of torch's own AdamW, in units of its step size, from a state of long silence."""
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimiser = optimiser_of("adamw", weight, lr=1.0, weight_decay=0.0)
    optimiser.state[weight]["step"].fill_(silence)
    ratios = []
    for gradient in gradients:
        before = weight.item()
        weight.grad = number([gradient])
        optimiser.step()
        ratios.append(abs(weight.item() - before))
    return ratios


def test_adam_steps_exceed_one():
    assert adam_ratios([1.0])[0] == pytest.approx(theory.adam_ratio_sparse((0.9, 0.999)), rel=1e-4)
    assert theory.adam_ratio_sparse((0.9, 0.999)) > 3.16


def test_adam_steps_exceed_what_adams_own_paper_allows():
    # A gradient that merely stays for a dozen steps after a silence.
    stays = max(adam_ratios([1.0] * 12))
    assert stays > 6.5 > 2 * theory.adam_ratio_sparse((0.9, 0.999))
    # One that grows by β₂/β₁ a step: the worst there is.
    grows = max(adam_ratios([(0.999 / 0.9) ** t for t in range(150)]))
    assert grows == pytest.approx(theory.adam_ratio_bound((0.9, 0.999)), rel=1e-4)
    assert grows > 7.27


def test_muon_steps_are_longer_than_orthogonal():
    draw = Draw(0)
    weight = torch.nn.Parameter(torch.zeros(4, 16, dtype=torch.float64))
    weight.grad = draw.normal(4, 16)
    optimiser_of("muon", weight, lr=1.0).step()
    assert weight.norm() > 1.5 * math.sqrt(4)  # √min(m, n) would be an exact polar factor's
    at_most(weight.detach().norm(), theory.muon_contraction(1.0, 1.0, (4, 16)).step_bound)


def test_sgd_with_momentum_is_not_contractive():
    # No gradient, so ρ = 0: Definition 3.2 would have the norm fall at every step.
    weight = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimiser = optimiser_of("sgd", weight, lr=0.1, momentum=0.9)
    norms = [1.0]
    for _ in range(40):
        weight.grad = torch.zeros_like(weight)
        optimiser.step()
        norms.append(weight.norm().item())
    assert any(after > before + 0.01 for before, after in itertools.pairwise(norms))
    # Without it, it is.
    assert theory.sgd_contraction(0.1, 1.0, 0.0).growth == 0


@pytest.mark.parametrize("name", ["adamw", "muon", "lion"])
def test_a_vanishing_gradient_does_not_leave_decay_alone(name):
    # Eq. 39 drops a gradient of 1e-5. These optimisers divide its size out: the step is the same as for 1.
    draw = Draw(0)
    start, gradient, ends = draw.normal(4, 4), draw.normal(4, 4), []
    for size in (1.0, 1e-5, 0.0):
        weight = torch.nn.Parameter(start.clone())
        optimiser = optimiser_of(name, weight)
        for _ in range(20):
            weight.grad = size * gradient
            optimiser.step()
        ends.append(weight.detach())
    assert (ends[1] - ends[0]).norm() < 0.02 * (ends[2] - ends[0]).norm()


def test_the_plateau_need_not_end_under_adam():
    # One weight of 1 with a constant gradient of 1e-5 against its decay: 1/λ is where it stays.
    weight = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimiser = optimiser_of("adamw", weight)
    wait = theory.plateau_wait_paper(weight.detach().norm(), 0.5, 0.01)
    for _ in range(2 * int(wait)):
        weight.grad = number([-1e-5])
        optimiser.step()
    assert weight.item() > 0.99
    assert theory.plateau_wait_most(number(1.0), 0.5, 0.01, floor=1.0) == math.inf


def test_the_floor_of_adamw_lies_above_trained_norms():
    # Two MLP matrices of the paper's model at its weight decay: nothing is promised below a norm of 1316.
    floors = [theory.adamw_contraction(1e-3, 1.0, shape, (0.9, 0.999)).floor for shape in ((64, 256), (256, 64))]
    assert math.hypot(*floors) > 1300
    assert math.hypot(128.0, 128.0) > 180  # and below 181 with the paper's own constant


# Section 5.1 and Appendix D.3


def test_equation_5_is_no_lower_bound():
    norm, radius, rate, steps = 60.0, 30.0, 1e-3, 0
    stated = theory.plateau_wait_paper(number(norm), radius, rate)
    while norm > radius:
        norm, steps = (1 - rate) * norm, steps + 1
    assert steps == 693
    assert stated == pytest.approx(1386.29, abs=0.01)
    # §5.1's own reading and Eq. 39's differ by exactly 2.
    start = number(60.0)
    close(theory.plateau_wait_most(start, radius, rate), 2 * theory.plateau_wait_least(start, radius, rate))


# Lemma 5.1


def test_lemma_5_1_presumes_embeddings_of_norm_one():
    # W_V is 1, so that the two tokens are their own values.
    pattern, value, jacobian = number([0.5, 0.5]), number([[10.0], [-10.0]]), number([[1.0, -1.0]])
    logits, target = number([0.0, 0.0]), torch.tensor(0)
    loss = theory.example_loss(logits, target)
    measured = theory.logit_gradient(pattern, value, jacobian, theory.prediction_error(logits, target)).abs().max()
    lipschitz = theory.spectral_norm(jacobian)
    assert measured > theory.explaining_away_paper(1.0, lipschitz, loss)
    assert measured <= theory.explaining_away_paper(1.0, lipschitz, loss, length=10.0)


def test_the_gradient_falls_with_the_loss_and_not_its_root():
    ratios = []
    for gap in (8.0, 16.0, 24.0):
        logits, target = number([gap, 0.0, 0.0]), torch.tensor(0)
        error, loss = theory.prediction_error(logits, target).norm(), theory.example_loss(logits, target)
        ratios.append([(error / loss).item(), (error / theory.error_bound(loss)).item()])
    linear, root = zip(*ratios, strict=True)
    assert linear == pytest.approx([1.5**0.5] * 3, rel=1e-2)  # of order one throughout
    assert root[0] > 50 * root[1] > 2500 * root[2]  # further and further below Pinsker
    assert theory.error_bound(number(1e-6)) > 999 * theory.error_bound_sharp(number(1e-6))


def test_lemma_5_1_and_equation_45_are_for_softmax_alone():
    # Normalised linear ReLU attention, which Appendix E names as the setting of both.
    scores = number([1e-3, 1e-3]).requires_grad_()
    value, jacobian, target = number([[1.0], [-1.0]]), number([[1.0, -1.0]]), torch.tensor(0)
    pattern = scores.relu() / scores.relu().sum()
    logits = theory.pool(pattern, value) @ jacobian
    loss = theory.example_loss(logits, target)
    (gradient,) = torch.autograd.grad(loss, scores, retain_graph=True)
    assert gradient.abs().max() > 100 * theory.explaining_away_loose(1.0, theory.spectral_norm(jacobian), loss)
    (gradient,) = torch.autograd.grad(theory.kl_divergence(number([1.0, 0.0]), pattern), scores)
    close(gradient, ((pattern - number([1.0, 0.0])) / scores).detach())
    # A position whose score is negative is out of the prior's reach as well.
    scores = number([-0.1, 1.0]).requires_grad_()
    pattern = scores.relu() / scores.relu().sum()
    (gradient,) = torch.autograd.grad(theory.kl_divergence(number([1.0, 0.0]), pattern), scores)
    assert gradient[0] == 0


# Theorem 5.2


def test_decay_toward_a_sparse_oracle_is_not_exponential():
    k, m = 2, 3
    target = oracle(torch.arange(k + m) < k)
    mu = theory.pl_constant_paper(target, target > 0).item()
    assert mu == 1  # Eq. 50 restricted to S
    times = number([1.0, 20.0, 200.0, 4000.0])
    divergence = theory.divergence_flow(torch.zeros(k + m).double(), target, [0.0, *times.tolist()], 1.0)
    start, later = divergence[0], divergence[1:]
    assert (later > theory.exponential_divergence(start, times, 1.0, mu)).all()
    # The rate at which it falls goes to 0 with it, so no μ > 0 would do ...
    ratio = -theory.divergence_slope(
        target, theory.score_flow(torch.zeros(k + m).double(), target, times.tolist(), 1.0).softmax(-1), 1.0
    )
    assert (ratio / later).tolist() == sorted((ratio / later).tolist(), reverse=True)
    assert (ratio / later)[-1] < 3e-4
    # ... it is 1/(c t) with c = 1/k + 1/m, here 1.2/t ...
    assert (later * times)[-1].item() == pytest.approx(1.2, rel=1e-2)
    # ... and the delay to 0.01 is more than 25 times what Eq. 53 says.
    goal = number(0.01)
    assert theory.exponential_delay(start, goal, 1.0, mu).item() == pytest.approx(4.5, abs=0.1)
    assert theory.sparse_delay(start, goal, 1.0, k, m).item() == pytest.approx(124.6, abs=0.1)


def test_the_constant_of_lemma_d_1_is_a_limit():
    target, pattern = number([0.5, 0.5]), number([0.6, 0.4])
    divergence = theory.kl_divergence(target, pattern)
    gap = (pattern - target).square().sum()
    assert gap < theory.pl_constant_paper(target, target > 0) * divergence
    assert gap >= theory.pl_constant(target, pattern) * divergence
    # Here it fails at every α but the target itself.
    d = torch.linspace(0.01, 0.49, 49, dtype=torch.float64)
    patterns = torch.stack([0.5 + d, 0.5 - d], -1)
    assert (theory.pl_ratio(target, patterns) < 1).all()


def test_the_logit_flow_presumes_orthonormal_tokens():
    # On M the flow is ds/dt = −β̃ K (α − α*) with K the tokens' Gram matrix: alike tokens are never told apart.
    tokens = number([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    target, scores = number([1.0, 0.0, 0.0]), torch.zeros(3).double()
    for _ in range(20_000):
        scores = scores - 0.1 * tokens @ tokens.mT @ theory.kl_logit_gradient(target, scores.softmax(-1))
    close(theory.kl_divergence(target, scores.softmax(-1)), number(math.log(2)), 1e-2)


@pytest.mark.parametrize(("name", "speedup"), [("sgd", 10.0), ("adamw", 1.0)])
def test_the_inverse_law_is_lost_under_adam(name, speedup):
    # Steps until the divergence has fallen to 0.1, at strengths 1 and 10, with nothing but the prior.
    target, waits = oracle(torch.tensor([True, True, False, False])), []
    for strength in (1.0, 10.0):
        scores = torch.nn.Parameter(torch.zeros(4, dtype=torch.float64))
        optimiser = optimiser_of(name, scores, weight_decay=0.0)
        divergence, steps = theory.kl_divergence(target, scores.softmax(-1)), 0
        while divergence > 0.1:
            optimiser.zero_grad()
            (strength * divergence).backward()
            optimiser.step()
            divergence, steps = theory.kl_divergence(target, scores.softmax(-1)), steps + 1
        waits.append(steps)
    assert waits[0] / waits[1] == pytest.approx(speedup, rel=0.02)


# Appendix E


def test_score_variance_grows_with_the_tokens_too():
    M, query, tokens = number([[1.0]]), number([10.0]), number([[-1.0], [1.0]])
    variance = theory.score_variance(query @ M @ tokens.mT)
    assert variance > theory.score_variance_bound_paper(M, 1.0)
    assert variance <= theory.score_variance_bound(M, query, tokens, 1.0)
    # "Strictly" fails at M = 0.
    assert theory.score_variance(query @ (0 * M) @ tokens.mT) == theory.score_variance_bound_paper(0 * M, 1.0) == 0


def test_decay_of_the_factors_is_not_decay_of_the_frobenius_norm():
    # Of two matrices with one Frobenius norm, decay on W_Q and W_K prefers the one of rank one.
    sharp, flat = torch.diag(number([2.0**0.5, 0.0])), torch.eye(2).double()
    close(torch.linalg.matrix_norm(sharp), torch.linalg.matrix_norm(flat))
    costs = [sum(torch.linalg.svdvals(M)).item() for M in (sharp, flat)]  # the least (‖W_Q‖² + ‖W_K‖²)/2
    assert costs == pytest.approx([2**0.5, 2.0])


@properties
@given(seeds)
def test_pooled_threshold_can_be_larger_than_a_heads(seed):
    # H copies of a head, each with 1/H of its output: the same function, and a pooled mass H times as large.
    draw = Draw(seed)
    heads, W_O, readout = draw.size(2, 5), draw.normal(3, 4), draw.normal(4, 5)
    gamma = draw.uniform(1)
    alone = theory.structural_threshold(gamma, theory.spectral_norm(readout), theory.spectral_norm(W_O))
    together = theory.structural_threshold(gamma, theory.spectral_norm(readout), theory.spectral_norm(W_O / heads))
    close(together, heads * alone)
    pattern, value = draw.pattern(6), draw.normal(6, 3)
    copies = theory.pool(pattern.expand(heads, 6), value.expand(heads, 6, 3)) @ (W_O / heads)
    close(copies.sum(0), theory.pool(pattern, value) @ W_O)
    close(theory.distributed_mass(pattern.expand(heads, 6)), heads * pattern)


def test_single_precision_hides_the_gradient_of_memorised_examples():
    # Not the paper's fault: F.cross_entropy rounds a small loss to 0, and the lemma's chain then seems broken.
    logits, target = torch.tensor([[40.0, 0.0, 0.0]]), torch.tensor([0])
    rounded = F.cross_entropy(logits, target, reduction="none")
    error = theory.prediction_error(logits, target)
    assert error.norm() > theory.error_bound(rounded) == 0
    assert error.norm() <= theory.error_bound(theory.example_loss(logits, target))
