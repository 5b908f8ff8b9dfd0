"""The report about the results that come with the library, which takes long to make and many tests look at."""

import contextlib
import io

import pytest

from bayesticket.cli.main import main


@pytest.fixture(scope="session")
def library_report(tmp_path_factory):
    """Where `bayesticket report` writes the report, and what it prints."""
    directory, printed = tmp_path_factory.mktemp("report"), io.StringIO()
    with contextlib.chdir(directory), contextlib.redirect_stdout(printed):
        assert main(["report"]) == 0
    return directory / "report.html", printed.getvalue()
