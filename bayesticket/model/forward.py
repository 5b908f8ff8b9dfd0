"""The query-only forward: the same model, computed only at the position where its answer is read.

An algorithmic task reads the answer at one position, the last. In a one-layer transformer this needs the attention, the
MLP and the unembedding at that position only. Embeddings, keys and values are needed once for each distinct
(position, token) row, of which a task has a few hundred, rather than for each of tens of thousands of tokens.

`query_forward` computes no more than that. It calls the model's own hook points, with a query axis of length 1, so that
a hook written against the last axes (`pattern[..., -1, :]`) acts as it does in the full forward.
"""

from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformer_lens import HookedTransformer

from bayesticket.model.hooks import has_hooks
from bayesticket.model.names import (
    UNEMBED_IN,
    UNEMBED_OUT,
    attention_out_name,
    final_name,
    middle_name,
    mlp_out_name,
    mlp_post_name,
    mlp_pre_name,
    pattern_name,
    scores_name,
    z_name,
)
from bayesticket.model.positions import first_position, rotated, rotates
from bayesticket.model.variants import has_no_hooks_but_cuts

SCORES, PATTERN, Z, ATTENTION_OUT = scores_name(0), pattern_name(0), z_name(0), attention_out_name(0)
MIDDLE, MLP_PRE, MLP_POST, MLP_OUT = middle_name(0), mlp_pre_name(0), mlp_post_name(0), mlp_out_name(0)
FINAL = final_name(0)
FAST_HOOKS = (
    SCORES, PATTERN, Z, ATTENTION_OUT, MIDDLE, MLP_PRE, MLP_POST, MLP_OUT, FINAL, UNEMBED_IN, UNEMBED_OUT
)  # fmt: skip
"""The hook points that the query-only forward passes through."""


class TokenRows:
    """The distinct (position, token) rows of a batch of tokens, and the indices to sum over them quickly.

    `index[n, t]` is the row of token t in sequence n. Positions are those of the sequence, or
    with `position_ids` those of the model. Those that hold one token throughout the batch (operators, padding, the
    query) are treated separately: mixing their values is one matrix product, whatever their number.
    """

    def __init__(self, tokens: Int[Tensor, "n T"], n_heads: int, position_ids: Int[Tensor, "n T"] | None = None):
        n, n_positions = tokens.shape
        positions = torch.arange(n_positions, device=tokens.device) if position_ids is None else position_ids
        keys = tokens + positions * (int(tokens.max()) + 1)
        rows, index = torch.unique(keys, return_inverse=True)
        first = torch.full_like(rows, n * n_positions).scatter_reduce_(
            0, index.flatten(), torch.arange(n * n_positions, device=tokens.device), "amin"
        )
        self.n_heads, self.n_rows = n_heads, len(rows)
        self.tokens, self.positions = tokens.flatten()[first], positions.expand(n, -1).flatten()[first]
        self.are_placed = position_ids is not None
        """Whether `positions` are those of the model."""
        self.index = index

        constant = (index == index[:1]).all(0)
        constant[0] &= ~constant.all()  # an embedding bag must have at least one position
        self.varying_positions = None if not constant.any() else torch.nonzero(~constant)[:, 0]
        self.constant_positions = torch.nonzero(constant)[:, 0]
        self.constant_rows = index[0, constant]

        # One bag for each (sequence, head), over that head's own copy of the rows.
        head_offset = torch.arange(n_heads, device=tokens.device)[:, None] * self.n_rows
        bags = (index[:, None, ~constant] + head_offset).flatten(0, 1)
        self.bags = bags
        self.bag_starts = torch.arange(0, bags.numel(), max(1, bags.shape[1]), device=tokens.device)
        self.bag_of = torch.arange(len(bags), device=tokens.device).repeat_interleave(bags.shape[1])
        self.order = torch.argsort(bags.flatten(), stable=True)
        self.members = self.order // max(1, bags.shape[1])
        self.starts = torch.searchsorted(
            bags.flatten()[self.order], torch.arange(n_heads * self.n_rows, device=tokens.device)
        )

        self.query_rows, self.query = torch.unique(index[:, -1], return_inverse=True)
        self.score_index = self.query[:, None] * self.n_rows + index

    @property
    def n_sequences(self) -> int:
        """The number of sequences in the batch."""
        return len(self.index)


