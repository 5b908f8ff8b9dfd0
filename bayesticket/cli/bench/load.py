"""A process that keeps the machine busy, as another program would.

This module imports nothing of the library, so that the process starts in a second or two.
"""

import contextlib
import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Literal

import torch


@contextlib.contextmanager
def busy_machine(n_threads: int, start_method: Literal["spawn", "fork"] = "spawn") -> Iterator[None]:
    """Has another process multiply matrices on `n_threads` torch threads for as long as the context is open."""
    context = multiprocessing.get_context("fork") if start_method == "fork" else multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=multiply_until_told, args=(there, n_threads), daemon=True)
    process.start()
    there.close()
    try:
        here.recv()  # it has started to multiply
        yield
    finally:
        here.close()
        process.terminate()
        process.join()


def multiply_until_told(connection: Connection, n_threads: int) -> None:
    """Multiplies matrices until the parent process has ended, or terminates this one."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    torch.set_num_threads(n_threads)
    matrix, product = torch.rand(512, 512), torch.empty(512, 512)
    torch.mm(matrix, matrix, out=product)
    connection.send("busy")
    while parent.is_alive():
        torch.mm(matrix, matrix, out=product)
