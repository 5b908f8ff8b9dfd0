"""The equations at their edges: batches, ties, no time at all, the least and the largest rate, underflow."""

import math

import pytest
import torch
from hypothesis import given, settings
from test_theory import Draw, close, number, oracle, properties, seeds
from torch.utils.flop_counter import FlopCounterMode

from bayesticket import theory
from bayesticket.errors import BayesticketError

KEYS, WIDTH, VOCAB, D_MLP, D_MODEL, HEADS = 5, 3, 4, 7, 6, 2
BATCH = (2, 3)

# What can be drawn for one example of a batch.
DRAWS = {
    "pattern": lambda draw, *batch: draw.pattern(*batch, KEYS),
    "heads": lambda draw, *batch: draw.pattern(*batch, HEADS, KEYS),
    "support": lambda draw, *batch: torch.stack(
        [draw.support(KEYS, draw.size(1, KEYS - 1)) for _ in range(math.prod(batch))]
    ).view(*batch, KEYS),
    "scores": lambda draw, *batch: draw.normal(*batch, KEYS),
    "value": lambda draw, *batch: draw.normal(*batch, KEYS, WIDTH),
    "offset": lambda draw, *batch: draw.normal(*batch, WIDTH),
    "positive": lambda draw, *batch: draw.uniform(*batch) + 0.1,
    "fraction": lambda draw, *batch: 0.05 + 0.9 * draw.uniform(*batch),
    "logits": lambda draw, *batch: draw.normal(*batch, VOCAB),
    "targets": lambda draw, *batch: torch.randint(VOCAB, batch, generator=draw.generator),
    "jacobian": lambda draw, *batch: draw.normal(*batch, WIDTH, VOCAB),
    "W_O": lambda draw, *batch: draw.normal(*batch, WIDTH, D_MODEL),
    "pre": lambda draw, *batch: draw.normal(*batch, D_MLP),
    "tall": lambda draw, *batch: draw.normal(*batch, 6, 4),
    "square": lambda draw, *batch: draw.normal(*batch, WIDTH, WIDTH),
}
WEIGHTS = [Draw(7).normal(*shape) for shape in ((D_MODEL, D_MLP), (D_MLP, D_MODEL), (D_MODEL, VOCAB))]
SHRINKING = theory.contraction(0.5, 0.5, step_bound=0.2)

