"""Attention sites: the layers, heads and query whose attention an intervention changes or a measure reads."""

import itertools
from dataclasses import replace
from typing import Literal, TypeVar

from jaxtyping import Float
from torch import Tensor

from bayesticket.errors import refuse, refuse_case, require_integer
from bayesticket.model import HookedTransformer, pattern_name, require_head, require_layer, scores_name
from bayesticket.specs import spec
from bayesticket.tasks import Examples

Site = TypeVar("Site", bound="AttentionSite")


@spec(kw_only=True)
class AttentionSite:
    """The layers, heads and query of an intervention or a measure."""

    layer: int | tuple[int, ...] | Literal["each"] = 0
    """Layer or layers, taken together; "each" for a curve of each layer of the model."""
    head: int | tuple[int, ...] | Literal["each"] | None = None
    """Head or heads, taken together; None for all, "each" for a curve of each."""
    query: int | Literal["each"] = -1
    """Position of the query: by default the last, where the tasks read the answer; of a task that asks at several
    positions, by default all of those whose answers can be known, and "each" for a curve of each."""

    def __post_init__(self):
        for name in ("layer", "head"):
            given = getattr(self, name)
            if given != "each" and (name == "layer" or given is not None):
                require_places(name, given)
            if isinstance(given, list):
                object.__setattr__(self, name, tuple(given))
        require_query("query", self.query)

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers as a tuple."""
        if self.layer == "each":
            raise refuse_case(f"{type(self).__name__}.layer", "'each', which no model has been asked for", _NUMBERS)
        return (self.layer,) if isinstance(self.layer, int) else tuple(self.layer)

    @property
    def heads(self) -> list[int] | None:
        """The heads as a list, None for all."""
        if self.head == "each":
            raise refuse_case(f"{type(self).__name__}.head", "'each', which no model has been asked for", _NUMBERS)
        return [self.head] if isinstance(self.head, int) else None if self.head is None else list(self.head)

    def at_each_place(self: Site, model: HookedTransformer) -> dict[str, Site]:
        """The same at every place of a model that "each" stands for, by labels such as `L1`, `H0`, `L1H0`.

        Where the model has several layers, the label says the layer that `layer` is by default.

        >>> from bayesticket.model import build_model
        >>> from bayesticket.tasks import ModularAddition
        >>> list(AttentionSite(head="each").at_each_place(build_model(ModularAddition(p=7), n_heads=4)))
        ['H0', 'H1', 'H2', 'H3']
        """
        names_layer = self.layer == "each" or (self.layer == 0 and model.cfg.n_layers > 1)
        names_head = self.head == "each"
        if "each" not in (self.layer, self.head):
            return {place_label(self.layer if names_layer else None, None): self}
        layers = list(range(model.cfg.n_layers)) if self.layer == "each" else [self.layer]
        heads = list(range(model.cfg.n_heads)) if names_head else [self.head]
        places: dict[str, Site] = {}
        for layer, head in itertools.product(layers, heads):
            label = place_label(layer if names_layer else None, head if names_head else None)
            places[label] = replace(self, layer=layer, head=head)
        return places

    @property
    def position(self) -> int:
        """The query as a number."""
        if isinstance(self.query, str):
            accepted = "a position; negative ones count from the end"
            raise refuse_case(f"{type(self).__name__}.query", "'each', which no batch has been asked for", accepted)
        return self.query

    def at_queries(self, batch: Examples) -> "tuple[AttentionSite, ...]":
        """The site at each of the queries that it means on a batch: itself, where answers are read at the end alone.

        On a batch with `queries`, by default at every query whose answer can be known; at another position, if told.
        """
        if batch.queries is None:
            return (self,)
        self._require_position(batch.n_positions)
        meant = batch.answerable if self.position == -1 else (self.position % batch.n_positions,)
        return tuple(AttentionSite(layer=self.layer, head=self.head, query=query) for query in meant)

    def rows(self, pattern: Float[Tensor, "n H query key"]) -> Float[Tensor, "n heads key"]:
        """The attention at this site, of its heads at its query."""
        rows = pattern[:, :, self.row(pattern)]
        return rows if self.heads is None else rows[:, self.heads]

    def row(self, pattern: Float[Tensor, "n H query key"]) -> int:
        """The index of the site's query on the pattern's query axis, which has length 1 in the query-only forward."""
        return -1 if pattern.shape[2] == 1 else self.position

    def why_full(self, n_positions: int) -> str | None:
        """Why the query-only forward does not compute the attention at this site, or None if it does."""
        if self.query == "each" or self.query % n_positions == n_positions - 1:
            return None
        return f"{type(self).__name__} reads query {self.query}, and the query-only forward computes only the last"

    def pattern_names(self) -> tuple[str, ...]:
        """The names of the hook points of the layers' attention patterns."""
        return tuple(pattern_name(layer) for layer in self.layers)

    def scores_names(self) -> tuple[str, ...]:
        """The names of the hook points of the layers' attention scores."""
        return tuple(scores_name(layer) for layer in self.layers)

    def require_place(self, model: HookedTransformer, n_positions: int) -> None:
        """Raises unless the model has these layers and heads, and the sequences this query."""
        self._require_position(n_positions)
        for layer in self.layers:
            require_layer(model, layer, f"{type(self).__name__}.layer")
        for head in self.heads or ():
            require_head(model, head, f"{type(self).__name__}.head")

    def _require_position(self, n_positions: int) -> None:
        if self.query != "each" and not -n_positions <= self.query < n_positions:
            raise refuse("query", self.query, f"a position of the sequence, 0 to {n_positions - 1}")


def place_label(layer: object, head: object, query: object = None) -> str:
    """How a layer, a head, a query, or a head of a layer is called; None for what the label leaves out.

    >>> place_label(1, None), place_label(None, 0), place_label(1, 0), place_label(None, 0, 12)
    ('L1', 'H0', 'L1H0', 'H0Q12')
    """
    named = (("L", layer), ("H", head), ("Q", query))
    return "".join(f"{letter}{place}" for letter, place in named if place is not None)


_NUMBERS = "numbers, such as (0, 1)"


def require_query(field: str, given: object) -> None:
    """Raises unless given a position, or "each"."""
    if given != "each" and (isinstance(given, bool) or not isinstance(given, int)):
        raise refuse(field, given, "a position; negative ones count from the end")


def require_places(field: str, given: object) -> None:
    """Raises unless given one or several different whole numbers of at least 0."""
    places = given if isinstance(given, tuple | list) else (given,)
    for place in places:
        require_integer(field, place, least=0)
    if not places or len(set(places)) < len(places):
        raise refuse(field, given, "one or several different whole numbers")
