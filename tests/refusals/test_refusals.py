"""Every bad input gets one line that names the field, what was given and what is accepted, before anything is computed.

Run without run-time type checks, as users run the library.
"""

import json
import math
import os
import pickle
import shutil
import warnings
from pathlib import Path

import pandas as pd
import pytest
import torch
from helpers import refused, reseal
from safetensors.torch import save_file
from transformer_lens import HookedTransformer, HookedTransformerConfig

import bayesticket as bt
from bayesticket.measures import attention_of
from bayesticket.specs import restore

TASK = bt.ModularAddition(p=5)
TRAIN = TASK.split().train
N = len(TRAIN)
SMALL = bt.Architecture(d_model=8, d_mlp=8)


def transformer(**changes) -> HookedTransformer:
    config = {"n_layers": 2, "d_model": 8, "n_heads": 2, "d_head": 4, "d_mlp": 8, "n_ctx": 5, "d_vocab": 7}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        config = config | {"d_vocab_out": 5, "act_fn": "relu", "device": "cpu"} | changes
        return HookedTransformer(HookedTransformerConfig(**config))


@pytest.fixture
def no_forward(monkeypatch):
    """No model may run."""

    def forward(self, *inputs, **options):
        raise AssertionError("the model ran before the input was refused")

    monkeypatch.setattr(HookedTransformer, "forward", forward)


def snapshot(directory: Path) -> dict[str, bytes | None]:
    """Everything below a directory."""
    paths = sorted(directory.rglob("*"))
    return {str(path): path.read_bytes() if path.is_file() else None for path in paths}


def attach(intervention: bt.Intervention, model: HookedTransformer | None = None, batch=TRAIN):
    return intervention.attach(model or transformer(), batch)


# --- names ---


@bt.spec
class Editing(bt.Intervention):
    """Edits one hook point, of whatever name."""

    name: str = "blocks.0.attn.hook_patern"

    def edits(self, context):
        return [(self.name, lambda tensor, hook: None)]


@bt.spec
class Reading(bt.Intervention):
    """Reads one hook point, of whatever name."""

    name: str = "blocks.0.attn.hook_patern"

    def reads(self):
        return (self.name,)

    def penalty(self, context, activations):
        return activations[self.name].sum()


@pytest.mark.parametrize("kind", [bt.KLPrior, bt.FrozenAttention, bt.MixedAttention, bt.Permuted])
@pytest.mark.parametrize("given", ["orcale", 3, None, ["oracle"], object])
def test_unknown_targets(kind, given):
    refused(lambda: kind(given), "target: got ", "accepted: ", "'oracle'", "'adversarial'")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: bt.KLPrior("orcale"), "Closest: 'oracle'"),
        (lambda: bt.Permuted(along="rows"), "along: got 'rows'; accepted: 'positions', 'examples'"),
        (lambda: bt.ModularAddition(distractors="none"), "distractors: got 'none'; accepted: 'random', 'constant'"),
        (lambda: bt.SparsityPrior(on="weights"), "on: got 'weights'; accepted: 'pattern', 'scores'"),
        (lambda: bt.NoResidual("all"), "around: got 'all'; accepted: 'attention', 'mlp', 'both'"),
        (lambda: bt.NormMatch(1.0, scope="attention"), "scope: got 'attention'; accepted: 'mlp', 'all'"),
        (lambda: bt.InformativeMass(of="all"), "of: got 'all'; accepted: 'mean', 'least'"),
        (lambda: bt.GradientNoise(bt.NormMatch(1.0)), "like: got NormMatch(radius=1.0); accepted: a prior"),
        (lambda: bt.GradientNoise("kl"), "like: got 'kl'; accepted: a prior"),
        (lambda: bt.KLPrior() + 3, "intervention: got 3; accepted: an Intervention"),
        (lambda: bt.Recipe((bt.KLPrior,)), "intervention: got <class"),
        (lambda: bt.Architecture(attention="relu"), "attention: got 'relu'; accepted: 'softmax', 'linear'"),
        (lambda: bt.Architecture(n_heads=3), "n_heads: got 3; accepted: a divisor of d_model"),
    ],
)
def test_unknown_names(no_forward, call, said):
    refused(call, said)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"optimizer": "adam"}, "optimizer: got 'adam'; accepted: "),
        ({"optimizer": None}, "optimizer: got None"),
        ({"forward": "quick"}, "forward: got 'quick'; accepted: 'auto', 'fast', 'full'"),
        ({"dtype": "float16"}, "dtype: got 'float16'; accepted: 'float32', 'float64'"),
        ({"device": "gpu"}, "device: got 'gpu'; accepted: "),
        ({"intervention": "kl"}, "intervention: got 'kl'; accepted: an Intervention"),
        ({"intervention": bt.KLPrior}, "intervention: got <class"),
        ({"measures": [3]}, "measures: got 3; accepted: Measure objects"),
        ({"model": "gpt2"}, "model: got 'gpt2'; accepted: a HookedTransformer"),
        ({"task": "addition"}, "task: got 'addition'; accepted: a task"),
        *(({"train_fraction": value}, "train_fraction: got ") for value in (0.0, 1.0, -0.1, 2, math.nan, "0.3", True)),
        ({"train_fraction": None}, "train_fraction: got None"),
        *(({"seed": value}, "seed: got ") for value in (-1, 0.5, "0", None, True)),
        *(({"epochs": value}, "epochs: got ") for value in (0, 1.5, "9", None)),
        *(({"lr": value}, "lr: got ") for value in (0, -1.0, math.inf, "1e-3")),
        *(({"batch_size": value}, "batch_size: got ") for value in (0, 1.5)),
        ({"betas": (0.9,)}, "betas: got (0.9,); accepted: two numbers"),
        ({"betas": (0.9, 1.0)}, "betas[1]: got 1.0"),
    ],
)
def test_options_of_training(no_forward, tmp_path, options, said):
    given = {"task": TASK, "model": SMALL, "epochs": 1} | options
    refused(lambda: bt.train(**given), said)
    refused(lambda: bt.train(**given, store=tmp_path / "run"), said)
    assert snapshot(tmp_path) == {}


