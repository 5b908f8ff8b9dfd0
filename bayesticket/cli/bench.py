"""What a training step costs, in ratios: against the plain loop, the machine's own limit, and with everything on top.

Milliseconds differ from machine to machine and from minute to minute. The two sides of every ratio are therefore timed
in turn, in one process, and the median is taken over many such rounds. Nothing here fails: a target is met or not.
"""

import contextlib
import dataclasses
import functools
import inspect
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from tqdm import tqdm

import bayesticket
from bayesticket.errors import BayesticketError
from bayesticket.interventions import Intervention, KLPrior, NormMatch, TicketMask, as_recipe
from bayesticket.measures import DEFAULT_MEASURES, Measure, NormCondition
from bayesticket.model import Architecture, HookedTransformer
from bayesticket.optim import ADAM_EPSILON
from bayesticket.runs import TrainConfig, Training, keep_freed_memory, train_config
from bayesticket.seeding import seeded_generator
from bayesticket.specs import Spec
from bayesticket.sweeps import sweep_configs
from bayesticket.tasks import Examples, ModularAddition

RECORD_EVERY = 10
NEVER = 10**9
BARE = TrainConfig(task=ModularAddition(p=113), record_every=NEVER, epochs=NEVER, warmup=0, device="cpu")
"""The paper's training, at its size, without recording (but at epoch 0, which is never timed)."""
RECORDED = replace(BARE, record_every=RECORD_EVERY)
EXAMPLES: dict[type[Measure], Measure] = {NormCondition: NormCondition(r_min=20.0, r_max=40.0)}
"""Measures whose fields have no defaults."""


@dataclass(frozen=True)
class Row:
    """One line of the table: what was compared, how it came out, and what it ought to be."""

    name: str
    value: str
    ratio: float | None = None
    target: str = ""
    met: bool | None = None


@dataclass(frozen=True)
class Effort:
    """How long to measure: `rounds` in each of which every side takes `repeats` steps; `epochs` of a whole run."""

    rounds: int
    repeats: int
    epochs: int
    threads: int = 2


FULL = Effort(rounds=15, repeats=10, epochs=100)
QUICK = Effort(rounds=1, repeats=1, epochs=4, threads=1)  # two threads crawl when something else runs on the machine


def bench(quick: bool = False) -> list[Row]:
    """Measures every row, some two minutes of work; `quick` only shows that each can be measured."""
    effort = QUICK if quick else FULL
    measurements = plan(effort)
    with threads(effort.threads):
        keep_freed_memory()
        return [measurement() for measurement in tqdm(measurements, unit="row", disable=None, dynamic_ncols=True)]


def main(quick: bool = False) -> None:
    """Prints the table of `bench`."""
    table = format_table(bench(quick))
    n_threads = (QUICK if quick else FULL).threads
    print(f"torch {torch.__version__}, threads: {n_threads}. The rows p = 113, T = 5 (random) and 1 head compare the")
    print(f"default with itself: their distance from 1 is the noise of all others.\n\n{table}")


def plan(effort: Effort) -> list[Callable[[], Row]]:
    """What to measure, in the order of the table."""
    pruned = {
        f"blocks.0.mlp.{name}": torch.rand(shape, generator=seeded_generator(0, name)) < 0.5
        for name, shape in (("W_in", (64, 256)), ("W_out", (256, 64)))
    }
    interventions = (KLPrior(strength=1.0), NormMatch(radius=30.0), TicketMask(masks=pruned))
    return [
        functools.partial(against_plain_loop, effort),
        functools.partial(against_products, effort),
        functools.partial(cost_of_recording, effort),
        *(functools.partial(cost_of_intervention, effort, one) for one in interventions),
        functools.partial(side_by_side, effort),
        functools.partial(cost_of_sweep, effort),
        functools.partial(memory_of_a_run, effort),
        *(functools.partial(growth_in_examples, effort, p) for p in (59, 113, 227)),
        *(
            functools.partial(growth_in_positions, effort, n_positions, distractors)
            for distractors in ("random", "constant")
            for n_positions in (5, 17, 65)
        ),
        *(functools.partial(growth_in_heads, effort, n_heads) for n_heads in (1, 2, 4)),
        *(functools.partial(cost_of_measure, effort, kind) for kind in further_measures()),
    ]


# Measuring --------------------------------------------------------------------------------------------------------


