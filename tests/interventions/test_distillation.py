"""Self-distillation against a plain loop that keeps the average attention itself."""

import pytest
import torch
from helpers import refused
from hypothesis import given
from hypothesis import strategies as st
from test_state import OPTIONS, TASK, assert_close, trained
from torch.nn import functional as F

import bayesticket as bt

HALF = len(TASK.split(seed=2).train) // 2


def by_hand(keep: float, sharpness: float, epochs: int = 12, strength: float = 0.7) -> dict[str, torch.Tensor]:
    """The weights after a plain loop in which attention is drawn to its own average, whose weights sum to 1."""
    model = bt.build_model(TASK, d_model=8, d_mlp=8, seed=2, dtype=torch.float64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1.0)
    train, past, seen = TASK.split(seed=2).train, [], []

    def keep_attention(pattern, hook):
        seen.append(pattern[:, :, -1])

    for _ in range(epochs):
        logits = model.run_with_hooks(train.tokens, fwd_hooks=[("blocks.0.attn.hook_pattern", keep_attention)])
        attention = seen[-1]
        weights = [(1 - keep) * keep**age for age in range(len(past))]
        if past:
            average = sum(w * each for w, each in zip(weights, reversed(past), strict=True)) / sum(weights)
        else:
            average = attention.detach()
        target = average**sharpness / (average**sharpness).sum(-1, keepdim=True)
        divergence = (target * (target.log() - attention.log())).sum(-1).mean()
        (F.cross_entropy(logits[:, -1], train.targets) + strength * divergence).backward()
        past.append(attention.detach())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return {name: p.detach() for name, p in model.named_parameters()}


@pytest.mark.parametrize(("keep", "sharpness"), [(0.9, 1.0), (0.5, 3.0), (0.0, 0.5)])
def test_self_distillation_is_its_formula(keep, sharpness):
    prior = bt.SelfDistillation(strength=0.7, keep=keep, sharpness=sharpness)
    assert_close(trained(prior), by_hand(keep, sharpness))


def test_every_example_has_an_average_of_its_own_in_batches_too():
    """In one epoch of batches each example is seen once: its target is its own attention, which pulls nowhere."""
    options = OPTIONS | {"epochs": 1, "batch_size": HALF, "dtype": "float64"}
    none, once = (bt.train(TASK, each, **options).weights for each in (None, bt.SelfDistillation(strength=5.0)))
    assert_close(none, once)
    again = [
        bt.train(TASK, each, **options | {"epochs": 2}).weights for each in (None, bt.SelfDistillation(strength=5.0))
    ]
    assert any((again[0][name] - again[1][name]).abs().max() > 1e-6 for name in again[0])


@given(st.floats(0.1, 50), st.integers(0, 99))
def test_the_target_is_a_distribution_whatever_the_sharpness(sharpness, seed):
    prior = bt.SelfDistillation(sharpness=sharpness)
    average = torch.rand(3, 1, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) ** 20
    average[0] = 0
    now = torch.full((3, 1, 5), 0.2, dtype=torch.float64)
    target = prior._target(average, now)
    torch.testing.assert_close(target.sum(-1), torch.ones(3, 1, dtype=torch.float64))
    torch.testing.assert_close(target[0], now[0])
    assert (target[1:].argmax(-1) == average[1:].argmax(-1)).all()


def test_what_it_does_not_take():
    refused(lambda: bt.SelfDistillation(keep=1.0), "keep", "1.0")
    refused(lambda: bt.SelfDistillation(sharpness=0.0), "sharpness")
    refused(lambda: bt.SelfDistillation(strength=-1.0), "strength")
    refused(lambda: bt.GradientNoise(like=bt.SelfDistillation()), "like", "without state")
