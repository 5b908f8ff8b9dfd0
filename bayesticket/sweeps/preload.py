"""What the process that workers are forked from imports: everything a worker needs.

That takes seconds. If the program dies meanwhile, the process ends too; it has no threads any more when it is forked.
"""

import os
import threading

from bayesticket.sweeps.process import PARENT

LOOK_EVERY = 0.2
"""Seconds between two looks whether the program is still there."""


def _end_with(parent: int, imported: threading.Event) -> None:
    while os.getppid() == parent:
        if imported.wait(LOOK_EVERY):
            return
    os._exit(1)


_imported = threading.Event()
_watch = threading.Thread(target=_end_with, args=(int(os.environ.get(PARENT, os.getppid())), _imported), daemon=True)
_watch.start()
try:
    import bayesticket.sweeps.worker  # noqa: F401
finally:
    _imported.set()
    _watch.join()
