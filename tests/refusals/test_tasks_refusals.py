"""What tasks refuse, without run-time type checks: the library's own words must suffice."""

from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np
import pytest
import torch

import bayesticket as bt
from bayesticket import tasks
from bayesticket.errors import BayesticketError
from bayesticket.tasks import AbstractTask, Examples, ModularAddition, Task

OWN = {
    "tokens": torch.tensor([[3, 1, 9], [2, 2, 9], [0, 5, 9]]),
    "targets": torch.tensor([3, 2, 0]),
    "informative": torch.tensor([True, False, False]),
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": "abc"}, "^tokens: got '.*'; accepted: .*tensor or array"),
        ({"tokens": [[1, 2], [3]]}, "^tokens: "),
        ({"tokens": OWN["tokens"].float()}, r"^tokens: got torch.float32; .*integers"),
        ({"tokens": OWN["tokens"] > 1}, "^tokens: got torch.bool"),
        ({"tokens": OWN["tokens"][0]}, r"^tokens: got \(3,\); .*\(n, T\)"),
        ({"tokens": OWN["tokens"][:0]}, r"^tokens: got \(0, 3\); .*non-empty"),
        ({"tokens": OWN["tokens"] - 1}, "^tokens: got -1; accepted: whole numbers from 0"),
        ({"d_vocab": 9}, "^tokens: got 9; accepted: whole numbers from 0 to 8, as d_vocab=9"),
        ({"d_vocab": 0}, "^d_vocab: got 0"),
        ({"targets": OWN["targets"].double()}, "^targets: got torch.float64"),
        ({"targets": OWN["targets"][:2]}, "^targets: .*one for each of the 3 rows"),
        ({"targets": OWN["targets"].unsqueeze(1)}, r"^targets: got \(3, 1\); .*\(n,\)"),
        ({"targets": -OWN["targets"]}, "^targets: got -3"),
        ({"d_vocab_out": 3}, "^targets: got 3; accepted: whole numbers from 0 to 2, as d_vocab_out=3"),
        ({"informative": OWN["informative"].long()}, "^informative: got torch.int64; .*booleans"),
        ({"informative": np.array([True, False])}, r"^informative: got \(2,\); .*\(3,\) or \(3, 3\)"),
        ({"informative": torch.tensor([False] * 3)}, "^informative: row 0 marks no position"),
        (
            {"informative": torch.tensor([[True, False, False], [True, True, False], [False] * 3])},
            "^informative: row 2 marks no position",
        ),
    ],
)
def test_own_data_that_cannot_be_used(change, message):
    with pytest.raises(BayesticketError, match=message) as caught:
        Task(**{**OWN, **change})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("ModularAddition", {"p": 1}, "^p: got 1; accepted: .*at least 2"),
        ("ModularAddition", {"p": 7.0}, "^p: got 7.0"),
        ("ModularMultiplication", {"p": True}, "^p: got True"),
        ("ModularAddition", {"n_distractors": -1}, "^n_distractors: got -1"),
        ("ModularAddition", {"n_distractors": 1.5}, "^n_distractors: got 1.5"),
        ("ModularAddition", {"n_distractors": None}, "^n_distractors: got None"),
        ("ModularAddition", {"distractors": "constnat"}, "^distractors: .*Closest: 'constant'"),
        ("ModularAddition", {"distractors": None}, "^distractors: got None"),
        ("ModularAddition", {"positions": "rand"}, "^positions: .*Closest: 'random'"),
        ("ModularAddition", {"redraw_each_epoch": 1}, "^redraw_each_epoch: got 1"),
        ("ModularAddition", {"redraw_each_epoch": True, "distractors": "constant"}, "no random distractors"),
        ("ModularAddition", {"redraw_each_epoch": True, "n_distractors": 0}, "no random distractors"),
        ("ModularAddition", {"n_samples": 0}, "^n_samples: got 0"),
        ("ModularAddition", {"p": 300, "n_samples": 90_001}, r"^n_samples: .*300\^2 = 90000"),
        ("KOperandAddition", {"k": 0}, "^k: got 0"),
        ("KOperandAddition", {"k": 3, "p": 0}, "^p: got 0"),
        ("PermutationComposition", {"n": 1}, "^n: got 1"),
        ("PermutationComposition", {"n": 9}, "^n: got 9; .*from 2 to 8"),
        ("SparseParity", {"n": 5, "k": 6}, "^k: got 6; accepted: at most .*n=5"),
        ("SparseParity", {"n": 5, "k": 0}, "^k: got 0"),
        ("SparseParity", {"n": 0, "k": 0}, "^n: got 0"),
        ("SparseParity", {"distractors": "constant"}, r"^distractors: got 'constant'; .*2\^k = 8 sequences"),
        ("SparseParity", {"n": 3, "k": 3, "redraw_each_epoch": True}, "no random distractors"),
        ("SparseParity", {"n": 17, "n_samples": 2**17 + 1}, "^n_samples: .*131072"),
    ],
)
def test_sizes_and_options_that_make_no_sense(name, fields, message):
    with pytest.raises(BayesticketError, match=message):
        getattr(tasks, name)(**fields)


