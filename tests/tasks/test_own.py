"""A user's own data as a task."""

import pickle

import pytest
import torch
from task_cases import rows, same

from bayesticket.tasks import Examples, Task

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
