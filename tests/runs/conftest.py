"""What holds for all tests of runs."""

import pytest


@pytest.fixture(autouse=True)
def in_a_place_of_its_own(tmp_path, monkeypatch):
    """Runs that are interrupted without a store are kept below the working directory."""
    monkeypatch.chdir(tmp_path)
