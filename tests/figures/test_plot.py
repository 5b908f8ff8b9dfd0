"""The figures' shared parts: what is drawn is what was recorded, and a page holds all it needs."""

import html.parser
import itertools
import re
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

from bayesticket.errors import BayesticketError
from bayesticket.figures import (
    KL,
    PALETTE,
    TEMPLATE,
    Section,
    Table,
    mean_attention,
    plot_patterns,
    plot_run,
    plot_runs,
    position_labels,
    side_by_side,
    stacked,
    write_page,
    write_picture,
)
from bayesticket.figures.plot import LOSS, band, fit_log_axes
from bayesticket.interventions import FrozenAttention, KLPrior
from bayesticket.runs import Run, train
from bayesticket.tasks import KOperandAddition, ModularAddition, ModularMultiplication, SparseParity, Task


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    task = ModularAddition(p=7)
    return {
        "none": train(task, epochs=30, progress=False),
        "kl": train(task, KLPrior(strength=1.0), epochs=20, progress=False),
    }


def traces(figure: go.Figure, name: str) -> list[go.Scatter]:
    return [trace for trace in figure.data if isinstance(trace, go.Scatter) and trace.name == name]


class TestBand:
    def test_is_the_median_and_the_quartiles(self):
        values = np.random.default_rng(0).normal(size=(7, 4))
        lower, upper, median = band(range(4), values, name="kl", colour=PALETTE[0])
        for drawn, quantile in ((lower, 25), (median, 50), (upper, 75)):
            np.testing.assert_allclose(drawn.y, np.percentile(values, quantile, axis=0))
        assert upper.fill == "tonexty"
        assert [trace.showlegend for trace in (lower, upper, median)] == [False, False, None]

    def test_leaves_out_missing_values_and_counts_the_rest(self):
        values = [[1.0, np.nan, np.nan], [3.0, 5.0, np.nan]]
        *_, median = band([0, 10, 20], values, name="kl", colour=PALETTE[0])
        assert median.x.tolist() == [0, 10]
        assert median.y.tolist() == [2.0, 5.0]
        assert median.customdata[:, 2].tolist() == [2, 1]

    def test_refuses_values_of_another_shape(self):
        with pytest.raises(BayesticketError, match=r"values: got \(2, 3\).*\(seeds, 2\)"):
            band([0, 10], np.zeros((2, 3)), name="kl", colour=PALETTE[0])


class TestRun:
    def test_draws_every_recorded_curve(self, runs: dict[str, Run]):
        run = runs["none"]
        drawn = [np.asarray(trace.y) for trace in plot_run(run).data]
        for column in run.curves:
            assert any(np.array_equal(y, run.curves[column]) for y in drawn), column

    def test_marks_memorising_and_grokking(self, runs: dict[str, Run]):
        run = runs["none"]
        curves = run.curves.copy()
        curves["train_accuracy"], curves["test_accuracy"] = [0.1, 1.0, 1.0, 1.0], [0.1, 0.1, 0.1, 0.99]
        grokked = Run(run.description, run.tensors, run.weights, curves, run.epoch)
        figure = grokked.plot()
        assert [shape.x0 for shape in figure.layout.shapes] == [10, 30]
        assert "epoch 10<" in figure.layout.title.subtitle.text
        never = Run(run.description, run.tensors, run.weights, curves * 0, run.epoch).plot()
        assert len(never.layout.shapes) == 0
        assert never.layout.title.subtitle.text.count("not in 30 epochs") == 2

    def test_shares_one_epoch_axis_and_the_template(self, runs: dict[str, Run]):
        figure = plot_run(runs["none"])
        assert {trace.xaxis for trace in figure.data} == {None}
        assert figure.layout.xaxis.type is None
        assert figure.layout.template == TEMPLATE
        domains = sorted(figure.layout[f"yaxis{place}"].domain for place in ("", 2, 3, 4, 5))
        assert all(low[1] < high[0] for low, high in itertools.pairwise(domains))

    def test_does_without_what_was_not_recorded(self, runs: dict[str, Run]):
        run = runs["none"]
        curves = run.curves[["train_accuracy", "test_accuracy"]]
        assert len(Run(run.description, run.tensors, run.weights, curves, run.epoch).plot().data) == 2


class TestRuns:
    def test_gives_each_run_a_colour_and_a_name(self, runs: dict[str, Run]):
        figure = plot_runs(runs)
        for name, colour in zip(runs, PALETTE, strict=False):
            own = [trace for trace in figure.data if trace.legendgroup == name]
            assert {trace.line.color for trace in own} == {colour}
            assert sum(trace.showlegend for trace in own) == 1
            assert any(np.array_equal(trace.y, runs[name].curves["test_accuracy"]) for trace in own)
        assert {trace.line.dash for trace in traces(figure, "none, train")} == {"dash"}
        assert list(figure.layout.xaxis.range) == [0, 30]

    def test_refuses_none(self):
        with pytest.raises(BayesticketError, match="at least one run"):
            plot_runs({})

    def test_side_by_side_draws_two_columns(self, runs: dict[str, Run]):
        first, second = traces(side_by_side(runs), "kl")
        assert np.array_equal(first.y, runs["kl"].curves["test_accuracy"])
        assert np.array_equal(second.y, runs["kl"].curves["informative_mass_mean"])


