"""How long a run rests whose legs are refused again and again, and when the reason is told."""

from __future__ import annotations

from fedsecure_node.masking.refusals import FIRST_S, LONGEST_S, Refusals


class Clock:
    def __init__(self):
        self.s = 100.0

    def __call__(self):
        return self.s


def test_pauses_double_up_to_the_longest_and_start_anew_after_an_answer():
    refusals = Refusals(Clock())
    assert refusals.rest_s("p") == 0
    rests = []
    for _ in range(7):
        refusals.refused("p", "why")
        rests.append(refusals.rest_s("p"))
    assert rests == [FIRST_S, 2, 4, 8, 16, LONGEST_S, LONGEST_S]
    for _ in range(2000):
        refusals.refused("p", "why")
    assert refusals.rest_s("p") == LONGEST_S
    refusals.answered("p")
    assert refusals.rest_s("p") == 0
    refusals.refused("p", "why")
    assert refusals.rest_s("p") == FIRST_S


def test_a_run_rests_alone_and_only_for_its_time():
    clock = Clock()
    refusals = Refusals(clock)
    refusals.refused("p", "why")
    assert refusals.rest_s("q") == 0
    clock.s += FIRST_S
    assert refusals.rest_s("p") <= 0


def test_a_reason_is_told_when_it_is_new_or_came_back_after_an_answer():
    refusals = Refusals(Clock())
    assert [refusals.refused("p", line) for line in ("a", "a", "b", "b", "a")] == [True, False, True, False, True]
    assert refusals.refused("q", "a")
    refusals.answered("p")
    assert refusals.refused("p", "a")