@pytest.mark.parametrize("kind", [Editing, Reading])
def test_hooks_that_do_not_exist(no_forward, kind):
    said = (f"{kind.__name__} reads a hook: got 'blocks.0.attn.hook_patern'", "Closest: 'blocks.0.attn.hook_pattern'")
    refused(lambda: attach(kind()), *said)
    refused(lambda: bt.train(TASK, kind(), model=SMALL, epochs=1), *said)


@pytest.mark.parametrize("kind", [Editing, Reading])
def test_hooks_that_never_fire(kind):
    said = (f"{kind.__name__} reads a hook: got 'blocks.0.attn.hook_result'", "accepted: a hook point that fires")
    refused(lambda: attach(kind("blocks.0.attn.hook_result")), *said)
    model = transformer(use_attn_result=True)
    attach(kind("blocks.0.attn.hook_result"), model)


def test_a_hook_that_changes_the_shape():
    @bt.spec
    class Narrowing(bt.Intervention):
        def edits(self, context):
            return [("blocks.0.attn.hook_pattern", lambda pattern, hook: pattern[..., :1])]

    model = transformer()
    with Narrowing().attach(model, TRAIN):
        refused(lambda: model(TRAIN.tokens), "hook on blocks.0.attn.hook_pattern: returned shape", "accepted: ")


# --- descriptions ---


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"type": "KLPrior", "strenght": 1.0}, "KLPrior field: got 'strenght'; accepted: "),
        ({"type": "ModularAddition", "colour": 1}, "ModularAddition field: got 'colour'; accepted: "),
        ({"type": "KLPriorr"}, "type: got 'KLPriorr'; accepted: a class that is defined"),
        ({"type": "Intervention"}, "type: got 'Intervention'; accepted: a class that is final"),
        ({"type": "Schedule"}, "type: got 'Schedule'; accepted: a class that is final"),
        ({"type": "AbstractSymbolicTask"}, "type: got 'AbstractSymbolicTask'; accepted: a class that is final"),
        ({"type": "NormMatch", "scope": "all"}, "NormMatch fields: got ['scope']; accepted: a description with 'rad"),
        ({"type": "KLPrior", "target": {"tensor": "abc"}}, "tensor: got 'abc'; accepted: "),
        ({"type": "KLPrior", "strength": -1}, "strength: got -1; accepted: "),
        ({"type": "HookedTransformer", "config": {}}, "HookedTransformer: got ['config']; accepted: "),
        ({"type": ["KLPrior"]}, "type: got "),
    ],
)
def test_descriptions_that_cannot_be_restored(data, said):
    refused(lambda: restore(data, {}), said)


# --- numbers ---


@pytest.mark.parametrize("given", [-1.0, math.nan, math.inf, -math.inf, "1.0", True, None, [1.0]])
@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (bt.KLPrior, "strength"),
        (bt.EntropyPrior, "strength"),
        (bt.SparsityPrior, "strength"),
        (bt.QKPenalty, "strength"),
        (bt.MixedAttention, "weight"),
        (bt.GradientNoise, "fraction"),
        (bt.NormMatch, "radius"),
        (bt.Anneal, "start"),
        (bt.Anneal, "end"),
        (bt.Window, "value"),
    ],
)
def test_numbers_that_make_no_sense(kind, field, given):
    refused(lambda: kind(**{field: given}), f"{field}: got {given!r}; accepted: a finite number")


def test_numbers_out_of_their_bounds():
    refused(lambda: bt.NormMatch(radius=0.0), "radius: got 0.0")
    refused(lambda: bt.MixedAttention(weight=1.5), "weight: got 1.5; accepted: a finite number >= 0 and <= 1")
    refused(lambda: bt.Anneal(first=5, last=5), "last: got 5; accepted: a whole number of at least 6")
    refused(lambda: bt.Window(start=5, stop=5), "stop: got 5; accepted: a whole number of at least 6")


# --- targets ---


@pytest.mark.parametrize("kind", [bt.KLPrior, bt.FrozenAttention, bt.MixedAttention, bt.Permuted])
@pytest.mark.parametrize(
    ("target", "said"),
    [
        (torch.tensor([0.5, 0.4, 0, 0, 0]), "target: got a row that sums to 0.9; accepted: rows that sum to 1"),
        (torch.eye(5)[:, :4], "target: got a row that sums to 0"),
        (torch.tensor([1.5, -0.5, 0, 0, 0]), "target: got a tensor with negative or non-finite entries"),
        (torch.tensor([math.nan, 1, 0, 0, 0]), "target: got a tensor with negative or non-finite entries"),
        (
            torch.tensor([1, 0, 0, 0, 0]),
            "target: got a tensor of torch.int64 and shape (5,); accepted: a floating-point tensor",
        ),
        (torch.tensor(1.0), "target: got a tensor of torch.float32 and shape ()"),
        (torch.ones(1, 1, 1, 1), "target: got a tensor of torch.float32 and shape (1, 1, 1, 1)"),
    ],
)
def test_tensors_that_are_no_attention(kind, target, said):
    refused(lambda: kind(target), said)


