"""The results of figures survive being written down, and pages hold all of them."""

import itertools
import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from markupsafe import escape
from stories import header_of, runs_of, story

import bayesticket as bt
from bayesticket.paper import NAMES, find_figure, tickets
from bayesticket.paper.arms import NOISY, PLAIN
from bayesticket.paper.comparing import arm_of
from bayesticket.paper.figure import (
    VERDICTS,
    Claim,
    PaperFigure,
    Scale,
    diverged_runs,
)
from bayesticket.paper.report import arm_table, differences, write_figure_page, write_report
from bayesticket.paper.reproduce import reproduce, require_names
from bayesticket.paper.results import CURVES, SHIPPED, Results, collect, names_in, read_results, rounded, write_results
from bayesticket.paper.settings import brief, config_of, full, settings
from bayesticket.runs import Header, TrainConfig, describe_config
from bayesticket.specs import Spec, describe, field_names, restore
from bayesticket.sweeps import RunSummary, assemble, sweep_configs

TINY = Scale(seeds=2, epochs=12, p=5, record_every=4)


def contents(place):
    """The bytes of every file in a directory, by its path there."""
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def test_results_survive_being_written_down(tmp_path):
    tables = {"none": [story(), story(grokked=3000)], "kl": [story(grokked=1980), story(None, None)]}
    runs = runs_of(tables)
    headers = {
        (name, seed): header_of(tables[name][seed], seed=seed, lr=1e-3 if name == "none" else 2e-3)
        for name in tables
        for seed in range(2)
    }
    written = Results(runs, headers)
    assert write_results(written, tmp_path, "fig1").name == "fig1.json"
    read = read_results(tmp_path, "fig1")
    assert read.headers == headers
    pd.testing.assert_frame_equal(read.runs.grok_epochs(), runs.grok_epochs())
    pd.testing.assert_frame_equal(read.runs.memorised_epochs(), runs.memorised_epochs())
    for name in runs.curves.data_vars:
        np.testing.assert_allclose(read.runs.curves[name].to_numpy(), runs.curves[name].to_numpy(), rtol=2**-17)
    assert (read.runs.curves["trained"] == runs.curves["trained"]).all()
    assert read.runs.curves["id"].to_numpy().ravel().tolist() == list(read.by_id)
    assert len(read.by_id) == 4
    with pytest.raises(bt.BayesticketError, match=r"^run: got runs that were read from results, .* no weights"):
        read.runs.run("none", 0)
    assert settings(list(read.by_id.values()))[0][0] == "task"
    default, other = (brief(full(describe(bt.AdamW(lr=lr), {}))) for lr in (1e-3, 2e-3))
    assert "lr=0.001" in default, "the fields that have their defaults are shown too"
    assert ["optimizer", f"{default} | {other}"] in settings(list(read.by_id.values()))
    assert differences(read).columns == ("arm", "optimizer")
    assert differences(read).rows == [["none", default], ["kl", other]]
    assert [row[2] for row in arm_table(read).rows] == ["1 of 2", "1 of 2"]


# A file for each run ----------------------------------------------------------------------------------------------


def results_of(lives):
    """The results of a figure by its arms, each the life of one run; another life is that of another run."""
    tables = {arm: [story(**life)] for arm, life in lives.items()}
    headers = {(arm, 0): header_of(curves, lr=1e-3 + 1e-5 * curves.index[-1]) for arm, (curves,) in tables.items()}
    return Results(runs_of(tables), headers)


FIRST = results_of({"none": {}, "kl": {"grokked": 2000}})
SECOND = results_of({"no prior": {}, "strong": {"grokked": 1000}})
"""Two figures with a run in common, which each calls by a name of its own."""


@pytest.mark.parametrize("order", list(itertools.permutations(["fig1", "fig5"])))
def test_a_run_of_several_figures_has_one_file_in_whatever_order_they_are_written(tmp_path, order):
    given = {"fig1": FIRST, "fig5": SECOND}
    for name in order:
        before = contents(tmp_path)
        write_results(given[name], tmp_path, name)
        assert before.items() <= contents(tmp_path).items(), "what was there is as it was"
    assert len({*FIRST.by_id, *SECOND.by_id}) == 3
    assert {path.stem for path in (tmp_path / CURVES).iterdir()} == {*FIRST.by_id, *SECOND.by_id}
    for name, results in given.items():
        read = read_results(tmp_path, name)
        assert read.headers == results.headers
        pd.testing.assert_frame_equal(read.runs.grok_epochs(), results.runs.grok_epochs())


