"""Fourier structure: how far a model adds modulo p by waves of a few frequencies, and how well these do alone.

A function of a number modulo p is a sum of waves of the frequencies `w = 0 … ⌊p/2⌋`, `cos(2πwx/p)` and `sin(2πwx/p)`.
These measures need a batch on which modular addition is asked: the sum modulo p of the tokens at the informative
positions is the target, and these positions are the same in every sequence.
"""

import math
from collections.abc import Iterable
from functools import cache
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from bayesticket.errors import BayesticketError, refuse, refuse_name, require_integer, require_number
from bayesticket.measures.base import Measure, Observation
from bayesticket.model import HookedTransformer
from bayesticket.specs import spec
from bayesticket.tasks import Examples

Weights = Literal["embed", "unembed"]
Spectrum = Literal["embed", "unembed", "logits"]
Directions = Literal["sum", "products"]


# Pure functions ---------------------------------------------------------------------------------------------------


def waves(
    numbers: Int[Tensor, "n"], p: int, frequencies: Iterable[int], dtype: torch.dtype = torch.float64
) -> Float[Tensor, "n directions"]:
    """Cosine and sine of every frequency at the given numbers: `cos(2πwx/p)`, `sin(2πwx/p)`, in this order.

    The sine of `w = p/2`, which is 0 at every whole number, is left out.

    >>> waves(torch.tensor([0, 1, 2, 3]), 4, [1, 2]).round().int().tolist()
    [[1, 0, 1], [0, 1, -1], [-1, 0, 1], [0, -1, -1]]
    """
    table = _wave_table(p, tuple(frequencies)).to(numbers.device, dtype)
    return table[numbers % p]


@cache
def _wave_table(p: int, frequencies: tuple[int, ...]) -> Float[Tensor, "p directions"]:
    x = torch.arange(p, dtype=torch.float64, device="cpu")
    columns = []
    for w in frequencies:
        angle = 2 * math.pi * torch.remainder(w * x, p) / p
        columns += [angle.cos()] if 2 * w == p else [angle.cos(), angle.sin()]
    return torch.stack(columns, 1) if columns else torch.zeros(p, 0, dtype=torch.float64, device="cpu")


def frequency_norms(table: Float[Tensor, "p features"]) -> Float[Tensor, "frequencies"]:
    """Norm of the part of a table that varies with each frequency `w = 1 … ⌊p/2⌋` along its first axis, all features.

    The parts are orthogonal: their squares sum to `‖table − mean‖²_F`.

    >>> angle = 2 * torch.pi * torch.arange(5) / 5
    >>> frequency_norms(torch.stack([3 * angle.cos(), 3 * angle.sin()], 1)).round(decimals=4)
    tensor([6.7082, 0.0000])
    """
    p = len(table)
    power = torch.fft.rfft(table.double(), dim=0).abs().square().sum(1)[1:] / p
    # every frequency but p/2 stands for two, w and p − w
    power = 2 * power if p % 2 else torch.cat([2 * power[:-1], power[-1:]])
    return power.sqrt().to(table.dtype)


def frequency_shares(table: Float[Tensor, "p features"]) -> Float[Tensor, "frequencies"]:
    """Share of every frequency in the squared norm of a table about its mean, `‖part_w‖² / Σ ‖part‖²`.

    All 0 for a table that is constant.
    """
    power = frequency_norms(table).square()
    total = power.sum()
    return torch.where(total > 0, power / torch.where(total > 0, total, 1.0), 0.0)


def gini(values: Float[Tensor, "m"]) -> Float[Tensor, ""]:
    """Gini coefficient of non-negative numbers, `Σ_{i,j} |v_i − v_j| / (2 m Σ_i v_i)`.

    0 when all are equal (also when all are 0), `1 − 1/m` when only one is not 0.

    >>> gini(torch.tensor([1.0, 1.0])), gini(torch.tensor([0.0, 0.0, 0.0, 2.0]))
    (tensor(0.), tensor(0.7500))
    """
    ordered, m = values.sort().values, len(values)
    weights = 2 * torch.arange(1, m + 1, device=values.device, dtype=values.dtype) - m - 1
    total = ordered.sum()
    return torch.where(total > 0, weights @ ordered / (m * torch.where(total > 0, total, 1.0)), 0.0)