@pytest.mark.parametrize("kind", [bt.KLPrior, bt.FrozenAttention, bt.MixedAttention])
def test_targets_that_do_not_fit(no_forward, kind):
    model = transformer()
    refused(lambda: attach(kind(torch.tensor([0.5, 0.5, 0, 0])), model), "target: got shape (4,); accepted: (5,), ")
    refused(lambda: attach(kind(torch.eye(5)), model), f"target: got shape (5, 5); accepted: (5,), ({N}, 5)")
    three_heads = torch.full((N, 3, 5), 0.2)
    refused(lambda: attach(kind(three_heads), model), f"{kind.__name__}.target: got 3 heads; accepted: 1 or 2 heads")


@pytest.mark.parametrize("kind", [bt.KLPrior, bt.FrozenAttention, bt.MixedAttention])
def test_targets_out_of_sight(no_forward, kind):
    seen = f"{kind.__name__}.target: got a target with mass "
    target = torch.tensor([0.5, 0, 0, 0.5, 0])
    refused(lambda: attach(kind(target, query=2)), seen, "positions [3, 4]", "accepted: mass on positions 0 to 2")
    refused(lambda: attach(kind("uniform", query=-3)), seen, "accepted: mass on positions 0 to 2")
    local = transformer(use_local_attn=True, window_size=2, attn_types=["global", "local"])
    attach_to_global = kind("oracle", layer=0)
    attach_to_global.check(bt.Context(TRAIN, local))
    refused(lambda: attach(kind("oracle", layer=1), local), seen, "accepted: mass on positions 3 to 4")
    kind(target, query=2).check(bt.Context(TRAIN, transformer(attention_dir="bidirectional")))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"n_ctx": 4}, "teacher: got a model with 4 positions; accepted: one with 5 positions"),
        ({"d_vocab": 6}, "teacher: got a model with 6 tokens; accepted: one with a token 6"),
        ({"n_layers": 1}, "teacher: got a model of 1 layers; accepted: one with a layer 1"),
    ],
)
def test_teachers_that_cannot_teach(no_forward, changes, said):
    refused(lambda: attach(bt.KLPrior(transformer(**changes), layer=1)), said)


def test_a_teacher_with_other_heads():
    refused(lambda: attach(bt.KLPrior(transformer(n_heads=4))), "KLPrior.target: got 4 heads; accepted: 1 or 2 heads")


def test_a_teacher_that_was_never_saved(tmp_path):
    refused(lambda: bt.KLPrior(tmp_path / "nowhere"), "path: got ", "nowhere", "accepted: ")


# --- places ---


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: bt.KLPrior(layer=2), "KLPrior.layer: got 2; accepted: a layer of the model, 0 to 1"),
        (lambda: bt.FrozenAttention(layer=(0, 2)), "FrozenAttention.layer: got 2; accepted: a layer of the model"),
        (lambda: bt.EntropyPrior(head=2), "EntropyPrior.head: got 2; accepted: a head of the model, 0 to 1"),
        (lambda: bt.LinearAttention(head=(1, 2)), "LinearAttention.head: got 2; accepted: a head of the model"),
        (lambda: bt.KLPrior(query=5), "query: got 5; accepted: a position of the sequence, 0 to 4"),
        (lambda: bt.KLPrior(query=-6), "query: got -6; accepted: a position of the sequence, 0 to 4"),
        (lambda: bt.QKPenalty(layer=(0, 2)), "QKPenalty.layer: got 2; accepted: a layer of the model"),
        (lambda: bt.NoResidual(layer=2), "NoResidual.layer: got 2; accepted: a layer of the model"),
        (lambda: bt.GradientNoise(bt.KLPrior(layer=2)), "KLPrior.layer: got 2; accepted: a layer of the model"),
        (lambda: bt.KLPrior(layer=-1), "layer: got -1; accepted: a whole number of at least 0"),
        (lambda: bt.KLPrior(layer="0"), "layer: got '0'; accepted: a whole number of at least 0"),
        (lambda: bt.KLPrior(layer=()), "layer: got (); accepted: one or several different whole numbers"),
        (lambda: bt.KLPrior(head=(1, 1)), "head: got (1, 1); accepted: one or several different whole numbers"),
        (lambda: bt.KLPrior(query="last"), "query: got 'last'; accepted: a position"),
        (lambda: bt.QKPenalty(layer=True), "layer: got True"),
        (lambda: bt.NoResidual(layer="first"), "layer: got 'first'"),
        (lambda: bt.LinearAttention(query=2), "query: got 2; accepted: nothing"),
        (lambda: bt.AttentionGradient(layer=(0, 1)), "layer: got (0, 1); accepted: one layer"),
    ],
)
def test_layers_heads_and_queries_that_are_not_there(no_forward, make, said):
    model = transformer()
    refused(lambda: attach(make(), model), said)


@pytest.mark.parametrize(
    "make",
    [
        lambda: bt.FrozenAttention() + bt.FrozenAttention("uniform"),
        lambda: bt.FrozenAttention() + bt.LinearAttention(),
        lambda: bt.LinearAttention() + bt.FrozenAttention(head=1),
        lambda: bt.FrozenAttention(layer=(0, 1)) + bt.KLPrior() + bt.FrozenAttention(layer=1, head=0),
        lambda: bt.FrozenAttention(torch.eye(5)[0], query=2) + bt.LinearAttention(),
        lambda: bt.FrozenAttention(query=4) + bt.FrozenAttention(query=-1),
    ],
)
def test_two_edits_that_replace_the_same_pattern(no_forward, make):
    model = transformer()
    refused(lambda: attach(make(), model), "which both replace the pattern of layer ", "accepted: one of them for each")


