"""Made-up curves of a run, from which phases are read."""

import numpy as np
import pandas as pd

import bayesticket as bt

EPOCHS = np.arange(0, 5001, 10)


def run_of(columns, epochs=EPOCHS):
    """A run with these curves."""
    curves = pd.DataFrame(columns, index=pd.Index(epochs, name="epoch"), dtype="float64")
    return bt.Run(description={}, tensors={}, weights={}, curves=curves, epoch=int(epochs[-1]) if len(epochs) else 0)


def step(at, low=0.0, high=1.0, epochs=EPOCHS):
    """Low before an epoch, high from it on."""
    return np.where(epochs >= at, high, low)
