"""Which task a model was made for, by which it is known what its tokens and positions mean."""

from weakref import WeakKeyDictionary

from transformer_lens import HookedTransformer

from bayesticket.tasks import AbstractTask

_TASKS: "WeakKeyDictionary[HookedTransformer, AbstractTask]" = WeakKeyDictionary()


def made_for(model: HookedTransformer, task: AbstractTask | None) -> HookedTransformer:
    """Remembers which task a model was made for, as long as it lives, and returns it; None is no task."""
    if task is None:
        _TASKS.pop(model, None)
    else:
        _TASKS[model] = task
    return model


def task_of(model: HookedTransformer) -> AbstractTask | None:
    """The task that a model was built for or trained on by this library; None for any other model, and for copies.

    >>> from bayesticket.model import build_model
    >>> from bayesticket.tasks import ModularAddition
    >>> task_of(build_model(ModularAddition(p=7)))
    ModularAddition(p=7)
    """
    return _TASKS.get(model)
