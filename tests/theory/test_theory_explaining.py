"""Lemma 5.1 and the Lipschitz constants it rests on, against autograd and over random models."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from test_theory import Draw, at_most, close, number, properties, scales, seeds

from bayesticket import theory

paths = st.sampled_from(["both", "no attention residual", "no MLP residual", "neither"])
LIPSCHITZ = (theory.lipschitz_centred, theory.lipschitz_products, theory.lipschitz_factors)


class Model:
    """A random head, MLP and unembedding, with a batch of scores and values; z is pooled by softmax attention."""

    def __init__(self, seed, scale, residual="both", n=6):
        draw = Draw(seed)
        d_head, d_model, d_mlp, d_vocab, keys = (draw.size(1, 5) for _ in range(5))
        d_vocab, keys = d_vocab + 1, keys + 1
        self.W_O = draw.normal(d_head, d_model, scale=scale)
        self.W_in, self.b_in = draw.normal(d_model, d_mlp, scale=scale), draw.normal(d_mlp)
        self.W_out, self.W_U = draw.normal(d_mlp, d_model, scale=scale), draw.normal(d_model, d_vocab, scale=scale)
        self.b_O, self.b_out, self.b_U = draw.normal(d_model), draw.normal(d_model), draw.normal(d_vocab)
        self.mlp_residual = residual in ("both", "no attention residual")
        self.x_q = draw.normal(n, d_model) * (residual in ("both", "no MLP residual"))
        self.scores, self.value = draw.normal(n, keys, scale=2.0), draw.normal(n, keys, d_head, scale=scale)
        self.targets = torch.randint(d_vocab, (n,), generator=draw.generator)
        self.pattern = self.scores.softmax(-1)
        self.draw, self.weights = draw, (self.W_O, self.W_in, self.W_out, self.W_U)

    def pre(self, pooled):
        return (self.x_q + pooled @ self.W_O + self.b_O) @ self.W_in + self.b_in

    def logits(self, pooled):
        bypass = self.x_q + pooled @ self.W_O + self.b_O if self.mlp_residual else 0.0
        return (bypass + self.pre(pooled).relu() @ self.W_out + self.b_out) @ self.W_U + self.b_U

    def jacobian(self, pooled=None):
        pooled = theory.pool(self.pattern, self.value) if pooled is None else pooled
        return theory.jacobian(*self.weights, self.pre(pooled), mlp_residual=self.mlp_residual)

    def losses(self):
        logits = self.logits(theory.pool(self.pattern, self.value))
        return theory.prediction_error(logits, self.targets), theory.example_loss(logits, self.targets)


@properties
@given(seeds, scales, paths)
def test_jacobian_against_autograd(seed, scale, residual):
    model = Model(seed, scale, residual)
    pooled = theory.pool(model.pattern, model.value)
    full = torch.autograd.functional.jacobian(model.logits, pooled)
    expected = torch.diagonal(full, dim1=0, dim2=2).permute(2, 1, 0)
    close(model.jacobian(), expected)


@properties
@given(seeds, scales)
def test_spectral_norm(seed, scale):
    draw = Draw(seed)
    matrix = draw.normal(3, draw.size(1, 6), draw.size(1, 6), scale=scale)
    close(theory.spectral_norm(matrix), torch.linalg.matrix_norm(matrix, 2))


@properties
@given(seeds, scales, paths)
def test_lipschitz_chain(seed, scale, residual):
    model = Model(seed, scale, residual)
    pooled, other = model.draw.normal(2, 50, 6, model.W_O.shape[0], scale=3.0)
    bounds = [bound(*model.weights, mlp_residual=model.mlp_residual) for bound in LIPSCHITZ]
    local = theory.lipschitz_local(model.jacobian(pooled))
    for tight, loose in zip([local, *bounds], bounds, strict=False):
        at_most(tight, loose)
    stretch = (model.logits(pooled) - model.logits(other)).norm(dim=-1)
    at_most(stretch, bounds[0] * (pooled - other).norm(dim=-1))
    # Along the map as it is at one point, the local constant is the one that is attained.
    nudge = 1e-9 * model.draw.normal(50, 6, model.W_O.shape[0])
    same = ((model.pre(pooled) > 0) == (model.pre(pooled + nudge) > 0)).all(-1)
    step = nudge[same].unsqueeze(-2) @ model.jacobian(pooled)[same]
    at_most(step.squeeze(-2).norm(dim=-1), local[same] * nudge[same].norm(dim=-1))


@properties
@given(seeds, scales)
def test_lipschitz_of_the_mlp_by_its_norm(seed, scale):
    model = Model(seed, scale)
    radius = (model.W_in.square().sum() + model.W_out.square().sum()).sqrt()
    one = torch.eye(model.W_O.shape[1], dtype=torch.float64)
    steepest = theory.lipschitz_factors(one, model.W_in, model.W_out, one, mlp_residual=False)
    at_most(steepest, theory.lipschitz_of_radius(radius))


def test_lipschitz_of_a_radius_is_attained():
    row = number([[2.0, 0.0]])
    jacobian = theory.jacobian(
        torch.eye(2).double(), row.mT, row, torch.eye(2).double(), number([1.0]), mlp_residual=False
    )
    close(theory.spectral_norm(jacobian), theory.lipschitz_of_radius(number(8.0).sqrt()))


def test_norm_condition():
    assert theory.norm_condition(number([1.0, 2.0, 3.0, 4.0]), 2.0, number(3.0)).tolist() == [False, True, True, False]


# The error


@properties
@given(seeds, scales)
def test_prediction_error_and_loss(seed, scale):
    draw = Draw(seed)
    logits = draw.normal(20, draw.size(2, 6), scale=scale).requires_grad_()
    targets = torch.randint(logits.shape[-1], (20,), generator=draw.generator)
    loss = theory.example_loss(logits, targets)
    close(loss, F.cross_entropy(logits, targets, reduction="none"))
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    error = theory.prediction_error(logits, targets)
    close(error, gradient)
    # ‖p − y‖₂ ≤ √2 (1 − e^{−L}) ≤ both Pinsker's √(2L) and √2 L; and ‖p − y‖₁ = 2 (1 − p_y) ≤ √(2L).
    sharp, pinsker = theory.error_bound_sharp(loss), theory.error_bound(loss)
    at_most(error.norm(dim=-1), sharp)
    at_most(sharp, 2**0.5 * loss)
    close(error.abs().sum(-1), 2**0.5 * sharp)
    at_most(error.abs().sum(-1), pinsker)


def test_loss_and_error_do_not_vanish_in_single_precision():
    logits, target = torch.tensor([40.0, 0.0, 0.0]), torch.tensor(0)
    assert F.cross_entropy(logits, target) == 0
    assert theory.example_loss(logits, target).item() == pytest.approx(2 * torch.tensor(-40.0).exp().item(), rel=1e-5)
    error = theory.prediction_error(logits, target)
    assert error[0] == -error[1:].sum() != 0
    assert error.norm() <= theory.error_bound_sharp(theory.example_loss(logits, target))


def test_two_classes_attain_the_sharp_bound():
    logits, targets = number([[3.0, 0.0], [-1.0, 0.5]]), torch.tensor([0, 0])
    bound = theory.error_bound_sharp(theory.example_loss(logits, targets))
    close(theory.prediction_error(logits, targets).norm(dim=-1), bound)


# Lemma 5.1


@properties
@given(seeds, scales, paths)
def test_logit_gradient_against_autograd(seed, scale, residual):
    model = Model(seed, scale, residual)
    scores = model.scores.requires_grad_()
    logits = model.logits(theory.pool(scores.softmax(-1), model.value))
    loss = F.cross_entropy(logits, model.targets, reduction="sum")
    (expected,) = torch.autograd.grad(loss, scores)
    error, _ = model.losses()
    close(theory.logit_gradient(model.pattern, model.value, model.jacobian(), error), expected)


@properties
@given(seeds, scales, paths)
def test_explaining_away_chain(seed, scale, residual):
    model = Model(seed, scale, residual)
    error, loss = model.losses()
    radius = model.value.norm(dim=-1).amax(-1)
    for bound in LIPSCHITZ:
        lipschitz = bound(*model.weights, mlp_residual=model.mlp_residual)
        chain = theory.explaining_away(model.pattern, model.value, model.jacobian(), error, loss, lipschitz, radius)
        at_most(chain.measured, chain.local)
        at_most(chain.local, chain.global_)
        at_most(chain.global_, chain.loose[:, None])
        # A quarter of the loose form would do.
        at_most(chain.global_, chain.loose[:, None] / 4)
    sharp = theory.explaining_away_sharp(model.pattern, model.value, model.jacobian(), loss)
    at_most(chain.measured, sharp)
    at_most(sharp, chain.local)
    close(chain.local, theory.explaining_away_local(model.pattern, model.value, model.jacobian(), loss))
    close(chain.loose, 2 * radius * lipschitz * (2 * loss).sqrt())
    # Over a batch, by Jensen.
    at_most(chain.loose.mean(), theory.explaining_away_loose(radius.max(), lipschitz, loss.mean()))


@properties
@given(seeds, scales, paths)
def test_the_papers_form_is_a_bound_once_the_tokens_length_is_in_it(seed, scale, residual):
    model = Model(seed, scale, residual)
    _, loss = model.losses()
    tokens = model.draw.normal(*model.pattern.shape, 4, scale=scale)
    W_V, b_V = model.draw.normal(4, model.W_O.shape[0], scale=scale), model.draw.normal(model.W_O.shape[0])
    value, lipschitz = tokens @ W_V + b_V, theory.lipschitz_products(*model.weights, mlp_residual=model.mlp_residual)
    augmented, with_bias = torch.cat([tokens, torch.ones_like(tokens[..., :1])], -1), torch.cat([W_V, b_V[None]])
    stretch, length = theory.spectral_norm(with_bias), augmented.norm(dim=-1).amax(-1)
    scaled = theory.explaining_away_paper(stretch, lipschitz, loss, length)
    at_most(theory.explaining_away_loose(value.norm(dim=-1).amax(-1), lipschitz, loss), scaled)
    # For tokens of norm 1 and no bias it is a bound as it stands.
    short = tokens / tokens.norm(dim=-1, keepdim=True)
    stated = theory.explaining_away_paper(theory.spectral_norm(W_V), lipschitz, loss)
    at_most(theory.explaining_away_global(model.pattern, short @ W_V, lipschitz, loss), stated[:, None])


def test_local_form_is_attained():
    # Two values opposite on a line, two classes, half the mass each: only Pinsker is not tight, and L → large p is.
    pattern, value, jacobian = number([0.5, 0.5]), number([[1.0], [-1.0]]), number([[1.0, -1.0]])
    logits = number([0.0, 0.0])
    error, loss = theory.prediction_error(logits, torch.tensor(0)), theory.example_loss(logits, torch.tensor(0))
    measured = theory.logit_gradient(pattern, value, jacobian, error).abs()
    close(measured, theory.explaining_away_sharp(pattern, value, jacobian, loss))


def test_heads_are_broadcast():
    # Two heads against each by itself, with the other's output held fixed in x_q.
    draw = Draw(3)
    W_O, value, pattern = draw.normal(2, 3, 4), draw.normal(5, 2, 6, 3), draw.pattern(5, 2, 6)
    W_in, W_out, W_U, pre = draw.normal(4, 7), draw.normal(7, 4), draw.normal(4, 8), draw.normal(5, 7)
    error = theory.prediction_error(draw.normal(5, 8), torch.arange(5))
    jacobian = theory.jacobian(W_O, W_in, W_out, W_U, pre[:, None])
    assert jacobian.shape == (5, 2, 3, 8)
    gradient = theory.logit_gradient(pattern, value, jacobian, error[:, None])
    lipschitz = theory.lipschitz_products(W_O, W_in, W_out, W_U)
    bound = theory.explaining_away_global(pattern, value, lipschitz, torch.ones(5, 1).double())
    for head in range(2):
        alone = theory.jacobian(W_O[head], W_in, W_out, W_U, pre)
        close(jacobian[:, head], alone)
        close(gradient[:, head], theory.logit_gradient(pattern[:, head], value[:, head], alone, error))
        lipschitz = theory.lipschitz_products(W_O[head], W_in, W_out, W_U)
        one = theory.explaining_away_global(pattern[:, head], value[:, head], lipschitz, torch.ones(5).double())
        close(bound[:, head], one)


@properties
@given(seeds)
def test_interaction_gradient_against_autograd(seed):
    draw = Draw(seed)
    n, heads, keys, d = 4, 2, draw.size(1, 5), draw.size(1, 4)
    M, query, tokens = draw.normal(heads, d, d).requires_grad_(), draw.normal(n, d), draw.normal(n, keys, d)
    scores = torch.einsum("nd,hde,nke->nhk", query, M, tokens) / 1.7
    loss = (scores.softmax(-1) * draw.normal(n, heads, keys)).sum()
    (expected, d_scores) = torch.autograd.grad(loss, (M, scores))
    close(theory.interaction_gradient(query, d_scores @ tokens, 1.7), expected)


def test_functions_can_be_stacked():
    # No branches on values, no .item(): vmap over models goes through.
    models = [Model(5, scale) for scale in (0.3, 1.0, 3.0)]
    weights = [torch.stack(each) for each in zip(*(model.weights for model in models), strict=True)]
    jacobians = torch.stack([model.jacobian() for model in models])
    pre = torch.stack([model.pre(theory.pool(model.pattern, model.value)) for model in models])
    close(torch.func.vmap(theory.jacobian)(*weights, pre), jacobians)
    for bound in LIPSCHITZ:
        close(torch.func.vmap(bound)(*weights), torch.stack([bound(*model.weights) for model in models]))
    inputs = [torch.stack([getattr(model, name) for model in models]) for name in ("pattern", "value")]
    errors, losses = (torch.stack(each) for each in zip(*(model.losses() for model in models), strict=True))
    chain = torch.func.vmap(theory.explaining_away, in_dims=(0, 0, 0, 0, 0, 0, None))(
        *inputs, jacobians, errors, losses, torch.ones(3).double(), 1.0
    )
    assert chain.measured.shape == inputs[0].shape
