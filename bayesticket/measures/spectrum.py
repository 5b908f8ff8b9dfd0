"""Spectra of a model that computes in a cyclic group: shares of the frequencies, and which frequencies are key.

These measures need a batch over the numbers modulo p: a target that is a sum of whole multiples of the tokens at the
informative positions, or their product modulo a prime. See `groups` for which batches these are, and `waves` for the
mathematics.
"""

from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bayesticket.errors import require_choice, require_integer, require_number
from bayesticket.interventions import require_readable
from bayesticket.measures.base import Measure, Observation
from bayesticket.measures.groups import Group, group_of, require_group
from bayesticket.measures.waves import frequency_norms, frequency_shares, gini, is_key, keys_of, mean_by_sum, waves
from bayesticket.model import HookedTransformer, held, require_weights
from bayesticket.specs import spec
from bayesticket.tasks import Examples

Weights = Literal["embed", "unembed"]
Spectrum = Literal["embed", "unembed", "logits"]
"""What a spectrum is taken of; see `FrequencyShares`."""
KEYS_OF: Spectrum = "logits"
"""The spectrum that says which frequencies are key, unless told otherwise; `KeyFrequencyCount` says why."""


class FourierMeasure(Measure):
    """Base of the measures that need a cyclic group."""

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Raises unless the batch computes in a cyclic group."""
        require_group(type(self).__name__, model, batch)

    def group(self, seen: Observation) -> Group:
        """The group that the observed batch computes in."""
        return group_of(type(self).__name__, seen.batch, seen.logits.shape[1])


@spec
class FrequencyShares(FourierMeasure):
    """How a model's squared Fourier norm is spread over frequencies: a vector of `⌊p/2⌋` shares that sum to 1.

    Entry w, from 1, is `‖part_w‖²_F / Σ_w ‖part_w‖²_F`, where `part_w` is the cosine and sine of frequency w in

    - `of="embed"`: the rows of W_E for the numbers 0 … p − 1, along the number;
    - `of="unembed"`: the columns of W_U, along the output;
    - `of="logits"`: the mean logits of the batch's examples with each target, `(a + b) mod p`, along the target. Their
      mean over the outputs, which does not affect the softmax, is subtracted. A target that the batch lacks counts as
      the mean of the others.

    Where the batch multiplies modulo a prime, the numbers are 1 … p − 1 in the order of their discrete logarithms.

    The constant part is left out. A share near 1 means that the model uses this frequency alone; shares near the even
    share `1 / ⌊p/2⌋` mean that it prefers none. Costs well under a millisecond at p = 113; of the logits, reading them
    once.
    """

    of: Spectrum = "embed"

    def __post_init__(self):
        require_choice("of", self.of, get_args(Spectrum))

    def labels(self, model: HookedTransformer) -> tuple[str, ...]:
        """The frequencies."""
        return tuple(str(w) for w in range(1, model.cfg.d_vocab_out // 2 + 1))

    def value(self, seen: Observation) -> Float[Tensor, "frequencies"]:
        """The shares."""
        return shares_of(seen, self.of, self.group(seen))


@spec
class KeyFrequencyCount(FourierMeasure):
    """The number of key frequencies: a number.

    The shares are those of `FrequencyShares`. From the largest down, a frequency is key as long as its share exceeds
    `above` times the even share of what the larger ones have left, and 1 % of the whole; key frequencies of unequal
    strength are all found. The rule is the same for every p, and finds none in random weights. A model has a few after
    grokking. No share exceeds 1, so there is never a key frequency where `⌊p/2⌋ ≤ above`, at p ≤ 7 by default. Costs
    what the shares cost.

    Here, in `RestrictedLoss`, `ExcludedLoss` and `key_frequencies` the spectrum is by default that of the logits of the
    batch: the frequencies that the answers depend on. `of="embed"` is where the literature reads them by eye. A model
    that has grokked has them in all three spectra, and harmonics of them in W_E (1, 3, 13, and 5, 6, 9 beside them, of
    one that has grokked p = 31). Before that the logits show them first: of the four by which p = 59 is grokked at
    epoch 2,500, W_E has one at epoch 300 and all from 1,250 on, the logits all from 150 on. Where the target is
    2a + 3b, the frequencies of W_E are not those of the sum.
    """

    of: Spectrum = KEYS_OF
    above: float = 3.0
    """A frequency is key where its share exceeds this many times the even share of what larger ones have left."""

    def __post_init__(self):
        require_choice("of", self.of, get_args(Spectrum))
        require_number("above", self.above, least=1)

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The number of key frequencies."""
        shares = shares_of(seen, self.of, self.group(seen))
        return is_key(shares, self.above).sum().to(shares.dtype)


