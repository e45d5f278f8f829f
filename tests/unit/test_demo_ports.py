"""The coordinator's port of a demonstration: chosen long before it is listened at, so nobody may be given it."""

from __future__ import annotations

import socket

import pytest

from fedsecure.commands.demo import processes
from fedsecure.errors import RunAborted


def test_a_port_is_free_and_none_that_systems_deal_out():
    for _ in range(20):
        port = processes.free_port()
        assert port in processes.PORTS
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", port))


def test_a_port_that_is_taken_is_passed_over_and_none_is_named(monkeypatch):
    first = processes.free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first))
        monkeypatch.setattr(processes, "PORTS", range(first, first + 1))
        with pytest.raises(RunAborted, match="none of 100 ports of 127.0.0.1 from"):
            processes.free_port()
    assert processes.free_port() == first