@pytest.mark.parametrize("values", [[1.0, 1.0], [1e-9, 1e3], [0.0, 0.0], [np.nan, 0.5], [0.7, 1.1]])
def test_log_axes_hold_what_is_drawn(values: list[float]):
    panels = (LOSS, KL)
    figure = stacked(panels).add_trace(go.Scatter(x=[0, 1], y=values, yaxis="y"))
    fit_log_axes(figure, panels)
    shown = [np.log10(value) for value in values if value > 0]
    if shown:
        low, high = figure.layout.yaxis.range
        assert low < min(shown) <= max(shown) < high
        assert high - low > 0.99


class TestPatterns:
    def test_mean_attention_agrees_with_a_plain_cache(self, runs: dict[str, Run]):
        run = runs["kl"]
        test = run.config.task.split(0.3, 0).test
        _, cache = run.model.run_with_cache(test.tokens)
        expected = cache["blocks.0.attn.hook_pattern"][:, :, -1].mean((0, 1))
        torch.testing.assert_close(mean_attention(run), expected)

    def test_mean_attention_is_that_under_the_intervention(self):
        run = train(ModularAddition(p=5), FrozenAttention("oracle"), epochs=3, progress=False)
        torch.testing.assert_close(mean_attention(run), torch.tensor([0.5, 0.0, 0.5, 0.0, 0.0]))

    def test_draws_the_weights(self):
        patterns = {"oracle": torch.tensor([0.5, 0.5, 0.0]), "none": torch.tensor([0.1, 0.2, 0.7])}
        (drawn,) = plot_patterns(patterns, ["a", "noise", "noise"]).data
        assert isinstance(drawn, go.Heatmap)
        np.testing.assert_allclose(drawn.z, [[0.5, 0.5, 0.0], [0.1, 0.2, 0.7]])
        assert drawn.y == ("oracle", "none")

    def test_refuses_labels_that_do_not_fit(self):
        with pytest.raises(BayesticketError, match=r"patterns\['oracle'\]: got 3"):
            plot_patterns({"oracle": torch.ones(3) / 3}, ["a", "b"])

    def test_labels(self):
        assert position_labels(ModularMultiplication(p=7, distractors="constant")) == ["a", "×", "b", "%", "="]
        assert position_labels(KOperandAddition(k=3, p=3)) == ["a", "+", "b", "+", "c", "noise", "="]
        assert position_labels(ModularAddition(p=7, positions="random")) == ["0", "1", "2", "3", "="]
        assert position_labels(SparseParity(n=3, k=2)) == ["0", "1", "2", "="]
        assert position_labels(Task(tokens=[[1, 2]], targets=[0], informative=[True, False])) == ["0", "query"]


class _Links(html.parser.HTMLParser):
    """Collects what a page would load or lead to, its scripts and its styles."""

    def __init__(self):
        super().__init__()
        self.links: list[str] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": []}
        self.inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]):
        self.inside = tag if tag in self.texts else self.inside
        wanted = ("src", "href", "srcset", "data", "action", "poster", "style")
        self.links += [value for name, value in attrs if name in wanted and value and tag not in ("div", "span")]
        if tag == "script":
            self.texts["script"].append("")

    def handle_endtag(self, tag: str):
        self.inside = "" if tag == self.inside else self.inside

    def handle_data(self, data: str):
        if self.inside == "script":
            self.texts["script"][-1] += data
        elif self.inside:
            self.texts[self.inside].append(data)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, runs: dict[str, Run]) -> Path:
    path = tmp_path_factory.mktemp("page") / "new" / "index.html"
    sections = [
        Section("One & <two>", ["5 < 6", "more"], plot_runs(runs)),
        Section("Pattern", [], plot_patterns({"oracle": torch.ones(2) / 2}, ["</script>", "="])),
        Section("Numbers", [], Table(("arm", "<b>"), [("none", "1"), ("kl", "2")])),
    ]
    return write_page(path, "Title", sections)


class TestPage:
    def test_loads_nothing(self, page: Path):
        parser = _Links()
        parser.feed(page.read_text(encoding="utf-8"))
        assert parser.links == []
        assert not re.search(r"url\(|@import|https?:", "".join(parser.texts["style"]))
        library, *own = parser.texts["script"]
        assert len(library) > 1_000_000, "plotly.js stands first"
        assert len(own) == 2, "a label cannot end a script"
        assert not re.search(r"https?:|//", "".join(own))

    def test_holds_the_library_once_and_every_section(self, page: Path):
        text = page.read_text(encoding="utf-8")
        assert text.count("plotly.js v") == 1
        assert "<h2>One &amp; &lt;two&gt;</h2>" in text
        assert "<p>5 &lt; 6</p>" in text
        assert "<td>kl</td><td>2</td>" in text
        assert "<th>&lt;b&gt;</th>" in text
        assert text.count("Plotly.newPlot(") >= 2
        assert [path.name for path in page.parent.iterdir()] == ["index.html"]

    def test_without_figures_is_small(self, tmp_path: Path):
        page = write_page(tmp_path / "page.html", "Title", [Section("Text", ["one"])])
        assert page.stat().st_size < 10_000


def test_a_picture_that_cannot_be_drawn_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*args: object, **options: object) -> bytes:
        raise ValueError("\nImage export requires the kaleido package\nmore")

    monkeypatch.setattr(go.Figure, "to_image", fail)
    with pytest.raises(BayesticketError, match=r"picture: .*Image export requires.*accepted: .*kaleido"):
        write_picture(go.Figure(), tmp_path / "a.png", width=10, height=10)
    assert not list(tmp_path.iterdir())
