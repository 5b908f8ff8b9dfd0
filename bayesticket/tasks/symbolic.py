"""The base of tasks that are functions of a few symbols, written out as sequences with distractors."""

import abc
import dataclasses
from string import ascii_lowercase
from typing import ClassVar, Literal, final, get_args

import torch
from einops import rearrange, repeat
from jaxtyping import Bool, Int
from torch import Tensor

from bayesticket.errors import refuse, require_choice, require_flag, require_integer
from bayesticket.seeding import seeded_generator
from bayesticket.specs import spec
from bayesticket.tasks.base import AbstractTask
from bayesticket.tasks.examples import Examples
from bayesticket.tasks.inputs import MOST_ENUMERATED, all_rows, distinct_rows
from bayesticket.tasks.layout import Layout, NoiseTokens

Distractors = Literal["random", "constant"]
Positions = Literal["fixed", "random"]


@spec(kw_only=True)
class AbstractSymbolicTask(AbstractTask):
    """A function of `k` symbols, written out as a sequence with distractors.

    - `distractors`: `"random"` symbols, or the `"constant"` symbol `%`.
    - `positions`: where the informative symbols stand, `"fixed"` or `"random"`, drawn for each sequence. They keep
      their order. With random positions, random distractors have an alphabet of their own: if they shared the
      operands' tokens, operands and distractors could not be told apart, and the target would not be a function of
      the sequence.
    - `redraw_each_epoch`: whether training draws new random distractors before every epoch.
    - `n_samples`: how many distinct inputs are drawn when there are too many (over 65,536) to list them all.
    """

    distractors: Distractors = "random"
    positions: Positions = "fixed"
    redraw_each_epoch: bool = False
    n_samples: int = 12_769

    operator: ClassVar[str] = "+"
    """The sign between two operands, if the layout separates them by one."""
    commutative: ClassVar[bool] = False
    """Whether the answer is the same for the operands in any order."""
    asks_next_token: ClassVar[bool] = False
    """Whether the next token is asked for at every position, the answer being what follows the last."""

    def __post_init__(self) -> None:
        require_choice("distractors", self.distractors, get_args(Distractors))
        require_choice("positions", self.positions, get_args(Positions))
        self.require_sizes()
        require_integer("n_distractors", self.layout.n_noise, least=0)
        self._require_redrawable()
        self._require_samples()

    @property
    @abc.abstractmethod
    def layout(self) -> Layout:
        """The symbols of a sequence and their tokens."""

    @abc.abstractmethod
    def answer(self, operands: Int[Tensor, "n k"]) -> Int[Tensor, "n"]:
        """The function to be learnt."""

    @abc.abstractmethod
    def require_sizes(self) -> None:
        """Raises BayesticketError if no layout can be made from the fields."""

    @property
    def n_positions(self) -> int:
        """The length `T` of each sequence; `=`, at which the answer is read, is the last position."""
        return self.layout.n_positions

    @property
    def d_vocab(self) -> int:
        """The number of distinct tokens a sequence may hold."""
        return self.layout.d_vocab

    @property
    def d_vocab_out(self) -> int:
        """The number of distinct targets: values as those of the operands, or tokens where these are asked for."""
        return self.layout.d_vocab if self.asks_next_token else self.layout.n_values

    @property
    def n_examples(self) -> int:
        """All inputs, or `n_samples` of them where they are too many to list."""
        n_inputs = self.layout.n_values**self.layout.n_digits
        return n_inputs if n_inputs <= MOST_ENUMERATED else self.n_samples

    @property
    def position_labels(self) -> tuple[str, ...]:
        """Letters for the operands, the operator's sign, `noise` or `%`, and `=`; numbers where positions are random.

        Positions also have numbers where no operator separates the operands, or where there are more than 26 of them.
        """
        layout = self.layout
        before, query = range(self.n_positions - 1), self.symbol(layout.equals_token)
        if not layout.separated or self.positions == "random" or layout.n_operands > len(ascii_lowercase):
            return (*map(str, before), query)
        noise = self.symbol(layout.first_noise_token) if layout.noise_tokens == "constant" else "noise"
        operands = iter(ascii_lowercase)
        fillers = iter([self.operator] * layout.n_operators + [noise] * layout.n_noise)
        return (*(next(operands if at in layout.home else fillers) for at in before), query)

    def symbol(self, token: int) -> str:
        """How a token is written: as a value, with a prime if it is from the noise's own alphabet, or as a sign.

        >>> from bayesticket.tasks import ModularAddition
        >>> task = ModularAddition(p=7, positions="random")
        >>> [task.symbol(token) for token in (3, 7, 8, 12)]
        ['3', '+', '=', '3′']
        """
        layout = self.layout
        if token < layout.n_values:
            return self.value_symbol(token)
        if token == layout.equals_token:
            return "="
        if token < layout.equals_token:
            return self.operator
        return "%" if layout.noise_tokens == "constant" else f"{self.value_symbol(token - layout.first_noise_token)}′"

    def value_symbol(self, value: int) -> str:
        """How the value of an operand or a target is written; its number by default."""
        return str(value)

    def examples(self, seed: int) -> Examples:
        """All examples of the task; the seed determines inputs, distractors and positions."""
        require_integer("seed", seed, least=0)
        layout = self.layout
        with torch.device("cpu"):
            digits = self._inputs(seed)
            operands, noise = digits[:, : layout.n_operands], digits[:, layout.n_operands :]
            if not layout.noise_is_input:
                noise = self._draw_noise(len(digits), seeded_generator(seed, "distractors"))
            informative = self._informative(len(digits), seed)
            tokens = layout.assemble(operands, noise, informative)
            return self._asked(tokens, self.answer(operands), informative)

    def orbits_of(self, examples: Examples) -> Int[Tensor, "n"]:
        """Sequences with the same operands, in any order where the task is commutative, have one orbit.

        Distractors count where they are part of the input, as in parity.
        """
        inputs = self.inputs_of(examples)
        if self.commutative:
            operands, noise = inputs.split([k := self.layout.n_operands, inputs.shape[1] - k], dim=1)
            inputs = torch.cat([operands.sort(dim=1).values, noise], dim=1)
        return torch.unique(inputs, dim=0, return_inverse=True)[1]

    def inputs_of(self, examples: Examples) -> Int[Tensor, "n k"]:
        """The operands from left to right, wherever they stand, and the distractors where they are part of the input.

        They are the same whatever the number, the kind and the positions of other distractors.
        """
        layout, informative = self.layout, _of_answer(examples.informative)
        parts = [rearrange(examples.tokens[informative], "(n k) -> n k", n=examples.n, k=layout.n_operands)]
        if layout.noise_is_input:
            noise = examples.tokens[layout.noise_positions(informative)]
            parts.append(rearrange(noise, "(n m) -> n m", n=examples.n, m=layout.n_noise))
        return torch.cat(parts, dim=1)

    def redraw(self, examples: Examples, *, seed: int) -> Examples:
        """The same operands, targets and positions with new random distractors.

        >>> from bayesticket.tasks import ModularAddition
        >>> task = ModularAddition(p=7)
        >>> first = task.examples(seed=0)
        >>> again = task.redraw(first, seed=1)
        >>> (first.tokens != again.tokens).any(dim=0)
        tensor([False, False, False,  True, False])
        """
        require_integer("seed", seed, least=0)
        if examples.n_positions != self.n_positions:
            raise refuse("examples", examples, f"examples of this task, with n_positions={self.n_positions}")
        layout = self.layout
        with torch.device("cpu"):
            noise = self._draw_noise(examples.n, seeded_generator(seed, "redraw")) + layout.first_noise_token
        where = layout.noise_positions(_of_answer(examples.informative))
        tokens = examples.tokens.masked_scatter(where, noise.to(examples.tokens.device))
        targets = _next_tokens(tokens, examples.targets[:, -1]) if self.asks_next_token else examples.targets
        return dataclasses.replace(examples, tokens=tokens, targets=targets)

    def noise_tokens(self) -> NoiseTokens:
        """Which tokens the noise has, given the options; for `layout`."""
        if self.distractors == "constant":
            return "constant"
        return "own" if self.positions == "random" else "operands"

    def _asked(
        self, tokens: Int[Tensor, "n T"], answers: Int[Tensor, "n"], informative: Bool[Tensor, "n T"]
    ) -> Examples:
        """Examples that are asked for the answer alone, or for every token."""
        if not self.asks_next_token:
            return Examples(tokens, answers, informative)
        n_positions = tokens.shape[1]
        of_each = repeat(torch.zeros_like(informative), "n T -> n query T", query=n_positions).clone()
        of_each[:, -1] = informative
        return Examples(tokens, _next_tokens(tokens, answers), of_each, queries=tuple(range(n_positions)))

    def _inputs(self, seed: int) -> Int[Tensor, "n digits"]:
        n_values, n_digits = self.layout.n_values, self.layout.n_digits
        if n_values**n_digits <= MOST_ENUMERATED:
            return all_rows(n_values, n_digits)
        return distinct_rows(n_values, n_digits, n=self.n_samples, generator=seeded_generator(seed, "inputs"))

    def _draw_noise(self, n: int, generator: torch.Generator) -> Int[Tensor, "n m"]:
        n_kinds = 1 if self.distractors == "constant" else self.layout.n_values
        return torch.randint(n_kinds, (n, self.layout.n_noise), generator=generator)

    def _informative(self, n: int, seed: int) -> Bool[Tensor, "n T"]:
        if self.positions == "random":
            return self.layout.random_positions(n, seeded_generator(seed, "positions"))
        return self.layout.fixed_positions(n)

    def _require_redrawable(self) -> None:
        require_flag("redraw_each_epoch", self.redraw_each_epoch)
        if self.redraw_each_epoch and (self.distractors == "constant" or self.layout.n_noise == 0):
            raise refuse("redraw_each_epoch", True, "False, as there are no random distractors to redraw")
        if self.redraw_each_epoch and self.layout.noise_is_input and self.layout.n_digits < 32:
            accepted = "False below 32 bits: new bits would soon repeat the test examples"
            raise refuse("redraw_each_epoch", True, accepted)

    def _require_samples(self) -> None:
        require_integer("n_samples", self.n_samples, least=1)
        n_values, n_digits = self.layout.n_values, self.layout.n_digits
        if n_values**n_digits > MOST_ENUMERATED and self.n_samples > n_values**n_digits:
            accepted = f"at most the number of distinct inputs, {n_values}^{n_digits} = {n_values**n_digits}"
            raise refuse("n_samples", self.n_samples, accepted)


