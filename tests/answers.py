"""Small tasks that ask at several positions, and the usual training loop over all of them."""

import torch
import torch.nn.functional as F
from transformer_lens import HookedTransformer

import bayesticket as bt


def copying(*, queries: tuple[int, ...] = (2, 3, 5), n: int = 60, n_positions: int = 6) -> bt.Task:
    """At every query but the first, the sum of the tokens at the query and one before it; at the first, chance."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 5, (n, n_positions), generator=generator)
    targets = torch.randint(0, 5, (n, len(queries)), generator=generator)
    informative = torch.zeros(len(queries), n_positions, dtype=torch.bool)
    for slot, query in enumerate(queries[1:], 1):
        informative[slot, [query - 2, query - 1]] = True
        targets[:, slot] = (tokens[:, query - 2] + tokens[:, query - 1]) % 5
    return bt.Task(tokens=tokens, targets=targets, informative=informative, queries=queries, d_vocab=5, d_vocab_out=5)


def plain_losses(
    model: HookedTransformer, train: bt.Examples, *, epochs: int, batches, lr: float = 1e-3, weight_decay: float = 1.0
) -> list[float]:
    """A training loop over TransformerLens' forward, with cross-entropy over all queries; `batches(epoch)` is data."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=weight_decay, betas=(0.9, 0.999))
    losses = []
    for epoch in range(epochs):
        for index in batches(epoch):
            logits = model(train.tokens[index])[:, list(train.queries)]
            targets = train.targets[index]
            loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
    return losses
