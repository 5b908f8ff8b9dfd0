"""The benchmark measures what its rows say. The speed itself is not tested."""

import contextlib
import copy
import functools
import itertools
import json
import multiprocessing
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from programs import alive, running, wait_until

from bayesticket.cli.bench import bench, steps
from bayesticket.cli.bench.contention import two_threads
from bayesticket.cli.bench.load import busy_machine
from bayesticket.cli.bench.table import Measurement, at_least, at_most, format_table
from bayesticket.cli.bench.timing import FULL, QUICK, Effort, alternate
from bayesticket.cli.bench.whole_runs import memory
from bayesticket.errors import BayesticketError
from bayesticket.measures import DEFAULT_MEASURES, AttentionEntropy
from bayesticket.runs import Training
from bayesticket.sweeps import backends
from bayesticket.tasks import AutoregressiveParity, ModularAddition
from bayesticket.threads import torch_threads

SMALL = replace(FULL.bare, task=ModularAddition(p=11), dtype="float64")


@pytest.fixture(autouse=True)
def one_thread():
    with torch_threads(1):
        yield


class Clock:
    """A clock that only actions move on."""

    def __init__(self):
        self.now, self.log = 0.0, ""

    def __call__(self) -> float:
        return self.now

    def action(self, name: str, seconds: list[float]):
        remaining = iter(seconds)

        def act() -> None:
            self.log += name
            self.now += next(remaining)

        return act


# --- measuring ----------------------------------------------------------------------------------------------


def test_actions_take_turns_in_blocks_after_a_warm_up():
    clock = Clock()
    actions = [clock.action("a", [1.0] * 9), clock.action("b", [2.0] * 9)]
    assert alternate(actions, rounds=2, repeats=3, clock=clock) == [1.0, 2.0]
    assert clock.log == "aaabbb" * 3


def test_neither_the_warm_up_nor_a_disturbed_round_counts():
    clock = Clock()
    calm = clock.action("a", [9.0, 9.0, 1.0, 3.0, 500.0, 1.0, 2.0, 2.0])
    (seconds,) = alternate([calm], rounds=3, repeats=2, clock=clock)
    assert seconds == 2.0


