"""Random streams that depend on a seed and a purpose alone, never on the global generator."""

import hashlib

import torch


def seeded_generator(seed: int, purpose: str, device: str | torch.device = "cpu") -> torch.Generator:
    """A generator for one purpose, independent of the generators for all other purposes of the same seed.

    >>> draws = [torch.rand(1, generator=seeded_generator(0, name)).item() for name in ("split", "split", "noise")]
    >>> draws[0] == draws[1], draws[0] == draws[2]
    (True, False)
    """
    digest = hashlib.sha256(f"{purpose}\0{seed}".encode()).digest()
    # manual_seed takes at most 63 bits
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "big") >> 1)
