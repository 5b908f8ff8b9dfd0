"""The table of the benchmark: what was measured, and whether it meets its targets."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Measurement:
    """A line of the table: what was compared, what was measured, and the target."""

    name: str
    value: str
    ratio: float | None = None
    target: str = ""
    met: bool | None = None


def at_least(name: str, value: str, ratio: float, bound: float) -> Measurement:
    """A measurement whose ratio should not be below a bound."""
    return Measurement(name, value, ratio, f"at least {bound:.2f}", ratio >= bound)


def at_most(name: str, value: str, ratio: float, bound: float) -> Measurement:
    """A measurement whose ratio should not be above a bound."""
    return Measurement(name, value, ratio, f"at most {bound:.2f}", ratio <= bound)


def against(before: float, after: float) -> str:
    """Two times in milliseconds, the changed one first.

    >>> against(0.0620, 0.0091)
    '9.1 ms against 62.0 ms'
    """
    return f"{after * 1e3:.1f} ms against {before * 1e3:.1f} ms"


def format_table(measurements: Sequence[Measurement]) -> str:
    """The measurements as aligned text.

    >>> print(format_table([at_least("speed", "2 ms against 9 ms", 4.5, 6.0), Measurement("heads", "3 ms")]))
    what   measured           ratio  target
    speed  2 ms against 9 ms   4.50  at least 6.00: not met
    heads  3 ms
    """
    header = ("what", "measured", "ratio", "target")
    cells = [header, *((each.name, each.value, _ratio(each), _target(each)) for each in measurements)]
    what, measured, ratio, _ = (max(len(cell) for cell in column) for column in zip(*cells, strict=True))
    return "\n".join(f"{a:<{what}}  {b:<{measured}}  {c:>{ratio}}  {d}".rstrip() for a, b, c, d in cells)


def _ratio(measurement: Measurement) -> str:
    return "" if measurement.ratio is None else f"{measurement.ratio:.2f}"


def _target(measurement: Measurement) -> str:
    verdict = {True: "met", False: "not met", None: ""}[measurement.met]
    return ": ".join(part for part in (measurement.target, verdict) if part)
