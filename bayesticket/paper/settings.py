"""The settings of runs, in full and in words; a run's header leaves out those that have their defaults."""

from collections.abc import Iterable, Sequence
from dataclasses import MISSING

from bayesticket.runs import Header
from bayesticket.specs import JSON, Spec, default_values, describe, described_kind


def full(description: JSON) -> JSON:
    """A description with all fields, those that it leaves out because they have their defaults included.

    Nothing is restored, so that it also serves descriptions whose tensors are not at hand, such as those of tickets.

    >>> from bayesticket.measures import ExplainingAway
    >>> full({"type": "ExplainingAway", "layer": 1})
    {'type': 'ExplainingAway', 'half': None, 'layer': 1, 'head': None, 'query': -1, 'examples': 256}
    """
    if isinstance(description, list):
        return [full(entry) for entry in description]
    if not isinstance(description, dict):
        return description
    name = described_kind(description)
    if name not in Spec.kinds or not (defaults := default_values(Spec.kinds[name])):
        return {key: full(entry) for key, entry in description.items()}
    left_out = {field: value for field, value in defaults.items() if field not in description and value is not MISSING}
    written = {field: describe(value, {}) for field, value in left_out.items()} | description
    return {"type": name} | {field: full(written.get(field)) for field in defaults}


def config_of(header: Header) -> dict[str, JSON]:
    """All settings of a run, by name."""
    config = full(header.config)
    assert isinstance(config, dict)
    return config


def settings(headers: Sequence[Header]) -> list[list[str]]:
    """The settings that runs have in common and the versions they were made with; where runs differ, the values."""
    configs = [config_of(header) for header in headers]
    names = [name for name in configs[0] if name not in ("type", "intervention")]
    rows = [[name, _values(config.get(name) for config in configs)] for name in names]
    made = [header.made_with for header in headers]
    versions = sorted({name for each in made for name in each})
    return rows + [[name, _values(each.get(name, "–") for each in made)] for name in versions]


def _values(given: Iterable[JSON]) -> str:
    shown = dict.fromkeys(brief(value) for value in given)
    return " | ".join(list(shown)[:8]) + (f" | … ({len(shown)} in all)" if len(shown) > 8 else "")


def brief(value: JSON) -> str:
    """A described value in a few words.

    >>> brief({"type": "Recipe", "interventions": [{"type": "KLPrior", "strength": 0.5}]}), brief([])
    ('KLPrior(strength=0.5)', 'none')
    """
    if isinstance(value, list):
        return ", ".join(map(brief, value)) or "none"
    if not isinstance(value, dict):
        return str(value)
    if value.get("type") == "Recipe":
        parts = value.get("interventions")
        return " + ".join(map(brief, parts if isinstance(parts, list) else [])) or "none"
    if value.get("type") == "HookedTransformer":
        return "a model of its own"
    if "type" not in value:
        return f"{len(value)} tensors"
    fields = ", ".join(f"{name}={brief(entry)}" for name, entry in value.items() if name != "type")
    return f"{value['type']}({fields})"
