"""The round machine, event by event."""

from __future__ import annotations

import pytest

from fedsecure.errors import DataError, LocalProtocolError, RemoteProtocolError
from fedsecure.rounds.events import (
    Abort,
    AdmitNode,
    Aggregate,
    AttemptFailed,
    Complete,
    ContributionAccepted,
    DeadlinePassed,
    NameStragglers,
    NodeJoined,
    NodeLeft,
    OperatorAborted,
    Phase,
    ServerUpdated,
    SetDeadline,
    SkipRound,
    StartExchange,
    SumLost,
    UpdateFailed,
)
from fedsecure.rounds.machine import RoundMachine
from fedsecure.rounds.transitions import MAX_ATTEMPTS, TRANSITIONS, Transitions


def machine(nodes=("a", "b", "c"), *, min_nodes=2, rounds=2, exchanges=("one",), admits=False) -> RoundMachine:
    return RoundMachine(
        exchanges=exchanges,
        rounds=rounds,
        min_nodes=min_nodes,
        nodes=nodes,
        join_seconds=60,
        exchange_seconds=30,
        settle_seconds=1,
        admits=admits,
    )


def joined(*nodes: str, **options) -> RoundMachine:
    made = machine(nodes, **options)
    for node in nodes:
        made.handle(NodeJoined(node))
    return made


def given(node: str, round_: int = 0, exchange: str = "one", attempt: int = 0, digest: str | None = None):
    return ContributionAccepted(node, round_, exchange, attempt, digest or f"d-{node}")


def test_a_new_run_waits_for_its_join_deadline():
    assert machine().pending() == (SetDeadline(0, 60),)


def test_all_named_nodes_start_the_first_exchange():
    made = machine()
    assert made.handle(NodeJoined("b")) == ()
    assert made.handle(NodeJoined("b")) == ()
    assert made.handle(NodeJoined("a")) == ()
    assert made.handle(NodeJoined("c")) == (StartExchange(0, "one", 0, ("a", "b", "c")), SetDeadline(1, 30))


def test_an_open_cohort_settles_before_it_starts():
    made = machine((), min_nodes=2)
    assert made.handle(NodeJoined("x")) == ()
    assert made.handle(NodeJoined("y")) == (SetDeadline(1, 1),)
    assert made.handle(NodeJoined("z")) == ()
    assert made.handle(DeadlinePassed(1))[0] == StartExchange(0, "one", 0, ("x", "y", "z"))


def test_settling_is_called_off_when_a_node_leaves():
    made = machine((), min_nodes=2)
    made.handle(NodeJoined("x"))
    made.handle(NodeJoined("y"))
    made.handle(NodeLeft("y", "maintenance"))
    assert made.handle(DeadlinePassed(1)) == ()
    assert made.handle(NodeJoined("y")) == (SetDeadline(2, 1),)


def test_join_deadline_starts_with_whoever_is_there():
    made = machine()
    made.handle(NodeJoined("a"))
    made.handle(NodeJoined("c"))
    assert made.handle(DeadlinePassed(0))[0] == StartExchange(0, "one", 0, ("a", "c"))


def test_join_deadline_below_quorum_names_the_missing():
    made = machine()
    made.handle(NodeJoined("a"))
    assert made.handle(DeadlinePassed(0)) == (Abort("quorum", ("b", "c"), "fewer than 2 nodes; missing: b; c"),)
    assert made.state.phase is Phase.ABORTED


def test_refusals_end_joining():
    made = machine()
    made.handle(NodeJoined("a"))
    made.handle(NodeLeft("b", "plans.methods: fedavg"))
    assert made.handle(NodeJoined("c"))[0] == StartExchange(0, "one", 0, ("a", "c"))
    made = machine()
    made.handle(NodeLeft("b", "plans.methods: fedavg"))
    (abort,) = made.handle(NodeLeft("a", "no data"))
    assert abort == Abort("quorum", ("a", "b"), "fewer than 2 nodes; missing: b (plans.methods: fedavg); a (no data)")


def test_a_stranger_to_the_plan_is_refused():
    with pytest.raises(RemoteProtocolError, match="node z is not in the plan's cohort"):
        machine().handle(NodeJoined("z"))


