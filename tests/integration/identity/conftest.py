"""A federation on loopback: certificates of the real CA, and a real gRPC server that tells each caller who it is."""

from __future__ import annotations

import contextlib
from concurrent import futures
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest

from fedsecure.errors import FedSecureError
from fedsecure.wire.credentials import TlsFiles, peer_identity, server_credentials
from fedsecure.wire.v1 import coordinator_pb2, coordinator_pb2_grpc


class WhoAmI(coordinator_pb2_grpc.CoordinatorServicer):
    """``Hello`` binds the message to the certificate, as the coordinator does."""

    def __init__(self, federation) -> None:
        self.federation, self.served = federation, []

    def Hello(self, request, context):
        try:
            peer = peer_identity(
                context,
                federation=self.federation.name,
                ca_pem=(self.federation.ca / "ca.crt").read_bytes(),
                crl_pem=self.federation.crl.read_bytes(),
                now=datetime.now(UTC),
            )
            peer.require("node", request.node_id)
        except FedSecureError as error:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
        self.served.append(peer.name)
        return coordinator_pb2.HelloReply(federation=peer.federation)


class Server:
    """A running server: its port and its servicer."""

    def __init__(self, port: int, servicer: WhoAmI) -> None:
        self.port, self.servicer = port, servicer
        self.address = f"localhost:{port}"


@pytest.fixture
def federation(federation_of, tmp_path: Path):
    return federation_of(tmp_path)


@pytest.fixture
def strangers(federation_of, tmp_path: Path):
    """Another consortium whose CA has the same name."""
    return federation_of(tmp_path / "strangers")


@pytest.fixture
def serve(federation):
    """Starts gRPC servers with the given credentials; stops them all."""
    with contextlib.ExitStack() as stack:

        def start(credentials: grpc.ServerCredentials | None) -> Server:
            pool = stack.enter_context(futures.ThreadPoolExecutor(max_workers=2))
            server = grpc.server(pool)
            servicer = WhoAmI(federation)
            coordinator_pb2_grpc.add_CoordinatorServicer_to_server(servicer, server)
            if credentials is None:
                port = server.add_insecure_port("127.0.0.1:0")
            else:
                port = server.add_secure_port("127.0.0.1:0", credentials)
            server.start()
            stack.callback(lambda: server.stop(0).wait(10))
            return Server(port, servicer)

        yield start


@pytest.fixture
def hello():
    """One call with the given credentials (``None``: plaintext): the reply, or the ``grpc.RpcError``."""

    def call(port: int, credentials: grpc.ChannelCredentials | None, node_id: str = "charite"):
        target = f"localhost:{port}"
        channel = grpc.insecure_channel(target) if credentials is None else grpc.secure_channel(target, credentials)
        with channel:
            try:
                request = coordinator_pb2.HelloRequest(node_id=node_id)
                return coordinator_pb2_grpc.CoordinatorStub(channel).Hello(request, timeout=30)
            except grpc.RpcError as error:
                return error

    return call


@pytest.fixture
def running(federation, serve) -> Server:
    """The federation's coordinator, up."""
    return serve(server_credentials(federation.coordinator(), now=federation.now))


@pytest.fixture
def node(federation) -> TlsFiles:
    return federation.enrol("node", "charite")


@pytest.fixture
def unchecked_channel():
    """Channel credentials of somebody who does not check itself first, as an intruder would not."""

    def make(files: TlsFiles, ca: Path | None = None) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(
            (ca or files.ca).read_bytes(), files.key.read_bytes(), files.cert.read_bytes()
        )

    return make


@pytest.fixture
def unchecked_server():
    """Server credentials of somebody who does not check itself first."""

    def make(files: TlsFiles) -> grpc.ServerCredentials:
        pair = (files.key.read_bytes(), files.cert.read_bytes())
        return grpc.ssl_server_credentials([pair], files.ca.read_bytes(), require_client_auth=True)

    return make
