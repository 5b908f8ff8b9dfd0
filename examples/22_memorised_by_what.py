"""
By what does a model know its training examples?
================================================

Beside the operands stands a random token, which says nothing about the sum. It tells training examples apart all the
same. To see whether a model answers by it, exchange this token among the examples, and leave all else as it was.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import plotly.graph_objects as go
import torch

import bayesticket as bt
from bayesticket.figures import PALETTE, TEMPLATE

FULL = "--full" in sys.argv
runs = bt.sweep(
    bt.ModularAddition(p=113 if FULL else 7),
    {"no prior": None, "KL prior": bt.KLPrior(strength=1.0)},
    seeds=[0],
    store="runs",
    epochs=4_000 if FULL else 60,
    model=bt.Architecture(residual=False),
    executor=ThreadPoolExecutor(2),
)
train = runs.run("KL prior", 0).config.split().train
labels = runs.run("KL prior", 0).config.task.position_labels

# %%
# Each bar is the share of training examples that are still answered rightly when one position has the tokens of other
# examples, drawn without replacement.


def answered(model, tokens):
    """The share of examples that a model answers rightly."""
    with torch.no_grad():
        return (model(tokens)[:, -1].argmax(-1) == train.targets).double().mean().item()


def exchanged(position):
    """The training examples' tokens, of which those at a position are permuted among the examples."""
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))
    tokens = train.tokens.clone()
    tokens[:, position] = tokens[order, position]
    return tokens


fig = go.Figure()
for arm, colour in zip(("no prior", "KL prior"), PALETTE, strict=False):
    model = runs.run(arm, 0).model
    shares = {"nothing": answered(model, train.tokens)}
    shares |= {label: answered(model, exchanged(position)) for position, label in enumerate(labels)}
    fig.add_bar(x=list(shares), y=list(shares.values()), name=arm, marker_color=colour)
    print(arm, {label: f"{share:.0%}" for label, share in shares.items()})
fig.update_layout(template=TEMPLATE, legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"})
fig.update_xaxes(title="position whose tokens are exchanged").update_yaxes(title="answered", tickformat=".0%")

# %%
# Without a prior the model answers by both operands and the noise together: it hardly answers anything with another
# random token, and little with another operand. With the prior it answers by the operands alone.
