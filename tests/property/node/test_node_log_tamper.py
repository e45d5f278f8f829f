"""Whatever single change is made to a release log, verification names it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsecure.errors import ReleaseLogError
from fedsecure_node.log.chain import check_head, scan, verify_log


def read(data, head, check):
    found = scan(data, check)
    check_head(found, head, check)
    if found.torn:
        raise ReleaseLogError("torn")
    return found


def found_out(data, head, check):
    with pytest.raises(ReleaseLogError) as caught:
        read(data, head, check)
    assert "\n" not in str(caught.value)


def test_the_untouched_log_is_whole(written, tmp_path):
    data, head, check = written
    assert len(read(data, head, check).records) == 5
    (tmp_path / "log").write_bytes(data)
    assert len(verify_log(tmp_path / "log", head, check).records) == 5


def test_every_byte_of_it_matters(written):
    data, head, check = written
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x01
        found_out(bytes(changed), head, check)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_any_byte_changed_to_any_other(written, draw):
    data, head, check = written
    at = draw.draw(st.integers(0, len(data) - 1))
    value = draw.draw(st.integers(0, 255).filter(lambda v: v != data[at]))
    found_out(data[:at] + bytes([value]) + data[at + 1 :], head, check)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_any_stretch_removed_or_doubled(written, draw):
    data, head, check = written
    start = draw.draw(st.integers(0, len(data) - 1))
    end = draw.draw(st.integers(start + 1, len(data)))
    found_out(data[:start] + data[end:], head, check)
    found_out(data[:end] + data[start:], head, check)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(order=st.permutations(range(5)))
def test_any_other_order_of_records(written, order):
    data, head, check = written
    if list(order) == list(range(5)):
        return
    lines = data.splitlines(keepends=True)
    found_out(b"".join(lines[i] for i in order), head, check)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(added=st.binary(min_size=1, max_size=60), place=st.integers(0, 5))
def test_anything_put_between_records(written, added, place):
    data, head, check = written
    lines = data.splitlines(keepends=True)
    found_out(b"".join([*lines[:place], added, *lines[place:]]), head, check)
    found_out(b"".join([*lines[:place], added + b"\n", *lines[place:]]), head, check)