def test_a_run_completes():
    made = joined("a", "b")
    for round_ in range(2):
        assert made.handle(given("b", round_)) == ()
        assert made.handle(given("a", round_)) == (Aggregate(round_, "one", 0, ("a", "b")),)
        actions = made.handle(ServerUpdated())
    assert actions == (Complete(),)
    assert made.state.phase is Phase.COMPLETED
    assert made.pending() == ()


def test_a_repeated_contribution_is_idempotent_and_another_is_refused():
    made = joined("a", "b")
    made.handle(given("a"))
    assert made.handle(given("a")) == ()
    with pytest.raises(RemoteProtocolError, match="node a: another contribution"):
        made.handle(given("a", digest="other"))
    made.handle(given("b"))
    assert made.handle(given("b")) == ()  # while it is aggregated


def test_a_late_contribution_names_what_is_open():
    made = joined("a", "b", "c")
    made.handle(given("a"))
    made.handle(given("b"))
    made.handle(DeadlinePassed(1))
    with pytest.raises(RemoteProtocolError, match=r"node c is not in the cohort .*being aggregated"):
        made.handle(given("c"))
    made.handle(ServerUpdated())
    with pytest.raises(RemoteProtocolError, match=r"is not due: round 2, exchange one, attempt 1 is open"):
        made.handle(given("c"))


def test_a_straggler_is_named_and_out_until_it_joins_again():
    made = joined("a", "b", "c", rounds=3)
    made.handle(given("a"))
    made.handle(given("b"))
    assert made.handle(DeadlinePassed(1)) == (NameStragglers(0, "one", ("c",)), Aggregate(0, "one", 0, ("a", "b")))
    assert made.handle(ServerUpdated())[0] == StartExchange(1, "one", 0, ("a", "b"))
    made.handle(NodeJoined("c"))
    assert made.state.cohort == ("a", "b")
    made.handle(given("a", 1))
    made.handle(given("b", 1))
    assert made.handle(ServerUpdated())[0] == StartExchange(2, "one", 0, ("a", "b", "c"))


def test_exchange_deadline_below_quorum_aborts():
    made = joined("a", "b", "c")
    made.handle(given("a"))
    actions = made.handle(DeadlinePassed(1))
    assert actions == (
        NameStragglers(0, "one", ("b", "c")),
        Abort("quorum", ("b", "c"), "fewer than 2 nodes; missing: b; c"),
    )


def test_the_next_exchange_is_for_the_contributors_of_the_last():
    made = joined("a", "b", "c", exchanges=("one", "two"), rounds=2)
    made.handle(given("a"))
    made.handle(given("c"))
    made.handle(DeadlinePassed(1))
    made.handle(NodeJoined("b"))
    assert made.handle(ServerUpdated())[0] == StartExchange(0, "two", 0, ("a", "c"))
    made.handle(given("a", exchange="two"))
    made.handle(given("c", exchange="two"))
    assert made.handle(ServerUpdated())[0] == StartExchange(1, "one", 0, ("a", "b", "c"))


def test_a_leaving_node_shrinks_the_cohort():
    made = joined("a", "b", "c")
    made.handle(given("a"))
    made.handle(given("b"))
    assert made.handle(NodeLeft("c", "policy changed")) == (Aggregate(0, "one", 0, ("a", "b")),)


def test_what_was_contributed_counts_after_its_node_left():
    made = joined("a", "b")
    made.handle(given("a"))
    assert made.handle(NodeLeft("a", "maintenance")) == ()
    assert made.handle(given("b")) == (Aggregate(0, "one", 0, ("a", "b")),)
    (abort,) = made.handle(ServerUpdated())
    assert abort == Abort("quorum", ("a",), "fewer than 2 nodes; missing: a (maintenance)")


def test_leaving_below_quorum_aborts_naming_the_node():
    made = joined("a", "b")
    assert made.handle(NodeLeft("b", "gone")) == (Abort("quorum", ("b",), "fewer than 2 nodes; missing: b (gone)"),)


