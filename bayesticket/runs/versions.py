"""What a run's numbers depend on beside its configuration."""

import platform
from importlib.metadata import version

import torch


def versions() -> dict[str, str]:
    """Versions, Python, processor and threads."""
    return {
        **{name: version(name) for name in ("bayesticket", "transformer-lens", "numpy")},
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": platform.machine(),
        "threads": str(torch.get_num_threads()),
    }
