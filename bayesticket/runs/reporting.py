"""How far training is: a bar, or a function of the user's."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tqdm import tqdm

from bayesticket.errors import refuse
from bayesticket.runs.config import TrainConfig
from bayesticket.runs.interrupt import Requested
from bayesticket.runs.stopping import StopTraining

ProgressFunction = Callable[[int, Mapping[str, float]], object]
"""Called after every record with the epoch and what was recorded.

To return True, or to raise `StopTraining`, stops the run. A KeyboardInterrupt stops as Ctrl-C does, and any other
exception too, which is then raised.
"""


@dataclass
class Requests:
    """What is asked of training while it is under way, and done between two steps."""

    interrupted: Requested
    stop: bool = False
    error: Exception | None = None


def require_progress(progress: object) -> None:
    """Raises unless `progress` says whether, or how, to show how far training is."""
    if progress is not None and not isinstance(progress, bool) and not callable(progress):
        raise refuse("progress", progress, "True, False, None, or a function of the epoch and what was recorded")


@contextmanager
def reporting(
    progress: bool | ProgressFunction | None, config: TrainConfig, epoch: int, requests: Requests
) -> Iterator[ProgressFunction]:
    """The function to call after every record; a bar on a terminal by default."""
    if callable(progress):

        def call(reached: int, values: Mapping[str, float]) -> None:
            try:
                answer = progress(reached, values)
                requests.stop |= type(answer).__name__ in ("bool", "bool_") and bool(answer)  # NumPy's too
            except StopTraining:
                requests.stop = True
            except KeyboardInterrupt:  # between two steps, so that stopping can be orderly
                requests.interrupted.set()
            except Exception as error:
                requests.error = error

        yield call
        return
    # None leaves it to tqdm: shown on a terminal, silent elsewhere.
    disable = None if progress is None else not progress
    with tqdm(total=config.epochs, initial=epoch, unit="epoch", disable=disable, dynamic_ncols=True) as bar:

        def show(reached: int, values: Mapping[str, float]) -> None:
            accuracies = f"train {values['train_accuracy']:.0%}, test {values['test_accuracy']:.0%}"
            bar.set_postfix_str(accuracies, refresh=False)
            bar.update(reached - bar.n)

        yield show
