"""What the log says became of a masked half: confirmed, announced, left out, never left; and what follows from it."""

from __future__ import annotations

import io

import pytest

from fedsecure.errors import LocalProtocolError, RemoteProtocolError
from fedsecure.secagg.protocol.results import SessionResult
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_node.log.absences import standing
from fedsecure_node.log.chain import Record
from fedsecure_node.log.decisions import note
from fedsecure_node.log.maskedrounds import masked_rounds
from fedsecure_node.log.releases import TRANSITIONS, fold
from fedsecure_node.masking.settling import close_sums, settle_sums
from fedsecure_node.progress import PlainReporter

OWN = "hospital-a"
NAMES = (OWN, "hospital-b", "hospital-c", "hospital-d")
OTHERS = NAMES[1:]
T3 = bytes([3]) * 32
SUM = {"transcript3": T3.hex(), "survivors": list(NAMES)}
SENT = ("sending", "acknowledged")


def body(round_=0, *, plan="d" * 64, attempt=0, masked=True, cohort="hospitals"):
    about = {"name": cohort, "nodes": list(NAMES), "threshold": 3}
    return {
        "plan": {"digest": plan, "name": "toy", "method": "fedaf"},
        "payload": {"sha256": "e" * 64, "bytes": 16},
        "round": round_, "step": 0, "attempt": attempt, "exchange": "statistics",
        **({"secagg": {"cohort": about, "streams": [{"bytes": 8}]}} if masked else {}),
    }  # fmt: skip


def told(*releases):
    """Releases as a log tells them: each a body, then the kinds of its records, or pairs of kind and fields."""
    records: list[Record] = []
    for fields, *events in releases:
        records.append(Record(number := len(records) + 1, "release", "", OWN, "", fields))
        for event in events:
            kind, more = (event, {}) if isinstance(event, str) else event
            records.append(Record(len(records) + 1, kind, "", OWN, "", {"release": number, **more}))
    return list(fold(records).values())


CONFIRMED, UNMASKED, ANNOUNCED = ("confirmed", SUM), ("unmasked", SUM), ("announced", SUM)
OVER = ("closed", {"reason": "its exchange is over", "went_on": True})
ENDED = ("closed", {"reason": "the run is over", "went_on": False})
WITHOUT = ("closed", {"reason": "its exchange is over", "went_on": True, "announced": {"survivors": list(OTHERS)}})


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ((), "waits to leave under masks"),
        (("masked",), "no sum with it was read as far as this node knows"),
        (("masked", CONFIRMED), "may have been read: this node confirmed it"),
        (("masked", CONFIRMED, "masked"), "may have been read: this node confirmed it"),
        (("masked", CONFIRMED, UNMASKED), "inside a sum that the coordinator could read"),
        (("masked", UNMASKED), "inside a sum that the coordinator could read"),
        (("masked", ANNOUNCED), "inside a sum that was read: the coordinator announced it"),
        (("masked", CONFIRMED, ANNOUNCED), "inside a sum that was read: the coordinator announced it"),
        ((ENDED,), "sent, but for its summed half, which never left"),
        (("masked", ENDED), "its exchange is over: no sum with it was read as far as this node knows"),
        (("masked", CONFIRMED, ENDED), "is over: a sum with it may have been read: this node confirmed it"),
        (("masked", ENDED, ANNOUNCED), "inside a sum that was read: the coordinator announced it"),
        (("masked", CONFIRMED, ENDED, ANNOUNCED), "inside a sum that was read: the coordinator announced it"),
    ],
)  # fmt: skip
def test_the_state_in_words(events, words):
    (release,) = told((body(), *SENT, *events))
    assert release.words().endswith(words)


def test_nothing_follows_a_sum_that_was_read_and_no_session_one_that_is_over():
    assert not any(TRANSITIONS[state] for state in ("unmasked", "announced", "unsummed"))
    assert {state: set(TRANSITIONS[state]) for state in ("unread", "unsure")} == {
        "unread": {"announced"}, "unsure": {"announced"},
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["confirmed", "announced", "unmasked"])
def test_what_never_left_is_in_no_sum(kind):
    with pytest.raises(LocalProtocolError, match=f"cannot be {kind} now"):
        told((body(), *SENT, (kind, SUM)))


def test_a_plain_release_has_no_end_of_masks():
    with pytest.raises(LocalProtocolError, match="cannot be closed now"):
        told((body(masked=False), *SENT, ENDED))


# what the next exchange tells


@pytest.fixture
def written(node):
    """written(*events, round_=…): such a release, in the log of the node."""

    def write(*events, round_=0, attempt=0):
        fields = body(round_, plan=node.plan.digest(), attempt=attempt)
        number = node.log.append("release", fields, only_if=lambda _: None).seq
        for event in (*SENT, *events):
            kind, more = (event, {}) if isinstance(event, str) else event
            note(node.log, number, kind, more)
        return number

    return write