@spec
class FourierGini(FourierMeasure):
    """Gini coefficient of the Fourier norms of W_E over the numbers, or of W_U over the outputs: a number.

    `Σ_{v,w} |n_v − n_w| / (2 m Σ_w n_w)` of the `m = ⌊p/2⌋` norms `n_w = ‖part_w‖_F`. The cosine and sine of a
    frequency count together, so the value does not depend on which token is called 0. (Some authors count them apart,
    and some take the neuron-logit map in place of W_U.) About 0.04 at p = 113 for random weights, in which no frequency
    stands out; up to `1 − 1/m` when few frequencies have all the norm. Costs well under a millisecond.
    """

    of: Weights = "embed"

    def __post_init__(self):
        require_choice("of", self.of, get_args(Weights))

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The coefficient."""
        return gini(frequency_norms(_table(seen.model, self.of, self.group(seen), seen.logits)))


def neuron_frequencies(
    activations: Float[Tensor, "n neuron"], batch: Examples, p: int
) -> tuple[Int[Tensor, "neuron"], Float[Tensor, "neuron"]]:
    """The frequency that each neuron's mean activation, by the first operand, follows most, and its share.

    The share is that of the frequency in the variance of the mean activation over the values of the operand; 0 for a
    neuron that does not vary.

    >>> from bayesticket.tasks import ModularAddition
    >>> batch = ModularAddition(p=7).examples(seed=0)
    >>> follows_two = torch.cos(2 * torch.pi * 2 * batch.tokens[:, :1] / 7)
    >>> neuron_frequencies(follows_two, batch, 7)
    (tensor([2]), tensor([1.]))
    """
    group = group_of("neuron_frequencies", batch, p)
    means = mean_by_sum(group.of_elements(activations), group.operands[:, 0], group.order)
    shares = torch.stack([frequency_shares(means[:, [neuron]]) for neuron in range(means.shape[1])], 1)
    varies = means.std(0) > 1e-6 * means.abs().amax(0)  # what rounding leaves of a constant is no wave
    return shares.argmax(0) + 1, shares.amax(0) * varies


def circle_of(model: HookedTransformer, batch: Examples, frequency: int) -> Float[Tensor, "order 2"]:
    """The embedding of each number in the plane in which it varies with a frequency.

    Of the token embeddings about their mean, the parts along the cosine and the sine of the frequency span the plane.
    A model that uses the frequency has number x at the angle `2π · frequency · x / p`.

    >>> from bayesticket.model import build_model
    >>> from bayesticket.tasks import ModularAddition
    >>> task = ModularAddition(p=7)
    >>> circle_of(build_model(task), task.examples(seed=0), 2).shape
    torch.Size([7, 2])
    """
    require_readable(model, batch)
    require_group("circle_of", model, batch)
    group = group_of("circle_of", batch, model.cfg.d_vocab_out)
    require_integer("frequency", frequency, least=1, most=(group.order - 1) // 2)
    with held(model):
        require_weights("model", model)
        table = model.embed.W_E[group.tokens].detach()
    table = table - table.mean(0)
    waves_of = waves(torch.arange(group.order), group.order, [frequency], table.dtype).to(table.device)
    plane, _ = torch.linalg.qr(table.T @ waves_of)
    signs = torch.sign(((table @ plane) * waves_of).sum(0))  # so that numbers run the same way in every model
    return table @ plane * signs


def key_frequencies(
    model: HookedTransformer,
    batch: Examples,
    *,
    of: Spectrum = KEYS_OF,
    above: float = 3.0,
) -> tuple[int, ...]:
    """The key frequencies of a model, in order, by the rule and the default spectrum of `KeyFrequencyCount`.

    The shares are those of `FrequencyShares`. The batch says which group the model computes in, and is run through it
    only for the shares of the logits. `RestrictedLoss(keys=key_frequencies(run.model, batch))` keeps the frequencies of
    the final model throughout.

    >>> from bayesticket.model import build_model
    >>> from bayesticket.tasks import ModularAddition
    >>> task = ModularAddition(p=31)
    >>> key_frequencies(build_model(task), task.split().test)  # the weights are random
    ()
    """
    require_choice("of", of, get_args(Spectrum))
    require_number("above", above, least=1)
    require_readable(model, batch)
    require_group("key_frequencies", model, batch)
    group = group_of("key_frequencies", batch, model.cfg.d_vocab_out)
    with held(model), torch.no_grad():
        require_weights("model", model)
        logits = model(batch.at(-1).tokens)[:, -1] if of == "logits" else None
        return keys_of(frequency_shares(_table(model, of, group, logits)), above)


def shares_of(seen: Observation, of: Spectrum, group: Group) -> Float[Tensor, "frequencies"]:
    """The shares of the frequencies in one of an observed model's spectra."""
    return frequency_shares(_table(seen.model, of, group, seen.logits))


def _table(
    model: HookedTransformer, of: Spectrum, group: Group, logits: Float[Tensor, "n outputs"] | None
) -> Float[Tensor, "order features"]:
    """What the spectrum is taken of, one row for each element of the group."""
    if of == "embed":
        return model.embed.W_E[group.tokens].detach()
    if of == "unembed":
        return model.unembed.W_U.T[group.tokens].detach()
    assert logits is not None
    means = mean_by_sum(group.of_elements(logits.detach()), group.results, group.order)
    return means - means.mean(1, keepdim=True)
