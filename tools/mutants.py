"""Mutation tests: which small errors in the library would no test notice?

`make mutants` changes the library in one small place at a time (`<` to `<=`, `+` to `-`, `min` to `max`, 1 to 0, a
statement dropped, …) and runs the tests that belong to the changed module. A mutant that fails a test is killed. One
that passes them all survives: a test is missing, or the change makes no difference (then EQUIVALENT can list it). Each
mutant runs in a forked process, where an import hook hands out the changed module; nothing is written to disk. Tests
that reach the changed line come first, quick ones before slow ones, and the first failure ends the run. A test that
starts a new interpreter sees the library unchanged there.

    python tools/mutants.py --modules theory 'model/forward*' --sample 15 --jobs 2 --least 0.9
"""

import argparse
import ast
import contextlib
import importlib.util
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter, namedtuple
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "bayesticket"
HEAVY = "hypothesis jaxtyping pandas plotly.graph_objects scipy.stats torch transformer_lens xarray"
# What `make mutants` runs over. Mutants of a room are run against tests/ROOM, its doctests, tests/refusals and EXTRAS.
MODULES = ["theory", "interventions", "model/forward*", "optim", "runs", "analysis"]
MODULES += ["paper/fig*", "paper/times", "paper/controls"]
EXTRAS = {"theory": ["tests/measures/test_explaining.py"], "paper": ["tests/figures"], "runs": ["tests/attacks"]}
# Module, a part of a line, what the mutant has in its place, and why that makes no difference.
EQUIVALENT = [
    ("theory/capacity", "shape[-2] > ", "shape[-2] >= ", "both Gram matrices of a square matrix have its norm"),
    ("theory/contraction", "ratio > 1 and", "ratio >= 1 and", "a ratio of 1 has returned before"),
    ("theory/contraction", "ratio > 1 and", "ratio > 0 and", "the logarithm of a ratio below 1 is negative"),
    ("theory/contraction", "> 700", "> 701", "exp(709) is still finite: either bound keeps clear of the overflow"),
    ("theory/flow", "scores + torch.zeros_like", "scores - torch.zeros_like", "it broadcasts, and zero has no sign"),
    ("model/forward", "gradient = gradient.contiguous()", "pass", "one copy instead of one in each of the sums"),
    ("interventions/attention", ".any(0).any(0)", ".any(1).any(0)", "examples and heads, in either order"),
    ("interventions/context", "draws = 0", "draws = 1", "another stream of the same noise"),
    ("interventions/context", "draws = 0", "draws = 2", "another stream of the same noise"),
    ("interventions/context", "draws += 1", "draws += 2", "another stream of the same noise"),
    ("interventions/context", "draws += 1", "draws -= 1", "another stream of the same noise"),
    ("interventions/orthograd", "+ TINY", "- TINY", "it only keeps 0/0 from being undefined"),
    ("analysis/likelihood", "self.x, 0.0)", "self.x, 2.0)", "what stands at infinity is replaced where it is used"),
    ("paper/times", "excess(first, second) > 0", "excess(first, second) >= 0", "it is not 0 where the test decides"),
    ("paper/times", "panel_height=300", "panel_height=301", "a pixel"),
    ("runs/options", "total=False", "total=True", "only type checkers see it"),
    ("interventions/watch", "kind) and issubclass", "kind) or issubclass", "classes of the library never change"),
    ("interventions/ports", "return False", "return None", "it is only asked whether it is true"),
    *(
        (f"optim/{name}", f"{rate}_at(0)", f"{rate}_at({epoch})", "set_rates sets it before every step")
        for name, rate, epoch in itertools.product(("adamw", "lion", "sgd"), ("lr", "weight_decay"), (1, 2))
    ),
    ("optim/adamw", "if fused else 'cpu'", "if not fused else 'cpu'", "on a processor both are the processor"),
    ("optim/muon", "matrices.shape[-1]", "matrices.shape[-0]", "the other Gram matrix gives the same product"),
    ("optim/losses", "x >= 0", "x > 0", "both branches are 1 at 0"),
    ("runs/loop", "len(terms) > 1", "len(terms) >= 1", "a sum of one term is that term, at the cost of a pass"),
    ("analysis/likelihood", "self.excess_outside /= 2", "pass", "the search takes longer, to the same end"),
    ("analysis/likelihood", "self.excess_inside /= 2", "pass", "the search takes longer, to the same end"),
    ("analysis/likelihood", "zip((-1, 1)", "zip((1, 1)", "where the search first looks"),
    ("analysis/likelihood", "(-60.0, 60.0)", "(-60.0, 61.0)", "e^60 epochs are out of reach"),
    ("analysis/power_law", "NEVER = 1000000.0", "NEVER = 1000001.0", "any number as large as that"),
    ("analysis/ticket_controls", "whole, 1.0), 1.0)", "whole, 0.0), 1.0)", "of zeros the last 1.0 is taken"),
    ("analysis/ticket_controls", "whole, 1.0), 1.0)", "whole, 2.0), 1.0)", "of zeros the last 1.0 is taken"),
    ("analysis/likelihood", "self.x, 0.0)", "self.x, 1.0)", "these are not looked at"),
    ("analysis/tickets", "dynamic_ncols=True", "dynamic_ncols=False", "how a progress bar is drawn"),
    ("analysis/times", "abs(number) >= 100", "abs(number) > 100", "both forms write 100 alike"),
]