@pytest.mark.parametrize("fraction", [0, 1, 0.0, 1.0, -0.1, 1.5, "0.3", None, True, float("nan"), float("inf")])
def test_fractions_that_make_no_sense(fraction):
    with pytest.raises(BayesticketError, match=r"^train_fraction: "):
        ModularAddition(p=7).split(train_fraction=fraction)


def test_a_split_with_an_empty_half_is_refused_with_the_counts():
    with pytest.raises(BayesticketError, match=r"4 examples .* train on 0 and test on 4"):
        ModularAddition(p=2).split(train_fraction=0.2)
    with pytest.raises(BayesticketError, match="train on 4 and test on 0"):
        ModularAddition(p=2).split(train_fraction=1 - 1e-12)


@pytest.mark.parametrize("seed", [-1, 0.5, "0", None, True])
def test_seeds_that_make_no_sense(seed):
    own = Task(**OWN)
    for task in (ModularAddition(p=7), own):
        whole = task.examples(seed=0)
        for call in (
            lambda task=task: task.split(seed=seed),
            lambda task=task: task.examples(seed),
            lambda task=task, whole=whole: task.redraw(whole, seed=seed),
        ):
            with pytest.raises(BayesticketError, match=r"^seed: "):
                call()


@pytest.mark.parametrize("junk", [None, object(), {"a": 1}, 3])
@pytest.mark.parametrize("field", ["tokens", "targets", "informative"])
def test_own_data_that_are_no_tensors(field, junk):
    with pytest.raises(BayesticketError, match=f"^{field}: "):
        Task(**{**OWN, field: junk})


TOKENS, TARGETS, MARKS = torch.zeros(3, 2, dtype=torch.int64), torch.zeros(3, dtype=torch.int64), torch.ones(3, 2) > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"tokens": TOKENS.float()},
            r"^Examples.tokens: got a tensor of torch.float32; accepted: a tensor of integers$",
        ),
        ({"tokens": [[0, 1]]}, r"^Examples.tokens: got \[\[0, 1\]\]; accepted: a tensor of integers$"),
        ({"tokens": TARGETS}, r"^Examples.tokens: got a tensor of shape \(3,\); accepted: shape \(n, T\)"),
        ({"tokens": TOKENS[:, :0]}, r"^Examples.tokens: got a tensor of shape \(3, 0\)"),
        ({"targets": TARGETS > 0}, r"^Examples.targets: got a tensor of torch.bool; accepted: a tensor of integers$"),
        (
            {"targets": TARGETS[:2]},
            r"^Examples.targets: got a tensor of shape \(2,\); accepted: shape \(3,\), one entry",
        ),
        ({"targets": TOKENS}, r"^Examples.targets: got a tensor of shape \(3, 2\)"),
        (
            {"informative": TOKENS},
            r"^Examples.informative: got a tensor of torch.int64; accepted: a tensor of booleans$",
        ),
        (
            {"informative": MARKS[0]},
            r"^Examples.informative: got a tensor of shape \(2,\); accepted: shape \(3, 2\), as",
        ),
        ({"informative": MARKS[:1]}, r"^Examples.informative: got a tensor of shape \(1, 2\)"),
        ({"origin": TARGETS[:1]}, r"^Examples.origin: got a tensor of shape \(1,\)"),
        ({"orbit": TARGETS.float()}, r"^Examples.orbit: got a tensor of torch.float32"),
        ({"unseen": TARGETS}, r"^Examples.unseen: got a tensor of torch.int64; accepted: a tensor of booleans"),
        ({"n_whole": 2.5}, r"^Examples.n_whole: got 2.5"),
        (
            {"position_ids": TARGETS},
            r"^Examples.position_ids: got a tensor of shape \(3,\)",
        ),
        (
            {"position_ids": MARKS},
            r"^Examples.position_ids: got a tensor of torch.bool",
        ),
        ({"position_ids": TOKENS - 100}, r"^Examples.position_ids: got -100; accepted: whole numbers from 0$"),
        ({"tokens": TOKENS - 1}, r"^Examples.tokens: got -1; accepted: whole numbers from 0$"),
        ({"targets": TARGETS - 100}, r"^Examples.targets: got -100; accepted: whole numbers from 0$"),
        ({"informative": ~MARKS}, r"^Examples.informative: row 0 marks no position; accepted: at least one"),
        (
            {"tokens": TOKENS[:0], "targets": TARGETS[:0], "informative": MARKS[:0]},
            r"^Examples.tokens: got a tensor of shape \(0, 2\); accepted: .* of at least one example$",
        ),
    ],
)
def test_examples_name_the_field_that_does_not_fit(change, message):
    with pytest.raises(BayesticketError, match=message):
        Examples(**({"tokens": TOKENS, "targets": TARGETS, "informative": MARKS} | change))


