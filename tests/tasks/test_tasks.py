import itertools
import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesticket.errors import BayesticketError
from bayesticket.tasks import (
    AbstractTask,
    Examples,
    KOperandAddition,
    ModularAddition,
    ModularMultiplication,
    PermutationComposition,
    SparseParity,
    Task,
)
from bayesticket.tasks.symbolic import Layout, _distinct_rows

few = settings(max_examples=25, deadline=None)


def permutation_product(values, n):
    numbered = list(itertools.permutations(range(n)))
    sigma, tau = (numbered[value] for value in values)
    return numbered.index(tuple(sigma[tau[i]] for i in range(n)))


# A small task, the size of its operands' alphabet, and its function computed in plain Python.
CASES = {
    "addition": (ModularAddition, {"p": 7}, 7, lambda v: (v[0] + v[1]) % 7),
    "multiplication": (ModularMultiplication, {"p": 7}, 7, lambda v: v[0] * v[1] % 7),
    "three operands": (KOperandAddition, {"k": 3, "p": 5}, 5, lambda v: (v[0] + v[1] + v[2]) % 5),
    "one operand": (KOperandAddition, {"k": 1, "p": 5}, 5, lambda v: v[0]),
    "permutations": (PermutationComposition, {"n": 3}, 6, lambda v: permutation_product(v, 3)),
    "parity": (SparseParity, {"n": 8, "k": 3}, 2, lambda v: v[0] ^ v[1] ^ v[2]),
}
OPTIONS = {
    "fixed": {},
    "constant": {"distractors": "constant"},
    "dynamic": {"positions": "random"},
    "dynamic constant": {"positions": "random", "distractors": "constant"},
    "three distractors": {"n_distractors": 3},
    "dynamic, three distractors": {"positions": "random", "n_distractors": 3},
    "no distractor": {"n_distractors": 0},
}


def makes_sense(case, option):
    return case != "parity" or not {"n_distractors", "distractors"} & set(OPTIONS[option])


every_layout = pytest.mark.parametrize(
    ("case", "option"), [pair for pair in itertools.product(CASES, OPTIONS) if makes_sense(*pair)]
)


def build(case, option, **more):
    make, sizes, _, _ = CASES[case]
    return make(**sizes, **OPTIONS[option], **more)


def operands_of(examples):
    """The tokens at the informative positions, row by row, in their order."""
    return [
        tuple(token for token, marked in zip(row, marks, strict=True) if marked)
        for row, marks in zip(examples.tokens.tolist(), examples.informative.tolist(), strict=True)
    ]


def same(a, b):
    return all(torch.equal(getattr(a, name), getattr(b, name)) for name in ("tokens", "targets", "informative"))


def rows(examples):
    return list(map(tuple, examples.tokens.tolist()))


# --- what the examples say ---


@every_layout
def test_targets_are_the_function_of_the_informative_tokens(case, option):
    _, _, n_values, function = CASES[case]
    task = build(case, option)
    examples = task.examples(seed=3)
    operands = operands_of(examples)
    assert all(0 <= value < n_values for values in operands for value in values)
    assert examples.targets.tolist() == [function(values) for values in operands]
    assert set(examples.targets.tolist()) <= set(range(task.d_vocab_out))
    # Enumerated: every tuple of operands, each as often as the others.
    counts = {values: operands.count(values) for values in itertools.product(range(n_values), repeat=len(operands[0]))}
    assert set(operands) == set(counts)
    assert len(set(counts.values())) == 1


@every_layout
def test_shapes_vocabulary_and_query(case, option):
    task = build(case, option)
    examples = task.examples(seed=0)
    assert examples.tokens.shape == (len(examples), task.n_positions) == examples.informative.shape
    assert examples.tokens.dtype == examples.targets.dtype == torch.int64
    assert examples.tokens.min() >= 0
    assert examples.tokens.max() < task.d_vocab
    query = examples.tokens[:, -1].unique()
    assert len(query) == 1
    assert not (examples.tokens[:, :-1] == query).any()
    assert not examples.informative[:, -1].any()


@every_layout
def test_no_sequence_has_two_targets(case, option):
    examples = build(case, option).examples(seed=0)
    target_of = {}
    for row, target in zip(rows(examples), examples.targets.tolist(), strict=True):
        assert target_of.setdefault(row, target) == target


