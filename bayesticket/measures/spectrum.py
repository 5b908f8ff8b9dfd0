"""Spectra of a model that adds modulo p: shares of the frequencies, and which frequencies are key.

These measures need a batch of modular addition: the target is the sum modulo p of the tokens at the informative
positions, and these positions are the same in every sequence. See `waves` for the mathematics.
"""

from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bayesticket.errors import BayesticketError, refuse_case, require_number
from bayesticket.measures.base import Measure, Observation, require_choice
from bayesticket.measures.waves import frequency_norms, frequency_shares, gini, is_key, keys_of, mean_by_sum
from bayesticket.model import HookedTransformer
from bayesticket.specs import spec
from bayesticket.tasks import Examples

Weights = Literal["embed", "unembed"]
Spectrum = Literal["embed", "unembed", "logits"]
"""What a spectrum is taken of; see `FrequencyShares`."""


def operands_of(batch: Examples) -> Int[Tensor, "n k"]:
    """The tokens at the informative positions, which are the same in every sequence."""
    return batch.tokens[:, batch.informative[0]]


class FourierMeasure(Measure):
    """Base of the measures that need modular addition."""

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Raises unless the target is the sum modulo p of the tokens at fixed positions."""
        require_modular_addition(type(self).__name__, model, batch)


def require_modular_addition(reader: str, model: HookedTransformer, batch: Examples) -> None:
    """Raises unless the target is the sum modulo p of the tokens at fixed positions."""
    p = model.cfg.d_vocab_out
    accepted = (
        "a batch of modular addition, such as ModularAddition's or KOperandAddition's with fixed positions: "
        "the target is the sum of the tokens at the informative positions, modulo p = d_vocab_out"
    )

    def refused(what: str) -> BayesticketError:
        return refuse_case(reader, what, accepted)

    if not len(batch):
        raise refused("no examples")
    if p // 2 < 2:
        raise refused(f"p = {p}, which has fewer than two frequencies")
    if model.cfg.d_vocab < p:
        raise refused(f"a model with {model.cfg.d_vocab} tokens and {p} outputs")
    if (batch.informative != batch.informative[:1]).any():
        raise refused("informative positions that differ between sequences")
    operands = operands_of(batch)
    if int(operands.max()) >= p:
        raise refused(f"token {int(operands.max())} at an informative position, while p = {p}")
    wrong = (operands.sum(1) % p != batch.targets).nonzero()
    if len(wrong):
        first = int(wrong[0])
        numbers = " + ".join(str(number) for number in operands[first].tolist())
        raise refused(f"an example with {numbers} and target {int(batch.targets[first])}, modulo {p}")


@spec
class FrequencyShares(FourierMeasure):
    """How a model's squared Fourier norm is spread over frequencies: a vector of `⌊p/2⌋` shares that sum to 1.

    Entry w, from 1, is `‖part_w‖²_F / Σ_w ‖part_w‖²_F`, where `part_w` is the cosine and sine of frequency w in

    - `of="embed"`: the rows of W_E for the numbers 0 … p − 1, along the number;
    - `of="unembed"`: the columns of W_U, along the output;
    - `of="logits"`: the mean logits of the batch's examples with each sum `(a + b) mod p`, along the sum. Their mean
      over the outputs, which does not affect the softmax, is subtracted. A sum that the batch lacks counts as the mean
      of the others.

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
        return shares_of(seen, self.of)


@spec
class KeyFrequencyCount(FourierMeasure):
    """The number of key frequencies, those whose share exceeds `above` times the even share `1/⌊p/2⌋`: a number.

    The shares are those of `FrequencyShares`. The literature chooses key frequencies by eye from the spectrum of W_E,
    or takes those that some neuron follows; this rule is the same for every p, and finds none in random weights. A
    model has a few after grokking. No share exceeds 1, so there is never a key frequency where `⌊p/2⌋ ≤ above`,
    at p ≤ 7 by default. Costs what the shares cost.
    """

    of: Spectrum = "embed"
    above: float = 3.0
    """A frequency is key where its share exceeds this many times the even share."""

    def __post_init__(self):
        require_choice("of", self.of, get_args(Spectrum))
        require_number("above", self.above, least=1)

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The number of key frequencies."""
        shares = shares_of(seen, self.of)
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
        return gini(frequency_norms(_table(seen.model, self.of, seen.batch, seen.logits)))


def key_frequencies(
    model: HookedTransformer,
    batch: Examples,
    *,
    of: Spectrum = "logits",
    above: float = 3.0,
) -> tuple[int, ...]:
    """The key frequencies of a model, in order: those whose share exceeds `above` times the even share `1/⌊p/2⌋`.

    The shares are those of `FrequencyShares`; the batch is run through the model only for those of the logits.

    >>> from bayesticket.model import build_model
    >>> from bayesticket.tasks import ModularAddition
    >>> task = ModularAddition(p=31)
    >>> key_frequencies(build_model(task), task.split().test, of="embed")
    ()
    """
    require_choice("of", of, get_args(Spectrum))
    require_number("above", above, least=1)
    require_modular_addition("key_frequencies", model, batch)
    with torch.no_grad():
        logits = model(batch.tokens)[:, -1] if of == "logits" else None
        return keys_of(frequency_shares(_table(model, of, batch, logits)), above)


def shares_of(seen: Observation, of: Spectrum) -> Float[Tensor, "frequencies"]:
    """The shares of the frequencies in one of an observed model's spectra."""
    return frequency_shares(_table(seen.model, of, seen.batch, seen.logits))


def _table(
    model: HookedTransformer, of: Spectrum, batch: Examples, logits: Float[Tensor, "n outputs"] | None
) -> Float[Tensor, "p features"]:
    """What the spectrum is taken of, one row for each number modulo p."""
    if of == "embed":
        return model.embed.W_E[: model.cfg.d_vocab_out].detach()
    if of == "unembed":
        return model.unembed.W_U.T.detach()
    assert logits is not None
    means = mean_by_sum(logits.detach(), batch.targets, logits.shape[1])
    return means - means.mean(1, keepdim=True)