def mean_by_sum(logits: Float[Tensor, "n outputs"], sums: Int[Tensor, "n"], p: int) -> Float[Tensor, "p outputs"]:
    """Mean logits of the examples with each sum; where the batch has none, the mean over the sums that it has."""
    totals = torch.zeros(p, logits.shape[1], dtype=logits.dtype, device=logits.device).index_add_(0, sums, logits)
    counts = torch.bincount(sums, minlength=p)[:, None]
    means = totals / counts.clamp_min(1)
    present = counts > 0
    return torch.where(present, means, (means * present).sum(0) / present.sum())


def fit(logits: Float[Tensor, "n outputs"], directions: Float[Tensor, "n directions"]) -> Float[Tensor, "n outputs"]:
    """The part of the logits in the span of 1 and the directions, functions of the example: their least-squares fit.

    Directions that depend on one another on this batch are allowed for.
    """
    mean = logits.mean(0)
    if not directions.shape[1]:
        return mean.expand_as(logits)
    # In float64 the normal equations are exact enough for float32 logits, and cost one thin product.
    centred = directions.double() - directions.double().mean(0)
    gram = centred.T @ centred
    right = centred.T.to(logits.dtype) @ logits
    solution = torch.linalg.pinv(gram, rtol=1e-10, hermitian=True) @ right.double()
    return mean + centred.to(logits.dtype) @ solution.to(logits.dtype)


def operand_waves(
    operands: Int[Tensor, "n k"], p: int, frequencies: Iterable[int], directions: Directions
) -> Float[Tensor, "n directions"]:
    """The directions of some frequencies, as functions of the operands.

    `"sum"`: `cos(w(a+b))` and `sin(w(a+b))`. `"products"`: `cos(wa) cos(wb)`, `cos(wa) sin(wb)`, `sin(wa) cos(wb)`,
    `sin(wa) sin(wb)`, which span these and `cos(w(a−b))`, `sin(w(a−b))` besides; of k operands, all `2^k` products.
    """
    if directions == "sum":
        return waves(operands.sum(1), p, frequencies)
    blocks = []
    for w in frequencies:
        product = waves(operands[:, 0], p, [w])
        for operand in operands.T[1:]:
            product = (product[:, :, None] * waves(operand, p, [w])[:, None]).flatten(1)
        blocks.append(product)
    return torch.cat(blocks, 1) if blocks else waves(operands[:, 0], p, ())


# Measures ---------------------------------------------------------------------------------------------------------


def operands_of(batch: Examples) -> Int[Tensor, "n k"]:
    """The tokens at the informative positions, which are the same in every sequence."""
    return batch.tokens[:, batch.informative[0]]


