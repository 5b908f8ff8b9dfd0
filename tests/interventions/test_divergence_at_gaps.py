"""The divergence where scores are so far apart that the attention of float32 underflows, at a gap near 87."""

import pytest
import torch
from catalog import TASKS
from helpers import value_of

import bayesticket as bt
from bayesticket import theory
from bayesticket.model import TokenRows, full_forward, pattern_name, query_forward, scores_name

TASK = TASKS["addition"]
BATCH = TASK.split().train
GAPS = (0.0, 10.0, 90.0, 200.0)
FORWARDS = {
    "fast": lambda model: query_forward(model, TokenRows(BATCH.tokens, model.cfg.n_heads)),
    "full": lambda model: full_forward(model, BATCH.tokens),
}


@bt.spec
class Gap(bt.Intervention):
    """Lowers the score of the first informative position by `size`, as far below the others as a long training may."""

    size: float = 0.0

    def edits(self, context):
        def lower(scores, hook):
            lowered = scores.clone()
            lowered[..., 0] -= self.size
            seen[hook.name] = lowered
            return lowered

        return [(scores_name(0), lower)]


seen: dict[str, torch.Tensor] = {}
"""The scores that attention was made of in the last forward pass."""


def a_model(**options):
    return bt.build_model(TASK, d_model=8, d_mlp=8, **{"n_heads": 2, "seed": 1} | options)


def the_query(tensor):
    """The last query's row: (example, head, key)."""
    return tensor[:, :, -1]


def the_oracle(dtype):
    return (BATCH.informative / BATCH.informative.sum(-1, keepdim=True)).to(dtype)[:, None]


def divergence_in_float64(scores, target):
    """The divergence of softmax attention, from scores alone."""
    log_attention = torch.log_softmax(the_query(scores).detach().double(), -1)
    positive = torch.where(target > 0, target, 1.0).double()
    return (target * (positive.log() - log_attention)).sum(-1).mean().item()


@pytest.mark.parametrize("forward", FORWARDS)
@pytest.mark.parametrize("gap", GAPS)
def test_the_priors_gradient_in_the_scores_is_that_of_equation_45(gap, forward):
    model = a_model()
    with (Gap(gap) + bt.KLPrior(strength=1.0)).attach(model, BATCH) as live:
        FORWARDS[forward](model)
        penalty = live.penalty()
        (gradient,) = torch.autograd.grad(penalty, seen[scores_name(0)])
    scores = seen[scores_name(0)].detach().double()
    expected = the_query(scores).softmax(-1) - the_oracle(torch.float64)
    torch.testing.assert_close(the_query(gradient).double() * expected[..., 0].numel(), expected, rtol=1e-5, atol=1e-6)
    assert penalty.item() == pytest.approx(divergence_in_float64(scores, the_oracle(torch.float64)), rel=1e-5)


@pytest.mark.parametrize("forward", FORWARDS)
@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("measure", [bt.KLToOracle(), bt.KLToTarget("oracle"), bt.KLToTarget("uniform")])
def test_the_measured_divergence_is_that_of_float64(measure, gap, forward):
    value = value_of(measure, a_model(), BATCH, intervention=Gap(gap), forward=forward)
    n_positions = BATCH.n_positions
    uniform = torch.full((1, 1, n_positions), 1 / n_positions, dtype=torch.float64)
    target = uniform if getattr(measure, "target", "oracle") == "uniform" else the_oracle(torch.float64)
    assert value == pytest.approx(divergence_in_float64(seen[scores_name(0)], target), rel=1e-5)


@pytest.mark.parametrize("forward", FORWARDS)
@pytest.mark.parametrize("edit", [bt.MixedAttention("adversarial", weight=0.5), bt.LinearAttention()])
def test_attention_that_is_not_the_softmax_of_its_scores_is_judged_by_its_pattern(edit, forward):
    model, kept = a_model(), {}

    @bt.spec
    class KeepsPattern(bt.Intervention):
        def edits(self, context):
            return [(pattern_name(0), lambda pattern, hook: kept.update(pattern=pattern))]

    with (Gap(200.0) + edit + KeepsPattern() + bt.KLPrior(strength=1.0)).attach(model, BATCH) as live:
        FORWARDS[forward](model)
        expected = theory.kl_divergence(the_oracle(torch.float32), the_query(kept["pattern"])).mean()
        assert live.penalty().item() == expected.item()
    assert value_of(bt.KLToOracle(), model, BATCH, intervention=Gap(200.0) + edit, forward=forward) == expected.item()


def test_keys_that_the_query_cannot_see_leave_no_trace():
    target = torch.tensor([[1.0, 0.0, 0.0]])
    scores = torch.tensor([[0.0, 200.0, -torch.inf]], requires_grad=True)
    divergence = theory.kl_divergence(target, scores.softmax(-1), scores)
    assert divergence.item() == 200.0
    (gradient,) = torch.autograd.grad(divergence.sum(), scores)
    assert gradient.tolist() == [[-1.0, 1.0, 0.0]]