@pytest.mark.parametrize(
    "make",
    [
        lambda: bt.FrozenAttention(head=0) + bt.FrozenAttention("uniform", head=1),
        lambda: bt.FrozenAttention(layer=0) + bt.LinearAttention(layer=1),
        lambda: bt.FrozenAttention() + bt.FrozenAttention(torch.eye(5)[0], query=2),
        lambda: bt.MixedAttention() + bt.FrozenAttention() + bt.MixedAttention("uniform"),
    ],
)
def test_edits_that_can_share_a_pattern(make):
    attach(make())


# --- masks ---


@pytest.mark.parametrize(
    ("masks", "said"),
    [
        ({}, "masks: got {}; accepted: a mapping"),
        (None, "masks: got None; accepted: a mapping"),
        ({"blocks.0.mlp.W_in": torch.ones(8, 8)}, "masks['blocks.0.mlp.W_in']: got torch.float32; accepted: a boolean"),
        ({"blocks.0.mlp.W_in": [[True]]}, "masks['blocks.0.mlp.W_in']: got [[True]]; accepted: a boolean tensor"),
        (
            {"blocks.0.mlp.W_in": torch.ones(3, 8, dtype=torch.bool)},
            "masks['blocks.0.mlp.W_in']: got shape (3, 8); accepted: shape (8, 8)",
        ),
        ({"blocks.0.mlp.Win": torch.ones(8, 8, dtype=torch.bool)}, "Closest: 'blocks.0.mlp.W_in'"),
        ({"blocks.2.mlp.W_in": torch.ones(8, 8, dtype=torch.bool)}, "masks: got 'blocks.2.mlp.W_in'; accepted: "),
    ],
)
def test_masks_that_do_not_fit(no_forward, masks, said):
    model = transformer()
    refused(lambda: attach(bt.TicketMask(masks), model), said)


def test_norms_that_cannot_be_matched(no_forward):
    refused(lambda: attach(bt.NormMatch(1.0), transformer(attn_only=True)), "NormMatch.scope: got 'mlp'; accepted: ")
    model = transformer()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    refused(lambda: attach(bt.NormMatch(1.0), model), "NormMatch.radius: got 1.0; accepted: nothing")


# --- data and models ---


def own_task(**changes) -> bt.Task:
    given = {"tokens": [[1, 2, 3]] * 4, "targets": [0, 1, 2, 0], "informative": [True, False, False]}
    return bt.Task(**(given | changes))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"d_vocab": 3}, "tokens: got 3; accepted: whole numbers from 0 to 2, as d_vocab=3"),
        ({"d_vocab_out": 2}, "targets: got 2; accepted: whole numbers from 0 to 1, as d_vocab_out=2"),
        ({"informative": [[True] * 3, [False] * 3, [True] * 3, [True] * 3]}, "informative: row 1 marks no position"),
        ({"informative": [True, False]}, "informative: got (2,); accepted: "),
    ],
)
def test_data_of_ones_own(changes, said):
    refused(lambda: own_task(**changes), said)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"n_ctx": 4}, "model.cfg.n_ctx: got 4; accepted: at least 5"),
        ({"d_vocab": 6}, "model.cfg.d_vocab: got 6; accepted: at least 7"),
        ({"d_vocab_out": 4}, "model.cfg.d_vocab_out: got 4; accepted: at least 5"),
    ],
)
def test_models_too_small_for_the_task(no_forward, changes, said):
    refused(lambda: bt.train(TASK, model=transformer(**changes), epochs=1), said)


def test_models_too_small_for_a_batch(no_forward):
    recipe = bt.KLPrior()
    refused(lambda: attach(recipe, transformer(n_ctx=4)), "batch: got 5 positions; accepted: at most the model's 4")
    refused(lambda: attach(recipe, transformer(d_vocab=6)), "batch: got token 6; accepted: tokens of the model, 0 to")
    refused(lambda: recipe.attach("gpt2", TRAIN), "model: got 'gpt2'; accepted: a HookedTransformer")


@pytest.mark.parametrize("batch", [TASK, TASK.split(), TRAIN.tokens, None])
def test_batches_that_are_none(no_forward, batch):
    model = transformer()
    refused(lambda: bt.KLPrior().attach(model, batch), "batch: got ", "accepted: half of a split")
    refused(lambda: bt.measure(model, batch, bt.KLToOracle()), "batch: got ", "accepted: half of a split")


def test_measures_of_what_is_not_there(no_forward):
    model = transformer()
    refused(lambda: bt.measure(model, TRAIN, bt.KLToOracle(layer=2)), "KLToOracle.layer: got 2; accepted: ")
    refused(lambda: bt.measure(model, TRAIN, bt.AttentionEntropy(head=2)), "AttentionEntropy.head: got 2; accepted: ")
    refused(lambda: bt.measure(model, TRAIN, bt.KLToOracle), "measures: got <class")