def test_an_end_for_want_of_nodes_names_all_that_left():
    made = joined("a", "b", "c", "d", min_nodes=3)
    made.handle(NodeLeft("d", "not pinned"))
    reason = "fewer than 3 nodes; missing: d (not pinned); c (not pinned, too)"
    assert made.handle(NodeLeft("c", "not pinned, too")) == (Abort("quorum", ("c", "d"), reason),)
    made = joined("a", "b", "c", "d", min_nodes=3)
    made.handle(NodeLeft("d", "why"))
    for node in "abc":
        made.handle(given(node))
    made.handle(NodeLeft("c", "too"))
    assert made.handle(ServerUpdated()) == (
        Abort("quorum", ("c", "d"), "fewer than 3 nodes; missing: c (too); d (why)"),
    )


def test_a_node_that_left_may_come_back_at_the_next_round():
    made = joined("a", "b", "c")
    made.handle(NodeLeft("c", "maintenance"))
    made.handle(NodeJoined("c"))
    with pytest.raises(RemoteProtocolError, match="node c is not in the cohort"):
        made.handle(given("c"))
    made.handle(given("a"))
    made.handle(given("b"))
    assert made.handle(ServerUpdated())[0] == StartExchange(1, "one", 0, ("a", "b", "c"))


def dropped_out(**options) -> RoundMachine:
    """Round 2 of three nodes has begun without c, which dropped out of the first sum."""
    made = joined("a", "b", "c", admits=True, rounds=3, **options)
    for node in "abc":
        made.handle(given(node))
    made.handle(NodeLeft("c", "dropped out of the masked sum"))
    return made


def test_who_comes_back_while_the_first_exchange_is_open_is_in_that_round():
    made = dropped_out()
    assert made.handle(ServerUpdated())[0] == StartExchange(1, "one", 0, ("a", "b"))
    made.handle(given("a", 1))
    deadline = made.pending()[1]
    assert made.handle(NodeJoined("c")) == (AdmitNode("c", 1, "one", 0),)
    assert made.handle(NodeJoined("c")) == ()
    assert made.state.left == {}
    assert made.pending() == (StartExchange(1, "one", 0, ("a", "b", "c")), deadline)
    assert made.handle(given("b", 1)) == ()
    assert made.handle(given("c", 1)) == (Aggregate(1, "one", 0, ("a", "b", "c")),)
    with pytest.raises(RemoteProtocolError, match="node z is not in the plan's cohort"):
        joined("a", "b", admits=True).handle(NodeJoined("z"))


def test_who_came_back_and_is_late_holds_up_no_round_beyond_its_deadline():
    made = dropped_out()
    made.handle(ServerUpdated())
    made.handle(NodeJoined("c"))
    made.handle(given("a", 1))
    made.handle(given("b", 1))
    late = (NameStragglers(1, "one", ("c",)), Aggregate(1, "one", 0, ("a", "b")))
    assert made.handle(DeadlinePassed(made.state.token)) == late


def test_who_comes_back_after_the_first_exchange_waits_for_the_next_round():
    made = dropped_out(exchanges=("one", "two"))
    assert made.handle(NodeJoined("c")) == ()  # while the first is aggregated
    assert made.handle(ServerUpdated())[0] == StartExchange(0, "two", 0, ("a", "b", "c"))
    made.handle(NodeLeft("c", "maintenance"))
    assert made.handle(NodeJoined("c")) == ()
    assert made.state.cohort == ("a", "b")


def test_a_second_attempt_admits_as_the_first_does():
    made = dropped_out()
    made.handle(AttemptFailed("no sum"))
    assert made.state.cohort == ("a", "b")
    assert made.handle(NodeJoined("c")) == (AdmitNode("c", 0, "one", 1),)


def test_a_round_whose_sum_is_lost_is_skipped():
    made = joined("a", "b", "c", exchanges=("one", "two"), rounds=2)
    for node in "ab":
        made.handle(given(node))
    made.handle(DeadlinePassed(1))
    made.handle(NodeJoined("c"))
    skip, start, deadline = made.handle(SumLost("shares were given"))
    assert skip == SkipRound(0, "one", "shares were given")
    assert start == StartExchange(1, "one", 0, ("a", "b", "c"))
    assert made.pending() == (start, deadline)
    twin = machine(exchanges=("one", "two"))
    twin.restore(made.snapshot())
    assert (twin.state.skipped, twin.pending()) == ((0,), made.pending())
    with pytest.raises(RemoteProtocolError, match="is not due: round 2"):
        made.handle(given("a"))
    with pytest.raises(LocalProtocolError, match="SumLost is not possible now"):
        made.handle(SumLost("again"))