class _MixRows(torch.autograd.Function):
    """`z[n, h] = offset[h] + Σ_t weights[n, h, t] · table[h, index[n, t]]`, with a gradient by sorted segments.

    Both are sums over embedding bags: forward over the rows of a sequence, backward over the sequences of a row. The
    offset is one more row, of weight 1, beside those of constant positions.
    """

    @staticmethod
    def forward(ctx, table: Tensor, weights: Tensor, offset: Tensor, rows: TokenRows) -> Tensor:
        constant, constant_rows = _constant(table, weights, offset, rows)
        ctx.save_for_backward(table, weights, constant, constant_rows)
        ctx.rows = rows
        heads, _, width = table.shape
        mixed = F.embedding_bag(
            rows.bags, table.reshape(-1, width), per_sample_weights=_varying(weights, rows), mode="sum"
        ).view(rows.n_sequences, heads, width)
        mixed.transpose(0, 1).baddbmm_(constant, constant_rows)
        return mixed

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient: Tensor):  # type: ignore[override]
        table, weights, constant, constant_rows = ctx.saved_tensors
        rows: TokenRows = ctx.rows
        gradient = gradient.contiguous()
        d_constant_rows = constant.mT @ gradient.transpose(0, 1)
        d_table = d_weights = None
        if ctx.needs_input_grad[0]:
            d_table = _table_gradient(gradient, table, weights, rows)
            d_table[:, rows.constant_rows] += d_constant_rows[:, :-1]
        if ctx.needs_input_grad[1]:
            d_weights = _weights_gradient(gradient, table, weights, constant_rows, rows)
        return d_table, d_weights, d_constant_rows[:, -1], None


def _constant(table: Tensor, weights: Tensor, offset: Tensor, rows: TokenRows) -> tuple[Tensor, Tensor]:
    """The weights of constant positions and their rows, by head, the offset last with a weight of 1."""
    of_positions = weights[..., rows.constant_positions]
    ones = of_positions.new_ones(*of_positions.shape[:2], 1)
    constant_rows = torch.cat([table[:, rows.constant_rows], offset[:, None]], 1)
    return torch.cat([of_positions, ones], -1).transpose(0, 1), constant_rows


def _varying(weights: Tensor, rows: TokenRows) -> Tensor:
    if rows.varying_positions is not None:
        weights = weights.index_select(-1, rows.varying_positions)
    return weights.flatten(0, 1)


def _table_gradient(gradient: Tensor, table: Tensor, weights: Tensor, rows: TokenRows) -> Tensor:
    return F.embedding_bag(
        rows.members,
        gradient.flatten(0, 1),
        offsets=rows.starts,
        per_sample_weights=_varying(weights, rows).flatten()[rows.order],
        mode="sum",
    ).view_as(table)


def _weights_gradient(
    gradient: Tensor, table: Tensor, weights: Tensor, constant_rows: Tensor, rows: TokenRows
) -> Tensor:
    # Autograd reaches this kernel only after a forward pass of the bag, whose result nothing needs here.
    d_varying = torch.ops.aten._embedding_bag_per_sample_weights_backward(
        gradient.flatten(0, 1), table.flatten(0, 1), rows.bags.flatten(), rows.bag_starts, rows.bag_of, mode=0
    )
    d_varying = d_varying.view(*weights.shape[:2], -1)
    if rows.varying_positions is None:
        return d_varying
    d_weights = torch.empty_like(weights)
    d_weights[..., rows.varying_positions] = d_varying
    d_weights[..., rows.constant_positions] = (gradient.transpose(0, 1) @ constant_rows[:, :-1].mT).transpose(0, 1)
    return d_weights


def query_forward(model: HookedTransformer, rows: TokenRows) -> Float[Tensor, "n d_vocab_out"]:
    """The logits at the last position of every sequence, equal to `model(tokens)[:, -1]`.

    It is a pure function of the model's parameters and mounted hooks and does not branch on values. It can be
    differentiated once; second derivatives need the full forward.
    """
    block, attention, hook = model.blocks[0], model.blocks[0].attn, model.hook_dict
    stream = _stream_of(model, rows)
    stream_in = block.ln1(stream[None])[0]

    query = torch.einsum("rd,hde->hre", stream_in[rows.query_rows], attention.W_Q) + attention.b_Q[:, None]
    key = torch.einsum("rd,hde->hre", stream_in, attention.W_K) + attention.b_K[:, None]
    value = torch.einsum("rd,hde->hre", stream_in, attention.W_V) + attention.b_V[:, None]

    if rotates(model):
        query = rotated(attention, query, rows.positions[rows.query_rows])
        key = rotated(attention, key, rows.positions)
    table = (query @ key.mT / attention.attn_scale).flatten(1)
    scores = table.index_select(1, rows.score_index.flatten()).view(model.cfg.n_heads, *rows.score_index.shape)
    scores = scores.transpose(0, 1).unsqueeze(2)
    scores = hook[SCORES](scores)
    pattern = hook[PATTERN](_softmax_over_few(scores)).squeeze(2)

    at_query = stream[rows.query_rows]
    if _mixes_hidden(model, rows):
        return _readout_of_mixed(model, rows, value, pattern, at_query)
    if model.cfg.n_heads == 1 and not has_hooks(hook[Z]):
        # W_O commutes with the mixing of rows, and is applied first because there are fewer rows than sequences.
        attention_out = _MixRows.apply(value @ attention.W_O, pattern, attention.b_O[None], rows)
    else:
        z = hook[Z](_MixRows.apply(value, pattern, torch.zeros_like(value[:, 0]), rows)[:, None])
        attention_out = F.linear(z.flatten(2), attention.W_O.flatten(0, 1).T, attention.b_O)

    attention_out = hook[ATTENTION_OUT](attention_out)
    middle = hook[MIDDLE](at_query.index_select(0, rows.query).unsqueeze(1) + attention_out)
    hidden = _affine(block.ln2(middle), block.mlp.W_in, block.mlp.b_in)
    return _logits(model, middle, hidden)