def alternate(
    actions: Sequence[Callable[[], object]],
    *,
    rounds: int,
    repeats: int,
    warm_up: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Seconds that each action takes, done in turn (A A B B, A A B B, … for two repeats) after an untimed round.

    The median over the rounds of the mean over a round's repeats: what disturbs one round does not count, and what
    drifts through all of them affects every action alike.

    >>> times = iter([0, 6, 6, 8, 10, 16, 16, 20])  # A takes 6 and 6, B takes 2 and 4
    >>> alternate([lambda: None, lambda: None], rounds=2, repeats=2, clock=lambda: next(times))
    [3.0, 1.5]
    """

    def mean_seconds(action: Callable[[], object]) -> float:
        started = clock()
        for _ in range(repeats):
            action()
        return (clock() - started) / repeats

    for action in actions if warm_up else ():
        for _ in range(repeats):
            action()
    measured = [[mean_seconds(action) for action in actions] for _ in range(rounds)]
    return [float(median(of_action)) for of_action in zip(*measured, strict=True)]


@contextmanager
def threads(n: int) -> Iterator[None]:
    """Lets torch use that many threads, and then as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _compare(base: Training, varied: Training, effort: Effort) -> tuple[float, float]:
    repeats = effort.repeats
    if min(base.config.record_every, varied.config.record_every) < NEVER:
        repeats = RECORD_EVERY  # so that every block holds exactly one record
    before, after = alternate([base.take_epoch, varied.take_epoch], rounds=effort.rounds, repeats=repeats)
    return before, after


# A step -----------------------------------------------------------------------------------------------------------


def against_plain_loop(effort: Effort) -> Row:
    """A step of the library against one of the loop that everyone writes."""
    plain, ours = Training(BARE), Training(BARE)
    optimizer = plain_optimizer(plain.model, BARE)
    before, after = alternate(
        [lambda: plain_step(plain.model, plain.train, optimizer), ours.take_epoch],
        rounds=effort.rounds,
        repeats=effort.repeats,
    )
    return at_least("step, speed against the plain loop", against(after, before), before / after, 6.0)


def plain_optimizer(model: HookedTransformer, config: TrainConfig) -> torch.optim.AdamW:
    """torch's AdamW with a configuration's settings."""
    return torch.optim.AdamW(
        model.parameters(),
        lr=config.lr,
        betas=config.betas,
        eps=ADAM_EPSILON,
        weight_decay=config.weight_decay,
        fused=True,
    )


def plain_step(model: HookedTransformer, train: Examples, optimizer: torch.optim.Optimizer) -> Float[Tensor, ""]:
    """A full-batch step as everyone writes it; returns the loss before it."""
    loss = F.cross_entropy(model(train.tokens)[:, -1], train.targets)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def against_products(effort: Effort) -> Row:
    """A step against the matrix products that no forward can avoid, the least this machine can take for it."""
    training = Training(BARE)
    products = unavoidable_products(training.model, len(training.train))
    step, limit = alternate([training.take_epoch, products], rounds=effort.rounds, repeats=effort.repeats)
    return at_least("step, share of its matrix products", against(step, limit), limit / step, 0.5)


def unavoidable_products(model: HookedTransformer, n: int) -> Callable[[], None]:
    """The products of MLP and unembedding at n query positions, on random numbers; see `multiply_through`."""
    generator = seeded_generator(0, "products")
    weights = [model.blocks[0].mlp.W_in.detach(), model.blocks[0].mlp.W_out.detach(), model.unembed.W_U.detach()]
    widths = [len(weights[0]), *(weight.shape[1] for weight in weights)]
    x = [torch.randn(n, width, generator=generator) for width in widths]
    d_x = [torch.randn(n, width, generator=generator) for width in widths]
    return functools.partial(multiply_through, weights, x, d_x, [torch.empty_like(weight) for weight in weights])


def multiply_through(
    weights: Sequence[Float[Tensor, "_ _"]],
    x: Sequence[Float[Tensor, "n _"]],
    d_x: Sequence[Float[Tensor, "n _"]],
    d_weights: Sequence[Float[Tensor, "_ _"]],
) -> None:
    """Linear layers forward, `x ← x W`, and backward, `dx ← dx Wᵀ` and `dW ← xᵀ dx`, from `x[0]` and `d_x[-1]`."""
    for layer, weight in enumerate(weights):
        torch.mm(x[layer], weight, out=x[layer + 1])
    for layer in reversed(range(len(weights))):
        torch.mm(d_x[layer + 1], weights[layer].T, out=d_x[layer])
        torch.mm(x[layer].T, d_x[layer + 1], out=d_weights[layer])


# What comes on top ------------------------------------------------------------------------------------------------


def cost_of_recording(effort: Effort) -> Row:
    """Training with the default records, test set included, against bare steps."""
    before, after = _compare(Training(BARE), Training(RECORDED), effort)
    return at_most(f"recording every {RECORD_EVERY}th epoch", against(before, after), after / before, 1.15)


def cost_of_intervention(effort: Effort, intervention: Intervention) -> Row:
    """Training under an intervention against training under none."""
    varied = Training(replace(BARE, intervention=as_recipe(intervention)))
    before, after = _compare(Training(BARE), varied, effort)
    return at_most(type(intervention).__name__, against(before, after), after / before, 1.10)


def cost_of_measure(effort: Effort, kind: type[Measure]) -> Row:
    """Training that records one measure more against training with the default records."""
    name = f"{kind.__name__} every {RECORD_EVERY}th epoch"
    if kind not in EXAMPLES and (needed := _required_fields(kind)):
        return Row(name, f"skipped: it has no default {', '.join(needed)}")
    try:
        varied = Training(replace(RECORDED, measures=(EXAMPLES.get(kind) or kind(),)))
    except BayesticketError as error:
        return Row(name, f"skipped: {error}")
    before, after = _compare(Training(RECORDED), varied, effort)
    each = RECORD_EVERY * (after - before) / before
    note = "" if varied.forward == "fast" else ", by the full forward"
    return Row(name, f"{against(before, after)}; {each:.1f} epochs an evaluation{note}", after / before)


def further_measures() -> list[type[Measure]]:
    """The library's measures that are not recorded by default, by name."""
    default = {type(measure) for measure in DEFAULT_MEASURES}
    kinds = [cast(type[Measure], kind) for kind in Spec.kinds.values() if issubclass(kind, Measure)]
    own = [kind for kind in kinds if kind.__module__.partition(".")[0] == bayesticket.__name__]
    return sorted((kind for kind in own if not _is_base(kind) and kind not in default), key=lambda kind: kind.__name__)


def _is_base(kind: type[Measure]) -> bool:
    return inspect.isabstract(kind) or not dataclasses.is_dataclass(kind)


def _required_fields(kind: type[Measure]) -> list[str]:
    missing = dataclasses.MISSING
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    return [field.name for field in fields if field.init and field.default is field.default_factory is missing]


# Growth -----------------------------------------------------------------------------------------------------------


def growth_in_examples(effort: Effort, p: int) -> Row:
    """A step at another p, with 0.3 p² examples."""
    base, varied = Training(BARE), Training(replace(BARE, task=ModularAddition(p=p)))
    before, after = _compare(base, varied, effort)
    n = len(varied.train)
    per_example = after / before * len(base.train) / n
    return Row(
        f"p = {p}, {n:,} examples",
        f"{against(before, after)}; {per_example:.2f} × per example",
        after / before,
        "close to 1 × per example",
    )


def growth_in_positions(effort: Effort, n_positions: int, distractors: Literal["random", "constant"]) -> Row:
    """A step on longer sequences."""
    task = ModularAddition(p=113, distractors=distractors, n_distractors=n_positions - 4)
    before, after = _compare(Training(BARE), Training(replace(BARE, task=task)), effort)
    name, value, ratio = f"T = {n_positions}, {distractors} distractors", against(before, after), after / before
    if distractors == "constant" and n_positions == 65:
        return at_most(name, value, ratio, 1.5)
    return Row(name, value, ratio)


def growth_in_heads(effort: Effort, n_heads: int) -> Row:
    """A step with the same width in more heads."""
    varied = Training(replace(BARE, model=Architecture(n_heads=n_heads)))
    before, after = _compare(Training(BARE), varied, effort)
    return Row(f"{n_heads} head{'s' if n_heads > 1 else ''}", against(before, after), after / before)


# Whole runs, in processes of their own ----------------------------------------------------------------------------


def side_by_side(effort: Effort) -> Row:
    """Two runs at once, in a process and on a thread each, against one after the other on all threads."""
    with ExitStack() as stack:
        in_turn = stack.enter_context(_workers(1, n_threads=effort.threads, n_runs=2))
        at_once = stack.enter_context(_workers(2, n_threads=1, n_runs=1))
        before, after = alternate(
            [lambda: in_turn(effort.epochs), lambda: at_once(effort.epochs)],
            rounds=max(1, effort.rounds // 3),
            repeats=1,
        )
    value = f"{after:.2f} s against {before:.2f} s for {effort.epochs} epochs of each"
    return Row("two runs side by side, a thread each", value, after / before, "below 1", after < before)


@contextmanager
def _workers(n_processes: int, *, n_threads: int, n_runs: int) -> Iterator[Callable[[int], None]]:
    """Processes that hold `n_runs` runs each; the function given makes all train so many epochs, and waits for them."""
    spawn = multiprocessing.get_context("spawn")
    connections: list[Connection] = []
    processes = []
    for _ in range(n_processes):
        here, there = spawn.Pipe()
        process = spawn.Process(target=_train_on_command, args=(there, n_threads, n_runs), daemon=True)
        process.start()
        there.close()  # so that a worker that dies is noticed here
        processes.append(process)
        connections.append(here)

    def train(epochs: int) -> None:
        for connection in connections:
            connection.send(epochs)
        for connection in connections:
            connection.recv()

    try:
        for connection in connections:
            connection.recv()  # imported, built, and ready to start together
        yield train
    finally:
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.send(0)
        for process in processes:
            process.join()


def _train_on_command(commands: Connection, n_threads: int, n_runs: int) -> None:
    torch.set_num_threads(n_threads)
    runs = [Training(RECORDED) for _ in range(n_runs)]
    for run in runs:
        run.take_epoch()
    commands.send("ready")
    while epochs := commands.recv():
        for run in runs:
            for _ in range(epochs):
                run.take_epoch()
        commands.send("done")


def cost_of_sweep(effort: Effort) -> Row:
    """Four runs swept by two processes, with their store, against the same runs alone in two processes."""
    configs = {("run", seed): replace(RECORDED, seed=seed, epochs=5 * effort.epochs) for seed in range(4)}

    def alone() -> None:
        halves = [list(configs.values())[half::2] for half in (0, 1)]
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as executor:
            list(executor.map(_train_in_turn, halves))

    def swept() -> None:
        with tempfile.TemporaryDirectory() as store:
            sweep_configs(configs, store=store, workers=2, progress=False)

    before, after = alternate([alone, swept], rounds=max(1, effort.rounds // 7), repeats=1, warm_up=False)
    value = f"{after:.1f} s against {before:.1f} s for four runs of {5 * effort.epochs} epochs"
    return at_most("sweep, against its runs alone", value, after / before, 1.05)


def _train_in_turn(configs: Sequence[TrainConfig]) -> None:
    torch.set_num_threads(1)
    for config in configs:
        train_config(config, progress=False)


def memory_of_a_run(effort: Effort) -> Row:
    """The memory of a run at its peak, above what the imports alone take; in a process that has done nothing else."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as executor:
        megabytes = executor.submit(_megabytes_of_a_run, effort).result()
    name = "memory of a run, above the imports"
    if megabytes is None:
        return Row(name, "skipped: this system does not tell", target="below 300 MB")
    return Row(name, f"{megabytes:.0f} MB", target="below 300 MB", met=megabytes < 300)


def _megabytes_of_a_run(effort: Effort) -> float | None:
    for name in dir(bayesticket):
        with contextlib.suppress(ImportError):  # of what only an optional dependency brings
            getattr(bayesticket, name)
    torch.set_num_threads(effort.threads)
    before = _memory("VmRSS")
    train_config(replace(RECORDED, epochs=effort.epochs // 2), progress=False)
    peak = _memory("VmHWM")
    return None if before is None or peak is None else (peak - before) / 1e6


def _memory(field: Literal["VmRSS", "VmHWM"]) -> float | None:
    """Bytes resident now, or at the most so far; the latter for both where only that is known."""
    status = Path("/proc/self/status")
    if status.exists():
        # Preferred to `ru_maxrss`, in which a child process starts with the peak of its parent.
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        if field in lines:
            return float(lines[field].split()[0]) * 1024
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * unit


# Writing ----------------------------------------------------------------------------------------------------------


def at_least(name: str, value: str, ratio: float, bound: float) -> Row:
    """A row whose ratio should not be smaller."""
    return Row(name, value, ratio, f"at least {bound:.2f}", ratio >= bound)


def at_most(name: str, value: str, ratio: float, bound: float) -> Row:
    """A row whose ratio should not be larger."""
    return Row(name, value, ratio, f"at most {bound:.2f}", ratio <= bound)


def against(before: float, after: float) -> str:
    """Two times in milliseconds, the changed one first.

    >>> against(0.0620, 0.0091)
    '9.1 ms against 62.0 ms'
    """
    return f"{after * 1e3:.1f} ms against {before * 1e3:.1f} ms"


def format_table(rows: Sequence[Row]) -> str:
    """The rows as aligned text.

    >>> print(format_table([at_least("speed", "2 ms against 9 ms", 4.5, 6.0), Row("heads", "3 ms")]))
    what   measured           ratio  target
    speed  2 ms against 9 ms   4.50  at least 6.00: not met
    heads  3 ms
    """
    header = ("what", "measured", "ratio", "target")
    cells = [header, *((row.name, row.value, _ratio(row), _target(row)) for row in rows)]
    what, measured, ratio, _ = (max(len(cell) for cell in column) for column in zip(*cells, strict=True))
    return "\n".join(f"{a:<{what}}  {b:<{measured}}  {c:>{ratio}}  {d}".rstrip() for a, b, c, d in cells)


def _ratio(row: Row) -> str:
    return "" if row.ratio is None else f"{row.ratio:.2f}"


def _target(row: Row) -> str:
    verdict = {True: "met", False: "not met", None: ""}[row.met]
    return ": ".join(part for part in (row.target, verdict) if part)
