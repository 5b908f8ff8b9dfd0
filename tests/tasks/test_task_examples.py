"""Examples: selecting, moving, printing; and tasks as values."""

import pickle

import pytest
import torch
from task_cases import build, every_layout, rows, same

from bayesticket.tasks import AbstractTask, Examples, KOperandAddition, ModularAddition, SparseParity, Task


def test_oracle_has_the_default_dtype_and_is_computed_once():
    examples = ModularAddition(p=3).examples(seed=0)
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        assert examples.oracle.dtype == torch.float64
    finally:
        torch.set_default_dtype(before)
    assert examples.oracle is examples.oracle


def test_select_to_len_and_repr():
    whole = ModularAddition(p=5).examples(seed=0)
    picked = whole.select(torch.tensor([3, 1]))
    assert rows(picked) == [rows(whole)[3], rows(whole)[1]]
    assert same(whole.select(whole.targets == 0), whole.select((whole.targets == 0).nonzero().flatten()))
    assert len(whole.select(slice(0, 4))) == 4
    assert same(whole.to("cpu"), whole)
    assert whole.to("meta").tokens.device.type == "meta"
    assert repr(whole) == "Examples(n=25, n_positions=5)"


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32])
def test_narrow_integers_are_widened(dtype):
    whole = ModularAddition(p=5).examples(seed=0)
    narrow = Examples(whole.tokens.to(dtype), whole.targets.to(dtype), whole.informative)
    assert narrow.tokens.dtype == narrow.targets.dtype == torch.int64
    assert same(narrow, whole)


def test_no_examples_are_examples():
    assert len(ModularAddition(p=5).examples(seed=0).select(slice(0, 0))) == 0


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