def _stream_of(model: HookedTransformer, rows: TokenRows) -> Float[Tensor, "rows d_model"]:
    """The residual stream into the layer."""
    of_tokens = model.embed.W_E[rows.tokens]
    if rotates(model):
        return of_tokens
    first = 0 if rows.are_placed else first_position(model, rows.index.shape[1])
    return of_tokens + model.pos_embed.W_pos[rows.positions + first]


def _softmax_over_few(scores: Float[Tensor, "n heads one T"]) -> Float[Tensor, "n heads one T"]:
    """The softmax over keys, which are few; torch is twenty times as fast where sequences are innermost in memory."""
    return scores.movedim(-1, 0).contiguous().softmax(0).movedim(0, -1)


def _mixes_hidden(model: HookedTransformer, rows: TokenRows) -> bool:
    """Whether nothing but linear maps lies between values and the hidden units of the MLP.

    Then both maps are applied to the rows, and hidden units are mixed in place of values: three products of all
    sequences with W_in, forward and backward, are saved.
    """
    between = all(has_no_hooks_but_cuts(model.hook_dict[name]) for name in (Z, ATTENTION_OUT, MIDDLE))
    return between and model.cfg.n_heads == len(rows.query_rows) == 1 and model.cfg.normalization_type is None


def _readout_of_mixed(
    model: HookedTransformer,
    rows: TokenRows,
    value: Float[Tensor, "one rows d_head"],
    pattern: Float[Tensor, "n one T"],
    at_query: Float[Tensor, "one d_model"],
) -> Float[Tensor, "n d_vocab_out"]:
    """The logits, by mixing hidden units; see `_mixes_hidden`."""
    attention, mlp = model.blocks[0].attn, model.blocks[0].mlp
    of_rows = value @ attention.W_O
    if has_hooks(model.hook_dict[MIDDLE]):  # they cut the residual path, so that nothing reads the stream behind it
        offset = attention.b_O[None]
        middle = None
    else:
        offset = at_query + attention.b_O
        middle = _MixRows.apply(of_rows, pattern, offset, rows)
    hidden = _MixRows.apply(of_rows @ mlp.W_in, pattern, offset @ mlp.W_in + cast(Tensor, mlp.b_in), rows)
    return _logits(model, middle, hidden)


def _logits(
    model: HookedTransformer, middle: Float[Tensor, "n one d_model"] | None, hidden: Float[Tensor, "n one d_mlp"]
) -> Float[Tensor, "n d_vocab_out"]:
    """The logits, given the stream before the MLP, if anything reads it, and the MLP's hidden units."""
    block, hook = model.blocks[0], model.hook_dict
    hidden = hook[MLP_POST](block.mlp.act_fn(hook[MLP_PRE](hidden)))
    mlp_out = hook[MLP_OUT](_affine(hidden, block.mlp.W_out, block.mlp.b_out))
    final = hook[FINAL](mlp_out if middle is None else middle + mlp_out)
    if model.cfg.normalization_type is not None:
        final = model.ln_final(final)
    final = hook[UNEMBED_IN](final)
    return hook[UNEMBED_OUT](_affine(final, model.unembed.W_U, model.unembed.b_U)).squeeze(1)


def _affine(
    x: Float[Tensor, "n one d"], weight: Float[Tensor, "d e"], bias: Float[Tensor, "e"] | nn.Module
) -> Float[Tensor, "n one e"]:
    # Unlike x[:, 0], squeeze costs nothing in the backward pass.
    return torch.addmm(cast(Tensor, bias), x.squeeze(1), weight).unsqueeze(1)
