"""What tests of several modules use: small models, and what is read off them."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st

import bayesticket as bt
from bayesticket.files import fingerprint, json_digest, write_json
from bayesticket.model.build import hooked_transformer
from bayesticket.runs import Training
from bayesticket.specs import description_id

properties = settings(deadline=None, max_examples=40, derandomize=True)
seeds = st.integers(0, 2**31)


class Killed(BaseException):
    """Ends a training as abruptly as kill -9: nothing is written after it."""


def die_at(epoch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has every training die before an epoch, until `monkeypatch.undo()`."""
    take_epoch = Training.take_epoch

    def die(self):
        if self.epoch == epoch:
            raise Killed
        take_epoch(self)

    monkeypatch.setattr(Training, "take_epoch", die)


def refused(call, *said: str) -> None:
    """Asserts that a call raises one error of the library's, of one line that says what is expected."""
    with pytest.raises(bt.BayesticketError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    for part in said:
        assert part in message


def reseal(directory: Path, header: dict | None = None) -> None:
    """Writes the header of a run, changed or not, so that it agrees with itself and with the files that are there."""
    data = header or json.loads((directory / "run.json").read_text())
    data = {name: value for name, value in data.items() if name != "sha256"}
    if isinstance(data.get("config"), dict):
        data["id"] = description_id(data["config"])
    data["files"] = {
        path.name: fingerprint(path)
        for path in directory.iterdir()
        if path.name in ("curves.parquet", "weights.safetensors", "tensors.safetensors")
    }
    write_json(directory / "run.json", {**data, "sha256": json_digest(data)})


def deep_model(*, seed=0, **changes):
    """A model of two layers for `ModularAddition(p=7)`."""
    config = {"n_layers": 2, "d_model": 8, "d_head": 4, "n_heads": 2, "n_ctx": 5, "d_vocab": 9, "d_vocab_out": 7}
    return hooked_transformer(config | {"act_fn": "relu", "normalization_type": "LN"} | changes, seed=seed)


def precise_model(task, *, seed=1):
    """A small model of two heads, in double precision."""
    return bt.build_model(task, d_model=8, n_heads=2, d_mlp=16, seed=seed, dtype=torch.float64)


def addition_grid(p, k=2):
    """A model whose weights are not near zero, and every example of a sum of k numbers modulo p."""
    task = bt.ModularAddition(p=p) if k == 2 else bt.KOperandAddition(k=k, p=p)
    model = bt.build_model(task, d_model=8, d_mlp=16, dtype=torch.float64)
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(index)))
    return model, task.examples(seed=0)


def value_of(measure, model, batch, **options):
    """The number of one measure, or the list of numbers of one whose value is a vector."""
    seen = bt.measure(model, batch, measure, **options)
    columns = [bt.measures.Column.parse(name) for name in seen]
    return list(seen.values()) if columns[0].entry else next(iter(seen.values()))


def logits_of(model, batch):
    """The logits at the last position, without a graph."""
    with torch.no_grad():
        return model(batch.tokens)[:, -1]


def attention_and_values(model, batch):
    """The attention of the last position, (example, head, key), and the values, (example, key, head, d_head)."""
    _, cache = model.run_with_cache(batch.tokens)
    return cache["blocks.0.attn.hook_pattern"][:, :, -1], cache["blocks.0.attn.hook_v"]


def informative_places(batch, example):
    """The informative positions of one example."""
    return [place for place in range(batch.n_positions) if batch.informative[example, place]]
