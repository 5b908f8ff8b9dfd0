"""The records of a run: what is measured at some epochs, and the epoch at which they say to stop."""

import math
from collections.abc import Iterator

import pandas as pd

from bayesticket.errors import require_choice
from bayesticket.measures import Column
from bayesticket.runs.config import TrainConfig
from bayesticket.runs.stopping import Record


class Records:
    """The records of a run so far, in order; `records[-1]` is the last one.

    >>> records = Records(TrainConfig(stop_after_grok=100))
    >>> records.add({"epoch": 40, "test_accuracy": 1.0})
    >>> records.stop_at, records.curves()["test_accuracy"].tolist()
    (140, [1.0])
    """

    def __init__(self, config: TrainConfig):
        self._config = config
        self._kept: list[Record] = []
        self.stop_at = math.inf
        """The epoch at which training is to stop; infinite as long as no record has said one."""

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._kept)

    def __getitem__(self, index: int) -> Record:
        return self._kept[index]

    def add(self, record: Record) -> None:
        """Adds a record, and notes the epoch at which training is to stop where the record says one."""
        self._kept.append(record)
        patience, rule = self._config.stop_after_grok, self._config.stop_when
        if patience is not None and record["test_accuracy"] >= self._config.grok_threshold:
            self.stop_at = min(self.stop_at, record["epoch"] + patience)
        if rule is not None:
            require_choice("stop_when.curve", rule.curve, [name for name in record if name != "epoch"])
            self.stop_at = min(self.stop_at, rule.stop_epoch(self._kept))

    def clear(self) -> None:
        """Takes back all records, before those of a checkpoint are added."""
        self._kept, self.stop_at = [], math.inf

    def curves(self) -> pd.DataFrame:
        """What was recorded, labelled by epoch; NaN where a record lacks a measure that others have."""
        index = pd.Index([int(record["epoch"]) for record in self], name="epoch", dtype="int64")
        names = {name for record in self for name in record if name != "epoch"}
        names = sorted(names, key=lambda name: Column.parse(name).order)
        columns = {name: [record.get(name, math.nan) for record in self] for name in names}
        return pd.DataFrame(columns, index=index, dtype="float64")