def test_a_second_exchange_whose_sum_is_lost_skips_its_round_too():
    made = joined("a", "b", exchanges=("one", "two"))
    for exchange in ("one", "two"):
        for node in "ab":
            made.handle(given(node, exchange=exchange))
        if exchange == "one":
            made.handle(ServerUpdated())
    assert made.handle(SumLost("why"))[:2] == (SkipRound(0, "two", "why"), StartExchange(1, "one", 0, ("a", "b")))


def test_the_last_round_cannot_be_skipped():
    made = joined("a", "b", rounds=2)
    for round_ in range(2):
        for node in "ab":
            made.handle(given(node, round_))
        actions = made.handle(SumLost(f"of round {round_ + 1}"))
    assert actions == (Abort("update", (), "of round 2"),)
    assert (made.state.phase, made.state.skipped) == (Phase.ABORTED, (0,))


def test_a_skipped_round_with_too_few_nodes_left_ends_the_run():
    made = joined("a", "b", "c", min_nodes=2)
    for node in "abc":
        made.handle(given(node))
    made.handle(NodeLeft("a", "maintenance"))
    made.handle(NodeLeft("b", "maintenance"))
    skip, abort = made.handle(SumLost("why"))
    assert (skip, abort.reason, abort.missing) == (SkipRound(0, "one", "why"), "quorum", ("a", "b"))


def test_attempts_are_bounded():
    made = joined("a", "b")
    for attempt in range(MAX_ATTEMPTS):
        made.handle(given("a", attempt=attempt))
        made.handle(given("b", attempt=attempt))
        actions = made.handle(AttemptFailed("a blob is damaged"))
    assert actions == (Abort("update", (), f"{MAX_ATTEMPTS} attempts failed, the last: a blob is damaged"),)


def test_update_and_operator_end_a_run():
    made = joined("a", "b")
    assert made.handle(OperatorAborted("wrong plan")) == (Abort("operator", (), "wrong plan"),)
    with pytest.raises(LocalProtocolError, match="the run is ABORTED"):
        made.handle(OperatorAborted("again"))
    with pytest.raises(RemoteProtocolError, match="joining is not possible now: the run is ABORTED"):
        made.handle(NodeJoined("a"))
    made = joined("a", "b")
    made.handle(given("a"))
    made.handle(given("b"))
    assert made.handle(UpdateFailed("out of memory")) == (Abort("update", (), "out of memory"),)


def test_late_timers_are_ignored_and_unknown_ones_are_not():
    made = joined("a", "b")
    assert made.handle(DeadlinePassed(0)) == ()
    before = made.snapshot()
    with pytest.raises(LocalProtocolError, match="deadline 9 was never set"):
        made.handle(DeadlinePassed(9))
    with pytest.raises(LocalProtocolError, match="ServerUpdated is not possible now"):
        made.handle(ServerUpdated())
    assert made.snapshot() == before


def test_a_snapshot_restores_every_phase():
    made = joined("a", "b", exchanges=("one", "two"))
    made.handle(given("a"))
    twin = machine(("a", "b"), exchanges=("one", "two"))
    twin.restore(made.snapshot())
    assert twin.pending() == made.pending() == (StartExchange(0, "one", 0, ("a", "b")), SetDeadline(1, 30))
    assert twin.handle(given("b")) == made.handle(given("b"))
    assert twin.pending() == (Aggregate(0, "one", 0, ("a", "b")),)


@pytest.mark.parametrize("text", ["", "{}x", '{"phase": "DANCING"}', '{"round": -1}', '{"extra": 1}'])
def test_a_damaged_snapshot_is_refused(text):
    with pytest.raises(DataError, match="saved state of a run is damaged"):
        machine().restore(text)


def test_a_snapshot_of_another_plan_is_refused():
    made = machine()
    with pytest.raises(DataError, match="does not fit its plan"):
        made.restore('{"phase": "EXCHANGE", "round": 7}')


def test_every_transition_exists():
    assert all(callable(getattr(Transitions, name)) for name in TRANSITIONS.values())


def test_impossible_sizes_are_refused():
    with pytest.raises(LocalProtocolError):
        machine(("a",), min_nodes=2)
    with pytest.raises(LocalProtocolError):
        machine(exchanges=())