def test_a_figure_can_be_read_without_the_others(tmp_path):
    for name, results in (("fig1", FIRST), ("fig5", SECOND)):
        write_results(results, tmp_path, name)
    (tmp_path / "fig1.json").unlink()
    for run in {*FIRST.by_id} - {*SECOND.by_id}:
        (tmp_path / CURVES / f"{run}.parquet").unlink()
    assert read_results(tmp_path, "fig5").headers == SECOND.headers


def test_a_run_that_was_trained_again_is_the_new_one_in_every_figure(tmp_path):
    write_results(FIRST, tmp_path, "fig1")
    again = {key: replace(header, seconds=9.0) for key, header in SECOND.headers.items()}
    raised = SECOND.runs.curves.assign(test_accuracy=SECOND.runs.curves["test_accuracy"] / 2)
    write_results(Results(bt.Runs(raised), again), tmp_path, "fig5")
    read = read_results(tmp_path, "fig1")
    assert [read.headers[arm, 0].seconds for arm in ("none", "kl")] == [9.0, 1.5]
    assert read.runs.sel(intervention="none").curves["test_accuracy"].max() == 0.005
    assert read.runs.sel(intervention="kl").curves["test_accuracy"].max() == 1.0


def test_a_run_without_any_record_is_kept_too(tmp_path):
    tables = {"none": [story()], "diverged": [story().iloc[:0]]}
    ends = {"none": Header(describe_config(TrainConfig())[0], "finished", 10_000, 1.0, {})}
    ends["diverged"] = Header(describe_config(TrainConfig(seed=1))[0], "failed", 0, 0.0, {})
    runs = assemble({(arm, 0): RunSummary(ends[arm], tables[arm][0]) for arm in tables})
    write_results(Results(runs, {(arm, 0): header for arm, header in ends.items()}), tmp_path, "fig1")
    read = read_results(tmp_path, "fig1")
    assert diverged_runs(read.runs) == ["diverged, seed 0, after 0 epochs"]
    assert bool(read.runs.sel(intervention="diverged").curves.isnull().all().to_array().all())
    np.testing.assert_array_equal(*(each.curves["train_accuracy"].to_numpy() for each in (read.runs, runs)))


def test_curves_keep_five_digits_in_their_order_and_fractions_all():
    rng = np.random.default_rng(0)
    values = np.sort(
        np.concatenate([rng.normal(size=2000) * 10.0 ** rng.integers(-40, 40, 2000), 1 - 10.0 ** -rng.random(99) / 1e5])
    )
    special = pd.Series([0.0, np.nan, np.inf, -np.inf, 1.0], name="train_loss")
    pd.testing.assert_series_equal(rounded(special), special)
    kept = rounded(pd.Series(values, name="train_loss"))
    np.testing.assert_allclose(kept, values, rtol=2**-17)
    assert kept.is_monotonic_increasing, "what was the larger is not the smaller now"
    pd.testing.assert_series_equal(rounded(kept), kept, check_exact=True)
    assert kept.map(lambda value: np.ldexp(value, 16 - int(np.floor(np.log2(abs(value)))))).mod(1).eq(0).all()
    for name in ("unseen_accuracy", "T=12/test_accuracy", "structural_condition[tau=derived][share]"):
        fraction = pd.Series([8937 / 8938, 1 / 3], name=name)
        pd.testing.assert_series_equal(rounded(fraction), fraction, check_exact=True)


# Settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        TrainConfig(),
        TrainConfig(task=bt.SparseParity(n=6, k=2), measures=(bt.AttentionEntropy(),), seed=3),
        TrainConfig(intervention=bt.KLPrior("shifted") + bt.NormMatch(radius=3.0), batch_size=5),
    ],
)
def test_the_settings_of_a_run_include_its_defaults(config):
    description = describe_config(config)[0]
    said = config_of(Header(description, "finished", 0, 0.0, {}))
    assert list(said) == ["type", *field_names(TrainConfig)]
    for name in field_names(TrainConfig):
        value = getattr(config, name)
        if isinstance(value, Spec):
            assert isinstance(own := said[name], dict)
            assert set(field_names(type(value))) < set(own), "fields of fields too"
        assert restore(said[name], {}) == value


