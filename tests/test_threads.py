"""torch's threads: set inside a context, restored at its end, also where contexts overlap in several Python threads."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import bayesticket as bt
from bayesticket.threads import torch_threads


@pytest.fixture(autouse=True)
def three_threads():
    """A number that no test sets, before and after each."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    assert (torch.get_num_threads(), in_a_new_thread()) == (3, 3)
    torch.set_num_threads(before)


def in_a_new_thread() -> int:
    with ThreadPoolExecutor(1) as new:
        return new.submit(torch.get_num_threads).result()


def test_the_number_holds_inside_here_and_in_new_threads():
    with torch_threads(1):
        assert (torch.get_num_threads(), in_a_new_thread()) == (1, 1)
    assert (torch.get_num_threads(), in_a_new_thread()) == (3, 3)


def test_the_number_is_restored_after_an_error():
    with pytest.raises(KeyError), torch_threads(1):
        raise KeyError
    assert torch.get_num_threads() == 3


def test_an_inner_context_restores_the_number_of_the_outer_one():
    seen = []
    with torch_threads(2):
        with torch_threads(1):
            seen.append(torch.get_num_threads())
            with torch_threads(4):
                seen.append(torch.get_num_threads())
            seen.append(torch.get_num_threads())
        seen.append(torch.get_num_threads())
        assert in_a_new_thread() == 2
    assert seen == [1, 4, 1, 2]


class Other:
    """Another Python thread, which opens a context and leaves it when it is told to."""

    def __init__(self, n: int):
        self.entered, self.leave = threading.Event(), threading.Event()
        self.inside = self.after = 0
        self.thread = threading.Thread(target=self._run, args=(n,), daemon=True)
        self.thread.start()
        assert self.entered.wait(30)

    def _run(self, n: int) -> None:
        with torch_threads(n):
            self.inside = torch.get_num_threads()
            self.entered.set()
            self.leave.wait(30)
        self.after = torch.get_num_threads()

    def end(self) -> None:
        self.leave.set()
        self.thread.join(30)


def test_each_python_thread_has_its_own_number():
    with torch_threads(1):
        other = Other(2)
        assert (torch.get_num_threads(), other.inside) == (1, 2)
        other.end()
        assert torch.get_num_threads() == 1


def test_the_thread_that_leaves_first_is_restored_at_once_and_new_threads_at_the_end_of_the_last():
    with torch_threads(1):
        other = Other(1)
    assert torch.get_num_threads() == 3
    assert in_a_new_thread() == 1, "the other context is still open"
    other.end()
    assert other.after == 3, "not the number of the context that was open when the thread began"
    assert in_a_new_thread() == 3


def test_the_thread_that_leaves_last_restores_what_was_there_before_the_first():
    with torch_threads(1):
        other = Other(2)
        other.end()
        assert other.after == 3
        assert (torch.get_num_threads(), in_a_new_thread()) == (1, 1)


def test_many_threads_at_once_leave_everything_as_it_was():
    def use(n: int) -> bool:
        with torch_threads(n):
            torch.rand(200, 200) @ torch.rand(200, 200)
            outer = torch.get_num_threads()
            with torch_threads(1):
                inner = torch.get_num_threads()
            return (outer, inner, torch.get_num_threads()) == (n, 1, n)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(use, [1, 2, 1, 4, 2] * 20))


@pytest.mark.parametrize("n", [0, -1, True])
def test_the_number_is_a_whole_one_of_at_least_1(n):
    with pytest.raises(bt.BayesticketError, match=r"^threads: got "), torch_threads(n):
        pytest.fail("entered")