@pytest.fixture
def asked(node):
    """asked(exchange, round, survivors): the node is asked for an exchange; the line it says about it."""

    def ask(exchange, round_, survivors=(), attempt=0, data=None, of=None, t3=T3):
        sum_of = round_ - (exchange == "statistics") if of is None else of
        about = (t3, (bytes(32),), tuple(survivors), bytes(32), sum_of, "statistics")
        result = SessionResult(*about).to_bytes() if survivors else b""
        work = pb.Exchange(exchange=exchange, round=round_, result=data or result)
        said = io.StringIO()
        settle_sums(node.gate, PlainReporter(said), work, node.method, node.key(exchange, round_, attempt), OWN)
        return said.getvalue()

    return ask


def states(node):
    return [release.state for release in fold(node.log.records()).values()]


@pytest.mark.parametrize("events", [("masked",), ("masked", ("confirmed", {**SUM, "survivors": NAMES[:3]}))])
def test_an_announced_sum_with_this_node_is_noted_and_counts(node, written, asked, events):
    """Whether or not it was asked for its confirmation, or for shares."""
    number = written(*events)
    said = asked("condensation", 0, NAMES[:3])
    assert f"release {number}: the coordinator read the sum over 3 nodes that it is inside" in said
    last = node.log.records()[-1]
    assert (last.kind, last.body) == (
        "announced", {"release": number, "transcript3": T3.hex(), "survivors": list(NAMES[:3])},
    )  # fmt: skip
    releases = fold(node.log.records()).values()
    assert [r.survivors for r in masked_rounds(releases)] == [NAMES[:3]]
    assert standing(releases).lines() == []
    asked("statistics", 1, NAMES[:3])
    assert node.log.records()[-1] == last, "nothing is noted twice"


@pytest.mark.parametrize(("events", "fits"), [((), False), (("masked",), True), (("masked", CONFIRMED), True)])
def test_another_sum_than_those_that_were_confirmed(node, written, asked, events, fits):
    """Unless vectors left in a session that this node did not confirm: then it may be that one's."""
    other = ("confirmed", {**SUM, "transcript3": "ab" * 32})
    written("masked", other, *events)
    if fits:
        asked("condensation", 0, NAMES)
    else:
        with pytest.raises(RemoteProtocolError, match="is another than the one that this node confirmed"):
            asked("condensation", 0, NAMES)
    assert states(node) == ["announced"], "what the coordinator said is noted in any case"


@pytest.mark.parametrize("survivors", [NAMES[:3], OTHERS])
@pytest.mark.parametrize(
    "events", [("masked", CONFIRMED), ("masked", CONFIRMED, "masked"), ("masked", CONFIRMED, UNMASKED)]
)
def test_the_sum_that_was_confirmed_over_other_nodes(node, written, asked, events, survivors):
    """T3 is of one U3. Nothing is noted that the node knows to be false."""
    written(*events)
    before = node.log.records()
    with pytest.raises(RemoteProtocolError, match="said to be over other nodes than the one of the same transcript"):
        asked("condensation", 0, survivors)
    assert node.log.records() == before


def test_the_sum_of_an_earlier_attempt_over_other_nodes(node, written, asked):
    written("masked", CONFIRMED)
    asked("statistics", 0, attempt=1)
    written("masked", attempt=1)
    with pytest.raises(RemoteProtocolError, match="said to be over other nodes"):
        asked("condensation", 0, NAMES[:3])
    asked("condensation", 0, NAMES[:3], t3=bytes([4]) * 32)
    assert states(node) == ["unsure", "announced"]


def test_announced_rounds_that_differ_by_one_are_warned_of(written, asked):
    written("masked")
    asked("condensation", 0, NAMES)
    written("masked", round_=1)
    assert "differ by node hospital-d alone" in asked("condensation", 1, NAMES[:3])


@pytest.mark.parametrize(
    ("events", "state"), [((), "unsummed"), (("masked",), "unread"), (("masked", CONFIRMED), "unsure")]
)
def test_an_announced_sum_without_this_node_leaves_it_out(node, written, asked, events, state):
    number = written(*events)
    said = asked("condensation", 0, OTHERS, t3=bytes([4]) * 32)
    assert f"release {number}: the sum over 3 nodes is without it" in said
    assert states(node) == [state]
    assert node.log.records()[-1].body["announced"]["survivors"] == list(OTHERS)
    (line,) = standing(fold(node.log.records()).values()).lines()
    assert line == "this node contributed 1 time and was in 0 sums; left out of: toy, round 1 statistics"


def test_a_sum_said_to_hold_what_never_left_is_refused(node, written, asked):
    number = written()
    with pytest.raises(RemoteProtocolError, match=f"hold release {number}, whose summed half never left"):
        asked("condensation", 0, NAMES)
    assert states(node) == ["acknowledged"]


