"""Every intervention against an independent computation on a real HookedTransformer."""

import math
import warnings

import numpy as np
import pytest
import scipy.special
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from transformer_lens import HookedTransformer, HookedTransformerConfig

import bayesticket as bt
from bayesticket.interventions.weights import match_norm
from bayesticket.model import TokenRows, mounted, query_forward

few = settings(max_examples=25, deadline=None)
TASK = bt.ModularAddition(p=7)
TRAIN = TASK.split(train_fraction=0.4).train
ROUTING = ("W_Q", "b_Q", "W_K", "b_K")
PLACES = [{}, {"layer": 1}, {"layer": (0, 1)}, {"head": 2}, {"layer": (1, 0), "head": (3, 1)}, {"layer": 1, "query": 2}]
places = pytest.mark.parametrize("place", PLACES, ids=str)


def transformer(*, n_layers: int = 2, seed: int = 0, scale: float = 3.0, **changes) -> HookedTransformer:
    """A HookedTransformer made by TransformerLens alone, of attention far from uniform, in double precision."""
    config = {"d_model": 16, "n_heads": 4, "d_head": 4, "d_mlp": 24, "n_ctx": 5, "d_vocab": 9, "act_fn": "relu"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.manual_seed(seed)
        model = HookedTransformer(
            HookedTransformerConfig(n_layers=n_layers, seed=seed, device="cpu", **(config | changes))
        )
    model.to(torch.float64, print_details=False)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".b_" in name:
                parameter.normal_(std=0.3)
            elif "attn.W" in name:
                parameter.mul_(scale)
    return model


def layers_of(place):
    layer = place.get("layer", 0)
    return (layer,) if isinstance(layer, int) else layer


def heads_of(place):
    head = place.get("head", range(4))
    return [head] if isinstance(head, int) else list(head)


def a_target(place, seed=0):
    """A distribution for every example, on positions that every query here can see."""
    weights = torch.rand(len(TRAIN), 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    weights[:, 3:] = 0
    return weights / weights.sum(-1, keepdim=True)


def pattern_hooks(place, rewrite):
    """Plain TransformerLens hooks that rewrite a row of the pattern, head by head, example by example."""

    def hook(pattern, hook):
        rows = []
        for example in range(len(pattern)):
            heads = list(pattern[example])
            for head in heads_of(place):
                queries = list(heads[head])
                query = place.get("query", -1)
                queries[query] = rewrite(queries[query], example)
                heads[head] = torch.stack(queries)
            rows.append(torch.stack(heads))
        return torch.stack(rows)

    return [(f"blocks.{layer}.attn.hook_pattern", hook) for layer in layers_of(place)]


def run(model, hooks=()):
    """Logits and patterns of both layers under hooks, in plain TransformerLens."""
    with torch.no_grad(), model.hooks(fwd_hooks=list(hooks)):
        logits, cache = model.run_with_cache(TRAIN.tokens)
    return logits, [cache["pattern", layer] for layer in range(model.cfg.n_layers)]


def assert_same_run(model, hooks, expected):
    (logits, patterns), (wanted, wanted_patterns) = run(model, hooks), run(model, expected)
    torch.testing.assert_close(logits, wanted, rtol=0, atol=1e-12)
    for found, pattern in zip(patterns, wanted_patterns, strict=True):
        torch.testing.assert_close(found, pattern, rtol=0, atol=1e-12)


def gradients_of(model, value):
    value.backward()
    found = {name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    return found


def penalty_of(model, intervention, *, epoch=None, seed=0):
    with intervention.attach(model, TRAIN, seed=seed) as live:
        if epoch is not None:
            live.epoch = epoch
        model(TRAIN.tokens)
        return live.penalty()


# --- edits ---


@places
def test_frozen_attention_is_a_replaced_row_and_nothing_else(place):
    model, target = transformer(), a_target(place)
    frozen = bt.FrozenAttention(target, **place)
    assert_same_run(model, frozen.hooks(TRAIN), pattern_hooks(place, lambda row, example: target[example]))
    _, plain = run(model)
    _, found = run(model, frozen.hooks(TRAIN))
    first = min(layers_of(place))
    touched = torch.zeros(4, 5, dtype=torch.bool)
    touched[heads_of(place), place.get("query", -1)] = True
    assert torch.equal(found[first][:, ~touched], plain[first][:, ~touched])
    assert not torch.isclose(found[first][:, touched], plain[first][:, touched]).all(-1).any()


@places
def test_mixed_attention_is_a_row_moved_part_of_the_way(place):
    model, target = transformer(), a_target(place)
    mixed = bt.MixedAttention(target, weight=0.3, **place)
    expected = pattern_hooks(place, lambda row, example: 0.7 * row + 0.3 * target[example])
    assert_same_run(model, mixed.hooks(TRAIN), expected)
    none, whole = (bt.MixedAttention(target, weight=weight, **place).hooks(TRAIN) for weight in (0.0, 1.0))
    assert_same_run(model, none, [])
    assert_same_run(model, whole, bt.FrozenAttention(target, **place).hooks(TRAIN))


def test_targets_by_head_reach_their_heads():
    model = transformer()
    target = torch.eye(5, dtype=torch.float64)[:2].expand(len(TRAIN), 2, 5)
    _, patterns = run(model, bt.FrozenAttention(target, head=(3, 0)).hooks(TRAIN))
    assert (patterns[0][:, 3, -1, 0] == 1).all()
    assert (patterns[0][:, 0, -1, 1] == 1).all()
    _, plain = run(model)
    assert torch.equal(patterns[0][:, 1:3], plain[0][:, 1:3])


def test_hooks_of_a_task_are_those_of_its_examples():
    model = transformer()
    assert_same_run(model, bt.FrozenAttention("oracle").hooks(TASK), bt.FrozenAttention("oracle").hooks(TRAIN))


@pytest.mark.parametrize("head", [None, 1, (0, 3)])
def test_frozen_heads_teach_nothing_to_their_queries_and_keys(head):
    model = transformer(n_layers=1)
    with model.hooks(fwd_hooks=bt.FrozenAttention("uniform", head=head).hooks(TRAIN)):
        found = gradients_of(model, F.cross_entropy(model(TRAIN.tokens)[:, -1], TRAIN.targets))
    frozen = heads_of({} if head is None else {"head": head})
    for name in ROUTING:
        gradient = found[f"blocks.0.attn.{name}"]
        assert not gradient[frozen].any()
        if head is not None and name != "b_K":  # softmax ignores what a key bias adds to all scores alike
            assert all(gradient[other].any() for other in range(4) if other not in frozen)
    assert found["blocks.0.attn.W_V"].any()


def test_partly_frozen_attention_passes_its_share_of_the_gradient():
    model, target = transformer(n_layers=1), a_target({})
    gradients = []
    for hooks in (
        bt.MixedAttention(target, weight=0.3).hooks(TRAIN),
        pattern_hooks({}, lambda row, example: 0.7 * row + 0.3 * target[example]),
    ):
        with model.hooks(fwd_hooks=hooks):
            gradients.append(gradients_of(model, F.cross_entropy(model(TRAIN.tokens)[:, -1], TRAIN.targets)))
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("place", [{}, {"layer": 1}, {"layer": (0, 1), "head": (1, 2)}, {"head": 3}], ids=str)
def test_linear_attention_is_the_positive_share_of_the_scores(place):
    model = transformer()

    def reference():
        scores = {}

        def keep(tensor, hook):
            scores[hook.name.replace("attn_scores", "pattern")] = tensor

        def replace(pattern, hook):
            positive = scores[hook.name].clamp_min(0)
            visible = torch.ones(5, 5, dtype=torch.float64).tril()
            uniform = (visible / visible.sum(-1, keepdim=True)).expand_as(pattern)
            total = positive.sum(-1, keepdim=True)
            linear = torch.where(total > 0, positive / total, uniform)
            other = torch.ones(4, dtype=torch.bool)
            other[heads_of(place)] = False
            return torch.where(other[:, None, None], pattern, linear)

        for layer in layers_of(place):
            yield f"blocks.{layer}.attn.hook_attn_scores", keep
            yield f"blocks.{layer}.attn.hook_pattern", replace

    found = bt.LinearAttention(**place).hooks(TRAIN)
    assert_same_run(model, found, list(reference()))
    _, patterns = run(model, found)
    rows = patterns[layers_of(place)[0]][:, heads_of(place)]
    torch.testing.assert_close(rows.sum(-1), torch.ones_like(rows[..., 0]))
    assert (rows == 0).float().mean() > 0.4  # above the diagonal, and where scores are negative


@pytest.mark.parametrize("around", ["attention", "mlp", "both"])
def test_no_residual_is_what_the_matrices_say(around):
    model = transformer(n_layers=1, normalization_type=None)
    weights = dict(model.named_parameters())

    def w(name):
        return weights[f"blocks.0.{name}"].detach()

    x = (weights["embed.W_E"][TRAIN.tokens] + weights["pos_embed.W_pos"][:5]).detach()
    out = torch.zeros_like(x[:, -1])
    for head in range(4):
        query = x[:, -1] @ w("attn.W_Q")[head] + w("attn.b_Q")[head]
        key = x @ w("attn.W_K")[head] + w("attn.b_K")[head]
        value = x @ w("attn.W_V")[head] + w("attn.b_V")[head]
        alpha = torch.softmax((key * query[:, None]).sum(-1) / 2, -1)
        out = out + ((alpha[..., None] * value).sum(1)) @ w("attn.W_O")[head]
    middle = out + w("attn.b_O") + (x[:, -1] if around == "mlp" else 0)
    hidden = torch.relu(middle @ w("mlp.W_in") + w("mlp.b_in"))
    last = hidden @ w("mlp.W_out") + w("mlp.b_out") + (middle if around == "attention" else 0)
    expected = last @ weights["unembed.W_U"].detach() + weights["unembed.b_U"].detach()

    logits, _ = run(model, bt.NoResidual(around).hooks(TRAIN))
    torch.testing.assert_close(logits[:, -1], expected)


def test_no_residual_of_the_second_layer_leaves_the_first_alone():
    model = transformer()
    with torch.no_grad(), model.hooks(fwd_hooks=bt.NoResidual(layer=1).hooks(TRAIN)):
        _, cut = model.run_with_cache(TRAIN.tokens)
    _, plain = model.run_with_cache(TRAIN.tokens)
    torch.testing.assert_close(cut["resid_post", 0], plain["resid_post", 0])
    torch.testing.assert_close(cut["resid_mid", 1], plain["attn_out", 1])
    torch.testing.assert_close(cut["resid_post", 1], cut["mlp_out", 1])


# --- priors ---

PRIORS = {
    "kl": lambda place: bt.KLPrior("oracle", strength=0.7, **place),
    "kl to a tensor": lambda place: bt.KLPrior(a_target(place), strength=0.7, **place),
    "entropy": lambda place: bt.EntropyPrior(strength=0.7, **place),
    "sparsity": lambda place: bt.SparsityPrior(strength=0.7, **place),
    "sparsity of scores": lambda place: bt.SparsityPrior(strength=0.7, on="scores", **place),
}


def by_hand(name, place, example, alpha, scores):
    """What a prior says of one row, in numpy, by scipy where it knows the function."""
    if name == "kl":
        return scipy.special.rel_entr(np.array([0.5, 0, 0.5, 0, 0]), alpha).sum()
    if name == "kl to a tensor":
        return scipy.special.rel_entr(a_target(place)[example].numpy(), alpha).sum()
    if name == "entropy":
        return scipy.special.entr(alpha).sum()
    if name == "sparsity":
        return np.sqrt(alpha).sum()
    return np.abs(scores[: place.get("query", 4) + 1]).sum()


@places
@pytest.mark.parametrize("name", PRIORS)
def test_priors_are_means_over_examples_heads_and_layers(name, place):
    model = transformer()
    _, cache = model.run_with_cache(TRAIN.tokens)
    values = []
    for layer in layers_of(place):
        for head in heads_of(place):
            for example in range(len(TRAIN)):
                at = (example, head, place.get("query", -1))
                alpha, scores = (cache[kind, layer][at].numpy() for kind in ("pattern", "attn_scores"))
                values.append(by_hand(name, place, example, alpha, scores))
    assert penalty_of(model, PRIORS[name](place)).item() == pytest.approx(0.7 * np.mean(values), rel=1e-12)


@places
@pytest.mark.parametrize("name", PRIORS)
def test_gradients_of_priors_are_those_of_finite_differences(name, place):
    model = transformer()
    prior = PRIORS[name](place)
    found = gradients_of(model, penalty_of(model, prior))
    generator = torch.Generator().manual_seed(1)
    direction = {
        key: torch.randn(value.shape, generator=generator, dtype=torch.float64) / math.sqrt(value.numel())
        for key, value in found.items()
    }
    expected = sum((found[key] * direction[key]).sum().item() for key in found)
    values = []
    for step in (1e-5, -1e-5):
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                parameter.add_(direction[key], alpha=step)
            values.append(penalty_of(model, prior).item())
            for key, parameter in model.named_parameters():
                parameter.sub_(direction[key], alpha=step)
    assert abs(expected) > 1e-4
    assert (values[0] - values[1]) / 2e-5 == pytest.approx(expected, rel=1e-5)


@places
def test_the_gradient_of_the_kl_prior_in_the_scores_is_the_difference_of_the_attentions(place):
    # Eq. 45: ∂D(α*‖α)/∂s = α − α*, whatever the task.
    model, target = transformer(), a_target(place)
    last = max(layers_of(place))  # scores of an earlier layer act on later ones as well
    kept = {}

    def keep(scores, hook):
        scores.retain_grad()
        kept["scores"] = scores

    with bt.KLPrior(target, strength=0.7, **place).attach(model, TRAIN) as live:
        with model.hooks(fwd_hooks=[(f"blocks.{last}.attn.hook_attn_scores", keep)]):
            model(TRAIN.tokens)
        live.penalty().backward()
    gradient = kept["scores"].grad
    alpha = kept["scores"].detach().softmax(-1)
    query, heads = place.get("query", -1), heads_of(place)
    count = len(TRAIN) * len(heads) * len(layers_of(place))
    expected = torch.zeros_like(gradient)
    expected[:, heads, query] = 0.7 * (alpha[:, heads, query] - target[:, None]) / count
    torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-12)


def test_a_prior_on_a_target_of_each_head_compares_head_with_head():
    model = transformer()
    _, cache = model.run_with_cache(TRAIN.tokens)
    target = cache["pattern", 0][:, [2, 0], -1]
    assert penalty_of(model, bt.KLPrior(target, head=(2, 0))).item() == pytest.approx(0, abs=1e-12)
    assert penalty_of(model, bt.KLPrior(target, head=(0, 2))).item() > 0.01


def test_the_qk_penalty_is_the_squared_norm_of_its_matrices():
    model = transformer()
    penalty = penalty_of(model, bt.QKPenalty(strength=0.3, layer=(0, 1)))
    matrices = {f"blocks.{layer}.attn.{name}" for layer in (0, 1) for name in ("W_Q", "W_K")}
    weights = {name: value.detach().numpy() for name, value in model.named_parameters()}
    assert penalty.item() == pytest.approx(0.3 * sum((weights[name] ** 2).sum() for name in matrices))
    for name, gradient in gradients_of(model, penalty).items():
        expected = 0.6 * weights[name] if name in matrices else np.zeros_like(weights[name])
        np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("place", [{}, {"layer": (0, 1)}, {"layer": 1, "head": (3, 1)}, {"query": 2}], ids=str)
def test_distilling_a_teacher_is_the_divergence_from_its_attention(place):
    model, teacher = transformer(), transformer(seed=8)
    penalty = penalty_of(model, bt.KLPrior(transformer(), **place))
    assert penalty.item() == pytest.approx(0, abs=1e-14)
    assert all(gradient.abs().max() < 1e-15 for gradient in gradients_of(model, penalty).values())

    caches = [each.run_with_cache(TRAIN.tokens)[1] for each in (teacher, model)]
    divergences = []
    for layer in layers_of(place):
        taught, own = (cache["pattern", layer][:, heads_of(place), place.get("query", -1)].numpy() for cache in caches)
        divergences.append(scipy.special.rel_entr(taught, own).sum(-1).mean())
    penalty = penalty_of(model, bt.KLPrior(teacher, **place))
    assert penalty.item() == pytest.approx(np.mean(divergences), rel=1e-12)
    penalty.backward()
    assert all(parameter.grad is None for parameter in teacher.parameters())


def test_a_run_teaches_by_its_model(tmp_path):
    run = bt.train(TASK, epochs=2, model=bt.Architecture(d_model=8, d_mlp=8), seed=5)
    model = bt.build_model(TASK, d_model=8, d_mlp=8)
    by_run = bt.KLPrior(run)
    assert by_run.target is run.model
    assert bt.KLPrior(run.save(tmp_path / "teacher")).target.cfg.d_model == 8
    _, taught = run.model.run_with_cache(TRAIN.tokens)
    _, own = model.run_with_cache(TRAIN.tokens)
    rows = [cache["pattern", 0][:, :, -1].double().numpy() for cache in (taught, own)]
    assert penalty_of(model, by_run).item() == pytest.approx(scipy.special.rel_entr(*rows).sum(-1).mean(), rel=1e-4)


# --- projections ---


@pytest.mark.parametrize("scope", ["mlp", "all"])
def test_the_norm_is_held_from_before_the_first_step_and_after_every_one(scope):
    model = transformer()
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    held = [name for name in before if scope == "all" or ".mlp." in name]

    def norm():
        return math.sqrt(sum((value.detach().numpy() ** 2).sum() for name, value in now.items() if name in held))

    now = dict(model.named_parameters())
    factor = 5.0 / norm()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=1.0)
    with bt.NormMatch(radius=5.0, scope=scope).attach(model, TRAIN) as live:
        assert norm() == pytest.approx(5.0, rel=1e-12)
        for name, value in now.items():  # one factor for all, and nothing else is touched
            torch.testing.assert_close(value.detach(), before[name] * (factor if name in held else 1.0))
        for _ in range(4):
            F.cross_entropy(model(TRAIN.tokens)[:, -1], TRAIN.targets).backward()
            optimizer.step()
            optimizer.zero_grad()
            assert norm() != pytest.approx(5.0, rel=1e-6)
            live.project()
            assert norm() == pytest.approx(5.0, rel=1e-12)


def test_weights_that_are_all_zero_have_no_direction_to_be_scaled_in():
    with pytest.raises(bt.BayesticketError, match=r"^radius: got 5\.0; accepted: weights that are not all zero"):
        match_norm([torch.zeros(3)], 5.0)
    model = transformer()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    with pytest.raises(bt.BayesticketError, match=r"^NormMatch.radius: got 5\.0; .*all mlp weights are 0"):
        bt.NormMatch(radius=5.0).attach(model, TRAIN)


def test_the_norm_is_held_in_training():
    run = bt.train(TASK, bt.NormMatch(radius=2.5), epochs=30, record_every=3, model=bt.Architecture(d_model=8, d_mlp=8))
    np.testing.assert_allclose(run.curves["mlp_norm"], 2.5, rtol=1e-5)


def masks_for(model, seed=0):
    generator = torch.Generator().manual_seed(seed)
    names = ("blocks.0.mlp.W_in", "blocks.0.attn.W_Q", "embed.W_E", "blocks.0.mlp.b_in")
    shapes = {name: value.shape for name, value in model.named_parameters()}
    return {name: torch.rand(shapes[name], generator=generator) > 0.6 for name in names}


def train_pruned(model, masks, *, epochs, max_grad_norm, learning_rate):
    """Trains the network that multiplies its weights by the masks in its forward pass; gives its effective weights."""
    free = {name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()}
    for name, mask in masks.items():
        free[name].data.mul_(mask)
    optimizer = torch.optim.AdamW(free.values(), lr=1.0, weight_decay=1.0)
    norms = []
    for epoch in range(epochs):
        optimizer.param_groups[0]["lr"] = learning_rate(epoch)
        pruned = {name: value * masks[name] if name in masks else value for name, value in free.items()}
        logits = torch.func.functional_call(model, pruned, (TRAIN.tokens,))
        F.cross_entropy(logits[:, -1], TRAIN.targets).backward()
        norms.append(torch.nn.utils.clip_grad_norm_(list(free.values()), max_grad_norm).item())
        optimizer.step()
        optimizer.zero_grad()
    return {name: (value * masks.get(name, 1)).detach() for name, value in free.items()}, norms


def test_a_ticket_trains_as_the_pruned_network():
    model = transformer()
    masks = masks_for(model)
    expected, norms = train_pruned(model, masks, epochs=6, max_grad_norm=0.05, learning_rate=lambda epoch: 0.01)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=1.0)
    found_norms = []
    with bt.TicketMask(masks).attach(model, TRAIN) as live:
        for _ in range(6):
            for name, mask in masks.items():
                assert not dict(model.named_parameters())[name][~mask].any()
            F.cross_entropy(model(TRAIN.tokens)[:, -1], TRAIN.targets).backward()
            live.gradients()
            assert not any(dict(model.named_parameters())[name].grad[~mask].any() for name, mask in masks.items())
            found_norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05).item())
            optimizer.step()
            optimizer.zero_grad()
            live.project()
    assert min(norms) > 0.05
    np.testing.assert_allclose(found_norms, norms, rtol=1e-9)
    for name, value in model.named_parameters():
        torch.testing.assert_close(value.detach(), expected[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("forward", ["fast", "full"])
def test_the_trainer_trains_a_ticket_as_the_pruned_network(forward):
    model = transformer(n_layers=1, normalization_type=None)
    masks = masks_for(model)
    expected, _ = train_pruned(
        model, masks, epochs=6, max_grad_norm=0.05, learning_rate=lambda epoch: 0.01 * min(1, (epoch + 1) / 3)
    )
    run = bt.train(
        TASK,
        bt.TicketMask(masks),
        model=model,
        train_fraction=0.4,
        epochs=6,
        lr=0.01,
        warmup=3,
        max_grad_norm=0.05,
        dtype="float64",
        forward=forward,
    )
    for name, value in run.weights.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-8, atol=1e-11)


# --- gradient noise ---


@places
def test_gradient_noise_is_as_large_as_the_priors_gradient_and_on_routing_alone(place):
    model, target = transformer(), a_target(place)

    # The prior's gradient, by hooks and a formula written here.
    patterns = {}
    hooks = [
        (f"blocks.{layer}.attn.hook_pattern", lambda pattern, hook: patterns.update({hook.name: pattern}))
        for layer in layers_of(place)
    ]
    with model.hooks(fwd_hooks=hooks):
        model(TRAIN.tokens)
    rows = torch.stack([pattern[:, heads_of(place), place.get("query", -1)] for pattern in patterns.values()])
    prior = -0.7 * (target[:, None] * rows.clamp_min(1e-300).log()).sum(-1).mean()
    gradient = gradients_of(model, prior)
    routing = {f"blocks.{layer}.attn.{name}" for layer in layers_of(place) for name in ROUTING}
    size = math.sqrt(sum((gradient[name] ** 2).sum().item() for name in routing))

    noise = bt.GradientNoise(bt.KLPrior(target, strength=0.7, **place), fraction=0.25)
    penalty = penalty_of(model, noise)
    assert penalty.item() == 0.0
    found = gradients_of(model, penalty)
    assert {name for name, value in found.items() if value.any()} == routing
    assert math.sqrt(sum((value**2).sum().item() for value in found.values())) == pytest.approx(0.25 * size, rel=1e-9)
    # A direction of its own: in some thousand dimensions two random ones are nearly orthogonal.
    overlap = sum((found[name] * gradient[name]).sum().item() for name in routing) / (0.25 * size**2)
    assert abs(overlap) < 0.2


def test_gradient_noise_is_a_function_of_seed_and_step():
    model = transformer()
    noise = bt.GradientNoise(bt.KLPrior(strength=1.0))

    def three_steps(seed):
        found = []
        with noise.attach(model, TRAIN, seed=seed) as live:
            for _ in range(3):
                model(TRAIN.tokens)
                found.append(gradients_of(model, live.penalty())["blocks.0.attn.W_Q"])
                live.project()
        return torch.stack(found)

    first, again, other = three_steps(0), three_steps(0), three_steps(1)
    assert torch.equal(first, again)
    draws = torch.cat([first, other]).flatten(1)
    cosines = torch.corrcoef(draws) - torch.eye(6, dtype=torch.float64)
    assert cosines.abs().max() < 0.35  # 256 entries: a deviation of 1/16


def test_gradient_noise_adds_to_the_gradient_of_the_loss():
    model = transformer()
    with bt.GradientNoise(bt.KLPrior(strength=1.0)).attach(model, TRAIN) as live:
        loss = F.cross_entropy(model(TRAIN.tokens)[:, -1], TRAIN.targets)
        both = gradients_of(model, loss + live.penalty())
        loss = F.cross_entropy(model(TRAIN.tokens)[:, -1], TRAIN.targets)
        noise = gradients_of(model, live.penalty())
    alone = gradients_of(model, loss)
    for name, gradient in both.items():
        torch.testing.assert_close(gradient, alone[name] + noise[name], rtol=1e-9, atol=1e-13)


# --- schedules ---


@few
@given(st.floats(0, 10), st.floats(0, 10), st.integers(0, 50), st.integers(1, 50), st.integers(0, 200))
def test_anneal_is_linear_interpolation(start, end, first, length, epoch):
    expected = np.interp(epoch, [first, first + length], [start, end])
    assert bt.Anneal(start, end, first=first, last=first + length).at(epoch) == pytest.approx(expected, abs=1e-12)


@few
@given(st.floats(0, 10), st.integers(0, 50), st.none() | st.integers(1, 50), st.integers(0, 200))
def test_window_is_on_inside_and_off_outside(value, start, length, epoch):
    stop = None if length is None else start + length
    inside = epoch in range(start, 10**6 if stop is None else stop)
    assert bt.Window(value, start=start, stop=stop).at(epoch) == (value if inside else 0.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda strength: bt.KLPrior(strength=strength),
        lambda strength: bt.EntropyPrior(strength=strength),
        lambda strength: bt.SparsityPrior(strength=strength),
        lambda strength: bt.QKPenalty(strength=strength),
    ],
)
def test_a_scheduled_strength_is_the_schedules_value_at_the_epoch(make):
    model = transformer()
    unit = penalty_of(model, make(1.0)).item()
    schedule = bt.Anneal(2.0, 0.5, first=2, last=8)
    for epoch, factor in ((0, 2.0), (2, 2.0), (4, 1.5), (8, 0.5), (9, 0.5)):
        assert penalty_of(model, make(schedule), epoch=epoch).item() == pytest.approx(factor * unit)