def test_settings_that_refer_to_tensors_need_no_tensors():
    mask = {"type": "TicketMask", "masks": {"blocks.0.attn.W_Q": {"tensor": "5da882eaf2553e2f"}}}
    shown = full({"type": "TrainConfig", "intervention": {"type": "Recipe", "interventions": [mask]}})
    assert isinstance(shown, dict)
    assert brief(shown["intervention"]) == "TicketMask(masks=1 tensors)"
    assert shown["epochs"] == 10_000
    own = {"type": "MyOwn#0123", "strength": 2.0}
    assert full(own) == own, "a class that is not here keeps what is written of it"


def test_every_figure_runs_and_the_report_holds_all(tmp_path):
    one_seed = replace(TINY, seeds=1)
    with ThreadPoolExecutor(2) as executor:
        pages = reproduce("all", scale=one_seed, store=tmp_path / "runs", out=tmp_path / "out", executor=executor)
    assert [page.name for page in pages] == [f"{name}.html" for name in NAMES]
    n_runs = len(list((tmp_path / "runs").iterdir()))
    with ThreadPoolExecutor(2) as executor:
        reproduce("fig4", scale=one_seed, store=tmp_path / "runs", out=tmp_path / "again", executor=executor)
    assert len(list((tmp_path / "runs").iterdir())) == n_runs, "what is stored is not run again"
    report = write_report(tmp_path / "out", tmp_path / "report.html").read_text(encoding="utf-8")
    report = re.sub(r'<t[dh] [^>]*(data-label="\w+")[^>]*>', r"<td \1>", re.sub("<tr[^>]*>", "<tr>", report))
    report = report.replace("</th>", "</td>")
    assert names_in(tmp_path / "out") == list(NAMES)
    for name in NAMES:
        figure = find_figure(name)
        assert figure.title in report
        for claim in figure.claims(read_results(tmp_path / "out", name).runs):
            assert isinstance(claim, Claim)
            cells = (("verdict", VERDICTS[claim.verdict]), ("claim", claim.said), ("by", claim.by))
            row = "".join(f'<td data-label="{name}">{escape(cell)}</td>' for name, cell in cells)
            assert f'<tr>{row}<td data-label="measured">{escape(claim.account)}<details>' in report
            assert all(report.count(escape(rule)) == 1 for rule in claim.rules)
    made = read_results(tmp_path / "out", "fig4").headers
    assert "TicketMask" in json.dumps(made[arm_of(PLAIN, tickets.WINNING), 0].config["intervention"])
    assert made[arm_of(NOISY, tickets.BAYES), 0].config["init_seed"] == 100


def test_results_of_other_runs_are_not_replaced(tmp_path):
    places = {"store": tmp_path / "runs", "out": tmp_path / "out"}
    with ThreadPoolExecutor(2) as executor:
        reproduce("fig1", scale=TINY, executor=executor, **places)
        before = contents(tmp_path / "out")
        for other in (replace(TINY, seeds=1), replace(TINY, epochs=8)):
            with pytest.raises(
                bt.BayesticketError, match=r"^out: .* has results of fig1 that would be lost: .*seed [01]"
            ):
                reproduce("fig1", scale=other, executor=executor, **places)
        assert contents(tmp_path / "out") == before
        made = tmp_path / "out" / "fig1.json"
        made.write_text(made.read_text().replace("random distractors", "another arm"))
        with pytest.raises(bt.BayesticketError, match="of “another arm”, seed 0"):
            reproduce("fig1", scale=TINY, executor=executor, **places)
        made.write_bytes(before["fig1.json"])
        reproduce("fig1", scale=replace(TINY, seeds=3), executor=executor, **places)
    assert read_results(tmp_path / "out", "fig1").runs.seeds == [0, 1, 2]


RECORDING = ("measures", "stop_after_grok", "stop_when")
"""Settings that do not change what a run does while it lasts."""
SEEDS = {"fig3": 10, "fig1-standard": 10, "decay-standard": 10}
"""How many seeds a figure has where five left open what decides."""


