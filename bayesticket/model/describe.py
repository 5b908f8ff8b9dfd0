"""Descriptions of models, from which, with the weights, the models are built again."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields

import torch
from torch import Tensor, nn
from transformer_lens import HookedTransformer, HookedTransformerConfig

from bayesticket.errors import refuse, refuse_name
from bayesticket.model.build import (
    Architecture,
    architecture_hooks,
    equip,
    hooked_transformer,
    require_in_memory,
    require_parameters,
)
from bayesticket.model.hooks import held
from bayesticket.specs import describe_as

_NOT_DESCRIBED = {
    *("device", "n_devices", "n_params", "seed", "init_weights"),  # how the model was built, not what it is
    "dtype",  # stored with the weights
    *("from_checkpoint", "checkpoint_index", "checkpoint_label_type", "checkpoint_value"),
    # Settings by which reading a file could download or run code; the models here read tokens, not text.
    *("tokenizer_name", "tokenizer_prepends_bos", "default_prepend_bos", "trust_remote_code"),
    *("load_in_4bit", "quantization_method"),
}


def describe_model(model: HookedTransformer) -> dict[str, object]:
    """All that is needed to build a model again: the weights, and the settings that differ from the defaults.

    >>> from bayesticket.model import build_model
    >>> from bayesticket.tasks import ModularAddition
    >>> sorted(describe_model(build_model(ModularAddition(p=7), d_model=8, residual=False)))
    ['architecture', 'config', 'frozen', 'own_hooks', 'weights']
    """
    require_in_memory("model", model)
    defaults = {field.name: field.default for field in fields(HookedTransformerConfig)}
    config = {}
    for name, value in model.cfg.to_dict().items():
        value = value.item() if hasattr(value, "item") else value  # numpy scalars
        if name not in _NOT_DESCRIBED and value != defaults.get(name, MISSING):
            config[name] = value
    with held(model):
        return {
            "config": config,
            "architecture": getattr(model, "architecture", None),
            "frozen": sorted(name for name, parameter in model.named_parameters() if not parameter.requires_grad),
            "own_hooks": unexplained_hooks(model),
            "weights": {name: parameter.data for name, parameter in model.named_parameters()},
        }


def unexplained_hooks(model: HookedTransformer) -> list[str]:
    """Names of the modules with hooks that are not from the model's architecture; such hooks cannot be stored."""
    architecture = getattr(model, "architecture", None)
    explained = Counter(architecture_hooks(architecture) if architecture else ())
    with held(model):
        return sorted(name for name, module in model.named_modules() if _count_hooks(module) > explained[name])


def _count_hooks(module: nn.Module) -> int:
    forward = len(module._forward_hooks) + len(module._forward_pre_hooks)
    return forward + len(module._backward_hooks) + len(module._backward_pre_hooks)


def rebuild_model(
    config: dict[str, object],
    architecture: Architecture | None,
    frozen: Sequence[str],
    weights: dict[str, Tensor],
    own_hooks: Sequence[str] = (),
) -> HookedTransformer:
    """Builds the model that `describe_model` described; its `own_hooks` cannot be rebuilt."""
    known = {field.name for field in fields(HookedTransformerConfig)} - _NOT_DESCRIBED
    if unknown := sorted(set(config) - known):
        raise refuse_name("model.config", unknown[0], sorted(known))
    settings = {name: list(value) if isinstance(value, tuple) else value for name, value in config.items()}
    initial = {"dtype": next(iter(weights.values())).dtype, "seed": None, "init_weights": False}
    require_parameters(settings, weights)
    model = hooked_transformer(settings | initial, seed=0)
    if architecture is not None:
        equip(model, architecture)
    load_parameters(model, weights)
    parameters = dict(model.named_parameters())
    if unknown := sorted(set(frozen) - set(parameters)):
        raise refuse_name("model.frozen", unknown[0], parameters)
    for name, parameter in parameters.items():
        parameter.requires_grad_(name not in frozen)
    return model


describe_as("HookedTransformer", HookedTransformer, describe_model, rebuild_model)


def load_parameters(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copies weights into a model's parameters; raises unless names and shapes agree."""
    parameters = dict(model.named_parameters())
    if difference := sorted(set(parameters) ^ set(weights)):
        raise refuse("weights", difference, "exactly the names of the model's parameters")
    with torch.no_grad():
        for name, parameter in parameters.items():
            if parameter.shape != weights[name].shape:
                raise refuse(f"weights[{name!r}]", tuple(weights[name].shape), f"shape {tuple(parameter.shape)}")
            parameter.copy_(weights[name])