def _of_answer(informative: Bool[Tensor, "n *q T"]) -> Bool[Tensor, "n T"]:
    """The informative positions of the answer, which is what the last query asks for."""
    return informative if informative.ndim == 2 else informative[:, -1]


def _next_tokens(tokens: Int[Tensor, "n T"], answers: Int[Tensor, "n"]) -> Int[Tensor, "n T"]:
    """What follows at each position: the next token, and at the last the answer."""
    return torch.cat([tokens[:, 1:], answers[:, None]], dim=1)


@spec(kw_only=True)
class AbstractExpression(AbstractSymbolicTask):
    """Operands with an operator between each two, then `n_distractors` symbols of noise: `a + b noise =`.

    To add one, give `operator`, `n_values`, `answer` and `require_sizes`, and `n_operands` if there are not two.
    """

    n_distractors: int = 1

    @property
    @abc.abstractmethod
    def n_values(self) -> int:
        """The number of values of an operand."""

    @property
    def n_operands(self) -> int:
        """The number of operands."""
        return 2

    @final
    @property
    def layout(self) -> Layout:
        """Operands and operators in turn, then the noise."""
        return Layout(
            n_values=self.n_values,
            n_operands=self.n_operands,
            n_noise=self.n_distractors,
            separated=True,
            home=tuple(range(0, 2 * self.n_operands, 2)),
            noise_tokens=self.noise_tokens(),
        )