BOTH_WAYS = "Lt LtE, Gt GtE, Lt Gt, LtE GtE, Eq NotEq, Is IsNot, In NotIn, Add Sub, Mult Div, BitAnd BitOr, And Or"
SWAPS = [tuple(getattr(ast, name) for name in pair.split()) for pair in BOTH_WAYS.split(", ")]
SWAPS += [(new, old) for old, new in SWAPS] + [(ast.Pow, ast.Mult), (ast.FloorDiv, ast.Mult)]
CALLS = dict(pair.split() for pair in ["min max", "amin amax", "minimum maximum", "clamp_min clamp_max", "any all"])
CALLS |= {new: old for old, new in CALLS.items()}
MESSAGES = ("refuse", "refuse_name", "refuse_case", "warn", "warning", "info", "debug", "print")
# A changed module: its code, the lines it changes (none where they run at import), the change as a diff.
Mutant = namedtuple("Mutant", "module code lines diff")


def places(parent: ast.AST, statement: ast.stmt | None = None, in_function: bool = False) -> Iterator[tuple]:
    """The nodes that may be changed, each with its container, its key there, its statement, and if in a function."""
    for field, value in ast.iter_fields(parent):
        if field in ("annotation", "returns", "decorator_list", "bases"):
            continue
        owner = value if isinstance(value, list) else vars(parent)
        for key, node in enumerate(value) if isinstance(value, list) else [(field, value)]:
            match node:
                case ast.Raise() | ast.JoinedStr() | ast.FunctionDef(name="__repr__") | ast.Expr(value=ast.Constant()):
                    continue
                case ast.keyword(arg="strict"):  # zip's, by which a mistake would be noticed
                    continue
                case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in MESSAGES:
                    continue
                case ast.AST():
                    around = node if isinstance(node, ast.stmt) else statement
                    inside = in_function or (isinstance(parent, ast.FunctionDef) and field == "body")
                    yield node, owner, key, around, inside
                    yield from places(node, around, inside)


def changes(node: ast.AST, owner: dict | list, key: str | int) -> Iterator[tuple[dict | list, str | int, object]]:
    """The ways to change a node: a container, a key of it, and the new item there."""
    own = vars(node)
    match node:
        case ast.operator() | ast.boolop() | ast.cmpop():
            yield from ((owner, key, new()) for old, new in SWAPS if isinstance(node, old))
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield owner, key, node.operand
        case ast.Constant(value=bool() | int() | float() as value):
            others = {0: (1, 2), 1: (0, 2)}.get(value, (value + 1,))
            yield from ((own, "value", new) for new in {type(value)(other) for other in others} - {value})
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in CALLS:
            yield vars(node.func), "id" if isinstance(node.func, ast.Name) else "attr", CALLS[name]
        case ast.Slice():
            ends = [(end, own[end]) for end in ("lower", "upper") if not isinstance(own[end], ast.Constant | None)]
            yield from ((own, end, ast.BinOp(bound, ast.Add(), ast.Constant(1))) for end, bound in ends)
        case ast.If(test=ast.Name() | ast.Attribute() | ast.Call()) | ast.IfExp(test=ast.Name() | ast.Attribute()):
            yield own, "test", ast.UnaryOp(ast.Not(), node.test)
        case ast.Return(value=ast.AST()) if key == 0:  # the first statement of a branch
            yield own, "value", ast.Constant(None)
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            if any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(value)):
                yield owner, key, ast.Pass()
        case ast.AugAssign() | ast.Expr(value=ast.Call()):
            yield owner, key, ast.Pass()