@pytest.mark.parametrize("query", [0, 1, -4])
def test_a_divergence_that_is_infinite(no_forward, query):
    model, said = transformer(), "positions [2, 3, 4]" if query != 0 else "positions [1, 2, 3, 4]"
    accepted = "which the query cannot attend to; accepted: mass on positions 0 to "
    for measure in (bt.KLToOracle(query=query), bt.KLToOracle(layer="each", query=query), bt.KLToTarget(query=query)):
        refused(lambda m=measure: bt.measure(model, TRAIN, m), f"{type(measure).__name__}.query: got ", said, accepted)
    refused(lambda: attach(bt.KLPrior(query=query)), "KLPrior.target: got ", said, accepted)


def test_a_divergence_at_a_query_that_sees_enough_is_finite():
    seen = bt.measure(transformer(), TRAIN, bt.KLToOracle(query=2), bt.KLToTarget("oracle", query=3))
    assert all(math.isfinite(value) for value in seen.values())
    both = transformer(attention_dir="bidirectional")
    assert math.isfinite(bt.measure(both, TRAIN, bt.KLToOracle(query=1))["kl_to_oracle[query=1][L0]"])


PATTERN = "blocks.0.attn.hook_pattern"


def measure_of_ones_own(value, **methods) -> bt.Measure:
    return bt.spec(type("Mine", (bt.Measure,), {"value": value, "__module__": __name__} | methods))()