# Each function as one of what is drawn.
FUNCTIONS = {
    "kl_divergence": (theory.kl_divergence, "pattern pattern"),
    "kl_logit_gradient": (theory.kl_logit_gradient, "pattern pattern"),
    "attention_entropy": (theory.attention_entropy, "pattern"),
    "informative_mass": (theory.informative_mass, "pattern support"),
    "least_informative_mass": (theory.least_informative_mass, "pattern support"),
    "structural_condition": (theory.structural_condition, "pattern support fraction"),
    "output_separation": (theory.output_separation, "positive positive"),
    "structural_threshold": (theory.structural_threshold, "positive positive positive"),
    "divergence_bound": (lambda threshold: theory.divergence_bound(threshold, 3), "fraction"),
    "sufficient_divergence": (lambda threshold: theory.sufficient_divergence(threshold, 3), "fraction"),
    "pool": (theory.pool, "pattern value"),
    "rescaling": (theory.rescaling, "fraction fraction"),
    "centroids": (theory.centroids, "pattern value"),
    "centroids of some": (theory.centroids, "pattern value support"),
    "separation": (theory.separation, "pattern value"),
    "pooled_difference": (theory.pooled_difference, "fraction fraction offset offset"),
    "pooled_difference_split": (theory.pooled_difference_split, "fraction fraction offset offset"),
    "distance_upper": (theory.distance_upper, "fraction fraction positive"),
    "distance_upper_loose": (theory.distance_upper_loose, "fraction fraction positive"),
    "distance_lower": (theory.distance_lower, "fraction fraction positive positive"),
    "squared_distance": (theory.squared_distance, "fraction fraction offset offset"),
    "orderings_agree": (theory.orderings_agree, "fraction fraction offset offset"),
    "distance_lower_aligned": (theory.distance_lower_aligned, "fraction fraction positive"),
    "distance_lower_mismatched": (theory.distance_lower_mismatched, "fraction fraction positive positive"),
    "distance_lower_squared": (theory.distance_lower_squared, "fraction fraction offset offset positive positive"),
    "jacobian": (lambda W_O, pre: theory.jacobian(W_O, *WEIGHTS, pre), "W_O pre"),
    "spectral_norm of tall": (theory.spectral_norm, "tall"),
    "spectral_norm of wide": (theory.spectral_norm, "jacobian"),
    "lipschitz_factors": (lambda W_O: theory.lipschitz_factors(W_O, *WEIGHTS), "W_O"),
    "lipschitz_products": (lambda W_O: theory.lipschitz_products(W_O, *WEIGHTS), "W_O"),
    "lipschitz_centred": (lambda W_O: theory.lipschitz_centred(W_O, *WEIGHTS), "W_O"),
    "lipschitz_of_radius": (theory.lipschitz_of_radius, "positive"),
    "norm_condition": (theory.norm_condition, "positive fraction positive"),
    "prediction_error": (theory.prediction_error, "logits targets"),
    "example_loss": (theory.example_loss, "logits targets"),
    "error_bound": (theory.error_bound, "positive"),
    "error_bound_sharp": (theory.error_bound_sharp, "positive"),
    "logit_gradient": (theory.logit_gradient, "pattern value jacobian logits"),
    "explaining_away_local": (theory.explaining_away_local, "pattern value jacobian positive"),
    "explaining_away_global": (theory.explaining_away_global, "pattern value positive positive"),
    "explaining_away_loose": (theory.explaining_away_loose, "positive positive positive"),
    "explaining_away_paper": (theory.explaining_away_paper, "positive positive positive positive"),
    "explaining_away_sharp": (theory.explaining_away_sharp, "pattern value jacobian positive"),
    "contracted_square": (lambda norm: theory.contracted_square(norm, SHRINKING), "positive"),
    "norm_envelope": (lambda norm, steps: theory.norm_envelope(norm, steps, SHRINKING), "positive positive"),
    "plateau_wait_paper": (lambda norm, radius: theory.plateau_wait_paper(norm, radius, 0.1), "positive positive"),
    "plateau_wait_least": (lambda norm, radius: theory.plateau_wait_least(norm, radius, 0.1), "positive positive"),
    "plateau_wait_most": (lambda norm, radius: theory.plateau_wait_most(norm, radius, 0.1), "positive positive"),
    "score_flow": (lambda scores, target: theory.score_flow(scores, target, [0.5, 2.0], 1.5), "scores pattern"),
    "divergence_flow": (lambda scores, target: theory.divergence_flow(scores, target, [0.5, 2], 1.5), "scores pattern"),
    "divergence_slope": (lambda target, pattern: theory.divergence_slope(target, pattern, 2.0), "pattern pattern"),
    "exponential_divergence": (lambda d, t: theory.exponential_divergence(d, t, 1.0, 0.5), "positive positive"),
    "exponential_delay": (lambda d, goal: theory.exponential_delay(d, goal, 1.0, 0.5), "positive positive"),
    "sparse_asymptote": (lambda times: theory.sparse_asymptote(times, 1.0, 2, 3), "positive"),
    "sparse_delay": (lambda d, goal: theory.sparse_delay(d, goal, 1.0, 2, 3), "positive positive"),
    "pl_ratio": (theory.pl_ratio, "pattern pattern"),
    "pl_constant_paper": (theory.pl_constant_paper, "pattern support"),
    "pl_constant": (theory.pl_constant, "pattern pattern"),
    "score_variance": (theory.score_variance, "scores"),
    "score_variance_bound": (
        lambda M, query, tokens: theory.score_variance_bound(M, query, tokens, 1.5),
        "square offset value",
    ),
    "score_variance_bound_paper": (lambda M: theory.score_variance_bound_paper(M, 1.5), "square"),
    "distributed_mass": (theory.distributed_mass, "heads"),
    "distributed_condition": (theory.distributed_condition, "heads support fraction"),
    "effective_heads": (theory.effective_heads, "pattern"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(properties, max_examples=5)
@given(seed=seeds)
def test_a_batch_is_its_examples_one_by_one(name, seed):
    function, kinds = FUNCTIONS[name]
    draw = Draw(seed)
    given_ = [DRAWS[kind](draw, *BATCH) for kind in kinds.split()]
    expected = torch.stack([function(*each) for each in zip(*(x.flatten(0, 1) for x in given_), strict=True)])
    found = function(*given_)
    expected = expected.view(*BATCH, *expected.shape[1:])
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10, equal_nan=True)


# Capacity


def test_the_jacobian_takes_the_relu_to_be_flat_at_zero_as_autograd_does():
    W_O, pre = Draw(0).normal(WIDTH, D_MODEL), torch.zeros(D_MLP, dtype=torch.float64)
    W_in, W_out, W_U = WEIGHTS

    def logits(z):
        return (z @ W_O @ W_in + pre).relu() @ W_out @ W_U

    expected = torch.autograd.functional.jacobian(logits, torch.zeros(WIDTH, dtype=torch.float64)).mT
    close(theory.jacobian(W_O, *WEIGHTS, pre, mlp_residual=False), expected)


def test_a_tall_matrix_costs_no_more_than_its_transpose():
    costs = []
    for matrix in (torch.ones(64, 4), torch.ones(4, 64)):
        with FlopCounterMode(display=False) as counter:
            theory.spectral_norm(matrix)
        costs.append(counter.get_total_flops())
    assert costs[0] == costs[1] == 2 * 4 * 64 * 4


def test_a_matrix_of_zeros_has_norm_zero():
    for shape in ((2, 3), (3, 2), (1, 1)):
        assert theory.spectral_norm(torch.zeros(shape)) == 0


# Contraction


@pytest.mark.parametrize("rate", [0.25, 1.0])
def test_the_envelope_begins_at_the_norm_and_falls_to_the_floor(rate):
    optimiser = theory.Contraction(rate=rate, growth=4.0 * rate, step_bound=1.0)
    assert optimiser.floor == 2.0
    norm, steps = number(5.0), number([0.0, 1.0, 500.0])
    envelope = theory.norm_envelope(norm, steps, optimiser)
    once = theory.contracted_square(norm, optimiser).sqrt()
    close(envelope, torch.stack([norm, once, number(2.0)]))


def test_a_norm_that_is_at_the_radius_already_waits_for_nothing():
    norm, radius = number([1.0, 2.0]), number([2.0, 2.0])
    for wait in (theory.plateau_wait_paper, theory.plateau_wait_least, theory.plateau_wait_most):
        assert wait(norm, radius, 0.1).tolist() == [0.0, 0.0]
    # So too where nothing is promised about larger norms.
    assert theory.plateau_wait_most(norm, radius, 0.1, floor=2.0).tolist() == [0.0, 0.0]


def test_a_radius_at_the_floor_is_never_surely_reached():
    wait = theory.plateau_wait_most(number(3.0), number([1.0, 2.0, 2.1]), 0.1, floor=2.0)
    assert wait.isinf().tolist() == [True, True, False]


def test_the_largest_rate_forgets_the_norm_in_one_step():
    optimiser = theory.contraction(1.0, 1.0, step_bound=3.0)
    assert optimiser.rate == 1.0
    close(theory.contracted_square(number([0.0, 100.0]), optimiser), number([9.0, 9.0]))
    assert theory.plateau_wait_least(number(9.0), 1.0, 1.0) == 0
    with pytest.raises(BayesticketError, match=r"rate: got 1\.01"):
        theory.plateau_wait_least(number(9.0), 1.0, 1.01)
    with pytest.raises(BayesticketError, match="lr"):
        theory.contraction(1.01, 1.0, step_bound=3.0)
    assert theory.contraction(1.0, 1.0, step_bound=0.0).floor == 0


def test_matrices_per_head_are_orthogonalised_by_themselves():
    # h matrices of norm s each have norm s √h together; a tall one is not stretched, a wide one is by √(n/m).
    one = theory.muon_contraction(0.1, 1.0, (8, 2)).step_bound
    assert one == pytest.approx(theory.NEWTON_SCHULZ_PEAK * math.sqrt(2))
    assert theory.muon_contraction(0.1, 1.0, (9, 8, 2)).step_bound == pytest.approx(3 * one)
    assert theory.muon_contraction(0.1, 1.0, (2, 8)).step_bound == pytest.approx(2 * one)


def largest_adam_step(betas, steps):
    """`max |m̂| / √v̂` over gradients, from the two weighted means, by Cauchy–Schwarz on their weights."""
    beta1, beta2 = betas
    powers = range(steps)
    first = [(1 - beta1) * beta1**k / (1 - beta1**steps) for k in powers]
    second = [(1 - beta2) * beta2**k / (1 - beta2**steps) for k in powers]
    return math.sqrt(sum(a * a / b for a, b in zip(first, second, strict=True)))


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.9, 0.81), (0.9, 0.5), (0.0, 0.9), (0.5, 0.9)])
@pytest.mark.parametrize("steps", [1, 2, 3, 30])
def test_the_bound_on_adam_is_the_sum_of_its_weights(betas, steps):
    assert theory.adam_ratio_bound(betas, steps=steps) == pytest.approx(largest_adam_step(betas, steps), rel=1e-9)


