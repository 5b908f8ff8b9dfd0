"""`bayesticket quickstart`: three models at full scale, their curves while they are trained, and a page about them.

`arms` says what is trained and when it is stopped, `live` draws curves in the terminal, `account` puts the numbers into
words and a table, `report` makes the page, and `start` is the command.
"""

from bayesticket.cli.quickstart.account import findings, rows_of, table_of
from bayesticket.cli.quickstart.arms import LABELS, configurations, rule_of
from bayesticket.cli.quickstart.live import LiveCurves, live_curves, sparkline
from bayesticket.cli.quickstart.report import readme_picture, write_report
from bayesticket.cli.quickstart.start import Quickstart, quickstart

__all__ = [
    "LABELS",
    "LiveCurves",
    "Quickstart",
    "configurations",
    "findings",
    "live_curves",
    "quickstart",
    "readme_picture",
    "rows_of",
    "rule_of",
    "sparkline",
    "table_of",
    "write_report",
]