@every_layout
def test_oracle_is_uniform_over_the_informative_positions(case, option):
    examples = build(case, option).examples(seed=0)
    torch.testing.assert_close(examples.oracle.sum(dim=1), torch.ones(len(examples)))
    assert torch.equal(examples.oracle > 0, examples.informative)
    k = len(operands_of(examples)[0])
    torch.testing.assert_close(examples.oracle[examples.informative], torch.full((len(examples) * k,), 1 / k))


def test_oracle_has_the_default_dtype_and_is_computed_once():
    examples = ModularAddition(p=3).examples(seed=0)
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        assert examples.oracle.dtype == torch.float64
    finally:
        torch.set_default_dtype(before)
    assert examples.oracle is examples.oracle


def test_default_layout_is_a_plus_b_noise_equals():
    task = ModularAddition(p=113)
    assert (task.n_positions, task.d_vocab, task.d_vocab_out) == (5, 115, 113)
    tokens = task.examples(seed=0).tokens
    assert (tokens[:, 1] == 113).all()
    assert (tokens[:, 4] == 114).all()
    assert task.examples(seed=0).informative.tolist() == [[True, False, True, False, False]] * 113**2
    noise = tokens[:, 3].bincount(minlength=115)
    assert noise[113:].sum() == 0
    # Chi-squared with 112 degrees of freedom has mean 112 and deviation 15.
    assert ((noise[:113] - 113) ** 2 / 113).sum() < 112 + 5 * 15


def test_constant_layout_differs_between_sequences_in_its_operands_only():
    task = ModularAddition(p=113, distractors="constant", n_distractors=2)
    assert (task.n_positions, task.d_vocab) == (6, 116)
    tokens = task.examples(seed=0).tokens
    assert [column.unique().tolist() for column in tokens[:, [1, 3, 4, 5]].T] == [[113], [115], [115], [114]]
    assert torch.equal(task.examples(seed=0).tokens, task.examples(seed=1).tokens)


def test_vocabulary_does_not_depend_on_length():
    for options in ({}, {"positions": "random"}, {"distractors": "constant"}):
        assert len({ModularAddition(p=7, n_distractors=n, **options).d_vocab for n in range(4)}) == 1


@few
@given(st.integers(1, 4), st.integers(0, 4), st.booleans())
def test_length_is_operands_operators_noise_and_query(k, n_distractors, dynamic):
    task = KOperandAddition(k=k, p=3, n_distractors=n_distractors, positions="random" if dynamic else "fixed")
    examples = task.examples(seed=0)
    assert task.n_positions == examples.n_positions == k + (k - 1) + n_distractors + 1
    assert (examples.informative.sum(dim=1) == k).all()
    assert ((examples.tokens == 3).sum(dim=1) == k - 1).all()


def test_random_positions_are_uniform_over_subsets_and_symbols_keep_their_order():
    task = ModularAddition(p=113, positions="random", n_distractors=2)
    assert (task.n_positions, task.d_vocab) == (6, 115 + 113)
    examples = task.examples(seed=0)
    subsets = [tuple(torch.nonzero(row).flatten().tolist()) for row in examples.informative]
    expected = len(examples) / math.comb(5, 2)
    counts = {subset: subsets.count(subset) for subset in set(subsets)}
    assert set(counts) == set(itertools.combinations(range(5), 2))
    assert all(abs(count - expected) < 5 * math.sqrt(expected) for count in counts.values())
    for row, marks in zip(rows(examples)[:500], examples.informative.tolist(), strict=False):
        operator, *noise, query = (token for token, marked in zip(row, marks, strict=True) if not marked)
        assert (operator, query) == (113, 114)
        assert all(115 <= token < 115 + 113 for token in noise)


def test_multiplication_includes_zero():
    assert (ModularMultiplication(p=11).examples(seed=0).targets == 0).sum() == 21


def test_composition_obeys_the_group_laws():
    task = PermutationComposition(n=4)
    table = task.examples(seed=0).targets.view(24, 24)
    everything = torch.arange(24)
    assert torch.equal(table[0], everything)
    assert torch.equal(table[:, 0], everything)
    assert torch.equal(table[table[:, :, None], everything], table[everything[:, None, None], table])
    assert all(torch.equal(row.sort().values, everything) for row in table)