@final
@dataclass(frozen=True)
class ForgetfulTask(AbstractTask):
    """A task that marks nothing informative in its third example."""

    n_positions: ClassVar[int] = 2
    d_vocab: ClassVar[int] = 5
    d_vocab_out: ClassVar[int] = 5

    def examples(self, seed):
        marks = torch.arange(5).unsqueeze(1) != torch.tensor([2, 2])
        return Examples(torch.arange(5).repeat(2, 1).T, torch.arange(5), marks)


def test_every_example_of_a_task_needs_an_informative_position():
    with pytest.raises(BayesticketError, match="informative: row 2 marks no position"):
        ForgetfulTask().split()


@final
@dataclass(frozen=True)
class OwnTask(AbstractTask):
    """A task whose sizes can be made to disagree with its examples."""

    n_positions: object = 3
    d_vocab: object = 10
    d_vocab_out: object = 5
    given: object = None
    redraw_each_epoch: bool = False

    def examples(self, seed):
        tokens = torch.arange(40).reshape(20, 2) % 10
        tokens = torch.cat([tokens, torch.full((20, 1), 9)], 1)
        made = Examples(tokens, tokens[:, 0] % 5, (torch.arange(3) < 1).expand(20, 3))
        return made if self.given is None else self.given

    def redraw(self, examples, *, seed):
        return replace(examples, tokens=examples.tokens + 7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"given": (1, 2, 3)}, r"^OwnTask.examples: got \(1, 2, 3\); accepted: bayesticket.Examples\(tokens"),
        ({"n_positions": 4}, "^OwnTask.examples: got sequences of 3 positions; accepted: 4, as OwnTask.n_pos"),
        ({"d_vocab": 9}, "^OwnTask.examples: got tokens up to 9; accepted: 0 to 8, as OwnTask.d_vocab is 9"),
        ({"d_vocab_out": 4}, "^OwnTask.examples: got targets up to 4; accepted: 0 to 3, as OwnTask.d_vocab_out is 4"),
        ({"d_vocab_out": 5.0}, "^OwnTask.d_vocab_out: got 5.0; accepted: a whole number"),
        ({"redraw_each_epoch": True}, "^OwnTask.redraw: got tokens up to 16; accepted: 0 to 9"),
    ],
)
def test_examples_that_do_not_fit_their_task(change, message):
    with pytest.raises(BayesticketError, match=message) as caught:
        bt.train(OwnTask(**change), epochs=1, model=bt.Architecture(d_model=8, d_mlp=8))
    assert "\n" not in str(caught.value)


def test_redraw_refuses_examples_of_another_length():
    with pytest.raises(BayesticketError, match="n_positions=5"):
        ModularAddition(p=7).redraw(ModularAddition(p=7, n_distractors=2).examples(seed=0), seed=0)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([1, 7, 2, 3], r"^tokens: got \(4,\); accepted: one sequence, of shape \(5,\)"),
        ([[1, 7, 2, 3, 8]], r"^tokens: got \(1, 5\)"),
        ([1, 7, 2, 3, 9], "^tokens: got 9; accepted: whole numbers from 0 to 8"),
        ([-1, 7, 2, 3, 8], "^tokens: got -1"),
    ],
)
def test_what_is_no_sequence_of_the_task_is_not_shown(tokens, message):
    with pytest.raises(BayesticketError, match=message):
        ModularAddition(p=7).show(torch.tensor(tokens))