def test_an_exchange_that_goes_back_or_is_the_same_closes_nothing(node, written, asked):
    written("masked", round_=1)
    asked("statistics", 0)
    asked("statistics", 1)
    assert states(node) == ["masked"]


def test_a_further_attempt_leaves_nobody_out(node, written, asked):
    written("masked")
    asked("statistics", 0, attempt=1)
    written("masked", attempt=1)
    asked("condensation", 0, NAMES)
    assert states(node) == ["unread", "announced"]
    found = standing(fold(node.log.records()).values())
    assert (found.contributed, found.sums, found.left_out, found.unknown) == (1, 1, (), ())


def test_what_is_announced_to_a_node_that_comes_back(node, written, asked):
    written("masked")
    close_sums(node.gate, node.plan.digest(), "the node left the run")
    assert states(node) == ["unread"]
    asked("condensation", 0, NAMES)
    assert states(node) == ["announced"]


@pytest.mark.parametrize(
    ("events", "state"),
    [((), "unsummed"), (("masked",), "unread"), (("masked", CONFIRMED), "unsure"), ((UNMASKED,), "unmasked")],
)
def test_a_round_that_was_skipped(node, written, asked, events, state):
    """What the log knows of the lost sum stays as it is: an announcement of another one says nothing of it."""
    written("masked", UNMASKED)
    number = written(*(("masked", *events) if state == "unmasked" else events), round_=1)
    said = asked("statistics", 2, NAMES, of=0)
    assert states(node) == ["unmasked", state]
    if state != "unmasked":
        assert f"release {number}: its round was skipped" in said
        assert node.log.records()[-1].body == {"release": number, "reason": "its round was skipped", "went_on": False}
    found = standing(fold(node.log.records()).values())
    assert (found.left_out, len(found.unknown)) == ((), int(state in ("unread", "unsure")))


def test_a_first_round_that_was_skipped(node, written, asked):
    written("masked", CONFIRMED)
    asked("statistics", 1)
    assert states(node) == ["unsure"]


@pytest.mark.parametrize("events", [("masked", ANNOUNCED), ("masked", WITHOUT)])
@pytest.mark.parametrize("of", [None, 0])
def test_a_sum_that_was_announced_cannot_be_taken_back(written, asked, events, of):
    written("masked", UNMASKED)
    written(*events, round_=1)
    asked("statistics", 2, NAMES, of=1)
    with pytest.raises(RemoteProtocolError, match="announced a sum of round 2 statistics before, and goes on as if"):
        asked("statistics", 2, () if of is None else NAMES, of=of)


def test_an_announcement_of_what_is_not_over_says_nothing(node, written, asked):
    written("masked")
    written("masked", round_=1)
    asked("statistics", 1, NAMES, of=1)
    assert states(node) == ["unread", "masked"]


def test_a_malformed_announcement_is_no_announcement(node, written, asked):
    written("masked")
    asked("condensation", 0, data=b"\xff\xff")
    assert states(node) == ["unread"]


def test_the_run_is_over(node, written):
    written()
    written("masked", round_=1)
    written("masked", CONFIRMED, UNMASKED, round_=2)
    close_sums(node.gate, "f" * 64, "another run")
    assert states(node) == ["acknowledged", "masked", "unmasked"]
    close_sums(node.gate, node.plan.digest(), "the run is over", went_on=True)
    close_sums(node.gate, node.plan.digest(), "the run is over", went_on=True)
    assert states(node) == ["unsummed", "unread", "unmasked"]


# this node's own standing


@pytest.mark.parametrize(
    ("releases", "due"),
    [
        ([(0, "masked", UNMASKED), (1, "masked", ANNOUNCED)], (2, 2, [], [])),
        ([(0, OVER), (1, "masked", UNMASKED)], (2, 1, [1], [])),
        ([(0, "masked", WITHOUT), (1, "masked", CONFIRMED, WITHOUT)], (2, 0, [1, 2], [])),
        ([(0, "masked", OVER), (1, "masked", CONFIRMED, ENDED)], (2, 0, [], [1, 2])),
        ([(0, ENDED)], (1, 0, [], [])),
        ([(0,)], (0, 0, [], [])),
        ([(0, "masked", CONFIRMED)], (0, 0, [], [])),
        ([(0,), (1, "masked"), (2, "masked", UNMASKED)], (3, 1, [1], [2])),  # a log of before an end was noted
    ],
)
def test_in_how_many_sums_this_node_was(releases, due):
    found = standing(told(*((body(round_), *SENT, *events) for round_, *events in releases)))
    names = [[f"toy, round {round_} statistics" for round_ in rounds] for rounds in due[2:]]
    assert (found.contributed, found.sums, list(found.left_out), list(found.unknown)) == (*due[:2], *names)


def test_other_cohorts_and_plain_releases_do_not_count():
    releases = told((body(cohort="another"), *SENT, OVER), (body(masked=False), *SENT))
    assert standing(releases, "hospitals").contributed == 0
    assert standing(releases).contributed == 1
