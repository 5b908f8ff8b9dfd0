"""Curves in the terminal: what is drawn is what the runs reported, and lines stand where curves cannot be drawn."""

import io

import pytest

from bayesticket.cli.quickstart import LABELS, LiveCurves, configurations, live_curves, sparkline
from bayesticket.sweeps import Job, Lines
from bayesticket.sweeps.progress import Progress, write_progress


@pytest.fixture
def jobs(tmp_path):
    configs = configurations(epochs=100, seed=0, p=5)
    return [Job(LABELS[arm], config, tmp_path / arm) for arm, config in configs.items()]


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


def screen(written):
    """What stands on a terminal that has received this text."""
    lines, row = [""], 0
    place = 0
    while place < len(written):
        if written.startswith("\x1b[2K", place):
            lines[row], place = "", place + 4
        elif written.startswith("\x1b[", place):
            end = written.index("A", place)
            row, place = row - int(written[place + 2 : end]), end + 1
        elif written[place] == "\n":
            row, place = row + 1, place + 1
            lines += [""] * (row + 1 - len(lines))
        else:
            lines[row] += written[place].replace("\r", "")
            place += 1
    return lines


def test_curves_are_drawn_in_place(jobs, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("sys.stderr", stream := Terminal())
    display = LiveCurves(jobs, clock=lambda: 7.0)
    for epoch, accuracy in ((10, 0.0), (50, 0.5), (90, 1.0)):
        write_progress(jobs[1].store, Progress(epoch, 1.0, accuracy, accuracy / 2))
        display.update([jobs[2].name])
    shown = screen(stream.getvalue())
    assert len(shown) == 5  # a title, the three runs, and the empty line that the cursor stands in
    assert shown[0] == "   0 s · test accuracy, epochs 0 to 90"
    assert all(len(line) < 100 for line in shown)
    assert shown[1].endswith("waiting")
    assert "▁▅" in shown[2]
    assert "▅█" in shown[2]
    assert shown[2].startswith("KL to the oracle      ▁")
    assert shown[2].endswith("     90  train 100%, test 100%, unseen 50%")
    assert "ended" in shown[3]


def test_a_message_stands_above_the_curves(jobs, monkeypatch):
    monkeypatch.setattr("sys.stderr", stream := Terminal())
    display = LiveCurves(jobs)
    display.update([])
    display.announce("a run resumes")
    display.update([])
    shown = screen(stream.getvalue())
    assert shown.count("bayesticket: a run resumes") == 1
    assert len(shown) == 10


@pytest.mark.parametrize("last", [1, 99, 4000])
def test_a_sparkline_ends_where_its_points_do(last):
    assert sparkline([], last, 10) == " " * 10
    assert sparkline([(last, 1.0)], last, 10) == "▁" * 9 + "█"
    assert len(sparkline([(epoch, float("nan")) for epoch in range(0, last, 7)], last, 10)) == 10


def test_lines_stand_where_curves_cannot_be_drawn(jobs, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", Terminal())
    assert isinstance(live_curves(jobs), LiveCurves)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(live_curves(jobs), Lines)
    monkeypatch.setenv("TERM", "xterm")
    ascii_only = Terminal()
    ascii_only.encoding = "ascii"
    monkeypatch.setattr("sys.stderr", ascii_only)
    assert isinstance(live_curves(jobs), Lines)
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert isinstance(live_curves(jobs), Lines)
