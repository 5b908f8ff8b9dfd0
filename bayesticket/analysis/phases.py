"""The phases of a run, read off its recorded curves."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from bayesticket.errors import refuse, refuse_name, require_integer, require_number
from bayesticket.runs import MEMORISED, TrainConfig, first_epoch

WINDOW = 11
"""The number of records over which gradient and divergence are smoothed by default."""


@dataclass(frozen=True)
class Phases:
    """The borders between the phases of a run (Section 5.1), as recorded epochs; None for a border not reached.

    >>> print(Phases(memorised=720, plateau=800, resurgence=None, grokked=None))
    memorised at 720, plateau from 800, resurgence not reached, grokking not reached
    """

    memorised: int | None
    """Phase 1 is complete: training accuracy reaches the threshold."""
    plateau: int | None
    """Phase 2 begins: the attention gradient has collapsed."""
    resurgence: int | None
    """Phase 3 begins: the attention gradient has risen again, and attention moves to the oracle."""
    grokked: int | None
    """Phase 4 begins: test accuracy reaches the threshold."""

    def __str__(self) -> str:
        def shown(phase: str, reached: str, epoch: int | None) -> str:
            return f"{phase} not reached" if epoch is None else f"{reached} {epoch:,}"

        return ", ".join(
            [
                shown("memorisation", "memorised at", self.memorised),
                shown("plateau", "plateau from", self.plateau),
                shown("resurgence", "resurgence from", self.resurgence),
                shown("grokking", "grokked at", self.grokked),
            ]
        )

    def spans(self, first: int, last: int) -> dict[str, tuple[int, int]]:
        """The first and the last epoch of each phase, from `first` to `last`; phases not reached are left out.

        A phase ends where the next phase that is reached begins. Memorisation is the first phase; it lasts until the
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
    memorising: float = MEMORISED,
    grokking: float = TrainConfig.grok_threshold,
    collapse: float = 0.5,
    rise: float = 2.0,
    fall: float = 0.5,
    window: int = WINDOW,
    gradient: str = "attention_gradient",
    divergence: str = "kl_to_oracle",
) -> Phases:
    """Finds the borders between the phases of a run in its recorded curves, which are labelled by epoch.

    Gradient and divergence are smoothed first: each record is replaced by the median of the `window` records around it
    (fewer at the ends), so that a spike shorter than half a window moves no border. With `g` and `D` the smoothed
    curves, each border is the first recorded epoch at which its condition holds:

    - memorised: `train_accuracy ≥ memorising`;
    - plateau: the run has memorised, and `g ≤ collapse · max(g)` over all records so far;
    - resurgence: the plateau has begun, and at the same record `g ≥ rise · min(g)` over the records since the plateau
      began, and `D ≤ fall · D(memorised)`;
    - grokked: `test_accuracy ≥ grokking`.

    Plateau and resurgence are only looked for before grokking: the gradient of a model that has grokked does not count,
    and a run that has grokked when it memorises has neither. A gradient or divergence that is 0 throughout, as under
    frozen attention, neither collapses nor falls. Under a strong prior the divergence is close to 0 long before the run
    memorises, and the rest of it need not fall to half; resurgence is then often not reached.

    `gradient` and `divergence` name the columns to read, for example those of another layer.
    """
    require_number("memorising", memorising, above=0.0)
    require_number("grokking", grokking, above=0.0)
    require_number("collapse", collapse, above=0.0, below=1.0)
    require_number("rise", rise, above=1.0)
    require_number("fall", fall, above=0.0, below=1.0)
    require_integer("window", window, least=1)
    if window % 2 == 0:
        raise refuse("window", window, "an odd number of records, centred on one")
    for name in ("train_accuracy", "test_accuracy", gradient, divergence):
        if name not in curves:
            raise refuse_name("curves", name, list(curves))

    epochs = curves.index.to_numpy()

    def first(holds: Bool[np.ndarray, " records"]) -> int | None:
        return first_epoch(pd.Series(holds, index=curves.index))

    memorised = first(curves["train_accuracy"].to_numpy() >= memorising)
    grokked = first(curves["test_accuracy"].to_numpy() >= grokking)
    plateau = resurgence = None
    if memorised is not None:
        between = (epochs >= memorised) & (epochs < (np.inf if grokked is None else grokked))
        g, d = _smoothed(curves, gradient, window), _smoothed(curves, divergence, window)
        peak = np.fmax.accumulate(g)
        plateau = first(between & (peak > 0) & (g <= collapse * peak))
        if plateau is not None:
            least = np.fmin.accumulate(np.where(epochs >= plateau, g, np.nan))  # nan, so never risen, before it
            risen = (g > 0) & (g >= rise * least)
            at_memorised = d[epochs == memorised]
            fallen = (at_memorised > 0) & (d <= fall * at_memorised)
            resurgence = first(between & risen & fallen)
    return Phases(memorised, plateau, resurgence, grokked)


def _smoothed(curves: pd.DataFrame, name: str, window: int) -> Float[np.ndarray, " records"]:
    return curves[[name]].rolling(window, center=True, min_periods=1).median().to_numpy()[:, 0]
