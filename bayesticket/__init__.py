"""Why do transformers grok? Interventions, measures and fast training for small TransformerLens models.

Names are loaded when they are first used; the stub beside this file lists them.
"""

import lazy_loader

_attribute, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("bayesticket")
    return _attribute(name)
