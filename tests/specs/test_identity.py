"""Ids: what changes the id of a configuration, and what does not."""

import dataclasses
import inspect
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import bayesticket as bt
from bayesticket.runs import TrainConfig, configure
from bayesticket.specs import Spec, describe, description_id, field_names, restore, same, spec_id

PINNED = Path(__file__).with_name("pinned.json")
"""Fields in their order, and defaults, of every specification of the library; written by this file as a script."""


def the_librarys_own() -> dict[str, type[Spec]]:
    for name in dir(bt):  # so that every room has been imported
        getattr(bt, name)
    own = {name: kind for name, kind in Spec.kinds.items() if kind.__module__.startswith("bayesticket.")}
    return {name: kind for name, kind in sorted(own.items()) if dataclasses.is_dataclass(kind)}


def defaults_of(kind: type[Spec]) -> dict[str, object]:
    """The fields of a class in their order, with what stands for each default."""
    written = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if not field.init:
            continue
        if field.default_factory is not dataclasses.MISSING:
            written[field.name] = describe(field.default_factory(), {})
        else:
            written[field.name] = "required" if field.default is dataclasses.MISSING else describe(field.default, {})
    return written


def pins() -> dict[str, object]:
    classes = {name: defaults_of(kind) for name, kind in the_librarys_own().items() if not inspect.isabstract(kind)}
    examples = {
        "the paper's": TrainConfig(),
        "muon": configure(optimizer="muon", lr=0.02, seed=3),
        "kl and norm": configure(intervention=bt.KLPrior(strength=0.5) + bt.NormMatch(radius=30.0)),
        "parity": configure(task=bt.SparseParity(n=10, k=2), model=bt.Architecture(n_heads=4), epochs=100),
        "measures": configure(measures=(bt.AttentionEntropy(), bt.StructuralCondition("derived"))),
        "schedule": configure(
            intervention=bt.KLPrior("uniform", strength=bt.Anneal(1.0, 0.0, last=50)), dtype="float64"
        ),
    }
    return {"classes": classes, "ids": {name: spec_id(config) for name, config in examples.items()}}


def test_defaults_fields_and_ids_are_as_pinned():
    # A default that changes changes what the ids of stored runs mean: give it a new name instead. A new class, or a new
    # field with a default, is added to the pins: python tests/specs/test_identity.py
    pinned, found = json.loads(PINNED.read_text(encoding="utf-8")), json.loads(json.dumps(pins()))
    assert found["ids"] == pinned["ids"]
    for name, fields in pinned["classes"].items():
        assert name in found["classes"], f"{name} is gone"
        now = found["classes"][name]
        assert [(field, now.get(field)) for field in fields] == list(fields.items()), name
        assert [field for field in now if field in fields] == list(fields), name
        positional = [each.name for each in dataclasses.fields(Spec.kinds[name]) if each.init and not each.kw_only]
        old = [field for field in positional if field in fields]
        assert positional[: len(old)] == old, f"{name}: a new field comes last, or is a keyword"
    assert found["classes"].keys() == pinned["classes"].keys()


def widened(name: str, base: type[Spec]) -> type[Spec]:
    """The class as a later version of the library might have it: with one more field."""
    later = dataclasses.make_dataclass(
        name, [("added_later", float, dataclasses.field(default=0.5, kw_only=True))], bases=(base,),
        namespace={"__module__": base.__module__}, frozen=True, eq=False, repr=False,
    )  # fmt: skip
    return later


@pytest.mark.parametrize("name", ["ModularAddition", "KLPrior", "AdamW", "Architecture", "AttentionEntropy"])
def test_a_field_that_is_added_with_a_default_changes_no_id(name):
    base = Spec.kinds[name]
    given = base()
    later = widened(name, base)()
    assert description_id(describe(later, {})) == spec_id(given)
    assert describe(later, {}) == describe(given, {})
    assert spec_id(replace(later, added_later=0.25)) != spec_id(given)


def test_a_setting_of_the_configuration_that_is_added_changes_no_id():
    later = widened("TrainConfig", TrainConfig)
    assert spec_id(later(seed=3)) == spec_id(TrainConfig(seed=3))


def test_what_an_older_version_does_not_know_is_refused_only_where_it_matters():
    later = widened("AdamW", bt.AdamW)
    plain, special = describe(later(lr=0.5), {}), describe(later(added_later=0.25), {})
    Spec.kinds["AdamW"] = bt.AdamW
    assert restore(plain, {}) == bt.AdamW(lr=0.5)
    with pytest.raises(bt.BayesticketError, match=r"AdamW field: got 'added_later'.*a newer version of the library"):
        restore(special, {})


