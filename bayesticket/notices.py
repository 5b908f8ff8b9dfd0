"""What is logged once in a session, however many runs and measurements it concerns."""

import logging

log = logging.getLogger("bayesticket")
SAID: set[str] = set()
"""What this process has logged; worker processes of a sweep send theirs to the process that started it."""


def notice(message: str) -> None:
    """Logs a warning, unless it has been logged before."""
    if message not in SAID:
        SAID.add(message)
        log.warning("%s", message)
