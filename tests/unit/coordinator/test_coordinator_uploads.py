"""Uploads: resumable, idempotent, checked, and nothing kept of what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from fedsecure.errors import DataError, RemoteProtocolError, WireError
from fedsecure.schema import Contribution
from fedsecure.tensors import Tensors
from fedsecure.wire.codec import encode_contribution, upload_key
from fedsecure_coordinator.service.uploads import slot_of


@pytest.fixture
def office(open_office, toy):
    made = open_office()
    made.digest = made.submit(toy.plan())
    for node in "abc":
        made.desk.join(node, made.digest)
    made.stored = lambda: [p for p in (made.uploads._folder).rglob("*") if p.is_file()]
    return made


def sealed(office, given, node="a", **where):
    payload = encode_contribution(given)
    key = upload_key(
        payload, node_id=node, plan_digest=office.digest, **{"round_": 0, "attempt": 0, "exchange": "one", **where}
    )
    return payload.data, key


def test_an_upload_goes_on_where_it_broke_off(office, toy):
    data, key = sealed(office, toy.contribution())

    def breaks():
        yield data[:10]
        yield data[10:30]
        raise WireError("cut")

    with pytest.raises(WireError, match="cut"):
        office.uploads.receive(key, 0, breaks())
    assert office.uploads.offset(key) == (30, False)
    with pytest.raises(RemoteProtocolError, match="continues at byte 0 where 30 are stored"):
        office.uploads.receive(key, 0, [data])
    assert office.uploads.receive(key, 30, [data[30:40]]) == (40, False)
    assert office.uploads.receive(key, 40, [data[40:]]) == (len(data), True)
    assert office.uploads.offset(key) == (len(data), True)
    assert office.uploads.receive(key, 0, []) == (len(data), True)
    assert office.stored() == []


def test_partial_bytes_survive_a_restart(office, open_office, toy):
    data, key = sealed(office, toy.contribution())
    office.uploads.receive(key, 0, [data[:25]])
    again = open_office()
    again.preparer.take_up()
    assert again.uploads.offset(key) == (25, False)
    assert again.uploads.receive(key, 25, [data[25:]]) == (len(data), True)


def test_other_bytes_for_an_accepted_contribution_are_refused(office, toy):
    office.send(office.digest, "a", toy.contribution(1))
    office.send(office.digest, "a", toy.contribution(1))
    data, key = sealed(office, toy.contribution(2))
    for call in (lambda: office.uploads.offset(key), lambda: office.uploads.receive(key, 0, [data])):
        with pytest.raises(RemoteProtocolError, match="another contribution to round 1, one is already accepted"):
            call()
    assert office.journal.traffic(office.digest)[0]["a"][0] == len(encode_contribution(toy.contribution(1)).data)


def test_an_accepted_contribution_stays_known_after_its_exchange(office, toy):
    data, key = sealed(office, toy.contribution())
    for node in "abc":
        office.send(office.digest, node)
    office.work()
    assert office.uploads.receive(key, 0, [data]) == (len(data), True)


def test_a_contribution_of_other_bytes_replaces_a_partial_one(office, toy):
    first, key = sealed(office, toy.contribution(1))
    office.uploads.receive(key, 0, [first[:20]])
    second, other = sealed(office, toy.contribution(2))
    assert office.uploads.offset(other) == (0, False)
    office.uploads.receive(other, 0, [second[:5]])
    assert len(office.stored()) == 1


@pytest.mark.parametrize(
    ("summed", "released", "message"),
    [
        ({"x": np.array([1, 2, np.nan, 4], np.float32)}, {"labels": np.zeros(1, np.int64)}, "tensor x: 1 of 4 values"),
        ({"x": np.full(4, 101, np.float32)}, {"labels": np.zeros(1, np.int64)}, "tensor x: values 101..101 outside"),
        ({"x": np.zeros(4, np.float32)}, {"labels": np.array([3])}, "tensor labels: values 3..3 outside 0..2"),
    ],
)
def test_bad_values_are_refused_naming_the_tensor(office, summed, released, message):
    data, key = sealed(office, Contribution(Tensors(summed), Tensors(released)))
    with pytest.raises(DataError, match=message):
        office.uploads.receive(key, 0, [data])
    assert office.stored() == []
    assert office.desk.accepted(slot_of(key)) is None


@pytest.mark.parametrize(
    ("summed", "released", "message"),
    [
        ({"x": np.zeros(5, np.float32)}, {"labels": np.zeros(1, np.int64)}, r"tensor x: shape \[5\] where \[4\]"),
        ({"x": np.zeros(4)}, {"labels": np.zeros(1, np.int64)}, "tensor x: dtype float64 where float32"),
        ({"x": np.zeros(4, np.float32)}, {"labels": np.zeros(9, np.int64)}, r"tensor labels: shape \[9\]"),
        ({"x": np.zeros(4, np.float32)}, {}, "tensor labels: named by the schema's released half but missing"),
        ({"y": np.zeros(4, np.float32)}, {}, "tensor y: not named by the schema"),
    ],
)
def test_bad_headers_are_refused_before_a_byte_is_read(office, summed, released, message):
    _, key = sealed(office, Contribution(Tensors(summed), Tensors(released)))

    def never():
        pytest.fail("the bytes were asked for")
        yield b""

    with pytest.raises(DataError, match=message):
        office.uploads.receive(key, 0, never())
    assert office.stored() == []


def test_lies_about_the_bytes(office, toy):
    data, key = sealed(office, toy.contribution())
    with pytest.raises(RemoteProtocolError, match="more than the declared"):
        office.uploads.receive(key, 0, [data + b"x"])
    key.summed_bytes = 1 << 40
    with pytest.raises(DataError, match="larger than the schema allows"):
        office.uploads.receive(key, 0, [data])
    data, key = sealed(office, toy.contribution())
    flipped = data[:-1] + bytes([data[-1] ^ 1])
    with pytest.raises(RemoteProtocolError, match="the bytes received are not those that its header declares"):
        office.uploads.receive(key, 0, [flipped])
    assert office.stored() == []
    for field in ("plan_digest", "payload_digest"):
        _, key = sealed(office, toy.contribution())
        setattr(key, field, "../../etc/passwd")
        with pytest.raises(RemoteProtocolError, match=f"{field} is not 64"):
            office.uploads.offset(key)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"round_": 1}, "round 1, exchange one, attempt 1 is open"),
        ({"attempt": 1}, "round 1, exchange one, attempt 1 is open"),
        ({"exchange": "two"}, "round 1, exchange one, attempt 1 is open"),
        ({"node": "z"}, "is not known here"),
    ],
)
def test_what_is_not_due_is_refused(office, toy, where, message):
    data, key = sealed(office, toy.contribution(), **where)
    with pytest.raises(RemoteProtocolError, match=message):
        office.uploads.receive(key, 0, [data])
    assert office.stored() == []


def test_a_newer_upload_takes_over(office, toy):
    data, key = sealed(office, toy.contribution())

    def overtaken():
        yield data[:10]
        office.uploads.receive(key, 10, [data[10:20]])
        yield data[10:]

    with pytest.raises(WireError, match="a newer upload"):
        office.uploads.receive(key, 0, overtaken())
    assert office.uploads.receive(key, 20, [data[20:]]) == (len(data), True)


def test_partial_bytes_go_when_the_exchange_is_over(office, toy):
    data, key = sealed(office, toy.contribution(), node="c")
    office.uploads.receive(key, 0, [data[:10]])
    office.send(office.digest, "a")
    office.send(office.digest, "b")
    office.clock.now += 30_001
    office.registry.pass_deadlines()
    assert office.stored() == []


@pytest.mark.parametrize("pieces", [1, 2])
def test_an_upload_whose_exchange_ends_meanwhile_is_no_fault_of_the_store(office, toy, pieces):
    data, key = sealed(office, toy.contribution())

    def ends():
        for piece in range(pieces):
            if piece == pieces - 1:
                office.uploads.discard(office.digest)
            yield data[10 * piece : 10 * piece + 10]

    with pytest.raises(WireError, match="no longer due|took over"):
        office.uploads.receive(key, 0, ends())
    assert office.stored() == []
