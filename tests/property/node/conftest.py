"""A signed log in memory: the chain itself, without a store around it."""

from __future__ import annotations

from functools import partial

import pytest

from fedsecure.crypto.signatures import generate_identity, verify
from fedsecure_node.log.releaselog import ReleaseLog
from fedsecure_node.log.witness import Witness


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """(bytes of a log of five records, its head, the verifier)."""
    folder = tmp_path_factory.mktemp("log")
    identity = generate_identity(folder / "identity.key")
    heads = [None]
    check = partial(verify, identity.public_bytes)
    log = ReleaseLog(
        folder / "releases.jsonl",
        node="hospital-a",
        signer=identity,
        verifier=check,
        head=lambda: heads[-1],
        set_head=heads.append,
        clock=lambda: "2026-01-01T00:00:00.000Z",
        witness=Witness(folder / "identity.key"),
    )
    for number in range(5):
        log.append("release", {"number": number, "name": "größe", "min": -0.5 * number}, only_if=lambda _: None)
    return (folder / "releases.jsonl").read_bytes(), heads[-1], check
