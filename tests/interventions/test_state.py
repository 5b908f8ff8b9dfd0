"""Interventions with state, and those that see all gradients: Grokfast, OrthoGrad, and one of the user's own."""

import copy
import functools
import os
import signal

import pytest
import torch
from helpers import Killed, die_at
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs import SMALL, TASK, Held, assert_same
from programs import running, wait_until
from torch.nn import functional as F

import bayesticket as bt
from bayesticket.interventions.orthograd import orthogonal_part

TRAIN = TASK.split().train
OPTIONS = {"model": SMALL, "epochs": 24, "lr": 3e-3, "seed": 2}


@bt.spec
class Momentum(bt.Intervention):
    """An intervention of the user's: keeps an average of the parameters and pulls toward it, from one penalty on."""

    pull: float = 0.1

    def init(self, context):
        return {name: p.detach().clone() for name, p in context.parameters.items() if name.endswith("W_E")}

    def penalty(self, context, activations):
        terms = [(context.parameters[name] - kept).square().sum() for name, kept in context.state.items()]
        return self.pull * torch.stack(terms).sum()

    def project(self, context):
        for name in context.state:
            context.state[name] = context.state[name].lerp(context.parameters[name].detach(), 0.1)


STATEFUL = {
    "exponential": bt.Grokfast(alpha=0.9, gain=2.0),
    "window": bt.Grokfast(window=7, gain=5.0),
    "scheduled": bt.Grokfast(gain=bt.Anneal(2.0, 0.0, last=20)),
    "ortho": bt.OrthoGrad(),
    "self-distillation": bt.SelfDistillation(strength=0.7, sharpness=2.0),
    "own": Momentum(),
    "several": bt.Grokfast(alpha=0.9) + bt.KLPrior(strength=0.5) + bt.Grokfast(window=3) + bt.OrthoGrad() + Momentum(),
}


def plain_loop(change, epochs: int = 12, **settings) -> dict[str, torch.Tensor]:
    """The weights after a plain loop in which `change` is given the gradients and parameters of every step."""
    model = bt.build_model(TASK, d_model=8, d_mlp=8, seed=2, dtype=torch.float64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1.0)
    parameters = dict(model.named_parameters())
    train = TASK.split(seed=2).train
    for step in range(epochs):
        F.cross_entropy(model(train.tokens)[:, -1], train.targets).backward()
        change(step, parameters)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return {name: p.detach() for name, p in parameters.items()}


def trained(intervention, epochs: int = 12) -> dict[str, torch.Tensor]:
    options = OPTIONS | {"epochs": epochs, "warmup": 0, "dtype": "float64"}
    return bt.train(TASK, intervention, **options).weights


def assert_close(one, other) -> None:
    for name in one:
        if name.endswith("b_K"):
            continue  # the softmax does not see it: its gradient is rounding, which Adam scales up
        torch.testing.assert_close(one[name], other[name], rtol=1e-9, atol=1e-12, msg=name)


# Against a plain loop ------------------------------------------------------------------------------------------------


def test_the_exponential_average_is_its_formula():
    averages: dict[str, torch.Tensor] = {}

    def change(step, parameters):
        for name, p in parameters.items():
            averages[name] = p.grad.clone() if step == 0 else 0.9 * averages[name] + 0.1 * p.grad
            p.grad = p.grad + 2.0 * averages[name]

    assert_close(trained(bt.Grokfast(alpha=0.9, gain=2.0)), plain_loop(change))


def test_the_moving_average_adds_nothing_until_its_window_is_full():
    past: dict[str, list[torch.Tensor]] = {}

    def change(step, parameters):
        for name, p in parameters.items():
            past.setdefault(name, []).append(p.grad.clone())
            if len(past[name]) >= 4:
                p.grad = p.grad + 5.0 * torch.stack(past[name][-4:]).mean(0)

    assert_close(trained(bt.Grokfast(window=4, gain=5.0)), plain_loop(change))
    none = bt.train(TASK, **(OPTIONS | {"epochs": 3})).weights
    early = bt.train(TASK, bt.Grokfast(window=4, gain=5.0), **(OPTIONS | {"epochs": 3})).weights
    assert all(torch.equal(none[name], early[name]) for name in none)


def test_orthograd_is_its_formula():
    def change(step, parameters):
        for p in parameters.values():
            w, g = p.detach().flatten(), p.grad.flatten()
            across = g - (w @ g) / (w @ w + 1e-30) * w
            p.grad = (across * g.norm() / (across.norm() + 1e-30)).view_as(p)

    assert_close(trained(bt.OrthoGrad()), plain_loop(change))