def mutants_of(module: str) -> Iterator[Mutant]:
    """Every mutant of a module, given as `room/name`, that is not known to make no difference."""
    path = LIBRARY / f"{module}.py"
    tree = ast.parse(path.read_text())
    before = ast.unparse(tree).splitlines()
    for *place, statement, in_function in list(places(tree)):
        # The lines of a loop or a branch are those of its head.
        end = statement.body[0].lineno if hasattr(statement, "body") else statement.end_lineno + 1
        lines = set(range(statement.lineno, end)) if in_function else set()
        for owner, key, item in list(changes(*place)):
            old, owner[key] = owner[key], item
            code = compile(ast.fix_missing_locations(tree), str(path), "exec", dont_inherit=True)
            after, owner[key] = ast.unparse(tree).splitlines(), old
            was, now = (" ".join(map(str.strip, part)) for part in differing(before, after))
            if now != was and not any(was.replace(a, b, 1) == now for name, a, b, _ in EQUIVALENT if name == module):
                yield Mutant(module, code, lines, f"line {statement.lineno}\n- {was}\n+ {now}")


def differing(before: list[str], after: list[str]) -> tuple[list[str], list[str]]:
    """What is left of two lists of lines without the lines that they begin and end with in common."""
    pairs = list(zip(before, after, strict=False))
    first = next((place for place, (one, other) in enumerate(pairs) if one != other), len(pairs))
    before, after = before[first:], after[first:]
    pairs = list(zip(before[::-1], after[::-1], strict=False))
    last = next((place for place, (one, other) in enumerate(pairs) if one != other), len(pairs))
    return before[: len(before) - last], after[: len(after) - last]


def inject(mutant: Mutant) -> None:
    """Has the mutant's code imported in its module's place."""
    module = f"bayesticket.{mutant.module.replace('/', '.')}".removesuffix(".__init__")
    loader = SourceFileLoader(module, str(LIBRARY / f"{mutant.module}.py"))
    loader.get_code = lambda name: mutant.code

    def find_spec(name: str, path: object = None, target: object = None):
        return importlib.util.spec_from_file_location(name, loader.path, loader=loader) if name == module else None

    sys.meta_path.insert(0, SimpleNamespace(find_spec=find_spec))


class Plugin:
    """Without a mutant, notes the time, the lines and the failure of each test; with one, orders the tests by that."""

    def __init__(self, notes: dict[str, dict], mutant: Mutant | None):
        self.notes, self.mutant = notes, mutant

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Drops what fails anyway; puts first what reaches the changed lines, and what is quick."""
        if self.mutant is not None:
            items[:] = [item for item in items if not self.notes.get(item.nodeid, {"failed": True})["failed"]]
            items.sort(key=self._rank)  # stable, so that the tests of a file stay together

    def _rank(self, item: pytest.Item) -> tuple[bool, int]:
        note = self.notes[item.nodeid]
        missed = self.mutant.lines.isdisjoint(note["lines"].get(self.mutant.module, ()))
        return missed, sum(note["seconds"] > limit for limit in (0.02, 0.1, 0.5, 2.0))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item):
        """Traces a test; or limits its time, on the processor and by the clock: a timer's signal ends the process."""
        if self.mutant is not None:
            seconds = 10 + 10 * self.notes[item.nodeid]["seconds"]
            signal.setitimer(signal.ITIMER_PROF, seconds), signal.setitimer(signal.ITIMER_REAL, 10 * seconds)
            return (yield)
        begin, lines, prefix = time.process_time(), {}, f"{LIBRARY}{os.sep}"

        def trace(frame, event, argument):
            if (file := frame.f_code.co_filename).startswith(prefix):
                lines.setdefault(file[len(prefix) :].removesuffix(".py"), set()).add(frame.f_lineno)
                return trace

        failures = item.session.testsfailed
        sys.settrace(trace)
        yield
        sys.settrace(None)
        self.notes[item.nodeid] = {
            "failed": item.session.testsfailed > failures,
            "seconds": time.process_time() - begin,
            "lines": {module: sorted(numbers) for module, numbers in lines.items()},
        }


