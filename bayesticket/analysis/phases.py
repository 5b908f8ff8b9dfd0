"""The phases of a run (Section 5.1), read off its recorded curves, in two ways.

`find_phases` reads plateau and resurgence off the gradient in the attention, `find_phases_by_norm` off the training
loss and the norm of the MLP.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from bayesticket.errors import refuse, require_choice, require_integer, require_number
from bayesticket.runs import MEMORISED, TrainConfig, first_epoch, refuse_unrecorded, require_threshold

WINDOW = 11
"""The number of records over which curves are smoothed by default."""
CONTRACTING = 0.99
"""The norm of the MLP contracts once it is at most this share of its peak: more than rounding can do."""


@dataclass(frozen=True)
class Phases:
    """The borders between the phases of a run, as recorded epochs; None for a border not reached.

    >>> print(Phases(memorised=720, plateau=800, resurgence=None, grokked=None))
    memorised at 720, plateau from 800, resurgence not reached, grokking not reached
    """

    memorised: int | None
    """Phase 1 is complete: training accuracy reaches the threshold."""
    plateau: int | None
    """Phase 2 begins: the attention gradient has collapsed; or training loss is near zero and the norm contracts."""
    resurgence: int | None
    """Phase 3 begins: the gradient, or training loss at a smaller norm, has risen again, and attention has moved."""
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
        plateau begins.

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
    curve: str = "test_accuracy",
) -> Phases:
    """Finds the borders between the phases of a run by the gradient in the attention.

    The curves are labelled by epoch. Gradient and divergence are `smoothed` first, so that a spike shorter than half a
    window moves no border. With `g` and `D` the smoothed curves, each border is the first recorded epoch at which its
    condition holds:

    - memorised: `train_accuracy ≥ memorising`;
    - plateau: the run has memorised, and `g ≤ collapse · max(g)` over all records so far;
    - resurgence: the plateau has begun, and at the same record `g ≥ rise · min(g)` over the records since the plateau
      began, and `D ≤ fall · D(memorised)`;
    - grokked: `test_accuracy ≥ grokking`, or with `curve="unseen_accuracy"` that of unseen examples.

    Plateau and resurgence are only looked for before grokking: the gradient of a model that has grokked does not count,
    and a run that has grokked when it memorises has neither. A gradient or divergence that is 0 throughout, as under
    frozen attention, neither collapses nor falls. Under a strong prior the divergence is close to 0 long before the run
    memorises, and the rest of it need not fall to half; resurgence is then often not reached.

    `gradient` and `divergence` name the columns to read, for example those of another layer.
    """
    require_number("collapse", collapse, above=0.0, below=1.0)
    require_number("rise", rise, above=1.0)
    require_number("fall", fall, above=0.0, below=1.0)
    recorded = _Recorded(curves, memorising, grokking, window, curve)
    g, d = recorded.smoothed(gradient), recorded.smoothed(divergence)
    peak = np.fmax.accumulate(g)
    plateau = recorded.first((peak > 0) & (g <= collapse * peak))
    risen = (g > 0) & (g >= rise * recorded.least_since(plateau, g))
    return recorded.phases(plateau, recorded.first(risen & recorded.fallen(d, fall)))


def find_phases_by_norm(
    curves: pd.DataFrame,
    *,
    memorising: float = MEMORISED,
    grokking: float = TrainConfig.grok_threshold,
    small: float = 0.05,
    shrink: float = 0.8,
    rise: float = 1.1,
    fall: float = 0.5,
    window: int = WINDOW,
    loss: str = "train_loss",
    norm: str = "mlp_norm",
    divergence: str = "kl_to_oracle",
    curve: str = "test_accuracy",
) -> Phases:
    """Finds the borders between the phases of a run by training loss and the norm of the MLP, as Section 5.1 has them.

    With `L`, `n` and `D` loss, norm and divergence, smoothed as in `find_phases`, each border is the first recorded
    epoch at which its condition holds:

    - memorised: `train_accuracy ≥ memorising`;
    - plateau: the run has memorised, and at the same record `L ≤ small · L₀`, the loss is near zero (`L₀` is the first
      recorded loss, as it is), and `n ≤ 0.99 · max(n)` over all records so far, the norm contracts;
    - resurgence: the plateau has begun, and at the same record `n ≤ shrink · max(n)` over all records so far, the norm
      has come down, `L ≥ rise · min(L)` over the records since the plateau began, the loss has risen again, and
      `D ≤ fall · D(memorised)`, attention has moved to the oracle;
    - grokked: as in `find_phases`, and plateau and resurgence are only looked for before it.

    No condition refers to grokking or to the end of a run, so that runs that never grok are judged by the same rules.
    Without weight decay, or with the norm held, the norm does not contract, and there is no plateau.

    >>> epochs = pd.Index(range(0, 1000, 10))
    >>> curves = pd.DataFrame({"train_accuracy": 1.0, "test_accuracy": 0.1, "kl_to_oracle": 1.0}, index=epochs)
    >>> curves["train_loss"], curves["mlp_norm"] = 4.7 * 0.99**epochs, 30 * 0.999**epochs
    >>> print(find_phases_by_norm(curves))
    memorised at 0, plateau from 300, resurgence not reached, grokking not reached
    """
    require_number("small", small, above=0.0, below=1.0)
    require_number("shrink", shrink, above=0.0, below=1.0)
    require_number("rise", rise, above=1.0)
    require_number("fall", fall, above=0.0, below=1.0)
    recorded = _Recorded(curves, memorising, grokking, window, curve)
    losses, n, d = recorded.smoothed(loss), recorded.smoothed(norm), recorded.smoothed(divergence)
    peak = np.fmax.accumulate(n)
    plateau = recorded.first((losses <= small * recorded.begins_at(loss)) & (n <= CONTRACTING * peak))
    risen = (losses > 0) & (losses >= rise * recorded.least_since(plateau, losses))
    return recorded.phases(plateau, recorded.first((n <= shrink * peak) & risen & recorded.fallen(d, fall)))


def smoothed(curves: pd.DataFrame, names: Iterable[str], window: int = WINDOW) -> pd.DataFrame:
    """Some curves with each record replaced by the median of the `window` records around it, of fewer at the ends.

    >>> smoothed(pd.DataFrame({"loss": [1.0, 9.0, 2.0, 3.0]}), ["loss"], window=3)["loss"].tolist()
    [5.0, 2.0, 3.0, 2.5]
    """
    return pd.DataFrame(curves[list(names)].rolling(window, center=True, min_periods=1).median())


class _Recorded:
    """The recorded curves of a run, and the part of it in which plateau and resurgence are looked for."""

    def __init__(self, curves: pd.DataFrame, memorising: float, grokking: float, window: int, curve: str):
        if not isinstance(curves, pd.DataFrame):
            raise refuse("curves", curves, "a DataFrame of curves, such as run.curves")
        require_threshold("memorising", memorising, "train_accuracy", above=0.0)
        require_threshold("grokking", grokking, curve, above=0.0)
        require_integer("window", window, least=1)
        if window % 2 == 0:
            raise refuse("window", window, "an odd number of records, centred on one")
        self.curves, self.window = curves, window
        self.epochs = curves.index.to_numpy()
        self.memorised = first_epoch(self._curve("train_accuracy") >= memorising)
        accuracy = self._curve(curve)
        if len(accuracy) and accuracy.isna().all():
            raise refuse_unrecorded(curve, "this run")
        self.grokked = first_epoch(accuracy >= grokking)
        since = np.inf if self.memorised is None else self.memorised
        self.between = (self.epochs >= since) & (self.epochs < (np.inf if self.grokked is None else self.grokked))

    def _curve(self, name: str) -> pd.Series:
        require_choice("curves", name, list(self.curves))
        return pd.Series(self.curves[name])

    def smoothed(self, name: str) -> Float[np.ndarray, " records"]:
        """The running median of a curve."""
        return smoothed(self._curve(name).to_frame(name), [name], self.window)[name].to_numpy()

    def begins_at(self, name: str) -> Float[np.ndarray, " first"]:
        """The first record of a curve, as it is; empty where nothing was recorded."""
        return self._curve(name).to_numpy(dtype=float)[:1]

    def first(self, holds: Bool[np.ndarray, " records"]) -> int | None:
        """The first epoch between memorising and grokking at which a condition holds."""
        return first_epoch(pd.Series(holds & self.between, index=self.curves.index))

    def least_since(self, epoch: int | None, values: Float[np.ndarray, " records"]) -> Float[np.ndarray, " records"]:
        """The least value so far since an epoch; NaN, which nothing exceeds, before it."""
        since = self.epochs >= (np.inf if epoch is None else epoch)
        return np.fmin.accumulate(np.where(since, values, np.nan))

    def fallen(self, divergence: Float[np.ndarray, " records"], share: float) -> Bool[np.ndarray, " records"]:
        """Whether the divergence has fallen to a share of what it was when the run memorised."""
        at_memorised = divergence[self.epochs == self.memorised]
        return (at_memorised > 0) & (divergence <= share * at_memorised) if len(at_memorised) else self.between

    def phases(self, plateau: int | None, resurgence: int | None) -> Phases:
        """All four borders."""
        return Phases(self.memorised, plateau, resurgence, self.grokked)
