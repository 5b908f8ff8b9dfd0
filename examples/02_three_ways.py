"""
How does one put the same intervention into three programs?
===========================================================

The prior on attention is a plain hook: the library's trainer uses it, a training loop of one's own can, and without
anything of the library but the task the same few lines write it by hand. The three give the same curves.
"""

import sys

import pandas as pd
import plotly.graph_objects as go
import torch
from torch.nn.functional import cross_entropy

import bayesticket as bt
from bayesticket.figures import TEMPLATE

FULL = "--full" in sys.argv
task = bt.ModularAddition(p=113 if FULL else 7)
split = task.split(train_fraction=0.3, seed=0)
epochs, prior = 100 if FULL else 30, bt.KLPrior(strength=1.0)
curves = {}


def new_loop():
    """A fresh model and its optimiser."""
    model = bt.build_model(task, seed=0, dtype=torch.float64)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1.0)


def test_loss(model):
    with torch.no_grad():
        return float(cross_entropy(model(split.test.tokens)[:, -1], split.test.targets))


# %%
# **By the trainer.** Warm-up and clipping of gradients are switched off, so that the loops below stay short.

run = bt.train(task, prior, epochs=epochs, warmup=0, max_grad_norm=None, dtype="float64")
curves["bt.train"] = dict(run.curves["test_loss"])

# %%
# **In a loop of one's own.** ``attach`` puts the hooks on the model and removes them in the end.

model, optimiser = new_loop()
curves["a loop with attach"] = {}
with prior.attach(model, split.train) as live:
    for epoch in range(epochs):
        if epoch % 10 == 0:
            curves["a loop with attach"][epoch] = test_loss(model)
        loss = cross_entropy(model(split.train.tokens)[:, -1], split.train.targets)
        (loss + live.penalty()).backward()
        optimiser.step()
        optimiser.zero_grad()

# %%
# **By hand.** A hook catches the attention of the last position; the divergence is three lines.

model, optimiser = new_loop()
curves["a loop by hand"], seen, oracle = {}, {}, split.train.oracle.double()
for epoch in range(epochs):
    if epoch % 10 == 0:
        curves["a loop by hand"][epoch] = test_loss(model)
    hook = ("blocks.0.attn.hook_pattern", lambda pattern, hook: seen.update(alpha=pattern[:, 0, -1]))
    logits = model.run_with_hooks(split.train.tokens, fwd_hooks=[hook])[:, -1]
    divergence = -(oracle * seen["alpha"].log()).sum(-1).mean()  # up to a constant
    (cross_entropy(logits, split.train.targets) + divergence).backward()
    optimiser.step()
    optimiser.zero_grad()

# %%
# The three curves lie on each other, though the trainer computes the last position alone, and is several times as fast.

fig = go.Figure()
for (name, curve), dash in zip(curves.items(), ("solid", "dash", "dot"), strict=True):
    fig.add_scatter(x=list(curve), y=[curve[epoch] for epoch in curve], name=name, line={"dash": dash, "width": 3})
fig.update_layout(template=TEMPLATE, legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"})
fig.update_xaxes(title="epoch").update_yaxes(title="test loss")

# %%

by_hand = pd.Series(curves.pop("a loop by hand"))
for name, curve in curves.items():
    difference = (pd.Series(curve)[by_hand.index] / by_hand - 1).abs().max(skipna=False)
    print(f"{name}: the test loss is that of the loop by hand, up to a share of {difference:.0e}")
