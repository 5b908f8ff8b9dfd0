"""What the rules of the appendix's figures say of made-up runs in which the truth is plain."""

import pytest
from stories import runs_of, story

from bayesticket.analysis import Times
from bayesticket.paper import fig7
from bayesticket.paper.best import best_arms, of_teachers, saved, transfers
from bayesticket.paper.comparing import Arms, arm_of
from bayesticket.paper.readings import UNSEEN

END = 10_000
SOON, LATE, NEVER = (1900, 2000, 2050, 2100, 1950), (6000, 6200, 5900, 6100, 6050), (None,) * 5


def times(*epochs):
    return Times.of(epochs, [END] * len(epochs))


def arms(**epochs):
    return Arms("made up", {name: times(*each) for name, each in epochs.items()}, str)


# Earlier, matching, transferring ----------------------------------------------------------------------------------


def test_an_arm_that_does_no_better_refutes_that_it_does():
    """Noise that works as well as a teacher is no sign that the teacher taught anything."""
    same = arms(teacher=SOON, noise=(2000, 1900, 2080, 1950, 2060), slow=LATE)
    assert same.beat("teacher", "noise") == "not reproduced"
    assert same.beat("teacher", "slow") == "reproduced"
    assert same.beats_all("Both.", "teacher", ("noise", "slow"), {}, "a control").verdict == "partly"


@pytest.mark.parametrize("second", [NEVER, (500, 9000, 2000, 4000, None)])
def test_where_neither_is_known_to_match_the_other_nothing_is_decided(second):
    assert arms(a=NEVER if second == NEVER else SOON, b=second).beat("a", "b") == "undecided"


def test_an_arm_that_is_probably_earlier_is_not_refuted():
    """A fifth earlier in every pair of seeds, and too near for the test."""
    pairs = arms(a=(1000, 2000, 3000, 4000, 5000), b=(1200, 2400, 3600, 4800, 6000))
    assert pairs.earlier("a", "b") == "undecided"
    assert pairs.beat("a", "b") == "undecided"


def test_two_arms_that_do_nothing_do_not_match():
    idle = arms(short=LATE, throughout=LATE, none=LATE)
    assert idle.matches("It suffices.", "short", "throughout", {}, "the paper").verdict == "reproduced"
    assert idle.matches("It suffices.", "short", "throughout", {}, "the paper", "none").verdict == "undecided"
    works = arms(short=SOON, throughout=SOON, none=LATE)
    assert works.matches("It suffices.", "short", "throughout", {}, "the paper", "none").verdict == "reproduced"


def test_a_run_that_groks_at_epoch_0_leaves_a_verdict():
    claim = arms(a=(0, 20, 20, 40, 20), b=LATE).matches("As early.", "a", "b", {}, "the paper")
    assert claim.verdict == "reproduced"
    assert "not defined, as a run grokked at epoch 0" in claim.measured


@pytest.mark.parametrize(
    ("prior", "expected"),
    [
        (SOON, "reproduced"),
        ((5600, 5700, 5500, 5400, 5650), "partly"),
        (LATE, "not reproduced"),
        (NEVER, "not reproduced"),
        ((4000, 4050, 3950, 4100, 4020), "undecided"),
    ],
)
@pytest.mark.parametrize("none", [LATE, NEVER])
def test_what_transfers_is_a_share_of_what_the_oracle_saves(prior, none, expected):
    """A prior that does nothing is no undecided case; half of the epochs, give or take, is one."""
    if none == NEVER:
        prior = {LATE: NEVER, (4000, 4050, 3950, 4100, 4020): (6000, 6050, 5950, 6100, 6020)}.get(prior, prior)
        prior = (9000, 9100, 8900, 9050, 8950) if expected == "partly" else prior
    given = arms(prior=prior, oracle=SOON, none=none)
    assert transfers(given, "Much.", "prior", "oracle", "none", (), "the paper").verdict == expected


def test_the_share_that_is_saved_has_an_interval():
    exact = saved(arms(prior=(4000,) * 5, oracle=(2000,) * 5, none=(6000,) * 5), "prior", "oracle", "none")
    assert (exact.value, exact.low, exact.high) == (0.5, 0.5, 0.5)
    wide = saved(arms(prior=(2000, 6000, 2000, 6000, 4000), oracle=SOON, none=LATE), "prior", "oracle", "none")
    assert wide.low is not None
    assert wide.high is not None
    assert wide.low < 0.5 < wide.high
    idle = saved(arms(prior=SOON, oracle=LATE, none=LATE), "prior", "oracle", "none")
    assert (idle.value, idle.low, idle.high) == (None, None, None)


def test_a_prior_is_judged_at_the_best_of_its_own_strengths():
    named = {"none (here)": times(*LATE), "prior, strength 1 (here)": times(*NEVER)}
    named |= {"prior, strength 0.1 (here)": times(*SOON), "a prior, strength 1 (here)": times(*NEVER)}
    named |= {"prior, strength 10 (there)": times(100, 100, 100, 100, 100)}
    found = best_arms(named, "here", "none", ["prior", "a prior"])
    assert found.full_name("prior") == "prior, strength 0.1 (here)"
    assert found.levels == {"none": 0.05 / 2}


def test_students_of_teachers_that_had_not_learned_decide_nothing():
    claim = arms(student=NEVER, none=SOON).beats("It teaches.", "student", "none")
    assert claim.verdict == of_teachers(claim, times(*SOON)).verdict == "not reproduced"
    judged = of_teachers(claim, times(*SOON[:4], None))
    assert judged.verdict == "undecided"
    assert judged.measured.endswith("4 of 5 teachers had grokked.")


# Figure 7 ---------------------------------------------------------------------------------------------------------


def test_a_late_start_is_judged_where_it_is_late_and_in_time():
    at = {n: name for name, n in fig7.STARTS.items()}
    assert fig7.in_time(times(*[300] * 5), times(*NEVER)) == [at[500], at[1000], at[2000]]
    assert fig7.in_time(times(*[700] * 5), times(*[1500] * 5)) == [at[1000]]
    assert fig7.in_time(times(*NEVER), times(*NEVER)) == []


def test_a_start_after_the_baseline_has_grokked_does_not_refute_that_late_starts_work():
    names = {fig7.NONE: [story(grokked=1500 + 20 * n) for n in range(5)]}
    names |= {name: [story(grokked=min(n + 300 + 20 * k, 1500 + 20 * k)) for k in range(5)]
              for name, n in fig7.STARTS.items()}  # fmt: skip
    others = (fig7.CONSTANT, *fig7.WINDOWS, *fig7.ANNEALS)
    names |= {name: [story(grokked=400 + 20 * k) for k in range(5)] for name in others}
    runs = runs_of({arm_of(layout, name): each for name, each in names.items() for layout in fig7.LAYOUTS})
    claim = fig7.judge_at(runs, UNSEEN)[2]
    assert claim.verdict == "reproduced"
    assert claim.readings[list(fig7.STARTS)[2]] == "not reproduced"


def test_attention_stays_only_where_a_prior_had_put_it():
    def mass(before, after, grokked=None):
        curves = story(grokked=grokked)
        return curves.assign(informative_mass_mean=[before if epoch <= 200 else after for epoch in curves.index])

    assert fig7.stays(mass(0.95, 0.9), 200, None) == pytest.approx(0.9 / 0.95)
    assert fig7.stays(mass(1.0, 0.5), 200, None) == 0.5
    assert fig7.stays(mass(0.5, 0.5), 200, None) is None, "it had not put it there"
    assert fig7.stays(mass(1.0, 0.5, grokked=160), 200, 160) is None, "the run had grokked by then"
