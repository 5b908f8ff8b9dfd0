"""How torch computes in a thread, set for a while and then restored: its number of threads, and denormal numbers."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from bayesticket.errors import refuse_case, require_integer

MOST_THREADS = 1024
"""More threads than this are a slip, and could bring the machine to a stop."""


@dataclass(eq=False)
class _Use:
    """A `torch_threads` context that is open: the thread that opened it, and its number of torch threads."""

    opened_by: int
    n: int


_LOCK = threading.Lock()
_OPEN: list[_Use] = []
"""The contexts that are open in this process, oldest first."""
_number_before = 1
"""The number of torch threads when the oldest of them was opened."""


@contextmanager
def torch_threads(n: int) -> Iterator[None]:
    """Sets the number of torch's intra-op threads inside the context.

    torch keeps this number for every Python thread separately, and gives new Python threads the number that was set
    last anywhere. Contexts may therefore be nested, and open in several Python threads at once: each holds in the
    thread that opened it. When a thread leaves its outermost context, the number from before the first context is
    restored there; when the last context in the process is left, it is also restored for new threads.

    >>> with torch_threads(1):
    ...     torch.get_num_threads()
    1
    """
    require_integer("threads", n, least=1, most=MOST_THREADS)
    use = _open(n)
    try:
        yield
    finally:
        _close(use)


def _open(n: int) -> _Use:
    global _number_before
    use = _Use(threading.get_ident(), n)
    with _LOCK:
        # Asked also where the answer is not needed: a new thread's first question or operation takes over the number
        # that was set last anywhere, and would undo what is set below.
        number_now = torch.get_num_threads()
        if not _OPEN:
            _number_before = number_now
        _OPEN.append(use)
        torch.set_num_threads(n)
    return use


def _close(use: _Use) -> None:
    with _LOCK:
        _OPEN.remove(use)
        enclosing = [other.n for other in _OPEN if other.opened_by == use.opened_by]
        here = enclosing[-1] if enclosing else _number_before
        torch.set_num_threads(here)
        elsewhere = _OPEN[-1].n if _OPEN else here
        if elsewhere != here:  # new threads follow the contexts that are still open; only another thread can say so
            setter = threading.Thread(target=torch.set_num_threads, args=(elsewhere,))
            setter.start()
            setter.join()


def require_full_precision(field: str) -> None:
    """Raises inside `torch.autocast`, where products are rounded to half precision."""
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        raise refuse_case(field, "a call inside torch.autocast", "one outside it; dtype= says how exact training is")


@contextmanager
def denormals_flushed() -> Iterator[None]:
    """Treats denormal numbers, in float32 those below 1.2e-38, as 0 inside the context, in this thread.

    Attention that a prior has drawn away from a position has weights as small as that, and processors are slow with
    them: a step then takes four times as long.

    >>> with denormals_flushed():
    ...     (torch.tensor(1e-39) * 1.0).item()
    0.0
    """
    before = _flushes_denormals()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def _flushes_denormals() -> bool:
    return not (torch.tensor(1e-39) * 1.0).item()
