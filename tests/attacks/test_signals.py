"""A program that is asked to end leaves a state to resume from, says so in a line, and is gone at once."""

import logging
import os
import signal
import subprocess
import sys
import threading

import psutil
import pytest
from programs import alive, running, wait_until

import bayesticket as bt
from bayesticket.runs import RunDirectory, ended_by_signals
from bayesticket.sweeps import backends
from bayesticket.sweeps.process import PARENT

ENDING = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
TASK, SMALL = bt.ModularAddition(p=5), bt.Architecture(d_model=8, d_mlp=8)


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


def sweep(directory):
    """A program that sweeps for a very long time, and writes down how it was ended."""
    logging.getLogger("bayesticket").addHandler(logging.FileHandler(directory / "log"))
    backends.START_METHOD = "fork"
    try:
        bt.sweep(TASK, {"none": None}, seeds=range(3), model=SMALL, epochs=10**6, store=directory / "store", workers=2)
    except SystemExit as ended:
        (directory / "code").write_text(str(ended.code))


@pytest.mark.parametrize("to", ["the program", "its whole session"])
def test_a_sweep(tmp_path, to):
    with running(sweep, tmp_path) as program:
        wait_until(lambda: len(list((tmp_path / "store").glob(".*.progress"))) == 2)
        workers = program.workers()
        if to == "the program":
            os.kill(program.pid, signal.SIGHUP)
        else:  # as a terminal does that is closed
            os.killpg(program.pid, signal.SIGHUP)
        wait_until(lambda: not any(map(alive, workers)))
        wait_until(lambda: (tmp_path / "code").exists() and (tmp_path / "code").read_text())
    assert (tmp_path / "code").read_text() == str(128 + signal.SIGHUP)
    assert "SIGHUP: interrupted with 0 of 3 runs complete in " in (tmp_path / "log").read_text()
    started = list((tmp_path / "store").glob("[!.]*"))
    assert len(started) >= 2
    assert all(RunDirectory(path).checkpoint_path.exists() for path in started)
    assert not list((tmp_path / "store").glob(".alive.*"))


def test_the_process_that_workers_are_forked_from_ends_while_it_imports_if_its_parent_has_died():
    nobody = psutil.Popen([sys.executable, "-c", ""])
    nobody.wait()
    program = "import bayesticket.sweeps.preload; print('imported')"
    environment = {**os.environ, PARENT: str(nobody.pid)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")


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


def test_a_sweep_leaves_ctrl_c_to_the_programs_own_handler():
    received, before = [], signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, lambda number, frame: received.append(number))
    try:
        with ended_by_signals():
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert received == [signal.SIGINT]


@pytest.mark.parametrize("name", ["write_atomically", "write_tensors"])
def test_a_save_that_is_broken_off_leaves_a_run_that_the_same_call_trains(tmp_path, monkeypatch, name):
    """Of a run that is too short for a checkpoint: before its curves, and between its curves and its weights."""
    options = {"model": SMALL, "epochs": 20, "store": tmp_path / "run", "progress": False}

    def broken_off(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"bayesticket.runs.directory.{name}", broken_off)
    with pytest.raises(KeyboardInterrupt, match="nothing is kept"):
        bt.train(TASK, **options)
    monkeypatch.undo()
    assert list((tmp_path / "run").iterdir()) == []
    assert bt.train(TASK, **options).status == "finished"


def test_a_run_that_is_saved_is_kept_whatever_is_broken_off_afterwards(tmp_path, monkeypatch):
    options = {"model": SMALL, "epochs": 20, "store": tmp_path / "run", "progress": False}

    def broken_off(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(RunDirectory, "remove_checkpoint", broken_off)
    with pytest.raises(KeyboardInterrupt, match="the run is complete"):
        bt.train(TASK, **options)
    assert bt.Run.load(tmp_path / "run").status == "finished"
