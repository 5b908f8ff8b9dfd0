"""Results grow by the runs that they lack, and nothing is trained that has a file among them."""

import itertools
from pathlib import Path

import pytest

from bayesticket.errors import BayesticketError
from bayesticket.paper import NAMES, find_figure
from bayesticket.paper.figure import Scale
from bayesticket.paper.results import CURVES, read_results
from bayesticket.specs import spec_id
from bayesticket.sweeps import load_runs, train_missing

ROOT = Path(__file__).parents[2]
TINY = Scale(seeds=1, epochs=8, p=5, record_every=4)
MORE = Scale(seeds=2, epochs=8, p=5, record_every=4)


@pytest.fixture
def add_results(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from add_results import add_results

    return add_results


def runs_in(place):
    return {path.name for path in place.iterdir() if path.is_dir() and (path / "run.json").exists()}


def files_in(results):
    return {path.stem: path.read_bytes() for path in (results / CURVES).iterdir()}


def test_another_seed_is_trained_and_those_with_a_file_are_not(add_results, tmp_path):
    figure, results = find_figure("fig1"), tmp_path / "results"
    add_results(figure, TINY, tmp_path / "first", results, workers=1)
    before = files_in(results)
    assert set(before) == runs_in(tmp_path / "first")
    add_results(figure, MORE, tmp_path / "second", results, workers=1)
    after = files_in(results)
    assert runs_in(tmp_path / "second") == set(after) - set(before)
    assert {name: after[name] for name in before} == before
    assert read_results(results, "fig1").runs.seeds == [0, 1]
    assert set(read_results(results, "fig1").by_id) == set(after)


def test_what_has_ended_before_an_interruption_is_not_trained_again(add_results, tmp_path, monkeypatch):
    figure, results = find_figure("fig1"), tmp_path / "results"

    def interrupted(configs, store, **options):
        (first, config), (second, _) = itertools.islice(configs.items(), 2)
        train_missing({first: config}, store, workers=1, progress=False)
        (store / spec_id(configs[second])).mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr("add_results.train_missing", interrupted)
    with pytest.raises(KeyboardInterrupt):
        add_results(figure, TINY, tmp_path / "first", results)
    assert not (results / "fig1.json").exists()
    (kept,) = files_in(results)
    monkeypatch.setattr("add_results.train_missing", train_missing)
    add_results(figure, TINY, tmp_path / "second", results, workers=1)
    assert runs_in(tmp_path / "second") == set(read_results(results, "fig1").by_id) - {kept}


@pytest.mark.parametrize(
    ("name", "again"), [("fig4", {"dense (random distractors)", "dense (constant distractors)"}), ("fig2", set())]
)
def test_only_runs_whose_weights_others_are_made_from_are_trained_again(add_results, tmp_path, name, again):
    figure, results = find_figure(name), tmp_path / "results"
    add_results(figure, TINY, tmp_path / "first", results, workers=1)
    before = {header.id for header in read_results(results, name).headers.values()}
    (tmp_path / "second").mkdir()
    add_results(figure, TINY, tmp_path / "second", results, workers=1)
    assert runs_in(tmp_path / "second") == {
        spec_id(config) for (arm, _), config in figure.configs(TINY).items() if arm in again
    }
    assert {header.id for header in read_results(results, name).headers.values()} == before


@pytest.mark.parametrize("name", [name for name in NAMES if find_figure(name).then is not None])
def test_figures_say_whose_weights_they_read(tmp_path, name):
    figure = find_figure(name)
    read: set[str] = set()
    configs = figure.configs(TINY)
    train_missing(configs, tmp_path, workers=1, progress=False)
    runs = load_runs(configs, tmp_path)

    class Watched:
        def __getattr__(self, given):
            return getattr(runs, given)

        def run(self, arm, seed):
            read.add(arm)
            return runs.run(arm, seed)

    figure.further(TINY, Watched())
    assert read == set(figure.finds_in)


def test_results_of_other_runs_are_not_replaced(add_results, tmp_path):
    figure, results = find_figure("fig1"), tmp_path / "results"
    add_results(figure, MORE, tmp_path / "store", results, workers=1)
    before = files_in(results)
    with pytest.raises(BayesticketError, match="would be lost"):
        add_results(figure, TINY, tmp_path / "other", results, workers=1)
    assert files_in(results) == before
    assert not (tmp_path / "other").exists(), "it is said before anything is trained"
