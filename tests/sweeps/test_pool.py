"""Many jobs: whatever dies, stops or fails, every other run ends as it would have ended alone."""

import functools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from filelock import FileLock
from jobs import (
    Deadly,
    Held,
    Raising,
    Spoiling,
    assert_as_uninterrupted,
    leftovers,
    small_job,
    teacher,
)
from programs import alive, is_under_way, running, wait_until

import bayesticket as bt
from bayesticket.runs import RunDirectory
from bayesticket.sweeps import Job, backends, failures, job_queue, train_jobs
from bayesticket.sweeps.pool import held_alive_file
from bayesticket.sweeps.progress import Progress, write_progress
from bayesticket.sweeps.worker import Outcome, train_job

FORK = multiprocessing.get_context("fork")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forked processes, which have imported everything; the tests of the quick start use spawned ones, as users do."""
    monkeypatch.setattr(backends, "START_METHOD", "fork")
    monkeypatch.setattr(job_queue, "POLL_EVERY", 0.05)
    monkeypatch.setattr(job_queue, "RETRY_BUSY_AFTER", 0.2)


class Gate:
    """Opens once, and releases the runs that `held_jobs` make."""

    def __init__(self, path: Path):
        self.path = path

    def open(self) -> None:
        self.path.touch()


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The gate behind which `held_jobs` wait; at the end of a test it is opened in any case."""
    gate = Gate(tmp_path / "gate")
    monkeypatch.setenv("HELD_UNTIL", str(gate.path))
    yield gate
    gate.open()


@pytest.fixture
def jobs(tmp_path: Path) -> list[Job]:
    return small_jobs(tmp_path / "store")


def small_jobs(store: Path, *, epochs: int = 20, n: int = 3) -> list[Job]:
    return [small_job(store, f"seed {seed}", bt.KLPrior(strength=0.5), seed=seed, epochs=epochs) for seed in range(n)]


def held_jobs(store: Path, *, n: int = 3) -> list[Job]:
    """Jobs that wait after their first checkpoint until the gate is open."""
    recipe = bt.KLPrior(strength=0.5) + Held(after=12)
    return [small_job(store, f"seed {seed}", recipe, seed=seed, epochs=24) for seed in range(n)]


def store_of(jobs: list[Job]) -> Path:
    return jobs[0].store.parent


def assert_complete(jobs: list[Job], outcomes: dict[str, Outcome]) -> None:
    assert outcomes == {job.name: Outcome("complete") for job in jobs}
    for job in jobs:
        assert_as_uninterrupted(job)
    assert leftovers(store_of(jobs)) == []
    assert multiprocessing.active_children() == []


def in_background(function, *given) -> threading.Thread:
    thread = threading.Thread(target=function, args=given, daemon=True)
    thread.start()
    return thread


def own_processes() -> list[psutil.Process]:
    return [psutil.Process(each.pid) for each in multiprocessing.active_children()]


# Over every kind of executor --------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_processes_of_our_own(jobs, workers):
    assert_complete(jobs, train_jobs(jobs, workers=workers))


@pytest.mark.parametrize("kind", [ThreadPoolExecutor, functools.partial(ProcessPoolExecutor, mp_context=FORK)])
def test_an_executor_that_is_given(jobs, kind):
    with kind(2) as executor:
        outcomes = train_jobs(jobs, executor=executor)
        assert executor.submit(len, "still open").result() == 10
    assert_complete(jobs, outcomes)


def test_jobs_with_the_same_teacher_in_threads(tmp_path):
    jobs = [
        small_job(tmp_path / "store", f"seed {seed}", bt.KLPrior(teacher(), strength=0.5), seed=seed, epochs=10)
        for seed in range(6)
    ]
    with ThreadPoolExecutor(6) as executor:
        outcomes = train_jobs(jobs, executor=executor)
    assert_complete(jobs, outcomes)


class AtOnce(Executor):
    """Works in the calling thread; what it does with a job is up to each test."""

    def __init__(self, work=train_job):
        self.work, self.calls = work, []

    def submit(self, function, /, *given, **named):
        self.calls.append((function, *given))
        future: Future[Outcome] = Future()
        try:
            future.set_result(self.work(*given))
        except BaseException as error:
            future.set_exception(error)
        return future


