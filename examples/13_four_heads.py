"""
Who holds the operands when there are four heads?
=================================================

With several heads no head needs to look at everything: what counts is the mass that all heads together give to each
operand. A model of four heads, with and without a prior, and which head looks where.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

from plotly.subplots import make_subplots

import bayesticket as bt
from bayesticket.figures import TEMPLATE

FULL = "--full" in sys.argv
task = bt.ModularAddition(p=113 if FULL else 7, distractors="constant")
runs = bt.sweep(
    task,
    {"no prior": None, "KL prior": bt.KLPrior(strength=1.0)},
    seeds=[0],
    store="runs",
    epochs=6_000 if FULL else 60,
    model=bt.Architecture(n_heads=4, residual=False),
    measures=[bt.DistributedMass(), bt.InformativeMassByPosition(head="each")],
    stop_after_grok=200,
    executor=ThreadPoolExecutor(2),
)
fig = make_subplots(cols=2, subplot_titles=list(runs.labels("intervention")), shared_yaxes=True)
for column, arm in enumerate(runs.labels("intervention"), 1):
    end = runs.run(arm, 0).curves.iloc[-1]
    mass = [
        [end[f"informative_mass_by_position[head=each][H{head}.{operand}]"] for operand in (0, 1)] for head in range(4)
    ]
    fig.add_heatmap(
        z=mass, x=["a", "b"], y=[f"head {head}" for head in range(4)], coloraxis="coloraxis", col=column, row=1
    )
fig.update_traces(texttemplate="%{z:.2f}")
fig.update_layout(template=TEMPLATE, coloraxis={"colorscale": "Blues", "cmin": 0, "cmax": 1})

# %%
# Attention of each head on each operand at the end of training, mean over the training examples. Without a prior, two
# heads have an operand each, two look at both, and the model has memorised without generalising. The prior acts on
# every head, makes all of them alike, and the model generalises. Both give the operands as much: it is not the sum that
# counts.

for arm in runs.labels("intervention"):
    run = runs.run(arm, 0)
    end = run.curves.iloc[-1]
    a, b, least = (end[f"distributed_mass[{entry}]"] for entry in range(3))
    print(f"{arm}: generalised at {run.grok_epoch()}, at the end {end['unseen_accuracy']:.0%} of unseen pairs")
    print(f"  all heads together give a {a:.2f} and b {b:.2f}, in no example less than {least:.2f} to either")
