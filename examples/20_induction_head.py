"""
Can a prior make an induction head?
===================================

A model of attention alone, two layers of four heads, random weights. The last token of each sequence has occurred once
before, at a random place; the answer is what came after it there. A prior tells one head where that is.
"""

import sys
import warnings

import torch
from transformer_lens import HookedTransformer, HookedTransformerConfig

import bayesticket as bt
from bayesticket.figures import plot_runs

FULL = "--full" in sys.argv
warnings.filterwarnings("ignore", message="HookedTransformer is deprecated")
n, length, vocabulary = (16_384, 12, 24) if FULL else (64, 8, 12)
generator = torch.Generator().manual_seed(0)
tokens = torch.rand(n, vocabulary, generator=generator).argsort(-1)[:, :length]  # no token twice
place = torch.randint(0, length - 2, (n,), generator=generator)
rows = torch.arange(n)
tokens[:, -1] = tokens[rows, place]
answer = torch.zeros(n, length, dtype=torch.bool)
answer[rows, place + 1] = True
task = bt.Task(tokens=tokens, targets=tokens[rows, place + 1], informative=answer)


def attention_only():
    """Two layers of attention, no MLP."""
    torch.manual_seed(0)
    return HookedTransformer(
        HookedTransformerConfig(
            n_layers=2, n_heads=4, d_model=64, d_head=16, n_ctx=length, d_vocab=vocabulary, attn_only=True, seed=0
        )
    )


arms = {
    "no prior": None,
    "prior on a head": bt.KLPrior(strength=1.0, layer=1, head=0),
    "one place later": bt.KLPrior("shifted", strength=1.0, layer=1, head=0),
}
runs = {}
for arm, prior in arms.items():
    runs[arm] = bt.train(
        task,
        prior,
        model=attention_only(),
        train_fraction=0.8,
        epochs=40 if FULL else 4,
        batch_size=256,
        record_every=2,
        weight_decay=0.1,
        measures=[bt.InformativeMass("mean", layer=1, head="each")],
        store=f"runs/{'' if FULL else 'small-'}induction-{arm}",
    )
plot_runs(runs)

# %%
# Without a prior all heads of the second layer look at the answer. With it the chosen head does, and one other. A
# control, the same prior one place later, is as early, though no head of the layer looks at the answer any more: this
# model finds another way. So a prior that helps need not point at what one had in mind. This is one seed.

for arm, run in runs.items():
    end = run.curves.iloc[-1]
    mass = ", ".join(f"{end[f'informative_mass_mean[layer=1,head=each][H{head}]']:.2f}" for head in range(4))
    print(f"{arm}: 99 % of test sequences at epoch {run.grok_epoch()}; heads of layer 1 on the answer: {mass}")
