"""
How near does a prior come that knows no oracle?
================================================

The oracle of the KL prior knows which positions matter. Entropy and sparsity only ask attention to be sharp; a teacher
gives the attention of another run. Random distractors, which a model without a prior may memorise by.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import bayesticket as bt
from bayesticket.figures import plot_runs

FULL = "--full" in sys.argv
options = {
    "seeds": [0],
    "store": "runs",
    "epochs": 5_000 if FULL else 40,
    "model": bt.Architecture(residual=False),
    "stop_after_grok": 200,
    "executor": ThreadPoolExecutor(2),
}
task = bt.ModularAddition(p=113 if FULL else 5)
arms = {
    "no prior": None,
    "oracle": bt.KLPrior(strength=1.0),
    "entropy": bt.EntropyPrior(strength=0.1),
    "sparsity": bt.SparsityPrior(strength=0.1),
}
runs = bt.sweep(task, arms, **options)
teacher = runs.run("oracle", 0)
taught = bt.sweep(task, {"teacher": bt.KLPrior(teacher, strength=1.0)}, init_seed=1, **options)
everyone = {arm: runs.run(arm, 0) for arm in arms} | {"teacher, fresh weights": taught.run("teacher", 0)}
plot_runs(everyone)

# %%
# What each looks at in the end. Asking for sharpness alone moves attention off the operands here, and with the entropy
# prior the model does not even memorise. The attention of a run that has found the operands does what the oracle does,
# for other first weights too. This is one seed and one strength of each prior.

for name, run in everyone.items():
    end = run.curves.iloc[-1]
    print(
        f"{name}: generalised at {run.grok_epoch()}; at the end {end['informative_mass_mean']:.0%} of attention",
        end=" ",
    )
    print(f"on a and b, {end['train_accuracy']:.0%} of training pairs, {end['unseen_accuracy']:.0%} of unseen pairs")