BROKEN = {
    "a matrix": (lambda self, seen: seen.logits, {}, "Mine.value: got a tensor of shape (7, 5); accepted: "),
    "nothing": (lambda self, seen: None, {}, "Mine.value: got None; accepted: a floating-point tensor"),
    "a float": (
        lambda self, seen: 0.5,
        {},
        "Mine.value: got 0.5; accepted: a floating-point tensor, a scalar or a vec",
    ),
    "integers": (lambda self, seen: seen.logits.argmax(), {}, "Mine.value: got a tensor of torch.int64; accepted: "),
    "booleans": (lambda self, seen: seen.logits.sum() > 0, {}, "Mine.value: got a tensor of torch.bool; accepted: "),
    "no entries": (lambda self, seen: torch.zeros(0), {}, "Mine.value: got a tensor of shape (0,); accepted: "),
    "too few labels": (
        lambda self, seen: torch.zeros(3),
        {"labels": lambda self, model: ("a", "b")},
        "Mine.labels: got 2 labels for a vector of length 3; accepted: one label for each entry",
    ),
    "labels of a scalar": (
        lambda self, seen: seen.loss,
        {"labels": lambda self, model: ("a",)},
        "Mine.labels: got 1 labels for a scalar; accepted: ",
    ),
    "labels that are the same": (
        lambda self, seen: torch.zeros(2),
        {"labels": lambda self, model: ("a", "a")},
        "Mine.labels: got ('a', 'a'); accepted: a tuple of different labels",
    ),
    # The default measures read the pattern, which does not help a measure that forgets to.
    "forgotten reads": (
        lambda self, seen: seen.activations[PATTERN].mean(),
        {},
        f"Mine.value: got seen.activations[{PATTERN!r}], which Mine.reads does not name; accepted: `def reads(",
    ),
    "forgotten differentiates": (
        lambda self, seen: seen.gradients[PATTERN].mean(),
        {"reads": lambda self, model: (PATTERN,)},
        f"Mine.value: got seen.gradients[{PATTERN!r}], which Mine.differentiates does not name; accepted: `def diff",
    ),
    "a name for several": (
        lambda self, seen: seen.loss,
        {"reads": lambda self, model: PATTERN},
        f"Mine.reads: got {PATTERN!r}; accepted: a tuple of hook points, such as ({PATTERN!r},)",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_measure_is_refused_at_the_first_record(name):
    value, methods, said = BROKEN[name]
    measure, epochs = measure_of_ones_own(value, **methods), []
    refused(
        lambda: bt.train(
            TASK, model=SMALL, measures=[measure], epochs=100, record_every=1,
            progress=lambda epoch, record: epochs.append(epoch),
        ), said,
    )  # fmt: skip
    assert not epochs
    refused(lambda: bt.measure(transformer(), TRAIN, measure), said)


def test_a_part_of_the_split_that_there_is_not():
    refused(
        lambda: bt.measure(transformer(), TRAIN, bt.Loss(half="tests")), "Loss.half: got 'tests'; accepted: 'train'"
    )


def test_a_forward_that_does_not_serve():
    said = "forward: got 'fast'; accepted: 'full' or 'auto', because "
    refused(lambda: bt.train(TASK, model=transformer(), forward="fast", epochs=1), said)


# --- files ---


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A saved run, which no test changes."""
    recipe = bt.KLPrior(torch.tensor([0.5, 0.5, 0, 0, 0]))
    run = bt.train(TASK, recipe, model=SMALL, epochs=2)
    return run.save(tmp_path_factory.mktemp("runs") / "saved")


@pytest.fixture
def copied(saved, tmp_path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "copied"))


def same_run(**changes):
    given = {"intervention": bt.KLPrior(torch.tensor([0.5, 0.5, 0, 0, 0])), "model": SMALL, "epochs": 2}
    return bt.train(TASK, **(given | changes))


def test_stores_that_cannot_be_used(no_forward, tmp_path, copied):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "notes.txt").write_text("mine")
    before = snapshot(tmp_path)
    for store, said in (
        (tmp_path / "file", "accepted: a directory that can be written to"),
        (tmp_path / "file" / "below", "accepted: a directory that can be written to"),
        (tmp_path / "foreign", "accepted: a new or empty directory, or one that holds this run; it has 'notes.txt'"),
        ("/dev/null/x", "store: got '/dev/null/x'; accepted: a directory that can be written to"),
        ("/proc/x", "store: got '/proc/x'; accepted: a directory that can be written to"),
    ):
        refused(lambda store=store: same_run(store=store), "store: got ", said)
    refused(lambda: same_run(store=copied, seed=1), "store: got ", "holds a different run (seed is 0, not 1)")
    refused(lambda: same_run(store=copied, intervention=None), "store: got ", "holds a different run (intervention is")
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"intervention": bt.KLPrior(layer=1)}, "KLPrior.layer: got 1; accepted: a layer of the model, 0 to 0"),
        ({"intervention": Editing()}, "Editing reads a hook: got 'blocks.0.attn.hook_patern'"),
        (
            {"measures": [bt.AttentionEntropy()] * 2},
            "measures: got 'attention_entropy'; accepted: measures with different",
        ),
        ({"measures": [bt.AttentionEntropy(layer=1)]}, "AttentionEntropy.layer: got 1"),
        ({"model": transformer(d_vocab=6)}, "model.cfg.d_vocab: got 6; accepted: at least 7"),
        ({"train_fraction": 0.001}, "train_fraction: got 0.001; accepted: a fraction of the 25 examples"),
        ({"momentum": 0.9}, "momentum: got 0.9; accepted: no momentum with AdamW"),
    ],
)
def test_what_depends_on_model_and_data_is_refused_without_a_trace(tmp_path, changes, said):
    refused(lambda: same_run(**changes), said)
    refused(lambda: same_run(store=tmp_path / "run", **changes), said)
    assert snapshot(tmp_path) == {}


def test_places_where_a_run_cannot_be_saved(tmp_path, saved):
    run = bt.Run.load(saved)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "notes.txt").write_text("mine")
    shutil.copytree(saved, tmp_path / "other")
    other = same_run(seed=1)
    before = snapshot(tmp_path)
    refused(lambda: run.save(tmp_path / "file"), "path: got ", "is a file")
    refused(lambda: run.save(tmp_path / "foreign"), "path: got ", "it has 'notes.txt'")
    refused(lambda: run.save("/dev/null/x"), "path: got '/dev/null/x'; accepted: a directory that can be written to")
    refused(lambda: other.save(tmp_path / "other"), "path: got ", "holds a different run (seed is 0, not 1)")
    assert snapshot(tmp_path) == before


FILES = ("run.json", "curves.parquet", "weights.safetensors", "tensors.safetensors")


def use(path: Path) -> None:
    run = bt.Run.load(path)
    assert run.config is not None
    assert run.model is not None
    run.grok_epoch()


class Executed:
    """Executes a command when it is unpickled."""

    def __init__(self, evidence: Path):
        self.evidence = evidence

    def __reduce__(self):
        return os.system, (f"touch {self.evidence}",)


def damages(path: Path, evidence: Path):
    """The ways in which a file can be broken, by name."""
    content = path.read_bytes()
    yield "truncated", lambda: path.write_bytes(content[: len(content) // 2])
    yield "empty", lambda: path.write_bytes(b"")
    yield "another format", lambda: path.write_bytes(b"[1, 2]")
    yield "a pickle", lambda: path.write_bytes(pickle.dumps(Executed(evidence)))
    yield "missing", path.unlink


@pytest.mark.parametrize("damage", ["truncated", "empty", "another format", "a pickle", "missing"])
@pytest.mark.parametrize("name", FILES)
def test_damaged_files(no_forward, copied, tmp_path, name, damage):
    dict(damages(copied / name, tmp_path / "evidence"))[damage]()
    before = snapshot(copied)
    refused(lambda: use(copied), str(copied))
    with pytest.raises(bt.BayesticketError):
        bt.resume(copied)
    assert snapshot(copied) == before
    assert not (tmp_path / "evidence").exists()


def test_the_pickle_would_have_been_noticed(tmp_path):
    pickle.loads(pickle.dumps(Executed(tmp_path / "evidence")))
    assert (tmp_path / "evidence").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": 1}, "format: got 1, written by bayesticket "),
        ({"format": 2}, "format: got 2, written by bayesticket "),
        ({"format": None}, "format: got None"),
        ({"status": 3}, "status: got 3"),
        ({"epoch": "many"}, "epoch: got 'many'"),
        ({"config": [1]}, "config: got [1]"),
        ({"config": {"type": "TrainConfig", "colour": 1}}, "TrainConfig field: got 'colour'; accepted: "),
        ({"config": {"type": "Nothing"}}, "config: got 'Nothing'; accepted: "),
        ({"config": {"type": "KLPrior"}}, "config"),
        ({"config": {}}, "config"),
    ],
)
def test_a_foreign_run_json(no_forward, copied, changes, said):
    header = json.loads((copied / "run.json").read_text())
    reseal(copied, header | changes)
    for call in (use, bt.resume):
        refused(lambda call=call: call(copied), said)


def test_foreign_weights_and_curves(no_forward, copied):
    weights = (copied / "weights.safetensors").read_bytes()
    save_file({"W": torch.ones(50_000)}, copied / "weights.safetensors")
    reseal(copied)
    refused(lambda: use(copied), "weights: got ", "accepted: exactly the names of the model's parameters")
    (copied / "weights.safetensors").write_bytes(weights)
    reseal(copied)
    pd.DataFrame({"price": [1.0]}).to_parquet(copied / "curves.parquet")
    reseal(copied)
    refused(lambda: use(copied), "curves")


# --- runs read back ---


@pytest.fixture(scope="module")
def saved_own(tmp_path_factory) -> Path:
    """A saved run of a model of the user's, which no test changes."""
    return bt.train(TASK, model=transformer(), epochs=1).save(tmp_path_factory.mktemp("runs") / "own")


@pytest.mark.parametrize("field", ["tokenizer_name", "trust_remote_code", "checkpoint_value", "n_layer"])
def test_a_config_that_would_do_more_than_describe_a_model(saved_own, tmp_path, field):
    copied = Path(shutil.copytree(saved_own, tmp_path / "copied"))
    header = json.loads((copied / "run.json").read_text())
    assert field not in header["config"]["model"]["config"]
    header["config"]["model"]["config"][field] = "gpt2"
    reseal(copied, header)
    refused(lambda: bt.Run.load(copied).model, str(copied), f"model.config: got '{field}'; accepted: ")


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model["config"].update(d_model=9),
        lambda model: model["config"].update(n_heads="two"),
        lambda model: model["config"].update(act_fn="import os"),
        lambda model: model.update(config=[1]),
        lambda model: model.update(architecture={"colour": 1}),
        lambda model: model.update(frozen=["W_none"]),
        lambda model: model.update(frozen=3),
        lambda model: model.pop("frozen"),
    ],
)
def test_a_description_that_was_tampered_with(saved_own, tmp_path, change):
    copied = Path(shutil.copytree(saved_own, tmp_path / "copied"))
    header = json.loads((copied / "run.json").read_text())
    change(header["config"]["model"])
    reseal(copied, header)
    refused(lambda: bt.Run.load(copied).model, str(copied))
    refused(lambda: bt.Run.load(copied).config, str(copied))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000 + "]" * 100_000, "run.json: truncated, damaged or foreign"),
        ('{"config": ' * 100_000, "run.json: truncated, damaged or foreign"),
        ("[1]", "run.json: content: got [1]; accepted: a JSON object"),
    ],
)
def test_a_run_json_that_cannot_be_read(copied, text, said):
    (copied / "run.json").write_text(text)
    refused(lambda: use(copied), said)


