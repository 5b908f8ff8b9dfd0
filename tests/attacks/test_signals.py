"""A program that is asked to end leaves a state to resume from, says so in a line, and is gone at once."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest
from programs import alive, wait_until

import bayesticket as bt
from bayesticket.runs import RunDirectory

ENDING = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
TASK, SMALL = bt.ModularAddition(p=5), bt.Architecture(d_model=8, d_mlp=8)
TRAIN = """
import sys, bayesticket as bt
task, model = bt.ModularAddition(p=5), bt.Architecture(d_model=8, d_mlp=8)
if __name__ == "__main__":
    if sys.argv[1] == "train":
        bt.train(task, model=model, epochs=10**6, store=sys.argv[2], progress=False)
    else:
        bt.sweep(task, {"none": None}, seeds=range(3), model=model, epochs=10**6, store=sys.argv[2], workers=2)
"""


@pytest.fixture
def program(tmp_path):
    """Starts a program that trains for a very long time; what is left of it is killed afterwards."""
    script, started = tmp_path / "program.py", []
    script.write_text(TRAIN)

    def start(what, store):
        process = subprocess.Popen(
            [sys.executable, str(script), what, str(store)], stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("name", ENDING)
def test_training(tmp_path, name):
    """In this process, whose handlers it restores."""
    before = signal.getsignal(getattr(signal, name))
    directory = RunDirectory(tmp_path / "run")

    def ask(epoch, record):
        if epoch == 50:
            os.kill(os.getpid(), getattr(signal, name))

    with pytest.raises(SystemExit) as ended:
        bt.train(TASK, model=SMALL, epochs=100, store=directory.path, progress=ask)
    assert ended.value.code == 128 + getattr(signal, name)
    assert signal.getsignal(getattr(signal, name)) is before
    assert directory.status() == "interrupted"
    resumed, whole = bt.resume(directory.path, progress=False), bt.train(TASK, model=SMALL, epochs=100, progress=False)
    assert resumed.curves.equals(whole.curves)


def test_handlers_of_the_programs_own_are_left_alone(tmp_path):
    received = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    try:

        def ask(epoch, record):
            if epoch == 50:
                os.kill(os.getpid(), signal.SIGTERM)

        run = bt.train(TASK, model=SMALL, epochs=100, progress=ask)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert run.status == "finished"
    assert received == [signal.SIGTERM]


@pytest.mark.parametrize("to", ["the program", "its whole session"])
def test_a_sweep(tmp_path, program, to):
    store = tmp_path / "store"
    process = program("sweep", store)
    wait_until(lambda: len(list(store.glob("[!.]*/run.json"))) == 2, 60)
    children = psutil.Process(process.pid).children(recursive=True)
    time.sleep(0.5)
    began = time.monotonic()
    if to == "the program":
        process.send_signal(signal.SIGHUP)
    else:  # as a terminal does that is closed
        os.killpg(process.pid, signal.SIGHUP)
    said = process.stderr.read()
    assert process.wait() == 128 + signal.SIGHUP
    wait_until(lambda: not any(map(alive, children)), 10)
    assert time.monotonic() - began < 30
    assert "SIGHUP: interrupted with 0 of 3 runs complete in " in said
    assert "Traceback" not in said
    for path in store.glob("[!.]*"):
        assert RunDirectory(path).checkpoint_path.exists()
    assert not list(store.glob(".alive.*"))


def test_processes_that_start_go_with_their_parent(tmp_path, program):
    """Nothing is left of a sweep whose parent is killed while its processes import torch."""
    process = program("sweep", tmp_path / "store")

    def started():
        return [
            child
            for child in psutil.Process(process.pid).children(recursive=True)
            if "forkserver" in " ".join(child.cmdline())
        ]

    wait_until(started, 60)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    wait_until(lambda: not any(map(alive, children)), 10)


def interrupt(thread: threading.Thread) -> None:
    """Raises KeyboardInterrupt in a thread, as notebook servers do."""
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt))


@pytest.mark.parametrize("checkpoints", [False, True])
def test_a_thread_that_is_interrupted_leaves_no_bare_header(tmp_path, checkpoints):
    directory, said, at = RunDirectory(tmp_path / "run"), [], threading.Event()

    def work():
        try:
            bt.train(
                TASK, model=SMALL, epochs=10**6, store=directory.path, checkpoint_every=20 if checkpoints else 10**6,
                progress=lambda epoch, record: at.set() if epoch >= 100 else None,
            )  # fmt: skip
        except KeyboardInterrupt as interrupt:
            said.append(str(interrupt))

    thread = threading.Thread(target=work)
    thread.start()
    at.wait()
    while thread.is_alive():
        interrupt(thread)
        thread.join(0.2)
    assert said[0].startswith("interrupted")
    if checkpoints:
        assert bt.Run.load(directory.path, partial=True).epoch >= 20
    else:
        assert not directory.has_run()
