"""What holds for all tests. Fixtures import the library: the process that hands the tests out does without it."""

import gc
import os
import signal
import sys
from pathlib import Path

import pytest
import shapes

# The models of the tests are too small to gain from a second thread, and lose much when cores are shared.
os.environ["OMP_NUM_THREADS"] = "1"
# Whoever started the tests may ignore signals, as nohup and background jobs of a shell do; processes inherit that.
for name, usual in {"SIGINT": signal.default_int_handler, "SIGHUP": signal.SIG_DFL, "SIGTERM": signal.SIG_DFL}.items():
    if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) is signal.SIG_IGN:
        signal.signal(getattr(signal, name), usual)
shapes.install()


def pytest_collection_finish() -> None:
    """What was imported until here stays; the garbage collector need not look through it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def checks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes are checked, except where the library's own errors have to answer bad input."""
    monkeypatch.setattr(shapes.Switch, "on", {"refusals", "attacks"}.isdisjoint(request.path.parts))


@pytest.fixture(autouse=True)
def own_classes():
    """Forgets the classes that a test defines, so that no test depends on which others its process has run."""
    from bayesticket.specs import Spec

    before = dict(Spec.kinds)
    yield
    modules = {name: sys.modules.get(kind.__module__) for name, kind in Spec.kinds.items()}
    loaded = {name: kind for name, kind in Spec.kinds.items() if getattr(modules[name], name, None) is kind}
    Spec.kinds.clear()
    Spec.kinds.update(before | loaded)


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test is a session of its own for what is logged once in a session."""
    from bayesticket import notices

    monkeypatch.setattr(notices, "SAID", set())


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Where a sweep keeps its runs; not there yet."""
    return tmp_path / "store"