def test_composition_of_five_matches_itertools():
    task = PermutationComposition(n=5)
    examples = task.examples(seed=0)
    assert (len(examples), task.d_vocab, task.n_positions) == (14_400, 122, 5)
    for values, target in list(zip(operands_of(examples), examples.targets.tolist(), strict=True))[::97]:
        assert target == permutation_product(values, 5)


# --- sparse parity, and inputs too many to list ---


def test_parity_lists_every_bit_string_once_when_it_can():
    examples = SparseParity(n=10, k=4).examples(seed=0)
    assert sorted(row[:-1] for row in rows(examples)) == list(itertools.product((0, 1), repeat=10))
    assert examples.informative[0].nonzero().flatten().tolist() == [i * 10 // 4 for i in range(4)]


@pytest.mark.parametrize("n", [40, 80])
@pytest.mark.parametrize("positions", ["fixed", "random"])
def test_parity_of_many_bits_samples_distinct_sequences(n, positions):
    task = SparseParity(n=n, k=3, positions=positions)
    examples = task.examples(seed=0)
    assert (len(examples), examples.n_positions) == (12_769, n + 1)
    assert task.d_vocab == (3 if positions == "fixed" else 5)
    assert len(set(rows(examples))) == 12_769
    assert examples.targets.tolist() == [sum(bits) % 2 for bits in operands_of(examples)]
    distractors = examples.tokens[:, :-1][~examples.informative[:, :-1]]
    assert distractors.unique().tolist() == ([0, 1] if positions == "fixed" else [3, 4])


def test_sampled_bits_are_fair_and_independent():
    bits = SparseParity(n=40, k=3).examples(seed=0).tokens[:, :-1].double() * 2 - 1
    correlation = bits.T @ bits / len(bits) - torch.eye(40)
    assert correlation.abs().max() < 5 / math.sqrt(len(bits))
    assert bits.mean(dim=0).abs().max() < 5 / math.sqrt(len(bits))


def test_sampling_can_exhaust_the_inputs():
    examples = SparseParity(n=17, k=2, n_samples=2**17).examples(seed=0)
    codes = examples.tokens[:, :-1] @ (2 ** torch.arange(17))
    assert torch.equal(codes.sort().values, torch.arange(2**17))


def test_sampling_favours_no_input():
    # Half of 16 inputs, so that repeats are many and how they are dropped matters.
    samples = [
        _distinct_rows(2, 4, n=8, generator=torch.Generator().manual_seed(seed)) @ torch.tensor([8, 4, 2, 1])
        for seed in range(400)
    ]
    assert all(len(sample.unique()) == 8 for sample in samples)
    counts = torch.cat(samples).bincount(minlength=16)
    deviation = math.sqrt(400 * 0.5 * 0.5)
    assert (counts - 200).abs().max() < 5 * deviation


def test_n_samples_is_used_only_when_the_inputs_are_too_many():
    assert len(ModularAddition(p=256, n_samples=10).examples(seed=0)) == 65_536
    assert len(ModularAddition(p=257, n_samples=10).examples(seed=0)) == 10
    assert len(KOperandAddition(k=3).examples(seed=0)) == 12_769


# --- splits ---


def test_the_reference_split_has_3830_and_8939_examples():
    for task in (ModularAddition(p=113), ModularMultiplication(p=113, distractors="constant")):
        split = task.split(train_fraction=0.3, seed=0)
        assert (split.train.n, split.test.n) == (3830, 8939)


@every_layout
def test_split_halves_are_disjoint_and_cover_everything(case, option):
    task = build(case, option)
    split = task.split(train_fraction=0.4, seed=2)
    whole = task.examples(seed=2)
    assert sorted(rows(split.train) + rows(split.test)) == sorted(rows(whole))
    if case != "parity":
        train, test = set(operands_of(split.train)), set(operands_of(split.test))
        assert not train & test
        assert len(train) + len(test) == len(whole)
    else:
        assert not set(rows(split.train)) & set(rows(split.test))


@few
@given(st.integers(1, 99), st.integers(2, 12))
def test_train_size_is_the_floor_of_the_typed_fraction(percent, p):
    exact = percent * p * p // 100
    if 0 < exact < p * p:
        assert len(ModularAddition(p=p).split(percent / 100).train) == exact
    else:
        with pytest.raises(BayesticketError, match="train_fraction"):
            ModularAddition(p=p).split(percent / 100)


@every_layout
def test_seeds_decide_everything(case, option):
    task = build(case, option)
    assert same(task.split(seed=5).train, task.split(seed=5).train)
    assert same(task.split(seed=5).test, task.split(seed=5).test)
    assert not torch.equal(task.split(seed=5).train.tokens, task.split(seed=6).train.tokens)


@every_layout
def test_the_global_generator_is_neither_read_nor_altered(case, option):
    task = build(case, option)
    results = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        state = torch.get_rng_state()
        split = task.split(seed=0)
        results.append((split.train, task.redraw(split.train, seed=1)))
        assert torch.equal(torch.get_rng_state(), state)
    assert all(same(first, second) for first, second in zip(*results, strict=True))


def test_sampled_inputs_ignore_the_global_generator():
    torch.manual_seed(1)
    first = SparseParity(n=40).examples(seed=0)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert same(first, SparseParity(n=40).examples(seed=0))
    assert torch.equal(torch.get_rng_state(), state)


def test_shuffling_distractors_and_positions_come_from_streams_of_their_own():
    # Were the streams one, more distractors would change which pairs are trained on.
    splits = [ModularAddition(p=11, n_distractors=n).split(seed=0) for n in (0, 1, 4)]
    assert len({tuple(operands_of(split.train)) for split in splits}) == 1
    fixed, dynamic = (ModularAddition(p=11, positions=positions) for positions in ("fixed", "random"))
    noise = fixed.examples(seed=0).tokens[:, 3]
    tokens = dynamic.examples(seed=0).tokens
    assert torch.equal(tokens[tokens > 12] - 13, noise)


def test_distractors_are_drawn_anew_for_each_seed():
    task = ModularAddition(p=113)
    noises = [task.examples(seed).tokens[:, 3] for seed in range(3)]
    for a, b in itertools.combinations(noises, 2):
        assert (a == b).float().mean() < 0.02


def test_a_default_device_does_not_matter():
    expected = SparseParity(n=40, positions="random").split(seed=0).train
    with torch.device("meta"):
        split = SparseParity(n=40, positions="random").split(seed=0)
        permuted = PermutationComposition(n=4).split(seed=0)
        again = ModularAddition(p=5).redraw(ModularAddition(p=5).examples(seed=0), seed=1)
    assert same(split.train, expected)
    assert permuted.train.tokens.device.type == again.tokens.device.type == "cpu"


# --- redrawing ---


@every_layout
def test_redraw_changes_random_distractors_and_nothing_else(case, option):
    task = build(case, option)
    whole = task.examples(seed=0)
    again = task.redraw(whole, seed=1)
    assert same(again, task.redraw(whole, seed=1))
    assert torch.equal(again.targets, whole.targets)
    assert torch.equal(again.informative, whole.informative)
    assert operands_of(again) == operands_of(whole)
    # Of a few examples with few symbols one draw may repeat the other: look at several.
    draws = torch.stack([task.redraw(whole, seed=seed).tokens for seed in range(1, 9)])
    changed = (draws != whole.tokens).any(dim=0)
    if "constant" in option or option == "no distractor":
        assert not changed.any()
        return
    n_distractors = (whole.n_positions - 1 - whole.informative.sum(dim=1)).max()
    assert changed.any()
    assert changed.sum(dim=1).max() <= n_distractors
    n_values = CASES[case][2]
    unchanged_symbols = (whole.tokens == n_values) & ~whole.informative if case != "parity" else whole.tokens == 2
    assert not (changed & unchanged_symbols).any()
    # New noise comes from the old noise's alphabet.
    alphabet = range(n_values) if "dynamic" not in option else range(task.d_vocab - n_values, task.d_vocab)
    assert set(draws[:, changed].flatten().tolist()) <= set(alphabet)


def test_redraws_of_different_seeds_are_independent():
    task = ModularAddition(p=113)
    whole = task.examples(seed=0)
    draws = [whole, *(task.redraw(whole, seed=seed) for seed in range(3))]
    for a, b in itertools.combinations(draws, 2):
        assert (a.tokens[:, 3] == b.tokens[:, 3]).float().mean() < 0.02
    assert (draws[1].tokens[:, 3].bincount(minlength=113) > 60).all()


# --- Examples and values ---


def test_select_to_len_and_repr():
    whole = ModularAddition(p=5).examples(seed=0)
    picked = whole.select(torch.tensor([3, 1]))
    assert rows(picked) == [rows(whole)[3], rows(whole)[1]]
    assert same(whole.select(whole.targets == 0), whole.select((whole.targets == 0).nonzero().flatten()))
    assert len(whole.select(slice(0, 4))) == 4
    assert same(whole.to("cpu"), whole)
    assert whole.to("meta").tokens.device.type == "meta"
    assert repr(whole) == "Examples(n=25, n_positions=5)"


@every_layout
def test_tasks_are_values(case, option):
    task, twin = build(case, option), build(case, option)
    assert task == twin
    assert hash(task) == hash(twin)
    assert pickle.loads(pickle.dumps(task)) == task
    assert task != build(case, option, n_samples=5)
    split = task.split()
    assert split.train.oracle is not None
    assert same(pickle.loads(pickle.dumps(split)).train, split.train)


def test_sizes_may_be_given_by_position():
    assert ModularAddition(7) == ModularAddition(p=7)
    assert SparseParity(9, 2) == SparseParity(n=9, k=2)
    assert KOperandAddition(2, 7) == KOperandAddition(k=2, p=7)


def test_redraw_by_default_leaves_examples_alone():
    task = Task(tokens=torch.tensor([[1, 2], [3, 4]]), targets=torch.tensor([0, 1]), informative=[True, False])
    whole = task.examples(seed=0)
    assert task.redraw(whole, seed=1) is whole
    assert task.redraw_each_epoch is False
    assert isinstance(task, AbstractTask)


# --- a user's own data ---

OWN = {
    "tokens": torch.tensor([[3, 1, 9], [2, 2, 9], [0, 5, 9]]),
    "targets": torch.tensor([3, 2, 0]),
    "informative": torch.tensor([True, False, False]),
}


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_own_data_of_any_integer_type(dtype):
    task = Task(**{**OWN, "tokens": OWN["tokens"].to(dtype), "targets": OWN["targets"].to(dtype)})
    assert same(task.examples(seed=0), Examples(OWN["tokens"], OWN["targets"], OWN["informative"].expand(3, 3)))
    assert (task.n_positions, task.d_vocab, task.d_vocab_out) == (3, 10, 4)


def test_own_data_as_arrays_and_lists():
    by_tensor = Task(**OWN).examples(seed=0)
    frozen = {name: value.numpy().copy() for name, value in OWN.items()}
    for array in frozen.values():
        array.setflags(write=False)
    assert same(Task(**frozen).examples(seed=0), by_tensor)
    assert same(Task(**{name: value.tolist() for name, value in OWN.items()}).examples(seed=0), by_tensor)


def test_own_data_are_copied():
    for copy in (torch.Tensor.clone, lambda tensor: tensor.numpy().copy()):
        given_data = {name: copy(value) for name, value in OWN.items()}
        task = Task(**given_data)
        for value in given_data.values():
            value[0] = 1
        assert same(task.examples(seed=0), Task(**OWN).examples(seed=0))


def test_own_data_split_with_positions_per_sequence():
    marks = torch.tensor([[True, False, False], [True, True, False], [False, True, False]])
    task = Task(OWN["tokens"], OWN["targets"], marks, d_vocab=20, d_vocab_out=5)
    assert (task.d_vocab, task.d_vocab_out) == (20, 5)
    split = task.split(train_fraction=0.5, seed=1)
    assert sorted(rows(split.train) + rows(split.test)) == sorted(map(tuple, OWN["tokens"].tolist()))
    torch.testing.assert_close(task.examples(seed=0).oracle[1], torch.tensor([0.5, 0.5, 0.0]))
    assert same(pickle.loads(pickle.dumps(task)).examples(seed=0), task.examples(seed=0))
    assert repr(task) == "Task(n=3, n_positions=3, d_vocab=20, d_vocab_out=5)"


def test_layout_has_a_place_for_every_symbol():
    layout = Layout(n_values=7, n_operands=3, n_noise=2, separated=True, home=(0, 2, 4))
    informative = layout.random_positions(50, torch.Generator().manual_seed(0))
    assert (layout.noise_positions(informative).sum(dim=1) == 2).all()
    assert not (layout.noise_positions(informative) & informative).any()