@pytest.mark.parametrize("changes", [{"epoch": -1}, {"epoch": True}, {"seconds": math.nan}, {"seconds": -1.0}])
def test_numbers_of_a_header(copied, changes):
    header = json.loads((copied / "run.json").read_text())
    reseal(copied, header | changes)
    refused(lambda: use(copied), "run.json", f"{next(iter(changes))}: got ", "accepted: a run.json written by")


def test_weights_that_do_not_fit_name_their_file(copied):
    save_file({"W": torch.ones(2)}, copied / "weights.safetensors")
    reseal(copied)
    refused(lambda: use(copied), str(copied / "weights.safetensors"))


@pytest.mark.parametrize("column", [["a", "b"], [True, False]])
def test_curves_that_are_no_numbers(copied, column):
    index = pd.Index([0, 2], name="epoch")
    pd.DataFrame({"train_accuracy": column, "test_accuracy": [0.0, 1.0]}, index=index).to_parquet(
        copied / "curves.parquet"
    )
    reseal(copied)
    refused(lambda: use(copied), "curves.parquet: columns: got ", "accepted: the curves of a run, numbers by epoch")


@pytest.mark.parametrize(
    ("tensors", "note"),
    [
        ({"W": torch.ones(2)}, None),
        ({"W": torch.ones(2)}, {"state": "not JSON"}),
        ({"W": torch.ones(2)}, {"state": "[]"}),
        ({"elsewhere/W": torch.ones(2)}, "keep"),
        (None, {"state": '{"epoch": 1}'}),
        (None, "without epoch"),
        (None, "negative epoch"),
    ],
)
def test_checkpoints_that_cannot_be_restored(tmp_path, tensors, note):
    from safetensors import safe_open

    from bayesticket.files import tensors_digest
    from bayesticket.runs import RunDirectory, TrainConfig, Training
    from bayesticket.runs.checkpoint import checkpoint_of

    training, file = Training(TrainConfig(task=TASK, model=SMALL, epochs=4)), tmp_path / "checkpoint.safetensors"
    training.take_epoch()
    directory = RunDirectory(tmp_path)
    directory.begin(training.as_run("running").header(), {})
    directory.write_checkpoint(*checkpoint_of(training))
    with safe_open(file, framework="pt") as content:
        state = json.loads(content.metadata()["state"])
        kept = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
    named = {
        "keep": state,
        "without epoch": {name: value for name, value in state.items() if name != "epoch"},
        "negative epoch": state | {"epoch": -1},
    }
    written = {"state": json.dumps(named[note])} if isinstance(note, str) else note or {}
    save_file(tensors or kept, file, metadata={**written, "sha256": tensors_digest(tensors or kept, written)})
    refused(lambda: bt.train(TASK, model=SMALL, epochs=4, store=tmp_path), f"{file}: ")


# --- calls that make no sense ---


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"measures": bt.KLToOracle()}, "measures: got KLToOracle(); accepted: a sequence of Measure objects"),
        ({"measures": None}, "measures: got None; accepted: a sequence of Measure objects"),
        ({"progress": "x"}, "progress: got 'x'; accepted: True, False, None, or a function"),
        ({"device": None}, "device: got None; accepted: "),
        ({"device": "meta"}, "device: got 'meta'; accepted: a device that holds numbers"),
        ({"seed": 2**70}, "seed: got 1180591620717411303424; accepted: "),
        ({"seed": 2**70, "init_seed": 0, "split_seed": 0, "batch_seed": 0}, "seed: got 1180591620717411303424"),
        ({"intervention": Editing(name=object())}, "specification: got <object"),  # type: ignore[arg-type]
    ],
)
def test_calls_of_train(no_forward, tmp_path, changes, said):
    given = {"model": SMALL, "epochs": 1} | changes
    refused(lambda: bt.train(TASK, **given), said)
    refused(lambda: bt.train(TASK, **given, store=tmp_path / "run"), said)
    assert snapshot(tmp_path) == {}


