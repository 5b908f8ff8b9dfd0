"""
Do units of the MLP die before the model generalises?
=====================================================

A measure that one thinks of when training is over: the share of the MLP's units that no example activates. Where a run
has kept snapshots, any measure is computed from them, without training again.
"""

import sys

import plotly.graph_objects as go

import bayesticket as bt
from bayesticket.figures import TEMPLATE

FULL = "--full" in sys.argv


@bt.spec
class DeadUnits(bt.Measure):
    """Share of the MLP's units that are 0 for every example: a number."""

    def reads(self, model):
        return ("blocks.0.mlp.hook_post",)

    def value(self, seen):
        active = (seen.activations["blocks.0.mlp.hook_post"][:, -1] > 0).any(0)
        return 1 - active.to(seen.logits.dtype).mean()


# %%
# ``reads`` names the activations, by TransformerLens' names; ``value`` gets them, and returns a number or a vector.

run = bt.train(
    bt.ModularAddition(p=113 if FULL else 7, distractors="constant"),
    model=bt.Architecture(residual=False),
    epochs=10_000 if FULL else 60,
    stop_after_grok=500,
    snapshots=bt.LogSpaced(60 if FULL else 5),
    store="runs/no-prior" if FULL else "runs/small-no-prior",
)
dead = run.measure(DeadUnits())

fig = go.Figure()
fig.add_scatter(x=dead.index, y=dead, name="units that are never active")
fig.add_scatter(x=run.curves.index, y=run.curves["unseen_accuracy"], name="accuracy on unseen pairs")
fig.update_layout(template=TEMPLATE, legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"})
fig.update_xaxes(title="epoch").update_yaxes(title="share", tickformat=".0%")

# %%
# Some units fall silent in the first steps. All are at work again long before the model generalises.

print(f"most at epoch {dead.idxmax()}: {dead.max():.0%}; at the end: {dead.iloc[-1]:.0%}")
print(f"the last snapshot with a silent unit: epoch {dead[dead > 0].index.max()}")

# %%
# A measure can also be asked of any model, without a run. The printed numbers are labelled.

bt.measure(run.model, run.config.split().test, DeadUnits(), bt.Accuracy())