def test_the_bound_on_adam_is_infinite_in_the_end_where_momentum_outlives_the_second_moment():
    assert theory.adam_ratio_bound((0.9, 0.5), steps=1000) < math.inf  # β₁² > β₂
    assert theory.adam_ratio_bound((0.9, 0.5), steps=100_000) == math.inf
    assert theory.adam_ratio_bound((0.9, 0.5)) == math.inf
    assert theory.adam_ratio_bound((0.5, 0.25)) == math.inf  # β₁² = β₂, and then every step adds as much
    assert theory.adam_ratio_bound((0.9, 0.82), steps=100_000) == pytest.approx(theory.adam_ratio_bound((0.9, 0.82)))
    assert theory.adam_ratio_bound((0.5, 0.0)) == math.inf
    assert theory.adam_ratio_bound((0.0, 0.0)) == theory.adam_ratio_bound((0.0, 0.0), steps=7) == 1


# Flow


def test_no_time_at_all_gives_no_state_and_a_rate_of_zero_no_change():
    scores, target = number([[1.0, 2.0, 3.0]]), oracle(torch.tensor([True, False, True]))
    assert theory.score_flow(scores, target, [], 1.0).shape == (1, 0, 3)
    close(theory.score_flow(scores, target, [0.0, 5.0], 0.0), scores[:, None].expand(1, 2, 3))
    close(theory.score_flow(scores, target, [0.0, 1.0, 1.0], 2.0)[:, 0], scores)
    with pytest.raises(BayesticketError, match=r"times\[0\]: got -1"):
        theory.score_flow(scores, target, [-1.0], 1.0)
    with pytest.raises(BayesticketError, match=r"times\[2\]: got 1\.5.*at least 2\.0"):
        theory.score_flow(scores, target, [1.0, 2.0, 1.5], 1.0)