@pytest.mark.parametrize("name", names_in(SHIPPED))
def test_the_results_that_are_kept_are_of_all_runs_at_full_scale(name):
    kept, scale = read_results(SHIPPED, name), Scale(seeds=SEEDS.get(name, 5))

    def does(description):
        return {key: value for key, value in description.items() if key not in RECORDING}

    ran = {key: does(header.config) for key, header in kept.headers.items()}
    first = {key: does(describe_config(config)[0]) for key, config in find_figure(name).configs(scale).items()}
    assert {key: ran[key] for key in first} == first, "the figure has changed since"
    assert (kept.runs.seeds, diverged_runs(kept.runs)) == (list(range(scale.seeds)), [])
    assert set(kept.runs.curves["grok_threshold"].to_numpy().flat) == {0.99}
    grokked, trained = kept.runs.grok_epochs(curve="unseen_accuracy"), kept.runs.curves["trained"]
    for (arm, seed), header in kept.headers.items():
        config, ended = config_of(header), int(trained.sel(intervention=arm, seed=seed))
        patience = config["stop_when"]["patience"] if config["stop_when"] else np.inf
        epoch = grokked.loc[arm, seed]
        stopped = np.inf if pd.isna(epoch) else epoch + patience
        assert ended >= min(config["epochs"], stopped), f"{arm}, seed {seed}, was not trained to its end"


def test_results_say_which_model_they_are_of():
    for name in names_in(SHIPPED):
        for header in read_results(SHIPPED, name).headers.values():
            model = config_of(header)["model"]
            assert isinstance(model, dict)
            residual = model.get("architecture", model)["residual"]  # type: ignore[index]
            assert residual == (True if name.endswith("-standard") else None)


def test_a_figure_of_ones_own_as_the_documentation_makes_it(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "figures.md").read_text(encoding="utf-8")
    code, drawing, _ = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    code = code.replace("Scale(seeds=5)", "tiny").replace('store="runs/"', 'store="runs/", executor=executor')
    monkeypatch.chdir(tmp_path)
    with ThreadPoolExecutor(2) as executor:
        names = {"__name__": "__main__", "tiny": TINY, "executor": executor}
        exec(compile(code + drawing, "figures.md", "exec"), names)
    drawn = names["draw_accuracy"](names["runs"])  # type: ignore[operator]
    assert {"late", "from the start"} <= {trace.name for trace in drawn.data}
    shown = Path("late.html").read_text(encoding="utf-8")
    assert "A late prior still ends the plateau." in shown
    assert "That is not the paper&#39;s scale" in shown


def test_a_figure_of_another_task_says_how_much_was_run(tmp_path):
    task = bt.SparseParity(n=6, k=2)
    small = {"task": task, "model": bt.Architecture(d_model=8, d_mlp=8), "epochs": 12, "record_every": 4}
    figure = PaperFigure(
        "parity", "Parity", "", lambda scale: {"none": TrainConfig(**small)}, lambda runs: {}, lambda runs: []
    )
    with ThreadPoolExecutor(1) as executor:
        runs = sweep_configs(figure.configs(Scale(seeds=2)), store=tmp_path / "runs", executor=executor)
    page = write_figure_page(figure, collect(runs), tmp_path / "parity.html").read_text(encoding="utf-8")
    assert "At most 12 epochs, 2 seeds. That is not the paper" in page


def test_results_that_are_damaged_are_named(tmp_path):
    with ThreadPoolExecutor(1) as executor:
        reproduce("fig1", scale=replace(TINY, seeds=1), store=tmp_path / "runs", out=tmp_path, executor=executor)
    made = tmp_path / "fig1.json"
    whole = json.loads(made.read_text())
    arm, (run,) = next(iter(whole["runs"].items()))
    for broken, said in (({"runs": {}}, "no runs"), ({"runs": {arm: []}}, "shorter"), ({"seeds": 3}, "not iterable")):
        made.write_text(json.dumps({**whole, **broken}))
        with pytest.raises(bt.BayesticketError, match=rf"fig1\.json: .*{said}"):
            read_results(tmp_path, "fig1")
    made.write_text(json.dumps(whole))
    file = tmp_path / CURVES / f"{run}.parquet"
    content, other = file.read_bytes(), next(path for path in file.parent.iterdir() if path != file)
    for broken, said in ((content[:-9], "truncated"), (other.read_bytes(), f"id: got {other.stem}")):
        file.write_bytes(broken)
        with pytest.raises(bt.BayesticketError, match=rf"{run}\.parquet: .*{said}"):
            read_results(tmp_path, "fig1")
    file.unlink()
    with pytest.raises(bt.BayesticketError, match=rf"{run}\.parquet"):
        read_results(tmp_path, "fig1")


@pytest.mark.parametrize(("given", "said"), [("fig12", "fig1"), ([], "one or several"), (["fig1", "x"], "fig1")])
def test_unknown_figures_are_refused(given, said):
    with pytest.raises(bt.BayesticketError, match=said):
        require_names(given)