@settings(deadline=None, max_examples=100)
@given(seed=st.integers(0, 10_000), size=st.integers(2, 12), scale=st.floats(-6, 6))
def test_the_orthogonal_part_is_orthogonal_and_as_long(seed, size, scale):
    weight, gradient = torch.randn(2, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    part = orthogonal_part(weight, 10**scale * gradient)
    assert abs(torch.dot(part, weight)) <= 1e-7 * part.norm() * weight.norm()
    torch.testing.assert_close(part.norm(), 10**scale * gradient.norm(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("gradient", [[0.0, 0.0], [2.0, 0.0]])
def test_a_gradient_along_the_weights_leaves_nothing(gradient):
    assert orthogonal_part(torch.tensor([1.0, 0.0]), torch.tensor(gradient)).tolist() == [0.0, 0.0]
    assert orthogonal_part(torch.zeros(2), torch.tensor([3.0, 4.0])).tolist() == [3.0, 4.0]


# State ---------------------------------------------------------------------------------------------------------------


@functools.cache
def uninterrupted(case):
    return bt.train(TASK, STATEFUL[case], **OPTIONS)


@pytest.mark.parametrize("case", STATEFUL)
@pytest.mark.parametrize("killed_at", [3, 12, 21])
def test_state_survives_a_kill_to_the_bit(tmp_path, case, killed_at, monkeypatch):
    whole = uninterrupted(case)
    die_at(killed_at, monkeypatch)
    with pytest.raises(Killed):
        bt.train(TASK, STATEFUL[case], **OPTIONS, store=tmp_path / "run", checkpoint_every=5)
    monkeypatch.undo()
    assert_same(bt.resume(tmp_path / "run"), whole)


def train_and_wait(case, store):
    bt.train(TASK, STATEFUL[case] + Held(after=8), **(OPTIONS | {"epochs": 30}), store=store, checkpoint_every=5)


@pytest.mark.parametrize("case", ["exponential", "window"])
def test_kill_minus_nine_costs_no_state(tmp_path, case, monkeypatch):
    gate, store = tmp_path / "gate", tmp_path / "run"
    monkeypatch.setenv("HELD_UNTIL", str(gate))
    with running(train_and_wait, case, store) as program:
        wait_until((store / "checkpoint.safetensors").exists)
        os.kill(program.pid, signal.SIGKILL)
        program.process.join()
    gate.touch()
    whole = bt.train(TASK, STATEFUL[case] + Held(after=8), **(OPTIONS | {"epochs": 30}))
    assert_same(bt.resume(store), whole)


@bt.spec
class Scaling(bt.Intervention):
    """Scales the MLP's output by a tensor of state that its hook has taken once, and that grows in place."""

    def init(self, context):
        return {"factor": torch.ones(())}

    def edits(self, context):
        factor = context.state["factor"]
        return [("blocks.0.hook_mlp_out", lambda tensor, hook: tensor * factor)]

    def project(self, context):
        context.state["factor"].mul_(1.02)


def test_a_hook_may_hold_its_state(tmp_path, monkeypatch):
    whole = bt.train(TASK, Scaling(), **OPTIONS)
    looked_up = bt.train(TASK, ScalingLookedUp(), **OPTIONS)
    assert (whole.curves == looked_up.curves).all(axis=None)
    stopped = [False]

    def stop(epoch, record):
        if epoch >= 20 and not stopped[0]:
            stopped[0] = True
            raise KeyboardInterrupt

    with pytest.raises(bt.Interrupted):
        bt.train(TASK, Scaling(), **OPTIONS, store=tmp_path / "run", progress=stop)
    assert_same(bt.resume(tmp_path / "run"), whole)


@bt.spec
class ScalingLookedUp(Scaling):
    """The same, with the tensor looked up whenever it is used."""

    def edits(self, context):
        return [("blocks.0.hook_mlp_out", lambda tensor, hook: tensor * context.state["factor"])]


def test_state_that_is_given_as_a_gradient_is_not_clipped():
    @bt.spec
    class Averaged(bt.Intervention):
        """Replaces each gradient by a running sum, which it returns itself."""

        def init(self, context):
            return {name: torch.zeros_like(weight) for name, weight in context.parameters.items()}

        def gradients(self, context, gradients):
            return {name: context.state[name].add_(gradient) for name, gradient in gradients.items()}

    model = bt.build_model(TASK, d_model=8, d_mlp=8)
    with Averaged().attach(model, TRAIN) as live:
        torch.nn.functional.cross_entropy(model(TRAIN.tokens)[:, -1], TRAIN.targets).backward()
        live.gradients()
        before = {name: tensor.clone() for name, tensor in live.contexts[0].state.items()}
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    assert all(torch.equal(tensor, before[name]) for name, tensor in live.contexts[0].state.items())
    assert any(tensor.any() for tensor in before.values())


@pytest.mark.parametrize("case", STATEFUL)
def test_the_same_object_carries_nothing_into_the_next_run(case):
    assert_same(uninterrupted(case), bt.train(TASK, STATEFUL[case], **OPTIONS))


def test_every_part_of_a_recipe_has_a_state_of_its_own():
    model = bt.build_model(TASK, d_model=8, d_mlp=8)
    live = (bt.Grokfast() + bt.Grokfast(window=2)).attach(model, TRAIN)
    one, two = (context.state for context in live.contexts)
    assert one["embed.W_E"].shape == model.W_E.shape
    assert two["embed.W_E"].shape == (2, *model.W_E.shape)
    assert {name.partition("/")[0] for name in live.state()} == {"grokfast", "grokfast_2"}


def test_a_state_that_does_not_fit_is_refused():
    live = bt.Grokfast().attach(bt.build_model(TASK, d_model=8, d_mlp=8), TRAIN)
    state = live.state()
    with pytest.raises(bt.BayesticketError, match=r"state: got \['grokfast/steps'\]; accepted: exactly the tensors"):
        live.restore_state({name: tensor for name, tensor in state.items() if name != "grokfast/steps"})


def test_edits_on_the_test_half_see_the_state_of_training():
    @bt.spec
    class Scaling(bt.Intervention):
        """Scales the MLP's output by a factor that grows with every step."""

        def init(self, context):
            return {"factor": torch.ones(())}

        def edits(self, context):
            return [("blocks.0.hook_mlp_out", lambda tensor, hook: tensor * context.state["factor"])]

        def project(self, context):
            context.state["factor"] = context.state["factor"] * 1.1

    # Were the test half given a state of its own, its loss would be that of the unscaled model.
    run = bt.train(TASK, Scaling(), **(OPTIONS | {"epochs": 20}))
    test = TASK.split(seed=2).test
    scaled = copy.deepcopy(run.model)
    # the projection is also applied once before the first step
    with torch.no_grad():
        scaled.blocks[0].mlp.W_out.mul_(1.1**21)
        scaled.blocks[0].mlp.b_out.mul_(1.1**21)
    assert run.curves["test_loss"].iloc[-1] == pytest.approx(bt.measure(scaled, test, bt.Loss())["loss"], rel=1e-4)


# In a loop of one's own ----------------------------------------------------------------------------------------------


def test_a_forgotten_call_is_named():
    model = bt.build_model(TASK, d_model=8, d_mlp=8)
    optimizer = torch.optim.AdamW(model.parameters())
    with bt.OrthoGrad().attach(model, TRAIN) as live:
        F.cross_entropy(model(TRAIN.tokens)[:, -1], TRAIN.targets).backward()
        optimizer.step()
        with pytest.raises(bt.BayesticketError, match=r"project: OrthoGrad changes gradients, and live\.gradients\(\)"):
            live.project()
        live.gradients()
        live.project()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"embed.W_X": torch.ones(2)}, r"Odd\.gradients: got 'embed\.W_X'.*Closest: 'embed\.W_E'"),
        (
            {"unembed.b_U": torch.ones(2)},
            r"Odd\.gradients\['unembed\.b_U'\]: got .*accepted: a tensor of torch",
        ),
        ({"unembed.b_U": 3.0}, r"Odd\.gradients\['unembed\.b_U'\]: got 3\.0"),
    ],
)
def test_gradients_that_do_not_fit_are_refused(given, message):
    @bt.spec
    class Odd(bt.Intervention):
        def gradients(self, context, gradients):
            return given

    with pytest.raises(bt.BayesticketError, match=message):
        bt.train(TASK, Odd(), **OPTIONS)


@pytest.mark.parametrize("given", [torch.ones(2), {"a": 1.0}, {1: torch.ones(2)}])
def test_a_state_that_is_not_tensors_by_name_is_refused(given):
    @bt.spec
    class Stateful(bt.Intervention):
        def init(self, context):
            return given

    with pytest.raises(bt.BayesticketError, match=r"Stateful\.init: got .*accepted: a mapping from names to tensors"):
        bt.train(TASK, Stateful(), **OPTIONS)
