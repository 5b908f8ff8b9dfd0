"""
How does a sweep move to a cluster?
===================================

By one argument. Dask's scheduler hands the runs to whatever workers there are; here it is a cluster inside this
process, elsewhere an address.
"""

import sys

from distributed import Client, LocalCluster

import bayesticket as bt

FULL = "--full" in sys.argv
cluster = LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None)
with cluster, Client(cluster) as client:
    runs = bt.sweep(
        bt.ModularAddition(p=59 if FULL else 5, distractors="constant"),
        {"no prior": None, "KL prior": bt.KLPrior(strength=1.0)},
        seeds=range(3 if FULL else 1),
        store="runs",
        epochs=1_500 if FULL else 20,
        train_fraction=0.5,
        model=bt.Architecture(residual=False),
        lr=3e-3,
        stop_after_grok=100,
        executor=client.get_executor(),
    )
runs.plot()

# %%
# The store has to be a path that all workers see. What is in it is not trained again, on whatever machine it was made;
# a worker that is killed costs the epochs since its last checkpoint.

runs

# %%
# On Slurm the cluster is that of dask-jobqueue, and the rest of the script stays as it is:
#
# .. code-block:: python
#
#     from dask_jobqueue import SLURMCluster
#
#     cluster = SLURMCluster(cores=1, processes=1, memory="2GB", walltime="04:00:00")
#     cluster.scale(jobs=40)

runs.compare("KL prior", "no prior")

# %%
# Three seeds decide nothing. ``seeds=range(10)`` would train the other seven, and load these.
