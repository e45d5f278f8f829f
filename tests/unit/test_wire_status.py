"""Errors become gRPC statuses and come back as the same errors, over a real call."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from fedsecure import errors
from fedsecure.errors import FedSecureError, RemoteProtocolError, WireError
from fedsecure.wire.status import from_rpc_error, to_status
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure.wire.v1.coordinator_pb2_grpc import (
    CoordinatorServicer,
    CoordinatorStub,
    add_CoordinatorServicer_to_server,
)

#: Faults of the side where they happen: the peer is told that it failed, not how.
NOT_ACROSS = ("FedSecureError", "LocalProtocolError", "StoreError")
CLASSES = [getattr(errors, n) for n in errors.__all__ if isinstance(getattr(errors, n), type)]


class Failing(CoordinatorServicer):
    def __init__(self) -> None:
        self.error: FedSecureError = WireError("unset")

    def Hello(self, request, context):
        to_status(context, self.error)


@pytest.fixture
def call(tmp_path):
    """A loopback call over a Unix socket: ``call(error)`` is what the caller sees of it."""
    servicer = Failing()
    server = grpc.server(ThreadPoolExecutor(1))
    add_CoordinatorServicer_to_server(servicer, server)
    address = f"unix:{tmp_path}/s"
    server.add_insecure_port(address)
    server.start()
    channel = grpc.insecure_channel(address)

    def ask(error: FedSecureError) -> FedSecureError:
        servicer.error = error
        with pytest.raises(grpc.RpcError) as caught:
            CoordinatorStub(channel).Hello(pb.HelloRequest(), timeout=30)
        return from_rpc_error(caught.value)

    yield ask
    channel.close()
    server.stop(0).wait(5)


@pytest.mark.parametrize("cls", [c for c in CLASSES if c.__name__ not in NOT_ACROSS])
def test_every_class_comes_back(call, cls):
    seen = call(cls("tensor x: 3 of 9 values are not finite", hint="look at Müller's file"))
    assert type(seen) is cls
    assert str(seen) == "tensor x: 3 of 9 values are not finite"
    assert seen.hint == "look at Müller's file"


def test_what_is_wrong_with_our_certificate_is_said_of_it_and_without_an_address(call):
    seen = call(errors.CertificateError("certificate of the caller: revoked: by the CA", hint="get another"))
    assert str(seen) == "our own certificate is refused by the coordinator: revoked: by the CA"
    assert (type(seen), seen.hint) == (errors.CertificateError, "get another")
    assert str(call(errors.CertificateError("speaks as another: a"))) == "speaks as another: a"


def test_a_fault_of_the_peers_own_is_remote_here(call):
    seen = call(errors.LocalProtocolError("lost its way"))
    assert type(seen) is RemoteProtocolError
    assert str(seen) == "coordinator failed: INTERNAL: lost its way"


def test_long_messages_are_cut_and_keep_their_hint(call):
    seen = call(WireError("ü" * 5000, hint="h" * 5000))
    assert str(seen) == "ü" * 800
    assert seen.hint == "h" * 200


def test_transport_faults_become_plain_words(tmp_path):
    channel = grpc.insecure_channel(f"unix:{tmp_path}/nobody")
    with pytest.raises(grpc.RpcError) as caught:
        CoordinatorStub(channel).Hello(pb.HelloRequest(), timeout=30)
    channel.close()
    seen = from_rpc_error(caught.value, peer="coordinator at c.example:8443")
    assert type(seen) is WireError
    assert str(seen).startswith("coordinator at c.example:8443 cannot be reached")
    assert seen.hint
