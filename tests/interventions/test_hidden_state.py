"""State that an intervention keeps on itself is noticed; what only looks like state is not."""

import functools
import logging
from collections import defaultdict

import pytest
import torch
from jobs import SMALL, TASK, assert_same

import bayesticket as bt
from bayesticket.runs import Training, configure

TRAIN = TASK.split().train
OPTIONS = {"model": SMALL, "epochs": 40, "lr": 3e-3, "seed": 2}


class Averager:
    """Something of the user's that is no specification."""

    def __init__(self):
        self.mean = torch.zeros(())


@bt.spec
class Remembering(bt.Intervention):
    """Keeps what it has seen in the wrong place, from an epoch on."""

    where: str = "dict"
    since: int = 0

    shared = {}  # noqa: RUF012

    def __post_init__(self):
        for name, value in {
            "averages": {}, "history": [], "mean": torch.zeros(()), "steps": 0, "averager": Averager(),
            "nested": {"inner": defaultdict(list)}, "noise": torch.Generator().manual_seed(0),
        }.items():  # fmt: skip
            object.__setattr__(self, name, value)

    @functools.cached_property
    def cache(self):
        return {"n": 1}

    def gradients(self, context, gradients):
        gradient = gradients["embed.W_E"]
        if context.epoch >= self.since:
            self.remember(gradient)
        return {"embed.W_E": gradient * 1.0}

    def remember(self, gradient):
        match self.where:
            case "dict":
                self.averages["embed.W_E"] = gradient.clone()
            case "list":
                self.history.append(gradient.norm().item())
            case "tensor":
                self.mean.add_(gradient.norm())
            case "data":
                self.mean.data.add_(1.0)
            case "attribute":
                object.__setattr__(self, "steps", self.steps + 1)
            case "new attribute":
                object.__setattr__(self, "last", gradient)
            case "class":
                self.shared["last"] = gradient
            case "object":
                self.averager.mean = gradient.norm()
            case "nested":
                self.nested["inner"]["norms"].append(1.0)
            case "generator":
                torch.rand((), generator=self.noise)
            case "cache":
                self.cache["n"] += 1


@pytest.fixture(autouse=True)
def nothing_is_shared_between_tests():
    yield
    Remembering.shared.clear()


WHERE = {
    "dict": r"self\.averages\['embed\.W_E'\]",
    "list": r"self\.history\[0\]",
    "tensor": r"self\.mean",
    "data": r"self\.mean",
    "attribute": r"self\.steps",
    "new attribute": r"self\.last",
    "class": r"Remembering\.shared\['last'\]",
    "object": r"self\.averager\.mean",
    "nested": r"self\.nested\['inner'\]\['norms'\]",
    "generator": r"self\.noise",
}