def test_jobs_begin_in_their_order(jobs):
    executor = AtOnce()
    assert_complete(jobs, train_jobs(jobs, executor=executor))
    assert [given[1].name for given in executor.calls] == [job.name for job in jobs]
    assert all(given[1] is not job for given, job in zip(executor.calls, jobs, strict=True)), "threads would share them"


def test_an_executor_that_takes_equal_calls_for_the_same_work(jobs):
    done: dict[str, Outcome] = {}

    def remembering(*given: object) -> Outcome:
        key = repr(given)
        if key not in done:
            done[key] = train_job(*given) if done else Outcome("busy")
        return done[key]

    assert_complete(jobs, train_jobs(jobs, executor=AtOnce(remembering)))


def test_what_an_executor_loses_is_trained_again_a_few_times(jobs, capsys):
    lost: list[str] = []

    def losing(job: Job, *given: object) -> Outcome:
        most = backends.MAX_EXECUTOR_DEATHS - (job.name != "seed 1")
        if lost.count(job.name) < most:
            lost.append(job.name)
            raise ConnectionError("the worker\nis gone")
        return train_job(job, *given)

    outcomes = train_jobs(jobs, executor=AtOnce(losing))
    assert [outcome.kind for outcome in outcomes.values()] == ["complete", "failed", "complete"]
    lost_it = "the executor lost it (ConnectionError: the worker is gone)"
    assert outcomes["seed 1"].error == f"{lost_it}, 3 times in a row without any progress"
    assert f"bayesticket: seed 0: {lost_it}; it resumes from its last checkpoint\n" in capsys.readouterr().err


def test_a_run_that_makes_progress_each_time_is_not_given_up(jobs):
    lost: list[str] = []

    def losing(job: Job, *given: object) -> Outcome:
        if lost.count(job.name) < 3 * backends.MAX_EXECUTOR_DEATHS:
            lost.append(job.name)
            write_progress(job.store, Progress(10 * lost.count(job.name), 0.5, 0.5))
            raise ConnectionError
        return train_job(job, *given)

    assert_complete(jobs, train_jobs(jobs, executor=AtOnce(losing)))


def test_what_an_executor_cancels_is_trained_again(jobs):
    class Cancelling(AtOnce):
        def submit(self, function, /, *given, **named):
            if self.calls:
                return super().submit(function, *given)
            self.calls.append(given)
            future: Future[Outcome] = Future()
            future.cancel()
            future.set_running_or_notify_cancel()
            return future

    assert_complete(jobs, train_jobs(jobs, executor=Cancelling()))


def test_an_executor_whose_processes_do_not_see_the_store(jobs, tmp_path):
    def elsewhere(job: Job, alive_file: Path, attempt: str) -> Outcome:
        return train_job(job, tmp_path / "another machine" / alive_file.name, attempt)

    outcomes = train_jobs(jobs, executor=AtOnce(elsewhere))
    error = failures(outcomes)
    assert "seed 0: it stopped since its process does not find " in str(error)
    assert "every process has to see the store under the same path" in str(error)
    assert "(and 2 more of 3 runs)" in str(error)
    assert not (tmp_path / "another machine").exists()


def test_an_alive_file_that_something_else_removes_is_created_again(tmp_path, gate):
    jobs, created_again = held_jobs(tmp_path / "store"), []

    def remove() -> None:
        wait_until(lambda: any(is_under_way(job.store) for job in jobs))
        (path,) = store_of(jobs).glob(".alive.*")
        path.unlink()
        wait_until(path.exists)
        created_again.append(path)
        gate.open()

    removing = in_background(remove)
    outcomes = train_jobs(jobs, workers=2)
    removing.join()
    assert created_again
    assert_complete(jobs, outcomes)


def test_an_executor_that_takes_no_more_says_so(jobs):
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(
        bt.BayesticketError, match=r"^executor: ThreadPoolExecutor takes no more runs \(RuntimeError: .*"
    ) as caught:
        train_jobs(jobs, executor=executor)
    assert "\n" not in str(caught.value)
    assert leftovers(store_of(jobs)) == []


