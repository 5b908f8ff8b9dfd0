"""The phases of a run, found in its recorded curves."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from bayesticket.errors import refuse, refuse_name, require_integer, require_number

WINDOW = 11
"""Records over which gradient and divergence are smoothed, unless told otherwise."""


@dataclass(frozen=True)
class Phases:
    """The borders between a run's phases (§5.1), as recorded epochs; None where one is not reached.

    >>> print(Phases(memorised=720, plateau=800, resurgence=None, grokked=None))
    memorised at 720, plateau from 800, resurgence not reached, grokking not reached
    """

    memorised: int | None
    """Phase 1 has done its work: training accuracy reaches the threshold."""
    plateau: int | None
    """Phase 2 begins: the attention gradient has collapsed."""
    resurgence: int | None
    """Phase 3 begins: the attention gradient has risen again, and attention moves to the oracle."""
    grokked: int | None
    """Phase 4 begins: test accuracy reaches the threshold."""

    def __str__(self) -> str:
        def shown(label: str, word: str, epoch: int | None) -> str:
            return f"{label} not reached" if epoch is None else f"{word} {epoch:,}"

        return ", ".join(
            [
                shown("memorisation", "memorised at", self.memorised),
                shown("plateau", "plateau from", self.plateau),
                shown("resurgence", "resurgence from", self.resurgence),
                shown("grokking", "grokked at", self.grokked),
            ]
        )

    def spans(self, first: int, last: int) -> dict[str, tuple[int, int]]:
        """From where to where each phase lasts, between two epochs; phases that are not reached are left out.

        A phase ends where the next one that is reached begins. Memorisation is the first, and lasts until the
        gradient has collapsed.

        >>> Phases(memorised=720, plateau=800, resurgence=None, grokked=None).spans(0, 1000)
        {'memorisation': (0, 800), 'plateau': (800, 1000)}
        """
        starts = {
            "memorisation": first,
            "plateau": self.plateau,
            "resurgence": self.resurgence,
            "grokking": self.grokked,
        }
        reached = [(name, start) for name, start in starts.items() if start is not None]
        ends = [start for _, start in reached[1:]] + [last]
        return {name: (start, end) for (name, start), end in zip(reached, ends, strict=True)}


def find_phases(
    curves: pd.DataFrame,
    *,
    accuracy: float = 0.99,
    collapse: float = 0.5,
    rise: float = 2.0,
    fall: float = 0.5,
    window: int = WINDOW,
    gradient: str = "attention_gradient",
    divergence: str = "kl_to_oracle",
) -> Phases:
    """The borders of a run's phases, from its recorded curves, labelled by epoch, alone.

    Gradient and divergence are first smoothed, each record replaced by the median of the `window` records around it
    (fewer at the ends), so that a spike shorter than half a window moves no border. With `g` and `D` the smoothed
    curves, the borders are the first recorded epochs at which

    - memorised: `train_accuracy ≥ accuracy`;
    - plateau: memorised, and `g ≤ collapse ·` the most that `g` has been until then;
    - resurgence: the plateau has begun, and at one and the same record `g ≥ rise ·` the least that `g` has been since
      the plateau began, and `D ≤ fall ·` what `D` was when the run memorised;
    - grokked: `test_accuracy ≥ accuracy`.

    Plateau and resurgence come before grokking or not at all: what happens to the gradient of a model that has grokked
    is not counted, and a model that has grokked when it memorises has neither. A gradient or divergence that is 0
    throughout, as under frozen attention, neither collapses nor falls. Under a strong prior the divergence is near 0
    long before the run memorises, and what is left of it need not fall to half: there resurgence is often not reached.

    `gradient` and `divergence` name other columns, such as those of another layer.
    """
    require_number("accuracy", accuracy, above=0.0)
    require_number("collapse", collapse, above=0.0, below=1.0)
    require_number("rise", rise, above=1.0)
    require_number("fall", fall, above=0.0, below=1.0)
    require_integer("window", window, least=1)
    if window % 2 == 0:
        raise refuse("window", window, "an odd number of records, so that they lie evenly around one")
    for name in ("train_accuracy", "test_accuracy", gradient, divergence):
        if name not in curves:
            raise refuse_name("curves", name, list(curves))

    epochs = curves.index.to_numpy()
    memorised = _first(curves["train_accuracy"].to_numpy() >= accuracy)
    grokked = _first(curves["test_accuracy"].to_numpy() >= accuracy)
    g, d = _smooth(curves, gradient, window), _smooth(curves, divergence, window)
    ungrokked = np.arange(len(curves)) < (len(curves) if grokked is None else grokked)

    plateau = resurgence = None
    if memorised is not None:
        peak = np.fmax.accumulate(g)
        plateau = _first(ungrokked & (peak > 0) & (g <= collapse * peak), since=memorised)
    if memorised is not None and plateau is not None:
        least = np.concatenate([np.full(plateau, np.nan), np.fmin.accumulate(g[plateau:])])
        risen = (g > 0) & (g >= rise * least)
        fallen = (d[memorised] > 0) & (d <= fall * d[memorised])
        resurgence = _first(ungrokked & risen & fallen, since=plateau)

    def epoch(place: int | None) -> int | None:
        return None if place is None else int(epochs[place])

    return Phases(epoch(memorised), epoch(plateau), epoch(resurgence), epoch(grokked))


def _smooth(curves: pd.DataFrame, name: str, window: int) -> np.ndarray:
    return curves[[name]].rolling(window, center=True, min_periods=1).median().to_numpy()[:, 0]


def _first(holds: np.ndarray, since: int = 0) -> int | None:
    """The first place, from one on, at which a condition holds."""
    places = np.flatnonzero(holds[since:])
    return since + int(places[0]) if len(places) else None
