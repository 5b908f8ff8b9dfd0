"""`bayesticket bench`: what a training step costs, as ratios of times taken in turn."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