class FourierMeasure(Measure):
    """Base of the measures that need modular addition."""

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Refuses a batch on which the target is not the sum modulo p of the tokens at fixed positions."""
        require_modular_addition(type(self).__name__, model, batch)


def require_modular_addition(reader: str, model: HookedTransformer, batch: Examples) -> None:
    """Refuses a batch on which the target is not the sum modulo p of the tokens at fixed positions."""
    p = model.cfg.d_vocab_out
    accepted = (
        "a batch of modular addition, such as ModularAddition's or KOperandAddition's with fixed positions: "
        "the target is the sum of the tokens at the informative positions, modulo p = d_vocab_out"
    )

    def refused(what: str) -> BayesticketError:
        return BayesticketError(f"{reader}: got {what}; accepted: {accepted}")

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

    Its entries, labelled by their frequency w from 1, are `‖part_w‖²_F / Σ_w ‖part_w‖²_F`, with `part_w` the cosine
    and sine of frequency w together, of
    - `of="embed"`: the rows of W_E for the numbers 0 … p − 1, along the number;
    - `of="unembed"`: the columns of W_U, along the output;
    - `of="logits"`: the mean logits of the batch's examples with each sum `(a + b) mod p`, along the sum. Logits are
      taken about their mean over the outputs, which the softmax does not see. A sum that the batch lacks counts as
      the mean of the others.
    The constant part is left out. A share near 1 means that the model works with this frequency alone; one that is
    near the even share `1 / ⌊p/2⌋`, that the model has not chosen. Costs well under a millisecond at p = 113; of the
    logits, reading them once.
    """

    of: Spectrum = "embed"

    def __post_init__(self):
        _require_name("of", self.of, ("embed", "unembed", "logits"))

    def labels(self, model: HookedTransformer) -> tuple[str, ...]:
        """The frequencies."""
        return tuple(str(w) for w in range(1, model.cfg.d_vocab_out // 2 + 1))

    def value(self, seen: Observation) -> Float[Tensor, "frequencies"]:
        """The shares."""
        return _shares(seen, self.of)


@spec
class KeyFrequencyCount(FourierMeasure):
    """The number of key frequencies, those whose share exceeds `above` times the even share `1/⌊p/2⌋`: a number.

    The shares are those of `FrequencyShares`. The literature picks key frequencies by eye off the spectrum of W_E, or
    as those that some neuron follows; this rule is the same for every p, and finds none in random weights. 0 until the
    model chooses; a handful after grokking; more means that it adds by more waves at once. No share exceeds 1, so that
    there is never a key frequency where `⌊p/2⌋ ≤ above`, at p ≤ 7 by default. Costs what the shares cost.
    """

    of: Spectrum = "embed"
    above: float = 3.0
    """How many times the even share a key frequency has at least."""

    def __post_init__(self):
        _require_name("of", self.of, ("embed", "unembed", "logits"))
        require_number("above", self.above, least=1)

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The number of key frequencies."""
        shares = _shares(seen, self.of)
        return _exceeds(shares, self.above).sum().to(shares.dtype)


@spec
class FourierGini(FourierMeasure):
    """Gini coefficient of the Fourier norms of W_E over the numbers, or of W_U over the outputs: a number.

    `Σ_{v,w} |n_v − n_w| / (2 m Σ_w n_w)` of the `m = ⌊p/2⌋` norms `n_w = ‖part_w‖_F`, the cosine and sine of a
    frequency together: so it does not depend on which token is called 0. (Others count the two apart, which does; and
    others take the neuron-logit map in place of W_U.) Near 0, about 0.04 at p = 113, for random weights, in which no
    frequency stands out; large, up to `1 − 1/m`, when few frequencies hold all the norm. Costs well under a
    millisecond.
    """

    of: Weights = "embed"

    def __post_init__(self):
        _require_name("of", self.of, ("embed", "unembed"))

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The coefficient."""
        return gini(frequency_norms(_table(seen.model, self.of, seen.batch, seen.logits)))


@spec(kw_only=True)
class _ByFrequency(FourierMeasure):
    """Base of the losses with and without the key frequencies."""

    keys: tuple[int, ...] | None = None
    """The key frequencies, from 1 to ⌊p/2⌋; None for the model's own, by the rule of `KeyFrequencyCount`."""
    together: bool = True
    """All key frequencies at once; or one at a time: those of `keys`, or where it is None all from 1 to ⌊p/2⌋."""
    directions: Directions = "sum"
    """What of a frequency is meant: the waves of the sum, or all products of its waves of the operands."""
    of: Spectrum = "logits"
    """Whose spectrum the key frequencies are read off, where `keys` is None."""
    above: float = 3.0
    """How many times the even share a key frequency has at least, where `keys` is None."""

    def __post_init__(self):
        _require_name("of", self.of, ("embed", "unembed", "logits"))
        _require_name("directions", self.directions, ("sum", "products"))
        require_number("above", self.above, least=1)
        if not isinstance(self.together, bool):
            raise refuse("together", self.together, "True or False")
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
        """Refuses data other than modular addition, frequencies it does not have, and more directions than examples."""
        super().check(model, batch)
        p = model.cfg.d_vocab_out
        if self.keys and max(self.keys) > p // 2:
            raise refuse(f"{type(self).__name__}.keys", self.keys, f"frequencies from 1 to ⌊p/2⌋ = {p // 2}")
        k = operands_of(batch).shape[1]
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

    def _parts(self, seen: Observation) -> list[Float[Tensor, "n outputs"]]:
        """The fits of the logits that are kept or removed: one by the key frequencies, or one by every frequency."""
        p, operands = seen.logits.shape[1], operands_of(seen.batch)
        if self.together:
            sets = [_exceeding(_shares(seen, self.of), self.above) if self.keys is None else self.keys]
        else:
            sets = [(w,) for w in self._single_frequencies(p)]
        return [fit(seen.logits, operand_waves(operands, p, keys, self.directions)) for keys in sets]

    def _losses(self, logits: list[Float[Tensor, "n outputs"]], seen: Observation) -> Float[Tensor, "*_"]:
        losses = torch.stack([F.cross_entropy(each, seen.batch.targets) for each in logits])
        return losses[0] if self.together else losses


@spec(kw_only=True)
class RestrictedLoss(_ByFrequency):
    """Loss of the logits that the key frequencies alone make: a number, or a vector where not `together`.

    The logits, as functions of the example, are replaced by their least-squares fit by 1 and the directions
    `cos(w(a+b))`, `sin(w(a+b))` of the key frequencies w: their projection, output by output, whose constant part is
    the mean logit. Low, and falling before the test loss does, once the model adds by waves; `log p` or more before.
    High while the whole loss is low means that the answer does not come from these waves.

    The choices, where implementations of the progress-measures paper (Nanda et al. 2023) differ:
    - `together=True` keeps all key frequencies at once, as the paper does; `together=False` keeps one at a time, and
      gives a vector: each of `keys`, or where they are not given each of the `⌊p/2⌋` frequencies, key or not.
    - `directions="sum"` are the two waves of the sum, as in the paper's code; `"products"` all four products of the
      waves of a and b, the 2×2 blocks of the paper's text: they keep the waves of `a − b` too.
    - `keys=None` takes the key frequencies of the model as it is; the paper uses those of the final model throughout,
      which is `keys=key_frequencies(run.model, batch)`. With no key frequency only the mean logits are left.
    - The paper projects over all p² pairs. Here it is over the batch at hand, recorded on the test half by default, and
      least squares because its examples are a sample, on which waves are not quite orthogonal. On the full grid the two
      are the same. On the train half a model that memorises has every wave of the sum in its logits, so that one does
      not mean much there.
    Costs 1 to 5 ms together at p = 113, less than a training epoch; one at a time, 20 to 30 training epochs for all
    56 frequencies.
    """

    halves = ("test",)

    def value(self, seen: Observation) -> Float[Tensor, "*entries"]:
        """The loss, or losses."""
        return self._losses(self._parts(seen), seen)


@spec(kw_only=True)
class ExcludedLoss(_ByFrequency):
    """Loss of the logits without what the key frequencies make: a number, or a vector where not `together`.

    The logits less their restricted part (see `RestrictedLoss`, whose fields and choices these are), the mean logit
    left in. Recorded on the train half: it falls while the model memorises, and rises above the train loss when the
    answer comes to rest on the key frequencies instead; large means that without them the model knows nothing.
    `together=False` leaves out one frequency at a time: in the paper's code there are both, and some implementations
    average the losses without one of the key frequencies each.
    Costs 1 to 5 ms together at p = 113, less than a training epoch; one at a time, 20 to 30 training epochs for all
    56 frequencies.
    """

    halves = ("train",)

    def value(self, seen: Observation) -> Float[Tensor, "*entries"]:
        """The loss, or losses."""
        mean = seen.logits.mean(0)
        return self._losses([seen.logits - part + mean for part in self._parts(seen)], seen)


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
    _require_name("of", of, ("embed", "unembed", "logits"))
    require_number("above", above, least=1)
    require_modular_addition("key_frequencies", model, batch)
    with torch.no_grad():
        logits = model(batch.tokens)[:, -1] if of == "logits" else None
        return _exceeding(frequency_shares(_table(model, of, batch, logits)), above)


def _shares(seen: Observation, of: Spectrum) -> Float[Tensor, "frequencies"]:
    return frequency_shares(_table(seen.model, of, seen.batch, seen.logits))


def _exceeds(shares: Float[Tensor, "frequencies"], above: float) -> Bool[Tensor, "frequencies"]:
    return shares * len(shares) > above


def _exceeding(shares: Float[Tensor, "frequencies"], above: float) -> tuple[int, ...]:
    return tuple((_exceeds(shares, above).nonzero()[:, 0] + 1).tolist())


def _table(
    model: HookedTransformer, of: Spectrum, batch: Examples, logits: Float[Tensor, "n outputs"] | None
) -> Float[Tensor, "p features"]:
    """What the spectrum is taken of, one row a number modulo p."""
    if of == "embed":
        return model.embed.W_E[: model.cfg.d_vocab_out].detach()
    if of == "unembed":
        return model.unembed.W_U.T.detach()
    assert logits is not None
    means = mean_by_sum(logits.detach(), batch.targets, logits.shape[1])
    return means - means.mean(1, keepdim=True)


def _require_name(field: str, given: object, names: tuple[str, ...]) -> None:
    if given not in names:
        raise refuse_name(field, given, names)
