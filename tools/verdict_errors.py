"""How often the rule of Figure 3 errs: grokking times are simulated from laws that are known, and judged.

python tools/verdict_errors.py --runs 400
python tools/verdict_errors.py --runs 100 --seeds 10 --scatter 0.45
"""

import argparse
from collections import Counter
from collections.abc import Callable

import numpy as np

from bayesticket.analysis import Times
from bayesticket.paper.strengths import LAWS, STRENGTHS, laws_of, verdict_on_law

WORDS = ("reproduced", "not reproduced", "undecided")
END = 10_000
Law = Callable[[float], float]


def added(floor: float, unaided: float, scale: float, exponent: float = 1.0) -> Law:
    """The median time when the prior's rate adds to that without one."""

    def time(strength: float) -> float:
        rate = 1 / (unaided - floor) + strength**exponent / scale
        return floor + 1 / rate if rate else np.inf

    return time


def level(time: float) -> Law:
    """The same time at every strength."""
    return lambda s: time


TRUE: dict[str, Law] = {
    "runs grok without a prior, at 6,000": added(1000, 6000, 60),
    "at 3,000": added(1000, 3000, 60),
    "no run groks without a prior": added(1000, np.inf, 60),
    "no run groks without a prior, floor 2,400": added(2400, np.inf, 100),
}
FALSE: dict[str, Law] = {
    "exponent ½, 6,000 without a prior": added(1000, 6000, 600, 0.5),
    "exponent ½, near the floor at most strengths": added(1000, 6000, 60, 0.5),
    "exponent 2, 6,000 without a prior": added(1000, 6000, 6, 2.0),
    "no effect, 3,000": level(3000),
    "later with strength": lambda s: 2000 + 600 * np.log10((s + 1e-3) / 1e-2),
}


def simulated(law: Law, scatter: float, seeds: int, rng: np.random.Generator) -> dict[float, Times]:
    """Times at each strength, lognormal about a law, rounded to records and censored at the end."""
    times = {}
    for strength in (0.0, *STRENGTHS):
        median = law(strength)
        drawn = np.minimum(median * np.exp(scatter * rng.normal(size=seeds)), 1e9)
        epochs = np.maximum(20 * np.ceil(drawn / 20), 20)
        times[strength] = Times(np.minimum(epochs, END).astype(float), epochs <= END)
    return times


def main() -> None:
    """Prints a table: for each law, how often the rule gives each of its words."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400, help="simulated experiments for each law")
    parser.add_argument("--seeds", type=int, default=5, help="runs at each strength")
    parser.add_argument("--scatter", type=float, nargs="+", default=[0.1, 0.25], help="standard deviation of log T")
    given = parser.parse_args()
    print("| the law | scatter | fit | reproduced | not reproduced | undecided |\n|---|---|---|---|---|---|")
    for linear, laws in (("linear", TRUE), ("not linear", FALSE)):
        for name, law in laws.items():
            for scatter in given.scatter:
                rng = np.random.default_rng(0)
                counts = {fit: Counter() for fit in list(LAWS)[:2]}
                for _ in range(given.runs):
                    found = laws_of(simulated(law, scatter, given.seeds, rng))
                    for fit, count in counts.items():
                        count[verdict_on_law(found[fit], found["slope"])] += 1
                for fit, count in counts.items():
                    shares = (
                        f"{count[word] / given.runs:.0%}" for word in ("reproduced", "not reproduced", "undecided")
                    )
                    print(f"| {linear}: {name} | {scatter:g} | {LAWS[fit]} | {' | '.join(shares)} |", flush=True)


if __name__ == "__main__":
    main()
