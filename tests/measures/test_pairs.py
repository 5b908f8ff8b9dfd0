"""Eq. 27 on pairs of inputs, against the full forward on both inputs of every pair, and as the theorem that it is."""

import dataclasses
import math

import pytest
import torch
from catalog import TASKS, model_of
from helpers import attention_and_values, informative_places, properties, seeds, value_of
from hypothesis import given
from hypothesis import strategies as st

import bayesticket as bt
from bayesticket import theory
from bayesticket.measures import PairwiseCondition
from bayesticket.tasks import Examples

NAMES = ["addition", "multiplication", "addition, drawn positions", "several queries", "parity", "three operands"]


def pairs_by_hand(batch, chosen):
    """Every pair as (example, position, token), with loops over examples; of equal contents the first decides."""
    answers = {}
    contents = [tuple(int(batch.tokens[n, j]) for j in informative_places(batch, n)) for n in range(len(batch))]
    for content, target in zip(contents, batch.targets.tolist(), strict=True):
        answers.setdefault(content, target)
    pairs = set()
    for n in chosen:
        for content, answer in answers.items():
            differ = [slot for slot, (a, b) in enumerate(zip(contents[n], content, strict=True)) if a != b]
            if len(differ) == 1 and answer != int(batch.targets[n]):
                pairs.add((n, informative_places(batch, n)[differ[0]], content[differ[0]]))
    return sorted(pairs)


def with_token(batch, pairs):
    """The second inputs of pairs."""
    examples = torch.tensor([n for n, _, _ in pairs])
    other = batch.select(examples)
    tokens = other.tokens.clone()
    for row, (_, position, token) in enumerate(pairs):
        tokens[row, position] = token
    return Examples(tokens, other.targets, other.informative)


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_the_pairs_by_search_and_the_full_forward(name, residual):
    task = TASKS[name]
    model, batch = model_of(task, n_heads=1, residual=residual), task.split().test
    few = len(batch) > 40
    pairs = pairs_by_hand(batch, [0, len(batch) - 1] if few else range(len(batch)))
    measured = value_of(PairwiseCondition(examples=2 if few else None), model, batch)
    one = batch.select(torch.tensor([n for n, _, _ in pairs]))
    other = with_token(batch, pairs)
    with torch.no_grad():
        separation = (model(one.tokens)[:, -1] - model(other.tokens)[:, -1]).norm(dim=-1).min().item()
        masses, farthest, of_distractors = [], 0.0, 0.0
        for inputs in (one, other):
            alpha, values = attention_and_values(model, inputs)
            masses.append([alpha[row, 0, j].item() for row, (_, j, _) in enumerate(pairs)])
            for row, (_, j, _) in enumerate(pairs):
                rest = [t for t in range(inputs.n_positions) if t != j]
                noise = [t for t in rest if t not in informative_places(inputs, row)]
                distances = [
                    (values[row, j, 0] - theory.pool(alpha[row, 0, of], values[row, of, 0]) / alpha[row, 0, of].sum())
                    for of in (rest, noise)
                ]
                farthest = max(farthest, distances[0].norm().item())
                of_distractors = max(of_distractors, distances[1].norm().item())
        block = model.blocks[0]
        weights = (block.attn.W_O, block.mlp.W_in, block.mlp.W_out, model.W_U)
        lipschitz = theory.lipschitz_products(*weights, mlp_residual=residual).item()
    together = [a + b for a, b in zip(*masses, strict=True)]
    thresholds = [separation / (lipschitz * distance) for distance in (farthest, of_distractors)]
    shares = [sum(mass >= threshold for mass in together) / len(pairs) for threshold in thresholds]
    expected = [min(together), separation, thresholds[0], shares[0], thresholds[1], shares[1]]
    assert measured == pytest.approx(expected, rel=1e-8)