def test_two_scores_flow_as_their_separable_equation_says():
    # With α* on the first of two, d(s₁ − s₂)/dt = 2β̃ (1 − σ(s₁ − s₂)), so that u + e^u grows by 2β̃ a unit of time.
    times, rate = [0.01, 0.3, 1.0, 4.0, 30.0, 300.0], 1.7
    gap = theory.score_flow(number([0.0, 0.5]), number([1.0, 0.0]), times, rate).diff(dim=-1).squeeze(-1).neg()
    passed = (gap + gap.exp()) - (-0.5 + math.exp(-0.5))
    close(passed, 2 * rate * number(times), 1e-7)


def test_the_flow_through_many_times_is_the_flow_to_the_last():
    scores, target = number([2.0, -1.0, 0.3]), number([0.2, 0.5, 0.3])
    many = theory.score_flow(scores, target, torch.linspace(0.1, 40, 57).tolist(), 0.7)
    close(many[-1], theory.score_flow(scores, target, [40.0], 0.7)[0], 1e-6)


@pytest.mark.parametrize("counts", [(1, 4), (2, 3), (4, 1)])
def test_the_time_that_attention_takes_to_an_oracle_from_uniform(counts):
    k, m = counts
    target = oracle(torch.arange(k + m) < k)
    divergence = theory.divergence_flow(torch.zeros(k + m).double(), target, [1.0, 7.0, 400.0], 0.9)
    close(theory.sparse_delay(divergence[0], divergence[1:], 0.9, k, m), number([6.0, 399.0]), 1e-6)
    assert theory.sparse_delay(divergence[1], divergence[0], 0.9, k, m) == 0
    assert divergence[2].item() == pytest.approx(theory.sparse_asymptote(number(400.0), 0.9, k, m).item(), rel=0.05)


def test_a_goal_that_is_met_already_takes_no_time():
    assert theory.exponential_delay(number([0.1, 0.2]), number(0.2), 1.0, 0.5).tolist() == [0.0, 0.0]


def test_the_bound_on_the_pl_ratio_counts_positions_off_the_support_once():
    target = number([0.5, 0.5, 0.0])
    close(theory.pl_constant(target, number([0.3, 0.1, 0.6])), number(0.2))
    close(theory.pl_constant(target, number([0.4, 0.45, 0.15])), number(0.15))


# Ties


def test_equality_satisfies_a_condition():
    pattern, support = number([0.25, 0.25, 0.5]), torch.tensor([True, True, False])
    assert theory.structural_condition(pattern, support, 0.25)
    assert not theory.structural_condition(pattern, support, 0.2500001)
    assert theory.distributed_condition(pattern.expand(2, 3), support, 0.5)
    assert not theory.distributed_condition(pattern.expand(2, 3), support, 0.5000001)
    # Equal weights: the two orderings have no sign, and Eq. 20 applies.
    assert theory.orderings_agree(number(0.3), number(0.3), number([1.0]), number([2.0]))


def test_the_bound_for_mismatched_orderings_allows_for_the_larger_weight():
    # Eq. 21 by hand: 0.5 · 0.4 · 2² = 0.8, less 4 · 0.5 · 0.1 = 0.2.
    for weights in ((0.5, 0.4), (0.4, 0.5)):
        bound = theory.distance_lower_mismatched(number(weights[0]), number(weights[1]), 2.0, 1.0)
        close(bound, number(0.6).sqrt())


def test_weights_that_underflow_give_the_divergence_of_the_smallest_normal_number():
    tiny = torch.finfo(torch.float64).tiny
    close(theory.kl_divergence(number([0.0, 1.0]), number([1.0, 0.0])), number(-math.log(tiny)))
    assert theory.attention_entropy(number([1.0, 0.0])) == 0
