"""Losses with and without the key frequencies of a cyclic group; see `spectrum` for which these are."""

from collections.abc import Iterable
from typing import get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from bayesticket.errors import refuse, require_choice, require_flag, require_integer, require_number
from bayesticket.measures.base import Observation
from bayesticket.measures.groups import Group, operands_of
from bayesticket.measures.spectrum import KEYS_OF, FourierMeasure, Spectrum, shares_of
from bayesticket.measures.waves import Directions, fit, keys_of, operand_products, waves
from bayesticket.model import HookedTransformer
from bayesticket.specs import spec
from bayesticket.tasks import Examples


@spec(kw_only=True)
class FrequencyLoss(FourierMeasure):
    """Base of the losses with and without the key frequencies."""

    keys: tuple[int, ...] | None = None
    """The key frequencies, from 1 to ⌊p/2⌋; None for those of the spectrum `of`, found as `key_frequencies` does."""
    together: bool = True
    """All key frequencies at once, or one at a time: each of `keys`, or each from 1 to ⌊p/2⌋ where `keys` is None."""
    directions: Directions = "sum"
    """What a frequency stands for: its waves of the sum, or all products of its waves of the operands."""
    of: Spectrum = KEYS_OF
    """The spectrum that says which frequencies are key, where `keys` is None; as in `KeyFrequencyCount`."""
    above: float = 3.0
    """What the rule of `KeyFrequencyCount` calls `above`, where `keys` is None."""

    def __post_init__(self):
        require_choice("of", self.of, get_args(Spectrum))
        require_choice("directions", self.directions, get_args(Directions))
        require_number("above", self.above, least=1)
        require_flag("together", self.together)
        if self.keys is not None:
            if not isinstance(self.keys, list | tuple):
                raise refuse("keys", self.keys, "None, or different whole numbers from 1, such as (4, 11)")
            for key in self.keys:
                require_integer("keys", key, least=1)
            if len(set(self.keys)) < len(self.keys):
                raise refuse("keys", self.keys, "different frequencies")
            object.__setattr__(self, "keys", tuple(self.keys))
            if not self.keys and not self.together:
                raise refuse("keys", self.keys, "at least one frequency, or None, where together=False")

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Raises for data of no cyclic group, frequencies it lacks, and more directions than examples."""
        super().check(model, batch)
        p = model.cfg.d_vocab_out
        if self.keys and max(self.keys) > p // 2:
            raise refuse(f"{type(self).__name__}.keys", self.keys, f"frequencies from 1 to ⌊p/2⌋ = {p // 2}")
        k = operands_of(type(self).__name__, batch).shape[1]
        n_directions = 2**k * (len(self.keys or ()) if self.together and self.keys else 1)
        if self.directions == "products" and n_directions >= len(batch):
            raise refuse(
                f"{type(self).__name__}.directions",
                self.directions,
                f"'sum': the {n_directions} products of the waves of {k} operands fit any {len(batch)} examples",
            )

    def labels(self, model: HookedTransformer) -> tuple[str, ...]:
        """The frequencies, where there is one loss for each."""
        return () if self.together else tuple(str(w) for w in self._single_frequencies(model.cfg.d_vocab_out))

    def _single_frequencies(self, p: int) -> Iterable[int]:
        return range(1, p // 2 + 1) if self.keys is None else self.keys

    def _parts(self, seen: Observation, group: Group) -> list[Float[Tensor, "m outputs"]]:
        """The fits of the logits that are kept or removed: one by the key frequencies, or one by every frequency."""
        if self.together:
            sets = [keys_of(shares_of(seen, self.of, group), self.above) if self.keys is None else self.keys]
        else:
            sets = [(w,) for w in self._single_frequencies(seen.logits.shape[1])]
        logits = group.of_elements(seen.logits)
        return [fit(logits, self._directions(group, keys)) for keys in sets]

    def _directions(self, group: Group, keys: Iterable[int]) -> Float[Tensor, "m directions"]:
        if self.directions == "sum":
            return waves(group.results, group.order, keys)
        return operand_products(group.operands, group.order, keys)

    def _losses(self, logits: list[Float[Tensor, "m outputs"]], seen: Observation, group: Group) -> Float[Tensor, "*_"]:
        targets = group.of_elements(seen.batch.targets)
        losses = torch.stack([F.cross_entropy(each, targets) for each in logits])
        return losses[0] if self.together else losses


@spec(kw_only=True)
class RestrictedLoss(FrequencyLoss):
    """Loss of the logits' part at the key frequencies alone: a number, or a vector where not `together`.

    Each logit, as a function of the example, is replaced by its least-squares fit by 1 and the directions
    `cos(w(a+b))`, `sin(w(a+b))` of the key frequencies w. Once the model adds by waves this loss is low, and it falls
    before the test loss does; until then it is `log p` or more. Where it is high and the whole loss is low, the answer
    does not come from these waves. The wave of the sum is that of the target; where the batch multiplies modulo a prime
    it is that of the target's discrete logarithm, and examples with a zero are left out.

    Implementations of the progress-measures paper (Nanda et al. 2023) differ in four choices:

    - `together=True` keeps all key frequencies at once, as the paper does; `together=False` keeps one at a time and
      gives a vector, with an entry for each of `keys`, or for each of the `⌊p/2⌋` frequencies where none are given.
    - `directions="sum"` are the two waves of the sum, as in the paper's code; `"products"` are all four products of the
      waves of a and b, the 2×2 blocks of the paper's text, which keep the waves of `a − b` too.
    - `keys=None` takes the key frequencies of the model at that moment, which `KeyFrequencyCount` counts; the paper
      uses those of the final model throughout, which is `keys=bt.key_frequencies(run.model, batch)`. Without any, only
      the mean logits are left.
    - The paper projects over all p² pairs. Here the fit is over the batch, by default the test half; it is by least
      squares because waves are not quite orthogonal on a sample. On the full grid the two are the same. On the train
      half this loss means little: the logits of a model that memorises have every wave of the sum.

    Costs 1 to 5 ms together at p = 113, less than a training epoch; one at a time, 20 to 30 training epochs for all
    56 frequencies.
    """

    halves = ("test",)

    def value(self, seen: Observation) -> Float[Tensor, "*entries"]:
        """The loss, or losses."""
        group = self.group(seen)
        return self._losses(self._parts(seen, group), seen, group)


@spec(kw_only=True)
class ExcludedLoss(FrequencyLoss):
    """Loss of the logits without their part at the key frequencies: a number, or a vector where not `together`.

    That part is the one that `RestrictedLoss` keeps, with the same fields and choices; the mean logit stays. Recorded
    on the train half: it falls while the model memorises, and rises above the train loss once the answer depends on the
    key frequencies instead. `together=False` leaves out one frequency at a time; the paper's code has both, and some
    implementations average the losses without each of the key frequencies.

    Costs 1 to 5 ms together at p = 113, less than a training epoch; one at a time, 20 to 30 training epochs for all
    56 frequencies.
    """

    halves = ("train",)

    def value(self, seen: Observation) -> Float[Tensor, "*entries"]:
        """The loss, or losses."""
        group = self.group(seen)
        logits = group.of_elements(seen.logits)
        return self._losses([logits - part + logits.mean(0) for part in self._parts(seen, group)], seen, group)
