"""
Why does the gradient in the attention vanish?
==============================================

The gradient in the attention scores is bounded by the loss: once the MLP explains the training data away, little can be
left of it. That is Lemma 5.1 of the paper, here as a chain of bounds, each looser than the one before.
"""

import sys

import plotly.graph_objects as go

import bayesticket as bt
from bayesticket.figures import TEMPLATE

FULL = "--full" in sys.argv
run = bt.train(
    bt.ModularAddition(p=113 if FULL else 7, distractors="constant"),
    model=bt.Architecture(residual=False),
    epochs=10_000 if FULL else 60,
    stop_after_grok=500,
    snapshots=bt.LogSpaced(60 if FULL else 5),
    store="runs/no-prior" if FULL else "runs/small-no-prior",
)
chain = run.measure(bt.ExplainingAway(examples=None))
chain.columns = [bt.measures.Column.parse(name).entry for name in chain.columns]

fig = go.Figure()
names = {
    "loose": "2 R L √(2ℓ), with the largest value norm R",
    "global": "α ‖v − z‖ L √(2ℓ), with the Lipschitz constant L",
    "local": "α ‖v − z‖ ‖J‖ √(2ℓ), with the Jacobian J",
    "measured": "the gradient, measured",
}
for entry, name in names.items():
    fig.add_scatter(x=chain.index, y=chain[entry], name=name)
fig.update_layout(template=TEMPLATE, legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"})
fig.update_xaxes(title="epoch").update_yaxes(title="largest over examples", type="log", dtick=1)

# %%
# The columns ``measured/local``, ``local/global`` and ``global/loose`` are the largest ratio of each link, over all
# training examples and positions. The lemma says that none exceeds 1.

for link in ("measured/local", "local/global", "global/loose"):
    print(f"{link}: at most {chain[link].max():.3f}, in {len(chain)} snapshots")

# %%
# Between memorising and generalising:

plateau = chain.loc[run.memorised_epoch() or 0 : run.grok_epoch() or run.epoch]
print(f"the gradient is at least {(plateau['loose'] / plateau['measured']).min():,.0f} times below the loosest bound")

# %%
# So the bounds hold, and explain little: the tightest would allow a gradient more than ten times as large, the loosest
# thousands of times, and while the model memorises they even rise. They say that the gradient must vanish with the
# loss, and not how soon.
