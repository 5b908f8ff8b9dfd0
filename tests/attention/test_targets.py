"""Attention targets against values written by hand, a teacher's own cache, and what a query can see."""

import math
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformer_lens import HookedTransformer, HookedTransformerConfig

from bayesticket.attention import Permuted, as_target, require_visible, resolve
from bayesticket.errors import BayesticketError
from bayesticket.model import build_model, visible_from
from bayesticket.tasks import Examples, ModularAddition

few = settings(max_examples=30, deadline=None)


def examples_of(*marks: str) -> Examples:
    """Examples whose informative positions are written as strings, as "x.x.."."""
    informative = torch.tensor([[mark == "x" for mark in row] for row in marks])
    n, n_positions = informative.shape
    tokens = torch.arange(n * n_positions).view(n, n_positions) % 7
    return Examples(tokens, torch.zeros(n, dtype=torch.int64), informative)


def entropy(rows):
    return -torch.xlogy(rows, rows).sum(-1)


@st.composite
def marked(draw):
    """Examples with informative positions of their own in each row, at least one, never all."""
    n, n_positions = draw(st.integers(1, 6)), draw(st.integers(2, 7))
    rows = []
    for _ in range(n):
        chosen = draw(st.sets(st.integers(0, n_positions - 1), min_size=1, max_size=n_positions - 1))
        rows.append("".join("x" if place in chosen else "." for place in range(n_positions)))
    return examples_of(*rows)


# --- by name ---


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("oracle", [1 / 2, 0, 1 / 2, 0, 0]),
        ("adversarial", [0, 1 / 3, 0, 1 / 3, 1 / 3]),
        ("uniform", [1 / 5] * 5),
        ("shifted", [0, 1 / 2, 0, 1 / 2, 0]),
    ],
)
def test_targets_by_name_where_all_sequences_share_them(name, expected):
    found = resolve(name, examples_of("x.x..", "x.x.."))
    torch.testing.assert_close(found, torch.tensor([[expected]], dtype=torch.float64))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("oracle", [[1, 0, 0, 0], [0, 1 / 2, 1 / 2, 0]]),
        ("adversarial", [[0, 1 / 3, 1 / 3, 1 / 3], [1 / 2, 0, 0, 1 / 2]]),
        ("uniform", [[1 / 4] * 4]),
    ],
)
def test_targets_by_name_where_sequences_differ(name, expected):
    found = resolve(name, examples_of("x...", ".xx."))
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64)[:, None])


def test_shifted_takes_the_least_shift_of_least_overlap():
    # Moved by 1, "xx.." overlaps itself once; by 2 it does not.
    torch.testing.assert_close(resolve("shifted", examples_of("xx.."))[0, 0], torch.tensor([0, 0, 0.5, 0.5]).double())
    # "x.x." comes upon itself when moved by 2, so it is moved by 1.
    torch.testing.assert_close(resolve("shifted", examples_of("x.x."))[0, 0], torch.tensor([0, 0.5, 0, 0.5]).double())


@few
@given(marked())
def test_targets_by_name_are_distributions_with_the_right_support(examples):
    n, informative = len(examples), examples.informative
    found = {
        name: resolve(name, examples).expand(n, 1, -1)[:, 0] for name in ("oracle", "adversarial", "uniform", "shifted")
    }
    for rows in found.values():
        torch.testing.assert_close(rows.sum(-1), torch.ones(n).double())
    torch.testing.assert_close(found["oracle"].float(), examples.oracle)
    assert torch.equal(found["adversarial"] > 0, ~informative)
    torch.testing.assert_close(entropy(found["adversarial"]), (~informative).sum(-1).double().log())
    torch.testing.assert_close(entropy(found["uniform"]), torch.full((n,), math.log(informative.shape[1])).double())
    torch.testing.assert_close(entropy(found["shifted"]), entropy(found["oracle"]))
    assert not torch.equal(found["shifted"], found["oracle"]) or (informative == informative[:, :1]).all()


def test_adversarial_needs_a_distractor():
    with pytest.raises(BayesticketError, match="adversarial"):
        resolve("adversarial", examples_of("x..", "xxx"))


