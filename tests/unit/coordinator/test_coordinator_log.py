"""Lines of others as records, and how often the same thing is told."""

from __future__ import annotations

import logging

import pytest

from fedsecure_coordinator.quota import MAX_KEYS, Quota
from fedsecure_coordinator.views.spoken import record_of


@pytest.mark.parametrize(
    ("line", "level", "text"),
    [
        (
            "I1130 00:15:24.671657   12459 ssl_transport_security.cc:2563] Handshake failed with error: why",
            logging.WARNING,
            "a peer was refused in the TLS handshake: Handshake failed with error: why",
        ),
        ("E1130 00:15:24.671657 1 add_port.cc:9] no", logging.ERROR, "no"),
        ("/x.py:3: UserWarning: odd", logging.WARNING, "/x.py:3: UserWarning: odd"),
    ],
)
def test_lines_become_records(line, level, text):
    found = record_of(line)
    assert found[:2] == (level, text)


def test_lines_that_say_nothing_are_dropped():
    assert record_of("  ") is None
    assert record_of("WARNING: All log messages before absl::InitializeLog() is called are written to STDERR") is None


def test_the_same_thing_is_told_once_a_minute_with_its_count():
    now = [0.0]
    quota = Quota(lambda: now[0])
    assert [quota.take("a") for _ in range(4)] == [1, 0, 0, 0]
    assert quota.take("b") == 1
    now[0] = 59.0
    assert quota.take("a") == 0
    now[0] = 60.0
    assert quota.take("a") == 5
    assert quota.take("a") == 0
    for key in range(2 * MAX_KEYS):
        quota.take(key)
    assert len(quota._said) == MAX_KEYS
