"""Where values are what the weights make of tokens, so that they can be computed without running the model."""

from collections.abc import Iterable

from bayesticket.errors import refuse_case
from bayesticket.measures.base import Observation
from bayesticket.model import HookedTransformer, is_before_values, own_hooks, require_single_layer


def require_values_of_weights(model: HookedTransformer, field: str) -> None:
    """Raises for models of more than one plain layer, and for those whose own hooks change values."""
    require_single_layer(model, field)
    _require_untouched("a model with hooks of its own on", own_hooks(model), field)


def require_unedited_values(seen: Observation, field: str) -> None:
    """Raises where an intervention changes values."""
    _require_untouched("an intervention that edits", seen.edited, field)


def _require_untouched(what: str, names: Iterable[str], field: str) -> None:
    for name in names:
        if is_before_values(name):
            raise refuse_case(field, f"{what} {name}", "values made by the weights")
