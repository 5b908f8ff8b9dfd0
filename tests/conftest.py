from pathlib import Path

import pytest
import torch

from bayesticket import notices
from bayesticket.specs import Spec

# The models of the tests are too small to gain from a second thread, and lose much when cores are shared.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    """Every test is a session of its own for what is logged once in a session."""
    monkeypatch.setattr(notices, "SAID", set())


@pytest.fixture
def own_classes():
    """Forgets the classes that a test defines, so that other tests know the library's alone."""
    before = set(Spec.kinds)
    yield
    for name in set(Spec.kinds) - before:
        if not Spec.kinds[name].__module__.startswith("bayesticket."):  # those are loaded when first used
            del Spec.kinds[name]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Where a sweep keeps its runs; not there yet."""
    return tmp_path / "store"
