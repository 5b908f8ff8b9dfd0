"""How tasks are written out: what is shown can be read back, and an operator's sign belongs to its task."""

import itertools
import re
from typing import ClassVar, final

import pytest
import torch
from catalog import TASKS
from task_cases import CASES, build, every_layout

import bayesticket as bt
from bayesticket.specs import spec_id
from bayesticket.tasks import (
    AbstractExpression,
    KOperandAddition,
    ModularAddition,
    ModularMultiplication,
    PermutationComposition,
    SparseParity,
    Task,
)

SIGNS = {"addition": "+", "multiplication": "×", "three operands": "+", "permutations": "∘"}


@final
@bt.spec
class Subtraction(AbstractExpression):
    """A task as a user would write it: `a − b` modulo 5."""

    operator: ClassVar[str] = "−"

    @property
    def n_values(self) -> int:
        return 5

    def answer(self, operands):
        return (operands[:, 0] - operands[:, 1]) % 5

    def require_sizes(self) -> None:
        pass


@every_layout
def test_what_is_shown_reads_back_as_the_example(case, option):
    task = build(case, option)
    examples = task.examples(seed=1)
    function, numbered = CASES[case][3], ["".join(map(str, p)) for p in itertools.permutations(range(3))]
    for tokens, target in list(zip(examples.tokens, examples.targets.tolist(), strict=True))[::7]:
        *symbols, query = task.show(tokens).split(" ")
        assert (len(symbols) + 1, query) == (task.n_positions, "=")
        assert symbols.count(SIGNS.get(case, "+")) == task.layout.n_operators
        values = [at for at, symbol in enumerate(symbols) if re.fullmatch(r"\d+", symbol)]
        chosen = [symbols[at] for at in values]
        if "dynamic" not in option:
            chosen = [symbols[at] for at in task.layout.home]
        read = [numbered.index(symbol) if case == "permutations" else int(symbol) for symbol in chosen]
        assert function(read) == target


@every_layout
def test_different_tokens_are_written_differently(case, option):
    task = build(case, option)
    assert len({task.symbol(token) for token in range(task.d_vocab)}) == task.d_vocab


def test_positions_are_called_by_what_stands_there():
    assert ModularMultiplication(p=7, distractors="constant").position_labels == ("a", "×", "b", "%", "=")
    assert KOperandAddition(k=3, p=3).position_labels == ("a", "+", "b", "+", "c", "noise", "=")
    assert PermutationComposition(n=3, n_distractors=2).position_labels == ("a", "∘", "b", "noise", "noise", "=")
    assert ModularAddition(p=7, positions="random").position_labels == ("0", "1", "2", "3", "=")
    assert SparseParity(n=3, k=2).position_labels == ("0", "1", "2", "=")
    assert Task(tokens=[[1, 2]], targets=[0], informative=[True, False]).position_labels == ("0", "query")


def test_more_operands_than_letters_are_numbered():
    assert KOperandAddition(k=26, p=2).position_labels[50] == "z"
    assert KOperandAddition(k=27, p=2).position_labels == (*map(str, range(54)), "=")


def test_labels_agree_with_what_is_shown():
    for task in (ModularAddition(p=7, distractors="constant"), PermutationComposition(n=3), Subtraction()):
        shown = task.show(task.examples(seed=0).tokens[0]).split(" ")
        labels = task.position_labels
        assert [label for label in labels if label in (task.operator, "%", "=")] == [
            symbol for symbol in shown if not symbol.isdigit()
        ]


def test_a_task_of_ones_own_brings_its_own_sign():
    task = Subtraction()
    assert task.position_labels == ("a", "−", "b", "noise", "=")
    assert task.show(torch.tensor([3, 5, 4, 0, 6])) == "3 − 4 0 ="
    assert (task.examples(seed=0).targets >= 0).all()


def test_own_data_are_shown_as_numbers():
    task = Task(tokens=[[3, 1, 9]], targets=[0], informative=[True, False, False])
    assert task.show(task.examples(0).tokens[0]) == "3 1 9"


@pytest.mark.parametrize("name", TASKS)
def test_a_task_prints_with_its_size(name):
    task = TASKS[name]
    whole = task.examples(0)
    assert task.n_examples == len(whole)
    if not isinstance(task, Task):  # whose repr has the sizes
        assert str(task) == (
            f"{task!r}: {len(whole)} examples of {whole.n_positions} positions, {task.d_vocab} tokens, "
            f"{task.d_vocab_out} targets"
        )


def test_the_size_of_a_task_whose_inputs_are_too_many_to_list():
    assert str(SparseParity()).startswith("SparseParity(): 12,769 examples of 41 positions")
    assert SparseParity(n_samples=50).n_examples == len(SparseParity(n_samples=50).examples(0)) == 50
    assert str(Task(tokens=[[3, 1]], targets=[0], informative=[True, False])) == (
        "Task(n=1, n_positions=2, d_vocab=4, d_vocab_out=1)"
    )


def test_a_notebook_shows_what_print_shows():
    said = "ModularAddition(p=7): 49 examples of 5 positions, 9 tokens, 7 targets"
    shown = ModularAddition(p=7)._repr_mimebundle_()
    assert shown["text/plain"] == said
    html = "<div><b>ModularAddition(p=7)</b></div><div>a + b noise =</div><div>49 examples of 5 positions"
    assert shown["text/html"].startswith(html)


def test_how_a_task_is_written_changes_neither_its_repr_nor_its_id():
    assert repr(ModularMultiplication(p=7)) == "ModularMultiplication(p=7)"
    assert repr(PermutationComposition()) == "PermutationComposition()"
    assert spec_id(ModularAddition()) == "0f96c8dffa7f"
    assert spec_id(PermutationComposition(n=4, n_distractors=2)) == "67fb8088c395"