# --- permuted ---


@few
@given(marked(), st.integers(0, 50))
def test_permuted_positions_keep_every_rows_weights_but_not_their_places(examples, seed):
    oracle, found = resolve("oracle", examples), resolve(Permuted("oracle", seed=seed), examples)
    assert found.shape == (len(examples), 1, examples.n_positions)
    torch.testing.assert_close(found.sort(-1).values, oracle.expand_as(found).sort(-1).values)
    assert torch.equal(found, resolve(Permuted("oracle", seed=seed), examples))


def test_permuted_positions_are_uniform_and_drawn_for_each_example():
    examples = examples_of(*["x...."] * 4000)
    found = resolve(Permuted("oracle"), examples)[:, 0]
    counts = found.argmax(-1).bincount(minlength=5)
    assert (counts - 800).abs().max() < 5 * math.sqrt(800)
    other = resolve(Permuted("oracle", seed=1), examples)[:, 0]
    agreement = (found.argmax(-1) == other.argmax(-1)).double().mean().item()
    assert abs(agreement - 0.2) < 0.05


def test_permuted_positions_move_all_heads_of_an_example_alike():
    heads = torch.eye(4).expand(3, 4, 4).clone()
    found = resolve(Permuted(heads), examples_of("x...", "x...", "x..."))
    # A permutation of the identity's rows and columns: still one head on each position.
    assert torch.equal(found.sum(1), torch.ones(3, 4))


def test_permuted_examples_give_each_the_target_of_another():
    marks = ["".join("x" if place == row % 6 else "." for place in range(6)) for row in range(24)]
    examples = examples_of(*marks)
    oracle, found = resolve("oracle", examples), resolve(Permuted("oracle", along="examples"), examples)
    assert sorted(found[:, 0].tolist()) == sorted(oracle[:, 0].tolist())
    assert not torch.equal(found, oracle)
    assert torch.equal(found, resolve(Permuted("oracle", along="examples"), examples))
    assert not torch.equal(found, resolve(Permuted("oracle", along="examples", seed=1), examples))


def test_permuted_examples_need_targets_that_differ():
    with pytest.raises(BayesticketError, match=r"^along: got 'examples'"):
        resolve(Permuted("oracle", along="examples"), examples_of("x..", "x.."))


def test_permuted_can_be_permuted_again():
    examples = examples_of("x....", ".x...", "..x..")
    found = resolve(Permuted(Permuted("oracle", seed=3), seed=4), examples)
    assert torch.equal(found.sort(-1).values, resolve("oracle", examples).sort(-1).values)


# --- tensors ---


def test_tensors_of_one_two_and_three_axes():
    examples = examples_of("x...", ".x..", "..x.")
    generator = torch.Generator().manual_seed(0)
    one = torch.rand(4, generator=generator).softmax(-1)
    two = torch.rand(3, 4, generator=generator).softmax(-1)
    three = torch.rand(3, 2, 4, generator=generator).softmax(-1)
    assert torch.equal(resolve(one, examples), one.view(1, 1, 4))
    assert torch.equal(resolve(two, examples), two.view(3, 1, 4))
    assert torch.equal(resolve(three, examples), three)


@pytest.mark.parametrize("shape", [(5,), (2, 4), (4, 4), (2, 2, 4), (3, 2, 5)])
def test_tensors_of_another_length_are_refused(shape):
    with pytest.raises(BayesticketError, match=r"target: got shape .*accepted: \(4,\), \(3, 4\) or \(3, heads, 4\)"):
        resolve(torch.full(shape, 1 / shape[-1]), examples_of("x...", ".x..", "..x."))


# --- a teacher ---


