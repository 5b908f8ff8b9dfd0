"""
What does a test accuracy of thirty per cent mean?
==================================================

Addition commutes. A model that has memorised a + b and reads both operands alike answers b + a without having
generalised. At a training share of 30 % this alone gives a test accuracy of some 30 %.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import plotly.graph_objects as go

import bayesticket as bt
from bayesticket.figures import TEMPLATE

FULL = "--full" in sys.argv
runs = bt.sweep(
    bt.ModularAddition(p=113 if FULL else 7),
    bt.grid(intervention={"KL prior": bt.KLPrior(strength=1.0)}, weight_decay=[0.0, 1.0]),
    seeds=[0],
    store="runs",
    epochs=4_000 if FULL else 60,
    model=bt.Architecture(residual=True),  # a standard transformer layer
    stop_after_grok=300,
    executor=ThreadPoolExecutor(2),
)
split = runs.run("KL prior", 0, weight_decay=0.0).config.split()
share = 1 - split.test.unseen.double().mean().item()

# %%
# Every task knows the orbits of its examples under its symmetries; the test accuracy of a run is the average over two
# kinds of test pairs, those whose mirror image was trained on, and the *unseen* ones.

fig = go.Figure()
for decay, dash in {0.0: "solid", 1.0: "dot"}.items():
    curves = runs.run("KL prior", 0, weight_decay=decay).curves
    test, unseen = curves["test_accuracy"], curves["unseen_accuracy"]
    kinds = {"all test pairs": test, "mirrored pairs": (test - (1 - share) * unseen) / share, "unseen pairs": unseen}
    for (kind, curve), colour in zip(kinds.items(), ("#888888", "#D55E00", "#0072B2"), strict=True):
        name = f"{kind}, weight decay {decay:g}"
        fig.add_scatter(x=curve.index, y=curve, name=name, line={"dash": dash, "color": colour})
fig.update_layout(template=TEMPLATE, legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"})
fig.update_xaxes(title="epoch").update_yaxes(title="accuracy", tickformat=".0%")

# %%
# Both runs have the prior, so that both read the operands alike. Without weight decay the model stays where mirrored
# pairs alone have brought it: it answers nearly all of them, and next to none of the others. It has not generalised at
# all.

print(f"{share:.1%} of the test pairs have a mirror image in training.")
for decay in (0.0, 1.0):
    end = runs.run("KL prior", 0, weight_decay=decay).curves.iloc[-1]
    print(f"weight decay {decay:g}: {end['test_accuracy']:.1%} of all, {end['unseen_accuracy']:.1%} of unseen pairs")

# %%
# A split by orbit has no such pairs: both images of a pair stand on one side.

clean = bt.ModularAddition(p=113).split(train_fraction=0.3, seed=0, by="orbit")
print(f"unseen, of a split by orbit: {clean.test.unseen.double().mean():.0%}")
