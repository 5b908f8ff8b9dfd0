"""What whole runs cost in processes of their own: side by side, in a sweep, and in memory."""

import contextlib
import multiprocessing
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal

import torch

import bayesticket
from bayesticket.cli.bench.table import Measurement, at_most
from bayesticket.cli.bench.timing import Effort, alternate
from bayesticket.runs import TrainConfig, Training, train_config
from bayesticket.sweeps import backends, sweep_configs
from bayesticket.threads import torch_threads


def side_by_side(effort: Effort) -> Measurement:
    """Two runs at once, each in a process and on one thread, against one after the other on all threads."""
    with _workers(2, effort) as workers:

        def in_turn() -> None:
            _train_on(workers[:1], _Command(effort.epochs, n_runs=2, n_threads=effort.threads))

        def at_once() -> None:
            _train_on(workers, _Command(effort.epochs, n_runs=1, n_threads=1))

        before, after = alternate(
            [in_turn, at_once], rounds=max(1, effort.rounds // 3), repeats=1, warm_up=effort.warm_up
        )
    value = f"{after:.2f} s against {before:.2f} s for {effort.epochs} epochs of each"
    return Measurement("two runs side by side, a thread each", value, after / before, "below 1", after < before)


@dataclass(frozen=True)
class _Command:
    """What a worker is to train: so many epochs of each of its first `n_runs` runs."""

    epochs: int
    n_runs: int
    n_threads: int


@contextmanager
def _workers(n_workers: int, effort: Effort) -> Iterator[list[Connection]]:
    """Connections to worker processes that have imported everything and wait for commands."""
    context = effort.context
    connections: list[Connection] = []
    processes = []
    for _ in range(n_workers):
        here, there = context.Pipe()
        process = context.Process(target=_train_on_command, args=(there, effort.recorded), daemon=True)
        process.start()
        there.close()  # so that the death of a worker is noticed here
        processes.append(process)
        connections.append(here)
    try:
        for connection in connections:
            connection.recv()
        yield connections
    finally:
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.send(None)
        for process in processes:
            process.join()


def _train_on(workers: Sequence[Connection], command: _Command) -> None:
    """Has workers train at once, and waits for all of them."""
    for worker in workers:
        worker.send(command)
    for worker in workers:
        worker.recv()


def _train_on_command(commands: Connection, config: TrainConfig) -> None:
    runs = [Training(config), Training(config)]
    with torch_threads(1):
        for run in runs:
            run.take_epoch()
    commands.send("ready")
    while (command := commands.recv()) is not None:
        with torch_threads(command.n_threads):
            for run in runs[: command.n_runs]:
                for _ in range(command.epochs):
                    run.take_epoch()
        commands.send("done")


def cost_of_sweep(effort: Effort) -> Measurement:
    """Four runs by `sweep` in two processes, saved in a store, against the same runs by `train` in two processes."""
    configs = {("run", seed): replace(effort.recorded, seed=seed, epochs=5 * effort.epochs) for seed in range(4)}

    def alone() -> None:
        halves = [list(configs.values())[half::2] for half in (0, 1)]
        context = multiprocessing.get_context(backends.START_METHOD)
        with ProcessPoolExecutor(2, mp_context=context) as executor:
            list(executor.map(_train_in_turn, halves))

    def swept() -> None:
        with tempfile.TemporaryDirectory() as store:
            sweep_configs(configs, store=store, workers=2, progress=False)

    before, after = alternate([alone, swept], rounds=max(1, effort.rounds // 7), repeats=1, warm_up=False)
    value = f"{after:.1f} s against {before:.1f} s for four runs of {5 * effort.epochs} epochs"
    return at_most("sweep, against its runs alone", value, after / before, 1.05)


def _train_in_turn(configs: Sequence[TrainConfig]) -> None:
    torch.set_num_threads(1)
    for config in configs:
        train_config(config, progress=False)


def memory_of_a_run(effort: Effort) -> Measurement:
    """The peak memory of a run, minus the memory after all imports, in a new process."""
    with ProcessPoolExecutor(1, mp_context=effort.context) as executor:
        megabytes = executor.submit(_megabytes_of_a_run, effort).result()
    name = "memory of a run, above the imports"
    if megabytes is None:
        return Measurement(name, "skipped: this system does not report it", target="below 300 MB")
    return Measurement(name, f"{megabytes:.0f} MB", target="below 300 MB", met=megabytes < 300)


def _megabytes_of_a_run(effort: Effort) -> float | None:
    for name in dir(bayesticket):
        with contextlib.suppress(ImportError):  # where an optional dependency is missing
            getattr(bayesticket, name)
    torch.set_num_threads(effort.threads)
    before = memory("VmRSS")
    train_config(replace(effort.recorded, epochs=effort.epochs // 2), progress=False)
    peak = memory("VmHWM")
    return None if before is None or peak is None else (peak - before) / 1e6


def memory(field: Literal["VmRSS", "VmHWM"]) -> float | None:
    """This process's memory in bytes, now (VmRSS) or at its peak (VmHWM); only the peak is known without /proc."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not `ru_maxrss`, which starts with the peak of the parent process.
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        if field in lines:
            return float(lines[field].split()[0]) * 1024
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * unit