@pytest.mark.parametrize("switch", [torch.no_grad, torch.inference_mode])
def test_training_without_gradients(no_forward, switch):
    with switch():
        refused(lambda: same_run(), "train: got ", "accepted: one outside torch.no_grad and inference_mode")


@pytest.mark.parametrize("given", [5, None, ""])
def test_stores_that_are_no_path(given):
    refused(lambda: bt.resume(given), f"store: got {given!r}; accepted: the directory of a saved run")
    refused(lambda: bt.Run.load(given), f"path: got {given!r}; accepted: the directory of a saved run")


@pytest.mark.parametrize("name", ["weights.safetensors", "checkpoint.safetensors", "curves.parquet"])
def test_a_directory_with_files_of_our_names_but_no_run_is_foreign(no_forward, copied, name):
    (copied / "mine").mkdir()
    (copied / "mine" / name).write_text("precious")
    before = snapshot(copied)
    refused(lambda: same_run(store=copied / "mine"), "store: got ", f"it has '{name}'")
    refused(lambda: bt.Run.load(copied).save(copied / "mine"), "path: got ", f"it has '{name}'")
    assert snapshot(copied) == before


def test_an_edit_needs_a_row_for_every_example_of_the_task():
    rows = TRAIN.oracle
    for edit in (bt.FrozenAttention(rows), bt.MixedAttention(rows, weight=0.5), bt.FrozenAttention(bt.Permuted(rows))):
        said = f"accepted: {TASK.split().train.n + TASK.split().test.n} rows, one for each of task.examples(seed)"
        refused(lambda edit=edit: bt.train(TASK, edit, model=SMALL, epochs=1), f"got a tensor with {N} rows;", said)


def test_a_model_of_half_precision():
    refused(lambda: bt.train(TASK, model=transformer(dtype=torch.float16), epochs=1), "model: got ", "float16")


MEASURES = (bt.LipschitzBounds(), bt.Contraction(), bt.Accuracy())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda model: model.to(torch.float16), "parameters of float16; accepted: float32 or float64 throughout"),
        (lambda model: model.to(torch.bfloat16), "parameters of bfloat16; accepted: float32 or float64 throughout"),
        (lambda model: model.embed.to(torch.float64), "parameters of float32 and float64; accepted: "),
        (lambda model: model.to_empty(device="meta"), "a model on the meta device; accepted: one whose weights have v"),
        (lambda model: model.W_E.data[0].fill_(math.nan), "a model whose embed.W_E is not finite; accepted: "),
    ],
)
def test_models_that_give_no_numbers_are_not_measured(change, said):
    model = bt.build_model(TASK, d_model=8, d_mlp=8)
    change(model)
    for measure in MEASURES:
        refused(lambda measure=measure: bt.measure(model, TRAIN, measure), "model: got ", said)
    refused(lambda: attention_of(model, TRAIN), "model: got ", said)


def test_models_without_values_are_not_trained_or_learned_from():
    model = bt.build_model(TASK, d_model=8, d_mlp=8).to_empty(device="meta")
    refused(lambda: bt.train(TASK, model=model, epochs=1), "model: got a model on the meta device")
    prior = bt.KLPrior(target=model)
    refused(lambda: bt.train(TASK, prior, model=SMALL, epochs=1), "model: got a model on the meta device")
    measure = bt.KLToTarget(target=model)
    refused(lambda: bt.measure(bt.build_model(TASK), TRAIN, measure), "teacher: got a model on the meta device")


# --- precision, and losses that are undefined ---


def test_autocast_is_refused_and_the_precision_of_products_noted():
    model = bt.build_model(TASK, d_model=8, d_mlp=8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        refused(lambda: bt.train(TASK, model=SMALL, epochs=1), "train: got a call inside torch.autocast")
        refused(
            lambda: bt.measure(model, TASK.split().test, bt.Accuracy()), "measure: got a call inside torch.autocast"
        )
    run = bt.train(TASK, model=SMALL, epochs=1)
    assert run.made_with["matmul_precision"] == torch.get_float32_matmul_precision()


def test_an_undefined_test_loss_ends_a_run(monkeypatch):
    """Of a loss that is NaN on the test half alone."""
    n_test = len(TASK.split().test)

    @bt.spec
    class UndefinedLoss(bt.LossFunction):
        def __call__(self, logits, targets):
            loss = torch.nn.functional.cross_entropy(logits, targets)
            return loss * math.nan if len(targets) == n_test else loss

    with pytest.raises(bt.BayesticketError, match=r"epoch 0 \(test loss is nan\)"):
        bt.train(TASK, model=SMALL, loss=UndefinedLoss(), epochs=5)


def test_gradients_of_nothing_are_refused():
    @bt.spec
    class WithoutGradients(bt.Intervention):
        def gradients(self, context, gradients):
            pass

    refused(
        lambda: bt.train(TASK, WithoutGradients(), model=SMALL, epochs=1),
        "WithoutGradients.gradients: got None; accepted: a ",
    )