def two_layers(**changes) -> HookedTransformer:
    config = {
        "n_layers": 2,
        "d_model": 16,
        "n_heads": 4,
        "d_head": 4,
        "d_mlp": 32,
        "n_ctx": 5,
        "d_vocab": 9,
        "act_fn": "relu",
        "seed": 3,
        "device": "cpu",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return HookedTransformer(HookedTransformerConfig(**(config | changes)))


@pytest.mark.parametrize("layer", [0, 1])
def test_a_teacher_gives_its_own_pattern_at_the_last_query(layer):
    examples = ModularAddition(p=7).split().train
    teacher = two_layers()
    _, cache = teacher.run_with_cache(examples.tokens)
    found = resolve(teacher, examples, layer)
    torch.testing.assert_close(found, cache["pattern", layer][:, :, -1])
    assert not found.requires_grad


@pytest.mark.parametrize("query", [0, 2, -2])
def test_a_teacher_is_asked_about_the_query_and_the_heads_that_are_meant(query):
    examples = ModularAddition(p=7).split().train
    teacher = two_layers()
    _, cache = teacher.run_with_cache(examples.tokens)
    found = resolve(teacher, examples, 1, query=query, heads=[3, 1])
    torch.testing.assert_close(found, cache["pattern", 1][:, [3, 1], query])
    # One head teaches all.
    assert resolve(two_layers(n_heads=1), examples, 1, query=query, heads=[3, 1]).shape == (len(examples), 1, 5)
    with pytest.raises(BayesticketError, match="teacher: got a model of 2 heads; accepted: one with a head 3"):
        resolve(two_layers(n_heads=2), examples, heads=[3])


def test_a_teacher_keeps_its_hooks_and_acts_with_them():
    examples = ModularAddition(p=7).split().train
    teacher = two_layers()
    teacher.add_hook("blocks.0.attn.hook_attn_scores", lambda scores, hook: scores * 3)
    with torch.no_grad():
        sharper = {}
        teacher.add_hook("blocks.0.attn.hook_pattern", lambda pattern, hook: sharper.update(rows=pattern[:, :, -1]))
        teacher(examples.tokens)
    before = {name: len(point.fwd_hooks) for name, point in teacher.hook_dict.items()}
    torch.testing.assert_close(resolve(teacher, examples), sharper["rows"])
    assert before == {name: len(point.fwd_hooks) for name, point in teacher.hook_dict.items()}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_ctx": 4}, "teacher: got a model with 4 positions; accepted: one with 5 positions"),
        ({"d_vocab": 8}, "teacher: got a model with 8 tokens; accepted: one with a token 8"),
        ({"n_layers": 1}, "teacher: got a model of 1 layers; accepted: one with a layer 1"),
    ],
)
def test_a_teacher_that_cannot_read_the_examples_is_refused(changes, message):
    with pytest.raises(BayesticketError, match=message):
        resolve(two_layers(**changes), ModularAddition(p=7).split().train, layer=1)


def test_what_has_a_model_is_a_teacher():
    class Holder:
        model = build_model(ModularAddition(p=5), d_model=8, d_mlp=16)

    assert as_target("target", Holder()) is Holder.model


# --- what a query can see ---


@pytest.mark.parametrize("query", [0, 2, 4, -1, -4])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"attention_dir": "bidirectional"},
        {"use_local_attn": True, "window_size": 2, "attn_types": ["global", "local"]},
    ],
)
def test_visible_keys_are_those_with_attention_in_the_model(query, changes):
    model = two_layers(**changes)
    _, cache = model.run_with_cache(torch.arange(5)[None])
    for layer in (0, 1):
        seen = torch.zeros(5, dtype=torch.bool)
        seen[visible_from(model, layer, 5, query)] = True
        assert torch.equal(seen, (cache["pattern", layer][0, :, query] > 0).all(0))


def test_mass_out_of_sight_is_refused_and_mass_in_sight_is_not():
    target = torch.tensor([[[0.5, 0.0, 0.3, 0.2, 0.0]]])
    require_visible(target, slice(0, 4), "target")
    with pytest.raises(BayesticketError, match=r"mass 0.2 on positions \[3, 4\].*positions 0 to 2 only"):
        require_visible(target, slice(0, 3), "target")
    with pytest.raises(BayesticketError, match=r"mass 0.5 on positions \[0, 1\]"):
        require_visible(target, slice(2, 5), "target")