def fork(room: str, scratch: Path, notes: dict[str, dict], mutant: Mutant | None = None) -> int:
    """Runs the tests of a room in a forked process, with a mutant in its module's place; returns the process' id."""
    if child := os.fork():
        return child
    status = 99
    try:
        os.setsid()
        os.chdir(ROOT)
        own = scratch / str(os.getpid())
        log = os.open(own.with_suffix(".log"), os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1), os.dup2(log, 2)
        if mutant is not None:
            inject(mutant)
            signal.alarm(300)  # for a module that cannot even be imported in time
        flags = ["-q", "-o", "addopts=", "-p", "no:cacheprovider", "-p", "no:xdist", "--doctest-modules"]
        flags += ["--hypothesis-profile=mutants", f"--basetemp={own}", "-x" if mutant else "-q"]
        paths = [f"tests/{room}", f"tests/test_{room}.py", "tests/refusals", f"bayesticket/{room}"]
        paths = [path for path in paths + EXTRAS.get(room, []) if Path(path).exists()]
        status = int(pytest.main([*flags, *paths], plugins=[Plugin(notes, mutant)]))
        if mutant is None:
            (scratch / f"{room}.json").write_text(json.dumps(notes))
    finally:
        os._exit(status)


def run(queue: list[Mutant], jobs: int) -> list[str]:
    """Runs mutants, several at a time; prints the survivors and returns the modules of the killed."""
    list(map(importlib.import_module, HEAVY.split()))
    sys.modules["torch"].set_num_threads(1)
    sys.modules["hypothesis"].settings.register_profile("mutants", database=None, deadline=None, derandomize=True)
    sys.path.insert(0, str(ROOT))
    queue, running, notes, killed = queue[::-1], {}, {}, []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        while queue or running:
            if queue and len(running) < jobs:
                mutant = queue.pop()
                room = mutant.module.split("/")[0]
                if room not in notes:  # what the plugin notes of the room's tests on the library as it is
                    os.waitpid(fork(room, Path(scratch), {}), 0)
                    notes[room] = json.loads(Path(scratch, f"{room}.json").read_text())
                    failing = [name for name, note in notes[room].items() if note["failed"]]
                    print(f"{room}: {len(notes[room])} tests, left out as failing anyway: {failing}", flush=True)
                running[fork(room, Path(scratch), notes[room], mutant)] = mutant
                continue
            child, status = os.wait()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)  # what its tests have left running
            mutant, code = running.pop(child), os.waitstatus_to_exitcode(status)
            if code > 2:  # neither failed nor broken off: pytest itself did not work
                raise SystemExit(f"{mutant.module}, {mutant.diff}\n{Path(scratch, f'{child}.log').read_text()}")
            if code != 0:
                killed.append(mutant.module)
            else:
                print(f"\nSURVIVED: {mutant.module}, {mutant.diff}", flush=True)
    return killed


def main() -> None:
    """Prints the survivors and the share killed per module; exits with 1 where that is below the least."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--modules", nargs="+", default=MODULES, help="rooms or patterns, such as theory or 'model/f*'")
    parser.add_argument("--sample", type=int, default=15, help="mutants per module, drawn at random; 0: all of them")
    parser.add_argument("--jobs", type=int, default=1, help="how many mutants run at a time")
    parser.add_argument("--least", type=float, default=0.0, help="the share of mutants that must be killed")
    parser.add_argument("--list", action="store_true", help="print the mutants and run none")
    options = parser.parse_args()
    queue, begin = [], time.monotonic()
    patterns = [given + end for given in options.modules for end in (".py", "/**/*.py")]
    for path in sorted({path for pattern in patterns for path in LIBRARY.glob(pattern)}):
        mutants = list(mutants_of(str(path.relative_to(LIBRARY).with_suffix(""))))
        queue += random.Random(path.name).sample(mutants, min(options.sample or len(mutants), len(mutants)))
    if options.list:
        return print("\n\n".join(f"{mutant.module}, {mutant.diff}" for mutant in queue))
    killed = Counter(run(queue, options.jobs))
    print(f"\n{'module':32} mutants  killed  share")
    for name, count in Counter(mutant.module for mutant in queue).items():
        print(f"{name:32} {count:7} {killed[name]:7} {killed[name] / count:6.0%}")
    print(f"{killed.total()} of {len(queue)} killed, in {(time.monotonic() - begin) / 60:.0f} minutes")
    sys.exit(killed.total() < options.least * len(queue))


if __name__ == "__main__":
    main()
