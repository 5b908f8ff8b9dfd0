"""Sweeps: many runs at once, in processes or over any executor, and the dataset of their curves."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