def hold_memory(seen: Path) -> None:
    before = memory("VmRSS")
    torch.ones(300_000_000 // 4)
    seen.write_text(json.dumps([before, memory("VmHWM")]))


def test_memory_grows_by_what_is_held(tmp_path):
    """In a process of its own, whose peak is not that of earlier tests; the system may reclaim some of it meanwhile."""
    with running(hold_memory, tmp_path / "seen") as program:
        assert program.wait() == 0
    before, peak = json.loads((tmp_path / "seen").read_text())
    assert 240e6 < peak - before < 360e6


# --- what is measured ---------------------------------------------------------------------------------------


def test_the_plain_loop_and_the_library_take_the_same_steps():
    ours = Training(replace(SMALL, record_every=1))
    model = copy.deepcopy(ours.model)
    optimizer = steps.plain_optimizer(model, ours.config)
    for epoch in range(5):
        loss = steps.plain_step(model, ours.train.batch, optimizer)
        ours.take_epoch()
        assert ours.records[epoch]["train_loss"] == pytest.approx(loss.item(), abs=1e-5)
        for name, weight in ours.model.named_parameters():
            torch.testing.assert_close(weight, model.get_parameter(name), rtol=0, atol=1e-5)


def test_the_usual_loop_and_the_library_take_the_same_steps_where_each_token_is_asked():
    task = AutoregressiveParity(n=6, k=2)
    ours = Training(replace(SMALL, task=task, record_every=1, train_fraction=0.5, batch_size=32))
    model = copy.deepcopy(ours.model)
    optimizer = steps.plain_optimizer(model, ours.config)
    for epoch in range(3):
        loss = steps.plain_step(model, ours.train.batch, optimizer)
        ours.take_epoch()
        assert ours.records[epoch]["train_loss"] == pytest.approx(loss.item(), abs=1e-5)
        for name, weight in ours.model.named_parameters():
            torch.testing.assert_close(weight, model.get_parameter(name), rtol=0, atol=1e-5)


def test_the_products_are_those_of_the_last_layers(monkeypatch):
    training = Training(FULL.bare)
    n, shapes = len(training.train.batch), []
    assert n == 3_830
    multiply = torch.mm
    monkeypatch.setattr(torch, "mm", lambda a, b, out: shapes.append((*a.shape, b.shape[1])) or multiply(a, b, out=out))
    steps.unavoidable_products(training.model, n)()
    expected = []
    for rows, cols in ((64, 256), (256, 64), (64, 113)):
        expected += [(n, rows, cols), (n, cols, rows), (rows, n, cols)]
    assert sorted(shapes) == sorted(expected)


def test_the_products_are_the_gradients_of_linear_layers():
    widths = (4, 7, 5, 3)
    x, d_x = ([torch.randn(30, width, dtype=torch.float64) for width in widths] for _ in range(2))
    weights = [torch.randn(shape, dtype=torch.float64) for shape in itertools.pairwise(widths)]
    d_weights = [torch.empty_like(weight) for weight in weights]
    steps.multiply_through(weights, x, d_x, d_weights)

    leaves = [tensor.clone().requires_grad_() for tensor in (x[0], *weights)]
    out = functools.reduce(torch.matmul, leaves)
    torch.testing.assert_close(x[-1], out.detach())
    torch.testing.assert_close([d_x[0], *d_weights], list(torch.autograd.grad(out, leaves, d_x[-1])))


def test_bare_steps_record_nothing_that_is_timed_and_recorded_blocks_one_record_each():
    for config, expected in ((FULL.bare, [0]), (FULL.recorded, [0, 10, 20])):
        training = Training(replace(config, task=ModularAddition(p=7)))
        for _ in range(30):
            training.take_epoch()
        assert [record["epoch"] for record in training.records] == expected


def test_measures_beyond_the_default_are_found():
    kinds = steps.further_measures()
    assert AttentionEntropy in kinds
    assert not set(kinds) & {type(measure) for measure in DEFAULT_MEASURES}


@pytest.mark.parametrize("reason", ["needs a field", "refuses the model"])
def test_a_measure_that_cannot_be_made_is_named_and_skipped(reason, monkeypatch):
    if reason == "needs a field":
        monkeypatch.setattr(steps, "required_fields", lambda kind: ["teacher"])
    else:
        monkeypatch.setattr(AttentionEntropy, "check", lambda *_: (_ for _ in ()).throw(BayesticketError("no")))
    row = steps.cost_of_measure(QUICK, AttentionEntropy)
    assert row.name.startswith("AttentionEntropy")
    assert row.value == ("skipped: it has no default teacher" if reason == "needs a field" else "skipped: no")
    assert row.ratio is row.met is None


def test_one_and_two_threads_take_turns_and_the_number_before_is_restored(monkeypatch):
    seen = []
    take_epoch = Training.take_epoch
    monkeypatch.setattr(Training, "take_epoch", lambda self: (seen.append(torch.get_num_threads()), take_epoch(self)))
    effort = Effort(rounds=2, repeats=2, recorded_repeats=1, epochs=1, threads=1)
    row = two_threads(effort, 5, busy=False)
    assert seen == [1, 1, 2, 2] * 3
    assert torch.get_num_threads() == 1
    assert row.ratio is not None


def test_a_busy_machine_is_measured_with_few_steps_and_is_quiet_again_afterwards(monkeypatch):
    busy, n_steps = [], []

    @contextlib.contextmanager
    def pretending(n_threads):
        busy.append(n_threads)
        yield
        busy.pop()

    monkeypatch.setattr("bayesticket.cli.bench.contention.busy_machine", pretending)
    monkeypatch.setattr(Training, "take_epoch", lambda self: n_steps.append(len(busy)))
    effort = Effort(rounds=50, repeats=50, recorded_repeats=1, epochs=1, threads=1)
    two_threads(effort, 5, busy=True)
    assert n_steps == [1] * (2 * 4 * 3)
    assert busy == []


def test_the_process_that_keeps_the_machine_busy_computes_and_ends():
    with busy_machine(1):
        (process,) = (psutil.Process(each.pid) for each in multiprocessing.active_children())
        before = process.cpu_times().user
        wait_until(lambda: process.cpu_times().user > before)
    assert not alive(process)


def test_the_process_that_keeps_the_machine_busy_ends_when_its_parent_is_killed():
    with running(keep_busy) as program:
        wait_until(lambda: len(program.workers()) == 1)
        workers = program.workers()
        time.sleep(0.2)
        os.kill(program.pid, signal.SIGKILL)
        program.process.join()
        wait_until(lambda: not any(map(alive, workers)))


def keep_busy() -> None:
    with busy_machine(1, "fork"):
        time.sleep(1000)


def test_the_quick_bench_has_every_row(monkeypatch):
    monkeypatch.setattr(backends, "START_METHOD", "fork")
    rows = bench(replace(QUICK, start_method="fork", p=23, epochs=2))
    names = [row.name for row in rows]
    assert len(set(names)) == len(names)
    for part in (
        *(
            "plain loop",
            "matrix products",
            "41 answers a sequence",
            "recording",
            "KLPrior",
            "NormMatch",
            "TicketMask",
            "side by side",
            "memory",
        ),
        *(f"p = {p}, {n}" for p, n in ((59, "1,044"), (113, "3,830"), (227, "15,458"))),
        *(f"T = {n}, {kind}" for n in (5, 17, 65) for kind in ("random", "constant")),
        *("1 head", "2 heads", "4 heads"),
        *(f"two threads against one, p = {p}, {where}" for p in (23, 113) for where in ("quiet", "busy")),
        *(kind.__name__ for kind in steps.further_measures()),
    ):
        assert sum(part in name for name in names) == 1, part
    assert all(row.ratio is None or row.ratio > 0 for row in rows)
    assert all(name in format_table(rows) for name in names)


# --- writing ------------------------------------------------------------------------------------------------


def test_bounds_are_met_from_their_own_side():
    assert [at_least("", "", ratio, 6.0).met for ratio in (5.9, 6.0, 6.1)] == [False, True, True]
    assert [at_most("", "", ratio, 1.1).met for ratio in (1.0, 1.1, 1.2)] == [True, True, False]


def test_the_table_is_aligned_and_says_what_is_met():
    rows = [
        at_least("speed", "9.1 ms against 62.0 ms", 6.81, 6.0),
        at_most("recording", "1.2 ms", 12.5, 1.15),
        Measurement("memory", "80 MB", target="below 300 MB", met=True),
        Measurement("4 heads", "12 ms", 1.25),
    ]
    assert format_table(rows).splitlines() == [
        "what       measured                ratio  target",
        "speed      9.1 ms against 62.0 ms   6.81  at least 6.00: met",
        "recording  1.2 ms                  12.50  at most 1.15: not met",
        "memory     80 MB                          below 300 MB: met",
        "4 heads    12 ms                    1.25",
    ]