@pytest.mark.parametrize("where", WHERE)
def test_state_kept_anywhere_on_the_object_is_refused_before_the_first_step(where, tmp_path):
    message = rf"^Remembering: got state on itself \({WHERE[where]} has changed .*accepted: `init`, whose tensors"
    with pytest.raises(bt.BayesticketError, match=message):
        bt.train(TASK, Remembering(where), **OPTIONS, store=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("since", [1, 17])
def test_state_that_begins_later_is_refused_at_the_next_record(since):
    training = Training(configure(task=TASK, intervention=bt.KLPrior() + Remembering("list", since), **OPTIONS))

    def train():
        while not training.is_over():
            training.take_epoch()

    with pytest.raises(bt.BayesticketError, match=r"Remembering: got state on itself \(self\.history\[0\]"):
        train()
    assert training.epoch <= since + 10


def test_a_sweep_says_so_before_anything_is_begun(tmp_path):
    with pytest.raises(bt.BayesticketError, match=r"^mine, seed 0: Remembering: got state on itself"):
        bt.sweep(
            TASK, {"none": None, "mine": Remembering()}, seeds=range(2), store=tmp_path / "runs", model=SMALL, epochs=5
        )
    assert not (tmp_path / "runs").exists()


def test_a_loop_of_ones_own_is_told_after_a_few_steps():
    model = bt.build_model(TASK, d_model=8, d_mlp=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = []

    def loop():
        with Remembering("tensor", since=2).attach(model, TRAIN) as live:
            for epoch in range(20):
                live.epoch = epoch
                torch.nn.functional.cross_entropy(model(TRAIN.tokens)[:, -1], TRAIN.targets).backward()
                live.gradients()
                optimizer.step()
                steps.append(epoch)
                live.project()

    with pytest.raises(bt.BayesticketError, match="Remembering: got state on itself"):
        loop()
    assert steps == [0, 1, 2, 3]


def test_a_cached_property_may_be_computed_but_not_changed():
    @bt.spec
    class Cached(Remembering):
        def gradients(self, context, gradients):
            if context.epoch == 3:
                assert self.cache == {"n": 1}
            return {}

    bt.train(TASK, Cached(), **OPTIONS)
    changing = Remembering("cache", since=3)
    with pytest.raises(bt.BayesticketError, match=r"self\.cache\['n'\] has changed"):
        bt.train(TASK, changing, **OPTIONS)


def test_an_object_inside_one_of_the_librarys_is_looked_at():
    @bt.spec
    class OwnPrior(bt.AttentionIntervention):
        def __post_init__(self):
            super().__post_init__()
            object.__setattr__(self, "norms", [])

        def reads(self):
            return ("blocks.0.attn.hook_pattern",)

        def penalty(self, context, activations):
            self.norms.append(1.0)
            return activations["blocks.0.attn.hook_pattern"].square().mean()

    with pytest.raises(bt.BayesticketError, match=r"OwnPrior: got state on itself \(self\.norms\[0\]"):
        bt.train(TASK, bt.GradientNoise(OwnPrior()), **OPTIONS)


@bt.spec
class Innocent(bt.Intervention):
    """Holds a tensor, a model, a list and itself, and changes none of them; its state is where it belongs."""

    target: torch.Tensor
    teacher: bt.Architecture | torch.nn.Module

    log = logging.getLogger("innocent")

    def __post_init__(self):
        object.__setattr__(
            self, "names", ["embed.W_E", {"itself": self}, float("nan"), None, {1, 2}, print, torch.float32]
        )

    def init(self, context):
        return {"mean": torch.zeros_like(self.target)}

    def penalty(self, context, activations):
        context.state["mean"] = 0.9 * context.state["mean"] + 0.1 * context.parameters[self.names[0]].detach()
        with torch.no_grad():
            self.teacher(TRAIN.tokens)
        return (context.parameters["embed.W_E"] - self.target).square().sum() + context.state["mean"].sum()


def test_what_holds_tensors_and_models_without_changing_them_is_free(tmp_path):
    teacher = bt.build_model(TASK, seed=9, d_model=8, d_mlp=8)
    innocent = Innocent(torch.ones_like(teacher.W_E).detach(), teacher)
    first, second = (bt.train(TASK, innocent, **OPTIONS) for _ in range(2))
    assert_same(first, second)


def test_a_teacher_that_is_trained_along_is_state():
    @bt.spec
    class MeanTeacher(bt.Intervention):
        teacher: torch.nn.Module

        def project(self, context):
            with torch.no_grad():
                for name, parameter in self.teacher.named_parameters():
                    parameter.lerp_(context.parameters[name], 0.1)

    teacher = bt.build_model(TASK, seed=9, d_model=8, d_mlp=8)
    with pytest.raises(bt.BayesticketError, match=r"MeanTeacher: got state on itself \(self\.teacher\['"):
        bt.train(TASK, MeanTeacher(teacher), **OPTIONS)


def test_the_model_of_ones_own_loop_may_be_held():
    model = bt.build_model(TASK, d_model=8, d_mlp=8)
    innocent = Innocent(model.W_E, model)
    with innocent.attach(model, TRAIN) as live:
        for _ in range(4):
            with torch.no_grad():
                model.embed.W_E.mul_(0.5)
            live.project()
        live.require_no_hidden_state()


# The rehearsal ------------------------------------------------------------------------------------------------------


@bt.spec
class Careless(bt.Intervention):
    """Changes weights and state in every port, and draws noise."""

    def init(self, context):
        return {"calls": torch.zeros(()), "last": torch.zeros_like(context.parameters["embed.W_E"])}

    def penalty(self, context, activations):
        context.state["calls"] += 1
        with torch.no_grad():
            context.parameters["unembed.b_U"].add_(0.01)
        noise = torch.rand((), generator=context.generator("careless"))
        return context.state["calls"] * noise * context.parameters["embed.W_E"].square().sum()

    def gradients(self, context, gradients):
        context.state["calls"].add_(1)
        change = context.state["last"] * 0.1
        context.state["last"] = context.parameters["embed.W_E"].detach()  # the weights themselves, no copy
        return {"embed.W_E": 0.5 * gradients["embed.W_E"] + change}


@pytest.mark.parametrize("options", [{}, {"batch_size": 3}, {"forward": "full"}])
def test_what_is_rehearsed_leaves_no_trace(options, monkeypatch):
    from bayesticket.runs import loop

    rehearsed = bt.train(TASK, Careless(), **OPTIONS, **options)
    monkeypatch.setattr(loop, "rehearse", lambda *given, **named: None)
    assert_same(rehearsed, bt.train(TASK, Careless(), **OPTIONS, **options))


def test_a_loss_that_is_not_finite_at_once_is_still_a_run_that_failed(tmp_path):
    @bt.spec
    class UndefinedPenalty(bt.Intervention):
        def penalty(self, context, activations):
            return context.parameters["embed.W_E"].sum() * float("nan")

    with pytest.raises(bt.NonFiniteLoss, match="epoch 0"):
        bt.train(TASK, UndefinedPenalty(), **OPTIONS, store=tmp_path / "run")
    assert bt.Run.load(tmp_path / "run").status == "failed"


def test_state_that_is_not_from_init_is_refused_at_once():
    @bt.spec
    class Adding(bt.Intervention):
        def penalty(self, context, activations):
            context.state["late"] = torch.ones(())

    with pytest.raises(
        bt.BayesticketError, match=r"state: got ports that add or remove \['adding/late'\]; accepted: all"
    ):
        bt.train(TASK, Adding(), **OPTIONS)
