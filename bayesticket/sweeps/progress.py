"""How far a run has got: a small file beside its directory, which the display of the sweep reads.

It is removed when training ends. A process that is killed leaves it behind, which does no harm.
"""

import contextlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from bayesticket.runs import RunDirectory


@dataclass(frozen=True)
class Progress:
    """How far a run has got."""

    epoch: int = 0
    train_accuracy: float = 0.0
    test_accuracy: float = 0.0
    unseen_accuracy: float | None = None
    """On test examples whose mirror image is not trained on; None where there are none."""

    def __str__(self) -> str:
        """The progress as one short phrase.

        >>> print(Progress(1620, 1.0, 0.0134))
        epoch 1,620, train 100%, test 1%
        """
        return f"epoch {self.epoch:,}, {self.accuracies()}"

    def accuracies(self) -> str:
        """The accuracies alone.

        >>> Progress(1620, 1.0, 0.85, 0.8).accuracies()
        'train 100%, test 85%, unseen 80%'
        """
        unseen = "" if self.unseen_accuracy is None else f", unseen {self.unseen_accuracy:.0%}"
        return f"train {self.train_accuracy:.0%}, test {self.test_accuracy:.0%}{unseen}"

    @classmethod
    def of(cls, epoch: int, record: Mapping[str, float]) -> "Progress":
        """The progress that a record of a run shows."""
        unseen = record.get("unseen_accuracy", math.nan)
        known = None if math.isnan(unseen) else unseen
        return cls(epoch, record["train_accuracy"], record["test_accuracy"], known)


def write_progress(store: Path, progress: Progress) -> None:
    """Writes a run's progress file; readers see the old or the new content, never a part.

    It is not synced to disk, because it need not survive a crash. Where it cannot be written, as on a full disk,
    nothing happens: training goes on.
    """
    temporary = _temporary(store)
    with contextlib.suppress(OSError):
        temporary.write_text(json.dumps(asdict(progress)))
        os.replace(temporary, RunDirectory(store).progress_path)


def read_progress(store: Path) -> Progress | None:
    """Reads a run's progress file; None if there is none, or none that can be read."""
    try:
        content = json.loads(RunDirectory(store).progress_path.read_text())
        unseen = content.get("unseen_accuracy")
        train, test = float(content["train_accuracy"]), float(content["test_accuracy"])
        return Progress(int(content["epoch"]), train, test, None if unseen is None else float(unseen))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def remove_progress(store: Path) -> None:
    """Removes a run's progress file."""
    for path in (RunDirectory(store).progress_path, _temporary(store)):
        path.unlink(missing_ok=True)


def _temporary(store: Path) -> Path:
    """Where the progress file is written first; one name is enough, since only the holder of the lock writes."""
    return RunDirectory(store).progress_path.with_suffix(".progress-partial")
