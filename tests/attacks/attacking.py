"""How long an attack goes on: briefly among the tests, and `ATTACK` times as long in `make attack`."""

import os

ATTACK = int(os.environ.get("ATTACK", "1"))


def times(n: int) -> int:
    """How often something is tried."""
    return n * ATTACK