def test_scheduled_edits_and_noise_follow_the_epoch():
    model, target = transformer(), a_target({})
    mixed = bt.MixedAttention(target, weight=bt.Window(0.4, start=3, stop=5))
    noise = bt.GradientNoise(fraction=bt.Anneal(0.0, 1.0, last=4))
    with torch.no_grad(), mixed.attach(model, TRAIN) as live:
        for epoch, weight in ((2, 0.0), (3, 0.4), (4, 0.4), (5, 0.0)):
            live.epoch = epoch
            found = model(TRAIN.tokens)
            expected, _ = run_plain(model, target, weight)
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    sizes = []
    for epoch in (0, 1, 4):
        gradients = gradients_of(model, penalty_of(model, noise, epoch=epoch))
        sizes.append(math.sqrt(sum((value**2).sum().item() for value in gradients.values())))
    assert sizes[0] == 0
    assert sizes[2] == pytest.approx(4 * sizes[1])


def run_plain(model, target, weight):
    """The run of an equal model that no hooks of ours are mounted on."""
    other = transformer()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    return run(other, pattern_hooks({}, lambda row, example: (1 - weight) * row + weight * target[example]))


# --- canaries ---


def test_the_pattern_that_hooks_replace_is_the_one_the_model_uses():
    model = bt.build_model(TASK, d_model=8, d_mlp=16)
    rows = TokenRows(TRAIN.tokens, 1)
    first = torch.zeros(5)
    first[0] = 1
    edits = bt.FrozenAttention(first).hooks(TRAIN)
    with torch.no_grad():
        plain, fast = model(TRAIN.tokens)[:, -1], query_forward(model, rows)
        with mounted(model, edits):
            edited, fast_edited = model(TRAIN.tokens)[:, -1], query_forward(model, rows)
    torch.testing.assert_close(plain, fast)
    torch.testing.assert_close(edited, fast_edited)
    assert (plain - edited).abs().max() > 0.01
    assert (fast - fast_edited).abs().max() > 0.01


@pytest.mark.parametrize("forward", ["fast", "full"])
def test_the_pattern_that_priors_read_is_attached_to_the_parameters(forward):
    model = bt.build_model(TASK, d_model=8, d_mlp=16)
    with bt.KLPrior(strength=1.0).attach(model, TRAIN) as live:
        if forward == "fast":
            query_forward(model, TokenRows(TRAIN.tokens, 1))
        else:
            model(TRAIN.tokens)
        found = gradients_of(model, live.penalty())
    for name in ("blocks.0.attn.W_Q", "blocks.0.attn.W_K", "embed.W_E"):
        assert found[name].norm() > 1e-3