def test_pairs_of_one_class_do_not_count():
    task = TASKS["addition"]
    batch = task.split().test
    batch = dataclasses.replace(batch, targets=batch.targets // 4)
    pairs = pairs_by_hand(batch, range(len(batch)))
    one, other = batch.select(torch.tensor([n for n, _, _ in pairs])), with_token(batch, pairs)
    for seed in range(6):
        model = model_of(task, n_heads=1, seed=seed)
        with torch.no_grad():
            distance = (model(one.tokens)[:, -1] - model(other.tokens)[:, -1]).norm(dim=-1)
        _, separation, *_ = value_of(PairwiseCondition(examples=None), model, batch)
        assert separation == pytest.approx(distance.min().item(), rel=1e-8)


@properties
@given(seeds, st.sampled_from(NAMES), st.floats(0.01, 3.0), st.floats(0.01, 10.0), st.booleans())
def test_no_model_violates_equation_27(seed, name, size, sharpness, residual):
    task = TASKS[name]
    model = model_of(task, n_heads=1, seed=seed % 1000, residual=residual)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(size)
        model.blocks[0].attn.W_Q.mul_(sharpness)
    least, separation, threshold, share, *_ = value_of(PairwiseCondition(examples=8), model, task.split().train)
    assert separation >= 0
    assert least >= threshold * (1 - 1e-9)
    assert share == 1


def test_equation_27_is_attained_where_the_map_stretches_as_much_as_it_can():
    """Without an MLP that does anything, the logits are a linear map of the pooled value: here a multiple of it."""
    task = bt.Task(
        tokens=torch.tensor([[0, 2, 3], [1, 2, 3]]),
        targets=torch.tensor([0, 1]),
        informative=torch.tensor([True, False, False]),
    )
    model = bt.build_model(task, d_model=4, d_mlp=4, residual=True, seed=0, dtype=torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embed.W_E.copy_(torch.eye(4))
        model.blocks[0].attn.W_V[0].copy_(torch.diag(torch.tensor([1.0, -1.0, 0.0, 0.0])) @ torch.ones(4, 4) / 2)
        model.blocks[0].attn.W_O[0].copy_(torch.eye(4))
        model.unembed.W_U.copy_(torch.eye(4)[:, : model.cfg.d_vocab_out])
    batch = task.examples(0)
    least, separation, threshold, share, *_ = value_of(PairwiseCondition(), model, batch)
    assert least == pytest.approx(2 / 3)
    assert share == 1
    assert separation == pytest.approx(2 / 3 * 2**0.5 / 2)
    assert threshold == pytest.approx(least / 2**0.5)  # of four equal coordinates of z the answer reads two


def test_attention_that_underflows_has_its_centroid_still():
    task = TASKS["addition"]
    model, batch = model_of(task, n_heads=1, dtype=torch.float32), task.split().train
    with torch.no_grad():
        model.blocks[0].attn.W_Q.mul_(300.0)
    least, _, threshold, share, *_ = value_of(PairwiseCondition(examples=None), model, batch)
    assert math.isfinite(threshold)
    assert least >= 0
    assert share >= 0


def test_both_parts_of_the_split_are_recorded_by_the_fast_forward():
    measure = PairwiseCondition(examples=2, half=("train", "test"))
    run = bt.train(TASKS["addition"], measures=[measure], epochs=10, record_every=5)
    name = "pairwise_condition[examples=2][least]"
    assert {f"train_{name}", f"test_{name}"} <= set(run.curves) or {name, f"test_{name}"} <= set(run.curves)
    assert run.made_with["forward"] == "fast"


def test_pairs_are_refused_where_eq_27_says_nothing():
    task = TASKS["addition"]
    model, batch = model_of(task, n_heads=1), task.split().train
    with pytest.raises(bt.BayesticketError, match=r"^PairwiseCondition: got a model of 2 heads"):
        bt.measure(model_of(task), batch, PairwiseCondition())
    with pytest.raises(bt.BayesticketError, match=r"^PairwiseCondition: got an intervention that edits"):
        bt.measure(model, batch, PairwiseCondition(), intervention=bt.FrozenAttention())
    with pytest.raises(bt.BayesticketError, match=r"^PairwiseCondition: got no pair of inputs of different classes"):
        bt.measure(model, batch.select(torch.tensor([0])), PairwiseCondition())
    with pytest.raises(bt.BayesticketError, match=r"attention='linear'"):
        bt.measure(model_of(task, n_heads=1, attention="linear"), batch, PairwiseCondition())