def test_a_measure_that_is_added_to_the_default_record_changes_no_id(monkeypatch):
    from bayesticket.runs import loop

    before = spec_id(TrainConfig())
    monkeypatch.setattr(loop, "DEFAULT_MEASURES", (*loop.DEFAULT_MEASURES, bt.EffectiveRank()))
    assert spec_id(TrainConfig()) == before
    run = bt.train(bt.ModularAddition(p=5), model=bt.Architecture(d_model=8, d_mlp=8), epochs=5)
    assert "effective_rank" in run.curves
    assert "EffectiveRank()" in run.recorded
    listed = bt.train(
        bt.ModularAddition(p=5), model=bt.Architecture(d_model=8, d_mlp=8), epochs=5, measures=[bt.EffectiveRank()]
    )
    assert listed.curves.equals(run.curves)


@given(st.data())
def test_each_setting_that_differs_gives_another_id(data):
    changes = {
        "seed": 1, "epochs": 5, "task": bt.ModularAddition(p=5), "optimizer": bt.SGD(), "warmup": 3, "batch_size": 4,
        "loss": bt.StableMax(), "model": bt.Architecture(n_heads=2), "max_grad_norm": None, "init_seed": 0,
    }  # fmt: skip
    chosen = data.draw(st.sets(st.sampled_from(sorted(changes))))
    other = data.draw(st.sets(st.sampled_from(sorted(changes))))
    ids = [spec_id(TrainConfig(**{name: changes[name] for name in names})) for names in (chosen, other)]
    assert (ids[0] == ids[1]) == (chosen == other)


def test_the_order_of_fields_does_not_change_an_id():
    description = describe(configure(seed=3, epochs=5, lr=0.5), {})
    assert isinstance(description, dict)
    assert description_id(dict(reversed(description.items()))) == description_id(description)


# Classes of the user's ---------------------------------------------------------------------------------------------


def test_a_class_with_a_version_is_told_apart_by_it_alone():
    def made(version: int | None, factor: float) -> Spec:
        @bt.spec
        class Halving(bt.Intervention):
            def project(self, context):
                return factor

        Halving.version = version
        return Halving()

    assert describe(made(2, 0.5), {}) == {"type": "Halving@2"}
    assert spec_id(made(2, 0.5)) == spec_id(made(2, 0.25)) != spec_id(made(3, 0.5))
    assert spec_id(made(None, 0.5)) != spec_id(made(None, 0.25))
    assert restore({"type": "Halving@1"}, {}) == Spec.kinds["Halving"]()


def test_a_version_is_not_inherited():
    @bt.spec
    class Base(bt.Intervention):
        version = 2

    @bt.spec
    class Derived(Base):
        def project(self, context):
            return None

    assert describe(Base(), {}) == {"type": "Base@2"}
    assert str(describe(Derived(), {})["type"]).startswith("Derived#")


def test_a_plain_dataclass_with_a_tensor_compares():
    @dataclasses.dataclass(frozen=True)
    class Weighted(bt.Intervention):
        weights: object

    one, same_again, other = (Weighted(torch.tensor(given)) + bt.QKPenalty() for given in ([1.0], [1.0], [2.0]))
    assert one == same_again
    assert one != other


def test_two_classes_of_one_name_from_different_modules_are_refused():
    with pytest.raises(
        bt.BayesticketError, match=r"class: got KLPrior of the module test_identity, a name that bayest"
    ):

        @bt.spec
        class KLPrior(bt.Intervention):
            pass

    assert Spec.kinds["KLPrior"] is bt.KLPrior


def test_a_class_may_be_defined_again_in_its_own_module():
    for default in (1, 2):

        @bt.spec
        class Again(bt.Intervention):
            value: int = default

    assert Spec.kinds["Again"]().value == 2


@pytest.mark.parametrize("decorator", [lambda kind: kind, dataclasses.dataclass])
def test_a_class_that_is_not_frozen_is_told_what_to_write(decorator):
    @decorator
    class Forgotten(bt.Intervention):
        value: int = 1

    with pytest.raises(bt.BayesticketError, match=r"Forgotten: got .*accepted: @bayesticket\.spec in the line above"):
        Forgotten()


def test_a_class_with_an_init_of_its_own_is_told_what_to_write():
    class Push(bt.Intervention):
        def __init__(self, strength=0.1):
            self.strength = strength

    with pytest.raises(bt.BayesticketError, match=r"Push: got .* not a frozen dataclass.*in place of an `__init__`"):
        Push()


def test_a_plain_frozen_dataclass_works():
    @dataclasses.dataclass(frozen=True)
    class PlainPrior(bt.Intervention):
        strength: float = 0.5

        def penalty(self, context, activations):
            return self.strength * next(iter(context.parameters.values())).square().sum()

    run = bt.train(bt.ModularAddition(p=5), PlainPrior(0.1), model=bt.Architecture(d_model=8, d_mlp=8), epochs=3)
    assert run.config.intervention.parts == (PlainPrior(0.1),)


def test_equality_of_specifications_is_by_fields():
    assert bt.AdamW(lr=1) == bt.AdamW(lr=1.0) != bt.Lion(lr=1.0)
    assert not same(bt.AdamW(), bt.AdamW(lr=0.5))
    assert field_names(bt.AdamW) == ["lr", "weight_decay", "betas"]


if __name__ == "__main__":
    PINNED.write_text(json.dumps(pins(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.stdout.write(f"written: {PINNED.name}\n")
