"""What a run's numbers depend on beside its configuration."""

import platform
from importlib.metadata import version

import torch

from bayesticket.specs import JSON, modules_of


def versions() -> dict[str, str]:
    """Versions, Python, processor and threads."""
    return {
        **{name: version(name) for name in ("bayesticket", "transformer-lens", "numpy")},
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": platform.machine(),
        "threads": str(torch.get_num_threads()),
    }


def own_classes(description: JSON) -> dict[str, str]:
    """The classes of the user's that a configuration names, as an entry of what a run was made with.

    It is what an error needs to say which module has to be imported; no part of the id.
    """
    written = ", ".join(f"{module}.{name}" for name, module in sorted(modules_of(description).items()))
    return {"classes": written} if written else {}


def parse_classes(written: str) -> dict[str, str]:
    """The modules by class from what `own_classes` wrote.

    >>> parse_classes("my_module.Mine, other.place.Other")
    {'Mine': 'my_module', 'Other': 'other.place'}
    """
    parts = [each.rpartition(".") for each in written.split(", ") if each]
    return {name: module for module, _, name in parts}
