"""What a run's numbers depend on beside its configuration."""

import logging
import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version

import torch

from bayesticket.notices import notice
from bayesticket.runs.header import MATTER, Header, Part
from bayesticket.specs import JSON, modules_of

log = logging.getLogger("bayesticket")


def versions() -> dict[str, str]:
    """Versions, Python, processor, threads, and how exact products of matrices are."""
    return {
        **_installed(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        "threads": str(torch.get_num_threads()),
        "matmul_precision": torch.get_float32_matmul_precision(),
    }


@cache
def _installed() -> dict[str, str]:
    return {name: version(name) for name in ("bayesticket", "transformer-lens", "numpy")}


Differences = dict[str, tuple[str, str]]
"""By name, the version that a run was trained with, and today's."""


def different_versions(made_with: Mapping[str, str], now: Mapping[str, str]) -> Differences:
    """The versions that matter where a run was trained with others than those of now.

    >>> different_versions({"torch": "2.0", "python": "3.11"}, {"torch": "2.1", "python": "3.11"})
    {'torch': ('2.0', '2.1')}
    """
    known = [name for name in MATTER if name in made_with and name in now]
    return {name: (made_with[name], now[name]) for name in known if made_with[name] != now[name]}


def in_words(differences: Differences) -> str:
    """Differences between versions in words.

    >>> in_words({"torch": ("2.0", "2.1"), "python": ("3.11", "3.12")})
    'torch 2.0, not 2.1; python 3.11, not 3.12'
    """
    return "; ".join(f"{name} {old}, not {new}" for name, (old, new) in differences.items())


def notice_other_versions(header: Header) -> None:
    """Says once in a session that runs were trained with other versions than today's."""
    if differences := different_versions(header.made_with, versions()):
        notice(f"a run was trained with {in_words(differences)}; a new one's last bits may differ from it")


def differences_of(header: Header) -> Differences:
    """Where the versions of any part of a run differ from today's."""
    found: Differences = {}
    for made_with in (*(part.made_with for part in header.earlier), header.made_with):
        found |= different_versions(made_with, versions())
    return found


def parts_before(header: Header, epoch: int) -> tuple[Part, ...]:
    """The parts of a run that goes on from an epoch; logs where versions that matter differ from before."""
    differences = different_versions(header.made_with, versions())
    if not differences or not epoch:
        return header.earlier
    log.warning("%s", f"the run was trained with {in_words(differences)}, until epoch {epoch:,}, from which it goes on")
    return (*header.earlier, Part(epoch, header.made_with))


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