def test_a_given_pool_that_breaks_keeps_what_was_trained(tmp_path, gate, capsys):
    jobs = held_jobs(tmp_path / "store")

    def kill_one() -> None:
        wait_until(lambda: any(is_under_way(job.store) for job in jobs))
        own_processes()[0].kill()

    killing = in_background(kill_one)
    with (
        ProcessPoolExecutor(2, mp_context=FORK) as executor,
        pytest.raises(bt.BayesticketError, match=r"^executor: ProcessPoolExecutor takes no more runs \(BrokenProc"),
    ):
        train_jobs(jobs, executor=executor)
    killing.join()
    assert capsys.readouterr().err == "", "no run is said to resume"
    gate.open()
    with ProcessPoolExecutor(2, mp_context=FORK) as executor:
        outcomes = train_jobs(jobs, executor=executor)
    assert_complete(jobs, outcomes)


def test_what_cannot_be_sent_is_named_before_anything_starts(tmp_path):
    @bt.spec
    class Local(bt.Intervention):
        def penalty(self, context, activations):
            return None

    jobs = [*small_jobs(tmp_path / "store", n=1), small_job(tmp_path / "store", "local", Local())]
    with ProcessPoolExecutor(1, mp_context=FORK) as executor:
        for options in ({}, {"executor": executor}):
            with pytest.raises(
                bt.BayesticketError, match=r"^local: got what cannot be sent .*Local.*; accepted: classes"
            ):
                train_jobs(jobs, **options)
    assert leftovers(tmp_path / "store") == []
    with ThreadPoolExecutor(1) as executor:
        outcomes = train_jobs(jobs, executor=executor)
    assert_complete(jobs, outcomes)


# What fails -------------------------------------------------------------------------------------------------------


def test_what_fails_or_diverges_does_not_stop_the_others_and_is_named_at_the_end(tmp_path, capfd):
    store = tmp_path / "store"
    broken = [small_job(store, f"broken {n}", Raising(at=n)) for n in (5, 10)]
    spoiled = small_job(store, "spoiled", Spoiling())
    others = small_jobs(store, n=2)
    outcomes = train_jobs([broken[0], spoiled, others[0], broken[1], others[1]], workers=2)
    assert list(outcomes) == ["broken 5", "spoiled", "seed 0", "broken 10", "seed 1"]
    kinds = [outcome.kind for outcome in outcomes.values()]
    assert kinds == ["failed", "diverged", "complete", "failed", "complete"]
    for job in (spoiled, *others):
        assert_as_uninterrupted(job)
    error = failures(outcomes)
    assert str(error) == (
        "broken 5: ZeroDivisionError: a mistake in two lines (and 1 more of 5 runs); "
        "what was saved is kept, call the same again to go on"
    )
    assert 'raise ZeroDivisionError("a mistake' in error.__notes__[0]
    assert failures({name: outcomes[name] for name in ("spoiled", "seed 0")}) is None
    assert capfd.readouterr().err == ""


