"""A film of a run: each frame shows the run as it was, and one slider moves all figures."""

import json

import numpy as np
import pytest
import torch
from browser import look_at, needs_browser, require_sound
from helpers import refused
from plotly.offline import get_plotlyjs

import bayesticket as bt
from bayesticket.figures import film as film_of
from bayesticket.figures.film import moving_figures
from bayesticket.measures import attention_of, neuron_frequencies

TASK = bt.ModularAddition(p=11)
SMALL = bt.Architecture(d_model=16, d_mlp=24, n_heads=2)
OPTIONS = {"model": SMALL, "epochs": 60, "lr": 3e-3}


@pytest.fixture(scope="module")
def run():
    return bt.train(TASK, bt.KLPrior(), snapshots=[0, 20, 40], **OPTIONS)


@pytest.fixture(scope="module")
def shorter():
    return bt.train(TASK, snapshots=[0, 10], **(OPTIONS | {"epochs": 30}))


def frames_of(film, caption, name=""):
    """The first new value of the first trace in each frame of a figure."""
    (moving,) = (each for each in film.columns[name] if each.caption.startswith(caption))
    return [{key: value[0] for key, value in data.items()} for data, _, _ in moving.frames]


def test_every_frame_shows_the_run_as_it_was(run):
    film = moving_figures({"": run}, frames=60)
    assert list(film.labels) == ["epoch 0", "epoch 20", "epoch 40", "epoch 60"]
    test = run.config.split().test
    shares = run.measure(bt.FrequencyShares())
    drawn = zip(*(frames_of(film, caption) for caption in ("Attention", "Frequencies", "Neurons")), strict=True)
    for epoch, (attention, spectrum, neurons) in zip((0, 20, 40, 60), drawn, strict=True):
        model = run.at(epoch)
        expected = attention_of(model, test).mean(0)
        np.testing.assert_allclose(attention["z"], expected, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(spectrum["y"], shares.loc[epoch], rtol=1e-3)
        _, cache = model.run_with_cache(test.tokens)
        frequency, share = neuron_frequencies(cache["blocks.0.mlp.hook_post"][:, -1], test, TASK.p)
        assert neurons["x"] == frequency.tolist()
        np.testing.assert_allclose(neurons["y"], share, rtol=1e-3, atol=1e-4)


def test_a_neuron_follows_the_wave_that_it_is_made_of():
    batch = TASK.examples(seed=0)
    waves = torch.stack([torch.cos(2 * torch.pi * w * batch.tokens[:, 0] / 11) for w in (1, 3, 5)], 1)
    mixed = (0.6 * waves[:, 1] + 0.8 * waves[:, 2])[:, None]
    still = torch.ones(len(batch), 1)
    frequency, share = neuron_frequencies(torch.cat([waves, mixed, still], 1).double(), batch, 11)
    assert frequency.tolist()[:4] == [1, 3, 5, 5]
    np.testing.assert_allclose(share, [1, 1, 1, 0.64, 0], atol=1e-6)


def test_two_components_keep_the_distances_of_three_moments():
    """Three points lie in a plane, so that nothing is lost."""
    run = bt.train(TASK, snapshots=[0, 20], **(OPTIONS | {"epochs": 40}))
    (path,) = (each for each in moving_figures({"": run}, frames=60).columns[""] if each.caption.startswith("All"))
    points = np.array([[x, y] for ((x,),), ((y,),) in ((data["x"], data["y"]) for data, _, _ in path.frames)])
    flat = [torch.cat([weight.flatten() for weight in run.weights_at(epoch).values()]) for epoch in (0, 20, 40)]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        distance = float((flat[one] - flat[other]).norm())
        assert np.linalg.norm(points[one] - points[other]) == pytest.approx(distance, rel=2e-3)


def test_two_runs_share_epochs_axes_and_components(run, shorter):
    film = moving_figures({"kl": run, "none": shorter}, frames=60)
    assert list(film.labels) == [f"epoch {epoch}" for epoch in (0, 10, 20, 30, 40, 60)]
    attention = frames_of(film, "Attention", "none")
    assert attention[3] == attention[4] == attention[5], "a run that has ended stays as it ended"
    assert attention[2] != attention[3]
    for caption in ("Frequencies", "All weights"):
        spans = [
            tuple(each.figure.layout.yaxis.range)
            for column in film.columns.values()
            for each in column
            if each.caption.startswith(caption)
        ]
        assert spans[0] == spans[1]
    cursors = [layout["shapes[0].x0"] for _, layout, _ in film.columns["kl"][0].frames]
    assert cursors == [0, 10, 20, 30, 40, 60]


def test_runs_of_other_sizes_have_components_of_their_own(run):
    other = bt.train(bt.SparseParity(n=6, k=2), model=SMALL, epochs=10, snapshots=[0, 5])
    film = moving_figures({"sum": run, "parity": other}, frames=60)
    assert [len(column) for column in film.columns.values()] == [5, 3], "parity has no frequencies"
    assert all("of this run" in column[-1].caption for column in film.columns.values())


def test_no_more_frames_than_asked_for(tmp_path):
    run = bt.train(TASK, snapshots=bt.Every(1), **OPTIONS)
    film = moving_figures({"": run}, frames=7)
    assert len(film.labels) == 7
    assert (film.labels[0], film.labels[-1]) == ("epoch 0", "epoch 60")


@pytest.mark.parametrize(
    ("given", "said"),
    [("run", "runs: got 'run'"), ({}, "runs: got {}"), (lambda run: dict.fromkeys("abc", run), "runs: got {'a': Run")],
)
def test_what_is_no_run_or_two_is_refused(run, given, said, tmp_path):
    refused(lambda: film_of(given(run) if callable(given) else given, tmp_path / "film.html"), said)


def test_runs_need_snapshots(run, tmp_path):
    plain = bt.train(TASK, **OPTIONS)
    refused(lambda: film_of(plain, tmp_path / "film.html"), "runs: got a run without snapshots", "LogSpaced(60)")
    refused(lambda: film_of({"a": run, "b": plain}, tmp_path / "film.html"), "runs['b']: got a run without snapshots")
    refused(lambda: film_of(run, tmp_path / "film.html", frames=1), "frames: got 1")
    assert not (tmp_path / "film.html").exists()


def test_sixty_frames_of_two_runs_at_the_papers_size_are_less_than_ten_megabytes(run):
    """A frame holds an attention weight per head and position, a share per frequency, and two numbers per neuron.

    With 11 bytes for a number and 1,000 for names and the labels this bounds a frame here, and so it does at p = 113.
    """

    def most(p, heads, d_mlp):
        return 11 * (5 * heads + p // 2 + 2 * d_mlp) + 1000

    film = moving_figures({"": run}, frames=60)
    bytes_of = len(json.dumps([part.frames for part in film.columns[""]], separators=(",", ":")))
    assert 0.2 < bytes_of / len(film.labels) / most(11, SMALL.n_heads, SMALL.d_mlp) < 1
    curves = 2 * 3 * 2 * 1_001 * 11  # two runs' three accuracies and their epochs, in 10,000 epochs
    assert 60 * 2 * most(113, 1, 256) + curves + len(get_plotlyjs()) + 200_000 < 10_000_000


MOVE = """
const slider = document.querySelector("input[type=range]");
const said = () => document.querySelector("output").textContent;
const heat = () => JSON.stringify(document.querySelectorAll(".js-plotly-plot")[1].data[0].z);
const before = [said(), heat()];
slider.value = 2;
slider.dispatchEvent(new Event("input"));
await new Promise((done) => setTimeout(done, 400));
const moved = [said(), heat()];
document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
await new Promise((done) => setTimeout(done, 400));
const after = said();
const widths = [...document.querySelectorAll(".main-svg")].map((drawn) => drawn.getBoundingClientRect().right);
const spoken = slider.getAttribute("aria-valuetext");
const button = document.querySelector("button");
button.focus();
button.click();
const playing = button.getAttribute("aria-pressed");
button.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft", bubbles: true }));
await new Promise((done) => setTimeout(done, 400));
return { before, moved, after, spoken, right: Math.max(...widths), playing, back: said(),
         paused: button.getAttribute("aria-pressed") };
"""


@needs_browser
@pytest.mark.parametrize("width", [1200, 400])
def test_the_slider_and_the_arrow_keys_move_all_figures(run, shorter, tmp_path, width):
    page = film_of({"kl": run, "none": shorter}, tmp_path / "film.html")
    shown = look_at(page, MOVE, width=width, name="film")
    seen = shown["seen"]
    require_sound(shown, width)
    assert (seen["before"][0], seen["moved"][0], seen["after"], seen["spoken"]) == (
        "epoch 0", "epoch 20", "epoch 30", "epoch 30",
    )  # fmt: skip
    assert seen["before"][1] != seen["moved"][1]
    assert shown["figures"] == 10
    assert seen["right"] <= width
    assert (seen["playing"], seen["paused"], seen["back"]) == ("true", "false", "epoch 20"), "also from the button"