def test_a_run_that_kills_its_process_again_and_again_fails_alone(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(backends.ProcessBackend, "max_deaths", 3)
    deadly, others = small_job(tmp_path / "store", "deadly", Deadly()), small_jobs(tmp_path / "store", epochs=30)
    outcomes = train_jobs([deadly, *others], workers=2)
    assert outcomes.pop("deadly") == Outcome(
        "failed", "its process was killed by SIGKILL, 3 times in a row without any progress"
    )
    assert outcomes == {job.name: Outcome("complete") for job in others}
    for job in others:
        assert_as_uninterrupted(job)
    message = "bayesticket: deadly: its process was killed by SIGKILL; it resumes from its last checkpoint\n"
    assert capfd.readouterr().err == message * 2


def test_processes_that_end_before_they_can_train(jobs, monkeypatch):
    monkeypatch.setattr(backends, "serve", lambda connection: sys.exit(1))
    with pytest.raises(bt.BayesticketError, match=r"^workers: 3 processes in a row ended with exit code 1 .*__main__"):
        train_jobs(jobs, workers=2)
    assert leftovers(store_of(jobs)) == []
    assert multiprocessing.active_children() == []


UNGUARDED = """
import bayesticket as bt
bt.sweep(bt.ModularAddition(p=7), {"no prior": None}, seeds=[0], store="runs", epochs=2, workers=1)
"""


def test_a_script_without_a_guard_is_told_so_once_and_leaves_no_claim(tmp_path):
    (tmp_path / "script.py").write_text(UNGUARDED, encoding="utf-8")
    ended = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.count("Traceback") == 1, "of this error alone"
    assert 'a script has to call this under `if __name__ == "__main__":`' in ended.stderr.splitlines()[-1]
    assert leftovers(tmp_path / "runs") == []


# What dies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_is_killed_takes_nothing_with_it(tmp_path, gate, number, capfd):
    jobs, seen = held_jobs(tmp_path / "store", n=2), []

    def kill_one() -> None:
        wait_until(lambda: all(is_under_way(job.store) for job in jobs))
        victim, other = own_processes()
        victim.send_signal(number)
        wait_until(lambda: not alive(victim))
        seen.append(alive(other))
        if number == signal.SIGTERM:
            seen.extend((job.store / "checkpoint.safetensors").exists() for job in jobs)
        gate.open()

    killing = in_background(kill_one)
    outcomes = train_jobs(jobs, workers=2)
    killing.join()
    assert seen
    assert all(seen)
    assert_complete(jobs, outcomes)
    how = "was killed by SIGKILL" if number == signal.SIGKILL else "ended with exit code 75"
    (line,) = capfd.readouterr().err.splitlines()
    assert line.endswith(f"its process {how}; it resumes from its last checkpoint")


def test_a_process_that_is_killed_while_it_is_idle_or_starts(jobs, monkeypatch):
    submit, kills = backends.ProcessBackend.submit, []

    def submit_between_deaths(self, job):
        for worker in list(self.workers.values()):
            if worker.job is None:
                worker.process.kill()
                worker.process.join()
        submit(self, job)
        if len(kills) < 2:
            kills.append(job.name)
            list(self.workers.values())[-1].process.kill()

    monkeypatch.setattr(backends.ProcessBackend, "submit", submit_between_deaths)
    assert_complete(jobs, train_jobs(jobs, workers=1))
    assert len(kills) == 2


def train_all(jobs: list[Job]) -> None:
    outcomes = train_jobs(jobs, workers=2)
    assert {outcome.kind for outcome in outcomes.values()} == {"complete"}


def test_no_process_outlives_its_parent(tmp_path, gate):
    jobs = held_jobs(tmp_path / "store")
    with running(train_all, jobs) as program:
        wait_until(lambda: all(is_under_way(job.store) for job in jobs[:2]))
        workers = program.workers()
        assert len(workers) == 2
        os.kill(program.pid, signal.SIGKILL)
        program.process.join()
        wait_until(lambda: not any(map(alive, workers)), 20)
    assert len(list((tmp_path / "store").glob(".alive.*"))) == 1
    gate.open()
    assert_complete(jobs, train_jobs(jobs, workers=2))


def test_a_process_that_cannot_stop_exits_after_its_parent_has_died(jobs, monkeypatch):
    from bayesticket.sweeps import process

    monkeypatch.setattr(process, "CHECKPOINT_GRACE", 0.2)
    monkeypatch.setattr("bayesticket.sweeps.worker.train_job", lambda *given: time.sleep(1000))
    with running(train_all, jobs) as program:
        wait_until(lambda: len(program.workers()) == 2)
        time.sleep(0.2)
        workers = program.workers()
        os.kill(program.pid, signal.SIGKILL)
        program.process.join()
        wait_until(lambda: not any(map(alive, workers)), 20)


# Side by side -----------------------------------------------------------------------------------------------------


def test_two_at_once_over_the_same_store(tmp_path):
    jobs = small_jobs(tmp_path / "store", epochs=60)
    with running(train_all, jobs) as one, running(train_all, jobs) as other:
        assert (one.wait(), other.wait()) == (0, 0)
    for job in jobs:
        assert_as_uninterrupted(job)
    assert leftovers(tmp_path / "store") == []


def test_alive_files_of_killed_sweeps_are_removed_and_those_of_running_sweeps_kept(tmp_path):
    ours, theirs = tmp_path / ".alive.1", tmp_path / ".alive.2"
    (tmp_path / ".alive.0").touch()
    with held_alive_file(ours):
        with held_alive_file(theirs):
            assert sorted(tmp_path.iterdir()) == [ours, theirs]
        assert list(tmp_path.iterdir()) == [ours]
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_a_killed_process_left_blocks_nothing_and_one_that_is_held_does(jobs, monkeypatch):
    store_of(jobs).mkdir()
    for job in jobs:
        RunDirectory(job.store).lock_path.touch()
        RunDirectory(job.store).progress_path.write_text('{"epoch": 3')
    held = FileLock(RunDirectory(jobs[0].store).lock_path, thread_local=False)
    held.acquire()

    def announce(self, message: str) -> None:
        assert message == "waiting for a run that another process trains"
        assert not jobs[0].store.exists()
        assert all((job.store / "weights.safetensors").exists() for job in jobs[1:])
        held.release()

    monkeypatch.setattr("bayesticket.sweeps.display.Display.announce", announce)
    assert_complete(jobs, train_jobs(jobs, workers=1))
    assert not held.is_locked


# Ctrl-C -----------------------------------------------------------------------------------------------------------


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("kind", [None, ThreadPoolExecutor, functools.partial(ProcessPoolExecutor, mp_context=FORK)])
def test_ctrl_c_leaves_a_checkpoint_of_every_run_that_has_started(tmp_path, gate, kind):
    jobs = held_jobs(tmp_path / "store")

    def interrupt() -> None:
        wait_until(lambda: all(RunDirectory(job.store).progress_path.exists() for job in jobs[:2]))
        press_ctrl_c()

    interrupting = in_background(interrupt)
    executor = kind(2) if kind is not None else None
    options = {"workers": 2} if executor is None else {"executor": executor}
    with pytest.raises(KeyboardInterrupt):
        train_jobs(jobs, **options)
    interrupting.join()
    gate.open()
    for job in jobs[:2]:
        assert (job.store / "checkpoint.safetensors").exists()
        assert json.loads((job.store / "run.json").read_text())["status"] == "interrupted"
    assert not jobs[2].store.exists()
    assert [name for name in leftovers(store_of(jobs)) if "lock" not in name and "checkpoint" not in name] == []
    if executor is not None:
        executor.shutdown()
    assert_complete(jobs, train_jobs(jobs, workers=2))


class Detached(Executor):
    """Has futures that can be cancelled while they are running, as those of dask can."""

    def __init__(self):
        self.threads = ThreadPoolExecutor(1)

    def submit(self, function, /, *given, **named):
        future: Future[Outcome] = Future()
        self.threads.submit(lambda: future.set_result(function(*given)))
        return future


def test_ctrl_c_waits_for_the_checkpoints_of_runs_that_could_be_cancelled(tmp_path, gate):
    jobs = held_jobs(tmp_path / "store")

    def interrupt() -> None:
        wait_until(lambda: is_under_way(jobs[0].store))
        press_ctrl_c()

    interrupting = in_background(interrupt)
    executor = Detached()
    with pytest.raises(KeyboardInterrupt):
        train_jobs(jobs, executor=executor)
    assert not RunDirectory(jobs[0].store).progress_path.exists(), "it has stopped"
    assert not jobs[1].store.exists()
    interrupting.join()
    executor.threads.shutdown()


@pytest.mark.parametrize("loses", [lambda future: future.cancel(), lambda future: future.set_exception(OSError())])
def test_an_error_waits_for_the_checkpoints_of_runs_that_the_executor_has_lost(tmp_path, gate, loses):
    jobs = held_jobs(tmp_path / "store", n=2)

    class Losing(Detached):
        """Loses a future while its call is running, as a cluster without its scheduler does, and takes no more."""

        def submit(self, function, /, job, *given, **named):
            if job.name == jobs[1].name:
                raise OSError("the scheduler is gone")
            self.threads.submit(function, job, *given)
            wait_until(lambda: is_under_way(job.store))
            future: Future[Outcome] = Future()
            if loses(future):
                future.set_running_or_notify_cancel()
            return future

    backend = backends.ExecutorBackend(executor := Losing(), jobs, alive_file := tmp_path / "alive")
    alive_file.touch()
    backend.submit(jobs[0])
    ((job, outcome),) = backend.wait(timeout=60)
    assert (job.name, outcome.kind) == (jobs[0].name, "died")
    with pytest.raises(bt.BayesticketError, match="takes no more runs"):
        backend.submit(jobs[1])
    assert RunDirectory(jobs[0].store).is_trained_now()
    alive_file.unlink()
    backend.stop()
    assert not RunDirectory(jobs[0].store).is_trained_now()
    executor.threads.shutdown()


def test_ctrl_c_while_a_process_is_started_is_not_lost(jobs, monkeypatch):
    start, masks = backends.BaseProcess.start, []

    def interrupted(self):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        start(self)
        masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, []))

    monkeypatch.setattr(backends.BaseProcess, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train_jobs(jobs, workers=2)
    assert [signal.SIGINT in mask for mask in masks] == [True], "the process inherits it"
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert leftovers(store_of(jobs)) == []
    wait_until(lambda: multiprocessing.active_children() == [])


def test_jobs_have_names_of_their_own(jobs):
    with pytest.raises(bt.BayesticketError, match="jobs: got 'seed 0'; accepted: names that differ"):
        train_jobs([*jobs, jobs[0]])
    assert train_jobs([]) == {}


# A cluster --------------------------------------------------------------------------------------------------------


def forget_threads() -> None:
    """Dask hands graphs to a thread, which a forked process lacks if an earlier test here has started it."""
    from distributed import utils

    utils._offload_executor = ThreadPoolExecutor(1)


def dask_scheduler(directory: Path) -> None:
    from distributed.cli.dask_scheduler import main

    forget_threads()
    main(["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(directory / "scheduler")])


def dask_worker(directory: Path) -> None:
    from distributed.cli.dask_worker import main

    forget_threads()
    here = ["--scheduler-file", str(directory / "scheduler"), "--local-directory", str(directory)]
    main([*here, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1"])


def test_dask_with_a_worker_that_is_killed(tmp_path, gate):
    for name in ("scheduler", "worker"):  # imported here, so that the programs start at once
        pytest.importorskip(f"distributed.cli.dask_{name}", reason="NOT TESTED: a cluster; no distributed here")
    from distributed import Client

    jobs = held_jobs(tmp_path / "store")
    with running(dask_scheduler, tmp_path):
        wait_until(lambda: (tmp_path / "scheduler").exists() and (tmp_path / "scheduler").read_text())
        address = json.loads((tmp_path / "scheduler").read_text())["address"]
        assert address.startswith("tcp://127.0.0.1:")
        with (
            running(dask_worker, tmp_path) as victim,
            running(dask_worker, tmp_path) as other,
            Client(address, timeout=60) as client,
        ):
            client.wait_for_workers(2, timeout=60)
            assert set(client.run(os.getpid).values()) == {victim.pid, other.pid}

            def kill() -> None:
                wait_until(lambda: all(is_under_way(job.store) for job in jobs[:2]))
                os.kill(victim.pid, signal.SIGKILL)
                gate.open()

            killing = in_background(kill)
            outcomes = train_jobs(jobs, executor=client.get_executor())
            killing.join()
            assert set(client.run(os.getpid).values()) == {other.pid}
    assert_complete(jobs, outcomes)


def test_dask_whose_scheduler_is_killed(tmp_path):
    """The sweep ends with an error, the runs with checkpoints; nobody waits for futures that will never end."""
    for name in ("scheduler", "worker"):
        pytest.importorskip(f"distributed.cli.dask_{name}", reason="NOT TESTED: a cluster; no distributed here")
    from distributed import Client

    jobs = small_jobs(tmp_path / "store", n=3, epochs=10**6)
    with running(dask_scheduler, tmp_path) as scheduler:
        wait_until(lambda: (tmp_path / "scheduler").exists() and (tmp_path / "scheduler").read_text())
        address = json.loads((tmp_path / "scheduler").read_text())["address"]
        with running(dask_worker, tmp_path):
            client = Client(address, timeout=5)  # for as long it tries to find the scheduler again
            client.wait_for_workers(1, timeout=60)

            def kill() -> None:
                wait_until(lambda: any(is_under_way(job.store) for job in jobs))
                os.kill(scheduler.pid, signal.SIGKILL)

            killing = in_background(kill)
            with pytest.raises(bt.BayesticketError, match="takes no more runs"):
                train_jobs(jobs, executor=client.get_executor())
            killing.join()
            assert not any(RunDirectory(job.store).is_trained_now() for job in jobs)
            assert any(RunDirectory(job.store).read_checkpoint() is not None for job in jobs)
            client.close(timeout=1)
